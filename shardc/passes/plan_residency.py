"""Choose which forward values are stashed for the backward pass, and which it recomputes."""

import itertools
from collections.abc import Collection
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.stages.compared_values import (
    compared_floats,
    kept_for_loops,
    torn_extremes,
)
from shardc.analysis.stages.stage_functions import CONSTANT_OPS
from shardc.errors import PlanError
from shardc.ir.attributes import (
    ACCUMULATE,
    DIRECTION,
    NUM_STAGES,
    RECOMPUTED,
    STAGE,
    call_target,
    get_int,
    get_str,
    phase_of,
)
from shardc.ir.effects import is_pure
from shardc.ir.pass_manager import Pass
from shardc.ir.tensor_types import num_bytes
from shardc.ir.walk import main_function, ops
from shardc.plan.function_kind import FunctionKind, Phase
from shardc.solver.pipeline.kept_cuts import kept_cuts


@dataclass(frozen=True)
class PlanResidency(Pass):
    """Marks forward ops that the backward function of their stage recomputes: `shardc.recomputed`.

    Works on a staged @main, before shardc-outline-stages, which acts on the marks. The forward ops
    of a stage form a chain, cut into segments to minimize the stash: values that cross the cuts are
    stashed, all others recomputed (`shardc.solver.pipeline.kept_cuts`). Constants and broadcasts
    are always recomputed, from operands that cross in their place. Recomputation by the user's
    own `jax.checkpoint` already belongs to the backward pass. Floats that are compared with
    others of the way there are kept, as both must have the same last bits. Marks of an earlier run
    go.

    Options:
        in_flight: for each stage the number of microbatches in flight; 0: it stashes all values.
            Empty: every stage does.
    """

    name = "shardc-plan-residency"

    in_flight: tuple[int, ...] = ()

    def apply(self, module: ir.Operation) -> None:
        stages = get_int(module, NUM_STAGES) or 1
        if self.in_flight and len(self.in_flight) != stages:
            raise PlanError(
                f"in-flight has {len(self.in_flight)} numbers, but there are {stages} stages",
                help="give one number for each stage, 0 for one that keeps all",
            )
        by_stage: dict[int, list[ir.Operation]] = {}
        compared = _compared(main_function(module))
        for op in ops(main_function(module)):
            if RECOMPUTED in op.attributes:
                del op.attributes[RECOMPUTED]
            if _is_forward(op):
                by_stage.setdefault(get_int(op, STAGE) or 0, []).append(op)
        for stage, held in enumerate(self.in_flight):
            if held > 0:
                _mark(by_stage.get(stage, []), held, compared)


def _is_forward(op: ir.Operation) -> bool:
    return phase_of(op) is Phase.BODY and get_str(op, DIRECTION) == FunctionKind.FORWARD


def _compared(main: ir.Operation) -> set[ir.Operation]:
    """Forward ops whose floats are compared with those of other forward ops."""
    found: set[ir.Operation] = set()
    for op in ops(main):
        origins = compared_floats(op, lambda maker: not _is_forward(maker)).makers
        found |= {maker for maker in origins if _is_forward(maker)} if len(origins) > 1 else set()
    return found


def _mark(chain: list[ir.Operation], held: int, compared: Collection[ir.Operation]) -> None:
    """Marks what is made again of the forward ops of one stage, but for what is `compared`."""
    place = {op: at for at, op in enumerate(chain)}
    left, change = [0] * len(chain), [0] * (len(chain) + 1)
    last_use: dict[ir.Value, int] = {}
    spread = {op for op in chain if _spreads(op)}
    for at, op in reversed([*enumerate(chain)]):
        for result in op.results:
            users = [_outermost(use.owner.operation) for use in result.uses]
            last = max((place[user] for user in users if user in place), default=at)
            last_use[result] = last = max(last, last_use.get(result, at))
            if op in spread:
                for operand in op.operands:  # which is held in its place
                    last_use[operand] = max(last, last_use.get(operand, at))
            else:
                change[at] += num_bytes(result)
                change[last] -= num_bytes(result)
            if any(_reads_back(user, get_int(op, STAGE)) for user in users):
                left[at] += num_bytes(result)
    crossing = list(itertools.accumulate(change))
    cuts = kept_cuts(crossing[: len(chain) - 1], left, held)
    again = {
        op
        for at, op in enumerate(chain)
        if (op in spread or not any(at <= cut < last_use[r] for r in op.results for cut in cuts))
        and op not in compared
        and call_target(op) != ACCUMULATE
        and is_pure(op)
    }
    again -= kept_for_loops(chain, again)
    for op in again | torn_extremes(chain, again):
        op.attributes[RECOMPUTED] = ir.UnitAttr.get()


def _spreads(op: ir.Operation) -> bool:
    """Whether an op makes a constant, or more of its operands, and only that: its result is never
    worth keeping. A sum must also see that it starts from zero."""
    read = sum(num_bytes(operand) for operand in op.operands)
    return op.name in CONSTANT_OPS and read < sum(num_bytes(result) for result in op.results)


def _outermost(op: ir.Operation) -> ir.Operation:
    """The ancestor of `op` (or itself) at the top level of @main."""
    while op.parent is not None and op.parent.operation.name != "func.func":
        op = op.parent.operation
    return op


def _reads_back(user: ir.Operation, stage: int | None) -> bool:
    """Whether an op belongs to the backward pass of a stage."""
    body = phase_of(user) is Phase.BODY
    return body and get_int(user, STAGE) == stage and not _is_forward(user)
