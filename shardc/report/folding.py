"""Folds equal things into one line: repeated layers, arguments that differ only in a number."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from shardc.cost.reshard import describe
from shardc.plan import account
from shardc.plan.account import PlacedArgument, Product
from shardc.plan.layout import folded_name, keys_of, pattern_of, ranges, whole_name
from shardc.report.model import Alive, Group, Layers

MOST_PERIOD = 48  # products in one layer
_NUMBER = re.compile(r"\d+")


def fold_layers(products: Sequence[Product]) -> tuple[Layers, ...]:
    """The products of each stage; runs of equal ones appear once, with their count."""
    found: list[Layers] = []
    for stage in sorted({each.stage for each in products}):
        own = [each for each in products if each.stage == stage]
        kinds: dict[tuple[object, ...], int] = {}
        texts = [_NUMBER.sub("#", each.name) for each in own]
        keys = [
            kinds.setdefault((each.weight, each.lies, each.result, text), len(kinds))
            for each, text in zip(own, texts, strict=True)
        ]
        at = 0
        while at < len(own):
            period, count = _longest_run(keys, at)
            runs = own[at : at + period * count]
            counters = [_counter([each.name for each in runs[n::period]]) for n in range(period)]
            lines = tuple(
                _line(each, counter, count)
                for each, counter in zip(runs[:period], counters, strict=True)
            )
            found.append(Layers(stage, _name(counters), count, lines))
            at += period * count
    return tuple(_joined(found))


def _longest_run(keys: Sequence[int], at: int) -> tuple[int, int]:
    """Period and count of the longest repetition from `at` on, with the shortest period."""
    best = (1, 1)
    for period in range(1, min(MOST_PERIOD, (len(keys) - at) // 2) + 1):
        if keys[at + period] != keys[at]:
            continue
        first, count = keys[at : at + period], 1
        while list(keys[at + count * period : at + (count + 1) * period]) == list(first):
            count += 1
        if count > 1 and period * count > best[0] * best[1]:
            best = (period, count)
    return best


def _joined(found: Sequence[Layers]) -> list[Layers]:
    """Merges adjacent entries that do not repeat."""
    joined: list[Layers] = []
    for each in found:
        last = joined[-1] if joined else None
        if last is not None and each.count == last.count == 1 and each.stage == last.stage:
            joined[-1] = Layers(each.stage, "", 1, (*last.products, *each.products))
        else:
            joined.append(each)
    return joined


class _Counter(NamedTuple):
    """For names that differ in one number: what it counts, its values, and the rest of the name."""

    counts: str
    values: tuple[int, ...]
    leaf: str


def _counter(names: Sequence[str]) -> _Counter | None:
    """`blocks`, 0 to 3 and `up.0` of `p['blocks'][0]['up'][0]` to `p['blocks'][3]['up'][0]`."""
    paths = [whole_name(name) for name in names]
    numbers = list(zip(*(map(int, _NUMBER.findall(path)) for path in paths), strict=False))
    differ = [n for n, values in enumerate(numbers) if len(set(values)) > 1]
    if len(differ) != 1 or len(keys_of(paths[0])) < 2:
        return None
    at = list(_NUMBER.finditer(paths[0]))[differ[0]]
    before, behind = keys_of(paths[0][: at.start()]), keys_of(paths[0][at.end() :])
    counts = before[-1].rstrip("_") if before else ""
    return _Counter(counts, numbers[differ[0]], ".".join(behind))


def _line(product: Product, counter: _Counter | None, count: int) -> str:
    name = short(product.name) if count == 1 else ""
    name = name if counter is None else counter.leaf
    shape = "x".join(map(str, product.weight)) or "scalar"
    start = f"{name}{':' * (' ' in name)} " if name else ""
    return f"{start}{shape} {product.lies} -> {product.result}"


def _name(counters: Sequence[_Counter | None]) -> str:
    """`blocks 0-3`, if the names of the products differ in one number that counts layers."""
    found: dict[str, set[int]] = {}
    for each in counters:
        if each is not None:
            found.setdefault(each.counts, set()).update(each.values)
    return ", ".join(f"{name} {ranges(tuple(own))}".strip() for name, own in found.items())


def short(name: str) -> str:
    """A name without its argument, `params.embedding`, or `argument 7`."""
    keys = keys_of(name)
    return ".".join(keys[1:]) or whole_name(name)


def fold_arguments(arguments: Sequence[PlacedArgument]) -> tuple[Group, ...]:
    """Groups of arguments, largest on a device first."""
    found: dict[tuple[object, ...], list[PlacedArgument]] = {}
    for each in arguments:
        key = each.stage, each.kind, pattern_of(each.name), each.shape, each.dtype, each.lies
        found.setdefault(key, []).append(each)
    groups = [
        Group(
            folded_name([each.name for each in own]),
            own[0].kind.value,
            own[0].stage,
            len(own),
            own[0].shape,
            own[0].dtype,
            describe(own[0].lies),
            sum(each.num_bytes for each in own),
        )
        for own in found.values()
    ]
    return tuple(sorted(groups, key=lambda each: (each.stage, each.kind, -each.num_bytes)))


def fold_alive(alive: Sequence[account.Alive]) -> tuple[Alive, ...]:
    """Values at the peak, largest first; stages that hold as much of them share an entry."""
    found: dict[tuple[object, ...], list[account.Alive]] = {}
    for each in alive:
        key = each.kind, pattern_of(each.name), each.what, each.count, each.num_bytes
        found.setdefault(key, []).append(each)
    entries = [
        Alive(
            ranges(tuple(each.stage for each in own)),
            own[0].kind,
            folded_name([each.name for each in own]),
            own[0].what,
            own[0].count,
            own[0].num_bytes,
        )
        for own in found.values()
    ]
    return tuple(sorted(entries, key=lambda each: -each.num_bytes))
