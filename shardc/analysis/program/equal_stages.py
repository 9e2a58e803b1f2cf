"""Which stages cost the same, whatever their values are called and rows of stacks they read."""

import re
from collections.abc import Iterator, Sequence

from jax.extend.mlir import ir

from shardc.analysis.program.counted_loop import trip_count
from shardc.analysis.program.stage_table import donated_arguments, named_user_shardings, next_states
from shardc.ir.attributes import STAGE, get_int
from shardc.ir.walk import functions, walk

_ID = re.compile(r'"(v|acc|arg)(\d+)"')
_PLACES = re.compile(r"shardc\.(origin|stage) = [^,}]*(?:: [^,}]*)?|@?stage\d+(?:_|\b)")
# An integer that a loop counts from or to, or a row of a stack; 0 and 1 may mean more to an op.
_ROW = re.compile(r"dense<(-?(?:\d{2,}|[2-9]))>(?= : tensor<u?i(?:32|64)>)")
# A static slice. Its cost and its rule do not depend on which single row it takes; values do.
_SLICE = re.compile(r"(?<= = stablehlo\.slice )(%\S+) \[([^\]]*)\]")
_NAME = re.compile(r"%[\w$.-]+")
_STARTS = re.compile(r"  [^ }]")  # the first line of an op of the function itself


def equal_stages(module: ir.Operation, count: int, in_order: bool = False) -> list[int]:
    """For each stage the first stage with the same text; arguments as in `stage_texts`."""
    first: dict[str, int] = {}
    texts = stage_texts(module, count, in_order)
    return [first.setdefault(text, stage) for stage, text in enumerate(texts)]


def stage_texts(module: ir.Operation, count: int, in_order: bool = False) -> list[str]:
    """The text of each stage with its values renamed, and without the rows that it works on: equal
    for equal stages. Of a loop it tells how often it runs, not from where to where.

    Args:
        in_order: the ops must stand in the same order, too, and slices take the same rows.
            Otherwise the order matters only if ops depend on each other (copies of constants, for
            example, stand anywhere), and any single row of a stack will do: the stages cost the
            same.
    """
    asked = {value: each.asked for value, each in named_user_shardings(module).items()}
    same, donated = next_states(module), donated_arguments(module)
    texts: dict[int, list[str]] = {stage: [] for stage in range(count)}
    trips: dict[int, list[int | None]] = {stage: [] for stage in range(count)}
    for function in functions(module):
        # Outside its scope, the values of the whole module would be numbered for each function.
        text = str(function.get_asm(enable_debug_info=False, use_local_scope=True))
        stage = get_int(function, STAGE) or 0
        texts[stage].append(text if in_order else ordered(text))
        trips[stage] += [trip_count(op) for op in walk(function) if op.name == "stablehlo.while"]
    found = []
    for stage in range(count):
        text = "\n".join(texts[stage])
        if not in_order:
            text = _SLICE.sub(_sizes, text)
        text, ids = _renumbered(_PLACES.sub("", _ROW.sub("dense<row>", text)))
        facts = [
            (number, ids.get(f'"{of}"'), of in donated, value in donated, asked.get(value))
            for quoted, number in ids.items()
            for value in [quoted.strip('"')]
            for of in [same.get(value, "")]
        ]
        found.append(f"{text}{facts}{trips[stage]}")
    return found


def _sizes(match: re.Match[str]) -> str:
    """A slice without the position of a single row."""
    bounds = (dim.split(":") for dim in match[2].split(", "))
    sizes = [
        "row" if len(dim) == 2 and int(dim[1]) - int(dim[0]) == 1 else ":".join(dim)
        for dim in bounds
    ]
    return f"{match[1]} [{', '.join(sizes)}]"


def _renumbered(text: str) -> tuple[str, dict[str, str]]:
    """A text with its value ids numbered as they come, and the number of each quoted id."""
    numbers: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        return f'"{match[1]}{numbers.setdefault(match[0], str(len(numbers)))}"'

    return _ID.sub(rename, text), numbers


def ordered(text: str) -> str:
    """A printed function with its ops in an order that only their operands determine: each op
    follows those it reads, depth first from the results. Ops that no result needs come last."""
    head, *rest = text.split("\n")
    ops: list[list[str]] = []  # the lines of each op
    for line in rest:
        if _STARTS.match(line):
            ops.append([])
        if ops:
            ops[-1].append(line)
    made = {
        name: number for number, lines in enumerate(ops) for name in _NAME.findall(_results(lines))
    }
    reads = [
        [made[name] for line in lines for name in _NAME.findall(line) if name in made]
        for lines in ops
    ]
    names: dict[str, str] = {}
    lines = [head, *(line for op in _depth_first(reads) for line in ops[op])]
    return _NAME.sub(lambda match: names.setdefault(match[0], f"%{len(names)}"), "\n".join(lines))


def _results(lines: Sequence[str]) -> str:
    """The part of an op's text that names its results."""
    before, equals, _ = lines[0].partition(" = ")
    return before if equals and before.startswith("  %") else ""


def _depth_first(reads: Sequence[Sequence[int]]) -> Iterator[int]:
    """Each op after those it reads; the last op, which returns the results, first of all."""
    seen: set[int] = set()
    for last in reversed(range(len(reads))):
        waiting = [(last, False)]
        while waiting:
            op, is_ready = waiting.pop()
            if is_ready:
                yield op
            elif op not in seen:
                seen.add(op)
                waiting.append((op, True))
                waiting += [(each, False) for each in reversed(reads[op]) if each not in seen]
