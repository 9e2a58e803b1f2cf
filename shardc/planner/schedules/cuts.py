"""A program cut into stages: their times, stashes and transfers, before shardings are solved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardc.analysis.program.equal_stages import equal_stages
from shardc.analysis.program.op_work import op_seconds
from shardc.analysis.slices.needed_rows import hindrance, token_slices
from shardc.analysis.slices.recipes import TokenSlices
from shardc.analysis.stages.backward_split import (
    backward_splits,
    half_seconds,
    has_weight_products,
)
from shardc.backend.extract import function_values
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.cutting import stage_passes
from shardc.ir.attributes import (
    IN_SHARDINGS,
    NUM_STAGES,
    REDUCE_AXES,
    SHARDING,
    STAGE,
    arg_attrs,
    function_kind,
    get_int,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
)
from shardc.ir.context import Module
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import run_passes
from shardc.ir.tensor_types import num_bytes
from shardc.ir.walk import functions, walk
from shardc.passes.split_backward_loops import SplitBackwardLoops
from shardc.passes.unroll_layers import UnrollLayers
from shardc.plan.function_kind import FunctionKind
from shardc.plan.program_graph import ProgramValues
from shardc.plan.shape import PipelineShape
from shardc.plan.value_id import is_computed
from shardc.schedule.tasks import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    WHOLE_BACKWARD,
    Need,
    Task,
    TaskGraph,
)


@dataclass(frozen=True)
class Cut:
    """Amounts of one microbatch, over all devices of a stage.

    Attributes:
        seconds: of (stage, kind): F, the whole backward X, and B and W if it is split, with all ops
            split evenly over the stage's devices; work that both do counts in both, and a stage
            that sends nothing back has no B.
        sent: bytes that F or X of a stage sends to other stages.
        stashed: bytes that a stage keeps from F to its backward.
        kept: bytes that a stage keeps from B to W, if the backward is split.
        splits: whether the backward has products that can be postponed.
    """

    seconds: Mapping[tuple[int, str], float]
    sent: Mapping[tuple[int, str], int]
    stashed: Mapping[int, int]
    kept: Mapping[int, int]
    splits: bool

    def without_empty(self, graph: TaskGraph) -> TaskGraph:
        """`graph`, for stages without a B: there, B waits for nothing, and W for what B would have
        received."""
        empty = {
            task: needs
            for task, needs in graph.needs.items()
            if task.kind == BACKWARD and (task.stage, BACKWARD) not in self.seconds
        }
        if not empty:
            return graph
        found: dict[Task, tuple[Need, ...]] = {**graph.needs, **dict.fromkeys(empty, ())}
        for task, needs in graph.needs.items():
            if task not in empty and any(need.task in empty for need in needs):
                passed = (each for need in needs for each in empty.get(need.task, (need,)))
                found[task] = tuple(dict.fromkeys(passed))
        return replace(graph, needs=found)

    def in_chunks(self, chunks: int, groups: int) -> "Cut":
        """An approximation for `chunks` equal chunks on each of the groups. Only the first stage of
        all sends nothing back; other chunks of its group split their backward as those of another
        group do."""
        of = range(groups * chunks)
        like = next((group for group in range(groups) if (group, BACKWARD) in self.seconds), 0)

        def split_like(stage: int) -> int:
            known = stage < groups or (stage % groups, BACKWARD) in self.seconds
            return stage % groups if known else like

        seconds = {}
        for stage in of:
            group, other = stage % groups, split_like(stage)
            whole_s = self.seconds.get((other, WHOLE_BACKWARD), 0.0)
            share = self.seconds.get((group, WHOLE_BACKWARD), 0.0) / whole_s if whole_s else 1.0
            for kind in (FORWARD, BACKWARD, WEIGHT, WHOLE_BACKWARD):
                source, factor = (group, 1.0) if kind == FORWARD else (other, share)
                if (source, kind) in self.seconds:
                    seconds[stage, kind] = factor * self.seconds[source, kind] / chunks
        sent = {  # the last chunk of a round sends as much as the first group
            (stage, kind): self.sent.get((0 if edge else split_like(stage), kind), 0)
            for stage in of
            for kind in _KINDS.values()
            for edge in [kind == FORWARD and stage % groups == groups - 1]
        }
        return Cut(
            seconds,
            sent,
            {stage: self.stashed.get(stage % groups, 0) // chunks for stage in of},
            {stage: self.kept.get(split_like(stage), 0) // chunks for stage in of},
            self.splits,
        )


def no_slices(
    staged_module: Module, shape: PipelineShape, slices: int, proved: bool, cluster: Cluster
) -> str:
    """Why the sequences of a shape's stages cannot be cut into slices; "" if they can.

    Args:
        proved: whether slices must be proved correct, so that no step has to check anything.
    """
    module = copy_module(staged_module)
    run_passes(module, [*stage_passes(shape, cluster, accumulate=True), UnrollLayers()])
    with module.context:
        found = token_slices(module.operation)
        if proved and isinstance(found, TokenSlices) and found.rests_on_premises:
            return (
                "a step would have to check what its slices take for granted; slices= asks for it"
            )
        return hindrance(found, slices)


def cut_of(module: Module, model: CostModel, sizes: Sequence[int]) -> Cut:
    """The amounts of stage functions with a whole backward.

    Args:
        model: prices ops, and what a split backward computes twice.
        sizes: devices of each group; stage s is timed on those of group s modulo their number.
    """
    apart = copy_module(module)
    with apart.context:  # only amounts matter, and ops with shardings are never split
        _drop_shardings(apart)
        alike = equal_stages(apart.operation, get_int(apart.operation, NUM_STAGES) or 1)
    run_passes(apart, [SplitBackwardLoops(model.cluster, tuple(sorted(set(alike))))])
    with module.context:
        seconds: dict[tuple[int, str], float] = {}
        every = list(functions(apart.operation))
        first = [f for f in every if (stage := get_int(f, STAGE) or 0) == alike[stage]]
        halves = backward_splits(first, every, model)
        for function in functions(module.operation):
            stage, kind = get_int(function, STAGE) or 0, function_kind(function)
            if kind in _KINDS and stage == alike[stage]:
                times = op_seconds(function, model, sizes[stage % len(sizes)])
                seconds[stage, _KINDS[kind]] = sum(times.values())
        for function, split in halves.items():
            stage = get_int(function, STAGE) or 0
            urgent_s, rest_s = half_seconds(function, split, model, sizes[stage % len(sizes)])
            seconds[stage, WEIGHT] = rest_s
            if split.urgent:
                seconds[stage, BACKWARD] = urgent_s
        kept = {
            get_int(function, STAGE) or 0: sum(num_bytes(value) for value in split.kept)
            for function, split in halves.items()
        }
        splits = has_weight_products(halves.values())
        values = [v for v in function_values(module) if v.kind in _KINDS]
    of_all = {
        (stage, kind): seconds[like, kind]
        for stage, like in enumerate(alike)
        for kind in (FORWARD, BACKWARD, WEIGHT, WHOLE_BACKWARD)
        if (like, kind) in seconds
    }
    kept = {stage: kept.get(like, 0) for stage, like in enumerate(alike)}
    return Cut(of_all, _sent(values), _stashed(values), kept, splits)


def _drop_shardings(module: Module) -> None:
    for function in functions(module.operation):
        for op in [function, *walk(function)]:
            for name in (SHARDING, IN_SHARDINGS, REDUCE_AXES):
                if name in op.attributes:
                    del op.attributes[name]
        for get, put in ((arg_attrs, set_arg_attrs), (result_attrs, set_result_attrs)):
            attrs = get(function)
            if any(SHARDING in each for each in attrs):
                put(function, [{k: v for k, v in a.items() if k != SHARDING} for a in attrs])


_KINDS = {FunctionKind.FORWARD: FORWARD, FunctionKind.BACKWARD: WHOLE_BACKWARD}


def _sent(values: list[ProgramValues]) -> dict[tuple[int, str], int]:
    read = {(spec.value, each.stage) for each in values for spec in each.args}
    stages = {each.stage for each in values}
    return {
        (each.stage, _KINDS[each.kind]): sum(
            spec.num_bytes
            for spec in each.results
            if any((spec.value, other) in read for other in stages - {each.stage})
        )
        for each in values
    }


def _stashed(values: list[ProgramValues]) -> dict[int, int]:
    made = {
        spec.value for each in values if each.kind is FunctionKind.FORWARD for spec in each.results
    }
    return {
        each.stage: sum(
            spec.num_bytes for spec in each.args if spec.value in made and is_computed(spec.value)
        )
        for each in values
        if each.kind is FunctionKind.BACKWARD
    }
