"""The roles of mesh axes in the field's terms, derived from what the shardings do."""

import math
import re
from collections.abc import Mapping, Sequence

from shardc.plan.account import TENSOR, AxisUse, Role
from shardc.plan.layout import pattern_of, stage_names
from shardc.report.model import AxisWords

LEAST = 0.05  # a role needs at least this share to be named
NO_PRODUCTS = "no products to split"
MOST_OF_IT = 0.5  # share of the work from which a role is the axis's main one
REPEATS_ALL = "repeats all work on every device"
MOST_KINDS = 2  # of stages, each with words of its own
MOST_MAINS = 3  # of stages, each with the largest role of each axis
_NUMBER = re.compile(r"\d+")
SPLIT = 0.3  # share of state that must be split beyond what tensor parallelism splits anyway


def axis_words(use: AxisUse, *, trains: bool = True) -> AxisWords:
    """The role of an axis, by share of FLOPs, bytes and state.

    Args:
        trains: the program has a backward pass; without one, loop-carried state (the cache of a
            decoding step) is not a parameter, and splitting it is not ZeRO.
    """
    flops = use.flops or use.num_bytes  # a stage without products
    tensor = sum(flops.get(role, 0.0) for role in TENSOR)
    shares = {
        "data parallel": flops.get(Role.DATA, 0.0),
        _tensor_name(flops): tensor,
        "expert parallel": flops.get(Role.EXPERT, 0.0),
        "sequence parallel": flops.get(Role.SEQUENCE, 0.0),
    }
    roles = {
        f"{name} {share:.0%}": share
        for name, share in sorted(shares.items(), key=lambda each: -each[1])
        if share >= LEAST
    }
    found = list(roles)
    between = use.num_bytes.get(Role.SEQUENCE, 0.0)
    if flops.get(Role.SEQUENCE, 0.0) < LEAST <= tensor and between >= 4 * LEAST:
        found.append(f"sequence parallel between products ({between:.0%} of other values)")
    state = zero_words(use, tensor + flops.get(Role.EXPERT, 0.0))
    if state and trains:
        found.append(state)
    idle = flops.get(Role.WHOLE, 0.0)
    if idle >= 4 * LEAST:
        found.append(
            REPEATS_ALL if idle > 1 - LEAST else f"repeats {idle:.0%} of the work on every device"
        )
        split = use.state.get("parameters", 0.0)
        if not state and split - tensor - flops.get(Role.EXPERT, 0.0) >= SPLIT:
            found.append(f"splits {split:.0%} of the parameters")  # such as tables, by columns
    return AxisWords(
        use.stage,
        use.axis,
        use.size,
        ", ".join(found) or NO_PRODUCTS,
        _main_role(found, roles),
        {str(role): share for role, share in use.flops.items()},
        {str(role): share for role, share in use.num_bytes.items()},
        dict(use.state),
    )


def _main_role(found: Sequence[str], shares: Mapping[str, float]) -> str:
    """The first of the roles, with how much of the work it splits."""
    if not found:
        return NO_PRODUCTS
    if found[0] not in shares:
        return found[0]
    return f"{'mostly' if shares[found[0]] >= MOST_OF_IT else 'partly'} {found[0]}"


def _tensor_name(flops: dict[Role, float]) -> str:
    """Megatron's if it splits some matrices by columns, and others by rows."""
    columns, rows = flops.get(Role.COLUMNS, 0.0), flops.get(Role.ROWS, 0.0)
    both = min(columns, rows) >= LEAST
    return "Megatron tensor parallel" if both else "tensor parallel"


def zero_words(use: AxisUse, tensor: float) -> str:
    """The state that the axis splits beyond what its products require; "" for none.

    Source: Rajbhandari et al., ZeRO, SC 2020: stage 1 splits optimizer state, 2 also gradients,
    3 also parameters (also known as fully sharded data parallelism).

    Args:
        tensor: share of FLOPs for which parameters are split anyway.
    """
    if use.flops.get(Role.DATA, 0.0) + use.flops.get(Role.SEQUENCE, 0.0) < LEAST:
        return ""  # it splits parameters only for its products
    beyond = {name: share - tensor for name, share in use.state.items()}
    if beyond.get("parameters", 0.0) >= SPLIT:
        return f"FSDP (ZeRO-3: {use.state['parameters']:.0%} of the parameters are split)"
    if beyond.get("optimizer_state", 0.0) < SPLIT:
        return ""
    split = use.state["optimizer_state"]
    if beyond.get("gradients", 0.0) >= SPLIT:
        return f"ZeRO-2 ({split:.0%} of the optimizer state and the gradients are split)"
    return f"ZeRO-1 ({split:.0%} of the optimizer state is split)"


def headline(num_groups: int, chunks: int, axes: Sequence[AxisWords], num_own_stages: int) -> str:
    """The parallelism of a plan in one line.

    Args:
        num_own_stages: stages without second copies.
    """
    parts = []
    if num_groups > 1:
        each = f" with {chunks} stages each" if chunks > 1 else ""
        parts.append(f"pipeline over {num_groups} device groups{each}")
    if axes:
        parts += _by_stage(axes, num_own_stages)
    if num_groups == 1 and axes and all(axis.words == REPEATS_ALL for axis in axes):
        count = math.prod(axis.size for axis in axes)
        return f"no parallelism: each of {count} devices runs the whole step"
    return "; ".join(parts) or "one device"


def _by_stage(axes: Sequence[AxisWords], num_own: int) -> list[str]:
    """What the axes of each stage do: in full if that is not too much, or the largest role."""
    full = {(each.stage, each.axis): f"({each.size}): {each.words}" for each in axes}
    main = {(each.stage, each.axis): f"({each.size}): {each.main}" for each in axes}
    return (
        _alike(full, MOST_KINDS, num_own)
        or _alike(main, MOST_MAINS, num_own)
        or ["stages split their work in many ways"]
    )


def _alike(words: Mapping[tuple[int, str], str], most: int, num_own: int) -> list[str]:
    """What stages do; those whose words differ only in numbers share them.

    Args:
        words: by stage and axis.
        most: kinds of stages; [] if there are more.
    """
    stages: dict[int, str] = {}
    for (stage, axis), own in words.items():
        stages[stage] = f"{stages[stage]}; {axis} {own}" if stage in stages else f"{axis} {own}"
    alike: dict[str, list[int]] = {}
    for stage, text in stages.items():
        alike.setdefault(pattern_of(text), []).append(stage)
    texts = {tuple(own): _joined([stages[stage] for stage in own]) for own in alike.values()}
    if len(texts) <= 1:
        return list(texts.values())
    if len(texts) > most:
        return []
    return [f"{stage_names(own, num_own)}: {text}" for own, text in texts.items()]


def _joined(texts: Sequence[str]) -> str:
    """Texts that differ in numbers alone as one, with `lowest-highest`."""
    numbers = zip(*(_NUMBER.findall(text) for text in texts), strict=True)
    spans = iter([sorted(set(map(int, each))) for each in numbers])

    def span(_: re.Match[str]) -> str:
        own = next(spans)
        return str(own[0]) if len(own) == 1 else f"{own[0]}-{own[-1]}"

    return _NUMBER.sub(span, texts[0])
