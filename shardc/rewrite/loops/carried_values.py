"""Loop-carried values, and how to remove some of them."""

from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.attributes import SHARDING
from shardc.ir.clone import hollow_copy, inputs
from shardc.ir.effects import has_side_effect
from shardc.ir.walk import block_terminator, defining_op, ops_of, walk
from shardc.rules.allowed_factors import BARRIER

# Ops that may have side effects.
EFFECTS = {f"stablehlo.{name}" for name in ("infeed", "outfeed", "send", "recv")} | {"func.call"}


def drop_unchanged(loop: ir.Operation) -> None:
    """Replaces loop-invariant carried values of a `stablehlo.while` by their initial values."""
    if SHARDING in loop.attributes:  # it lists all carried values
        return
    inside = loop.regions[1].blocks[0]
    handed = zip(inside.arguments, block_terminator(inside).operands, loop.operands, strict=True)
    kept = [p for p, (old, new, first) in enumerate(handed) if new not in (old, first)]
    for p in set(range(len(loop.operands))) - set(kept):
        loop.results[p].replace_all_uses_with(loop.operands[p])
        for region in loop.regions:
            region.blocks[0].arguments[p].replace_all_uses_with(loop.operands[p])
    _keep(loop, kept)


def drop_unused(op: ir.Operation) -> None:
    """Dead code elimination in `op`, unused loop-carried values included."""
    for region in op.regions:
        for block in region.blocks:
            for each in reversed(ops_of(block)):  # users before their operands
                if not _erase_unused(each) and len(each.regions) > 0:
                    drop_unused(_without_unused(each) if each.name == "stablehlo.while" else each)


def _without_unused(loop: ir.Operation) -> ir.Operation:
    if SHARDING in loop.attributes:
        return loop
    inside = loop.regions[1].blocks[0]
    handed = list(block_terminator(inside).operands)
    used = {p for p, result in enumerate(loop.results) if list(result.uses)}
    used |= {p for p, a in enumerate(loop.regions[0].blocks[0].arguments) if list(a.uses)}
    position = {argument: p for p, argument in enumerate(inside.arguments)}
    seen: set[ir.Operation] = set()
    waiting = [v for op in ops_of(inside) if _has_effects(op) for v in inputs(op)]
    waiting += [handed[p] for p in used]
    while waiting:
        value = waiting.pop()
        p, op = position.get(value), defining_op(value)
        if p is not None and p not in used:
            used.add(p)
            waiting.append(handed[p])
        if op is None or op.block != inside:
            continue
        if op.name == BARRIER:
            waiting.append(op.operands[ir.OpResult(value).result_number])
        elif op not in seen:
            seen.add(op)
            waiting += inputs(op)
    return _keep(loop, sorted(used))


def _erase_unused(op: ir.Operation) -> bool:
    """Erases `op` if its results are unused; of a barrier, erases the unused results."""
    used = [p for p, result in enumerate(op.results) if list(result.uses)]
    if op.name == BARRIER and len(used) < len(op.results):
        if used:
            with ir.InsertionPoint(op), op.location:
                kept = [op.operands[p] for p in used]
                new = ir.Operation.create(
                    BARRIER,
                    results=[value.type for value in kept],
                    operands=kept,
                    attributes={name: op.attributes[name] for name in op.attributes},
                )
            for result, p in zip(new.results, used, strict=True):
                op.results[p].replace_all_uses_with(result)
        op.erase()
        return True
    if used or not len(op.results) or _has_effects(op):
        return False
    op.erase()
    return True


def _has_effects(op: ir.Operation) -> bool:
    return any(each.name in EFFECTS or has_side_effect(each) for each in [op, *walk(op)])


def _keep(loop: ir.Operation, kept: Sequence[int]) -> ir.Operation:
    """Replaces a loop by one that carries only the values at `kept`; the others are used only to
    compute themselves."""
    gone = [p for p in range(len(loop.operands)) if p not in kept]
    if not gone:
        return loop
    with ir.InsertionPoint(loop), loop.location:
        new = hollow_copy(
            loop, [loop.operands[p] for p in kept], [loop.results[p].type for p in kept]
        )
    for position, p in enumerate(kept):
        loop.results[p].replace_all_uses_with(new.results[position])
    for old, region in zip(loop.regions, new.regions, strict=True):
        old.blocks[0].append_to(region)
    condition, inside = (region.blocks[0] for region in new.regions)
    end = block_terminator(inside)
    with ir.InsertionPoint(end), end.location:
        stablehlo.ReturnOp([end.operands[p] for p in kept])
    end.erase()
    for op in reversed(ops_of(inside)[:-1]):
        _erase_unused(op)
    for block in (condition, inside):
        for p in reversed(gone):
            block.erase_argument(p)
    loop.erase()
    return new
