"""A program cut into stages: what each computes, keeps and sends, before shardings are solved."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from shardc.analysis.program.flops import op_cost
from shardc.analysis.stages.backward_split import backward_splits, has_weight_products
from shardc.backend.extract import function_values
from shardc.cost.model import CostModel
from shardc.ir.attributes import IN_SHARDINGS, SHARDING, STAGE, function_kind, get_int
from shardc.ir.context import Module
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import functions, ops, symbol, walk
from shardc.passes.split_backward_loops import SplitBackwardLoops
from shardc.plan.function_kind import FunctionKind
from shardc.plan.program_graph import ProgramValues
from shardc.plan.value_id import is_computed
from shardc.schedule.tasks import BACKWARD, FORWARD, WEIGHT, WHOLE_BACKWARD


@dataclass(frozen=True)
class Cut:
    """Amounts of one microbatch, over all devices of a stage.

    Attributes:
        flops: of (stage, kind): F, the whole backward X, and B and W where it is cut in two; what
            both compute counts in both.
        sent: bytes that F or X of a stage gives to other stages.
        stashed: bytes that a stage keeps from F to its backward.
        splits: whether the backward has products that can wait.
    """

    flops: Mapping[tuple[int, str], float]
    sent: Mapping[tuple[int, str], int]
    stashed: Mapping[int, int]
    splits: bool


def cut_of(module: Module, model: CostModel) -> Cut:
    """The amounts of stage functions whose backward is whole.

    Args:
        model: prices what a backward that is cut in two computes twice.
    """
    apart = copy_module(module)
    with apart.context:  # amounts alone are asked for: ops with shardings are not taken apart
        for op in walk(apart.operation):
            for name in (SHARDING, IN_SHARDINGS):
                if name in op.attributes:
                    del op.attributes[name]
    run_passes(apart, [SplitBackwardLoops(msgspec.json.encode(model.cluster).decode())])
    with module.context:
        own = list(functions(module.operation))
        halves = backward_splits(list(functions(apart.operation)), model)
        parts = {symbol(function): split for function, split in halves.items()}
        flops = {}
        for function in own:
            stage, kind = get_int(function, STAGE) or 0, function_kind(function)
            if kind in _KINDS:
                flops[stage, _KINDS[kind]] = _flops(ops(function))
            if symbol(function) in parts:
                flops[stage, BACKWARD] = _flops(parts[symbol(function)].urgent)
                flops[stage, WEIGHT] = _flops(parts[symbol(function)].rest)
        splits = has_weight_products(parts.values())
        values = [v for v in function_values(module.operation) if v.kind in _KINDS]
    return Cut(flops, _sent(values), _stashed(values), splits)


_KINDS = {FunctionKind.FORWARD: FORWARD, FunctionKind.BACKWARD: WHOLE_BACKWARD}


def _flops(own: Iterable[Any]) -> float:
    return float(sum(op_cost(op).flops for op in own))


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
