"""Where the batch of a step is, and whether it can be cut into microbatches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jax.extend.mlir import ir

from shardc.analysis.batch.accumulations import analyse, nothing_shared
from shardc.analysis.batch.batch_state import INVARIANT, LATE, Cut, Kind, State
from shardc.analysis.batch.microbatch import BatchFlow, Obstacle
from shardc.analysis.batch.microbatch_refusal import MicrobatchRefusal, RefusalReason
from shardc.analysis.batch.partition import BatchPartition, find_partition, named_partition
from shardc.analysis.batch.step_program import Program, program_of
from shardc.analysis.program.arguments import argument_names, donated_args, state_arguments
from shardc.analysis.program.op_classes import IDENTITIES
from shardc.errors import MicrobatchError
from shardc.ir.attributes import BATCH_AXIS, arg_attrs
from shardc.ir.walk import body, main_function, where, where_step, where_used


@dataclass(frozen=True)
class BatchFacts:
    """What a planner must know before it chooses the number of microbatches.

    Attributes:
        flow: the analysis of the first batch; None if no argument can be batch.
        partition: all batches.
        state: argument -> the result that is its next value.
        obstacle: why only one microbatch is possible, or None.
    """

    flow: BatchFlow | None
    partition: BatchPartition | None
    state: dict[int, int]
    obstacle: MicrobatchRefusal | None

    @property
    def batch_args(self) -> dict[int, int]:
        """Batch argument -> its batch dim."""
        return dict(self.flow.batch_args) if self.flow else {}

    @property
    def parts(self) -> int:
        """The number of microbatches must divide this (1 where there is an obstacle)."""
        return 1 if self.obstacle or not self.flow else self.flow.parts


@dataclass(frozen=True)
class StepSplit:
    """How to split a step.

    Attributes:
        flow: what each microbatch holds of every value.
        state: argument -> the result that is its next value.
    """

    flow: BatchFlow
    state: dict[int, int]


def batch_analysis(
    module: ir.Operation,
    batch_args: Sequence[int] | None = None,
    batch_dims: Sequence[int] | None = None,
) -> BatchFacts:
    """Finds the batch and the obstacle to microbatches, if any; refuses no program.

    Args:
        batch_args: positions of the batch arguments, or None to find them.
        batch_dims: the batch dim of each of `batch_args`, or None to find them.
    Raises:
        MicrobatchError: SHARDC-141, `batch_args` names an argument that does not exist.
    """
    return _analysis(module, program_of(module), batch_args, batch_dims)


def split_step(
    module: ir.Operation,
    count: int,
    batch_args: Sequence[int] | None = None,
    batch_dims: Sequence[int] | None = None,
) -> StepSplit | MicrobatchRefusal:
    """The analysis for a split into `count` microbatches, or why there is none; arguments and
    errors as for `batch_analysis`.

    One microbatch is always possible: if there is no batch, or it cannot be cut, or it needs a
    second sweep, everything that the heavy ops depend on becomes the body, on whole values.
    """
    program = program_of(module)
    facts = _analysis(module, program, batch_args, batch_dims)
    flow = facts.flow
    cuttable = flow is not None and facts.obstacle is None and flow.parts % count == 0
    in_one = count == 1 and flow is not None and (flow.num_sweeps > 1 or _waits(flow, facts.state))
    if flow is not None and cuttable and not in_one:
        flow = facts.partition.cut_into(count) if facts.partition else flow
        return StepSplit(flow, {a: r for a, r in facts.state.items() if a not in flow.batch_args})
    if count == 1:
        return StepSplit(_in_one_piece(program, facts), facts.state)
    if flow is not None and facts.obstacle is None:
        return _not_divisible(main_function(module), flow, count)
    assert facts.obstacle is not None
    return facts.obstacle


def _waits(flow: BatchFlow, state: dict[int, int]) -> bool:
    """Whether the loss, or another result that is not state, needs a heavy op that runs after the
    microbatches."""
    graph, kept = flow.program.graph, set(state.values())
    wanted = graph.ancestors([v for r, v in enumerate(graph.returned) if r not in kept])
    return any(
        heavy and all(v in wanted and flow.is_late(v) for v in results)
        for heavy, results in zip(flow.program.heavy, graph.results, strict=True)
    )


def with_dims(
    module: ir.Operation, batch_args: Sequence[int], batch_dims: Sequence[int]
) -> dict[int, int]:
    """Batch argument -> its dim.

    Raises:
        MicrobatchError: SHARDC-141, there is no such argument.
    """
    _check_positions(batch_args, len(body(main_function(module)).arguments))
    return dict(zip(batch_args, batch_dims, strict=True))


def _marked(function: ir.Operation, program: Program) -> BatchPartition | None:
    """The batches as marked by `shardc-find-batch`; None without marks."""
    batches: dict[int, dict[int, int]] = {}
    divides: dict[int, int] = {}
    for a, attrs in enumerate(arg_attrs(function)):
        if BATCH_AXIS in attrs:
            number, dim, divides[number] = ir.DenseI64ArrayAttr(attrs[BATCH_AXIS])
            batches.setdefault(number, {})[a] = dim
    if 0 not in batches:
        return None
    first = analyse(program, batches.pop(0))
    return BatchPartition(first, tuple((dims, divides[n]) for n, dims in batches.items()))


def _analysis(
    module: ir.Operation,
    program: Program,
    batch_args: Sequence[int] | None,
    batch_dims: Sequence[int] | None,
) -> BatchFacts:
    function = main_function(module)
    state = state_arguments(function)
    num_args = program.graph.num_args
    missing, advice = "", ""
    found = _marked(function, program)
    if found is not None:
        pass
    elif batch_args is not None:
        wanted = sorted(set(batch_args))
        _check_positions(wanted, num_args)
        if batch_dims is not None:
            found = BatchPartition(analyse(program, with_dims(module, batch_args, batch_dims)))
        else:
            found = named_partition(program, wanted)
        missing = f"the batch arguments {wanted} have no dim of the same size"
        advice = "name arguments that share their batch dim"
    else:
        found = find_partition(program, state, donated_args(function))
        missing = "no argument of the step can be found that holds a batch"
        advice = "pass batch_argnums (--batch-args on the command line), or use microbatches=1"
    if found is None:
        place = where_step(function)
        refusal = MicrobatchRefusal(RefusalReason.NO_BATCH, missing, where=place, help=advice)
        return BatchFacts(None, None, state, refusal)
    best = found.flow
    state = {a: r for a, r in state.items() if a not in best.batch_args}
    if best.obstacle is None:
        best = replace(best, obstacle=nothing_shared(best))
    return BatchFacts(best, found, state, _refusal(best, best.obstacle) if best.obstacle else None)


def _check_positions(wanted: Sequence[int], num_args: int) -> None:
    for a in wanted:
        if not 0 <= a < num_args:
            raise MicrobatchError(
                f"there is no argument {a}: the step has {num_args} (flattened) arguments",
                help="count the leaves of all arguments, from 0",
                code="SHARDC-141",
            )


def _in_one_piece(program: Program, facts: BatchFacts) -> BatchFlow:
    """A split into one microbatch of a step that cannot be cut.

    The body holds all heavy ops that depend on data and everything that they depend on; with one
    microbatch every value of the body is its own sum. Other ops that depend on data run after it.
    """
    graph = program.graph
    batch = facts.batch_args
    others = {a for a in range(graph.num_args) if a not in facts.state}
    seeds = frozenset(batch or others or range(graph.num_args))
    flow = BatchFlow(program, batch, seeds=seeds)
    working = [
        i
        for i, used in enumerate(graph.uses)
        if any(flow.depends[u] for u in used) and program.heavy[i]
    ]
    roots = [v for i in working for v in graph.results[i]]
    inside = set(graph.ancestors(roots) if roots else range(len(graph.values)))
    for a in range(graph.num_args):
        cut = State(Kind.VARYING, 0, Cut(batch[a])) if a in batch else INVARIANT
        flow.states.append(cut)
    for i, results in enumerate(graph.results):
        here = bool(inside.intersection(results))  # all results of an op are in the same place
        if graph.ops[i].name in IDENTITIES:
            flow.states += [flow.states[u] for u in graph.uses[i]]
            continue
        for v in results:
            late = State(Kind.INVARIANT, LATE if flow.depends[v] else 0)
            flow.states.append(State(Kind.PARTIAL) if flow.depends[v] and here else late)
    flow.sums = {v: 0 for v, state in enumerate(flow.states) if state.is_partial}
    return flow


def why_several_sweeps(flow: BatchFlow) -> str | None:
    """Why the microbatches need several sweeps; None if they need one."""
    if flow.boundary is None:
        return None
    cause, need = _explained(flow, flow.boundary)
    times = "twice" if flow.num_sweeps == 2 else f"{flow.num_sweeps} times"
    return (
        f"the microbatches are run through {times}, because sums over the whole batch are needed on"
        f" the way: '{cause.name}' ({where(cause)}) needs {need}"
    )


def _explained(flow: BatchFlow, obstacle: Obstacle) -> tuple[ir.Operation, str]:
    """The op that prevents a single sweep of the microbatches, and what it needs."""
    ops = flow.program.graph.ops
    cause, waiting = ops[obstacle.cause], ops[obstacle.op]
    need = "a sum over the whole batch" if obstacle.reason == "sum" else "the whole batch at once"
    after = "" if cause == waiting else f", and '{waiting.name}' at {where(waiting)} depends on it"
    return cause, need + after


def _refusal(flow: BatchFlow, obstacle: Obstacle) -> MicrobatchRefusal:
    cause, need = _explained(flow, obstacle)
    return MicrobatchRefusal(
        RefusalReason.WHOLE_BATCH,
        f"microbatches would change the result: '{cause.name}' needs {need}",
        where=where(cause),
        help="use microbatches=1, or compute this per example or per microbatch"
        " (layer norm instead of batch norm)",
    )


def _not_divisible(function: ir.Operation, flow: BatchFlow, count: int) -> MicrobatchRefusal:
    shapes, ops = flow.program.graph.shapes, flow.program.graph.ops
    fitting = (1, *flow.numbers)
    near = [max(m for m in fitting if m <= count), *(m for m in fitting if m > count)][:2]
    use = f"use microbatches={' or '.join(str(m) for m in near)}"
    a = next((a for a, dim in flow.batch_args.items() if (shapes[a] or ())[dim] % count), None)
    if a is not None:
        size = (shapes[a] or ())[flow.batch_args[a]]
        padded = -(-size // count) * count
        name = argument_names(function)[a]
        return MicrobatchRefusal(
            RefusalReason.INDIVISIBLE,
            f"the batch dim of argument '{name}', size {size}, does not divide into {count}"
            " microbatches",
            where=where_used(body(function).arguments[a]),
            help=f"{use}, or pad the batch to {padded}",
            others=flow.numbers,
        )
    i = next(i for i, parts in flow.limits.items() if parts % count)
    return MicrobatchRefusal(
        RefusalReason.INDIVISIBLE if flow.parts > 1 else RefusalReason.WHOLE_BATCH,
        f"'{ops[i].name}' takes the batch apart into pieces of which only {flow.limits[i]} can"
        f" be told apart: it does not divide into {count} microbatches",
        where=where(ops[i]),
        help=use,
        others=flow.numbers,
    )
