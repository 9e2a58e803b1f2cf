"""Replicate every stage once: each copy has its microbatches and sums; one update serves both."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardc.analysis.program.stage_table import free_number
from shardc.errors import StageError
from shardc.ir.attributes import (
    KIND,
    NUM_MICROBATCHES,
    NUM_REPLICAS,
    NUM_STAGES,
    ROUND,
    STAGE,
    VALUE,
    arg_attrs,
    function_kind,
    get_int,
    int_attr,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
    str_attr,
)
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import body, functions, terminator
from shardc.plan.function_kind import FunctionKind
from shardc.plan.value_id import accumulator_id, computed_id, is_accumulator
from shardc.rewrite.calls.function_signature import update_type


@dataclass(frozen=True)
class ReplicateStages(Pass):
    """Gives each of the S stages a copy, stage S + s, for schedules that run two pipelines.

    The copy has the functions of a microbatch and accumulators of its own. Its parameters are
    arguments of the step as those of the first are: they are sent to it in every step. When its
    microbatches are done, its update hands its sums over, whole, in round 0; all other updates run
    one round later and begin by adding them. So there is one state, in one place, and everything
    is updated once. What a microbatch makes keeps its id, as it goes through one copy only. A
    second run changes nothing.

        stage0_backward(acc0) -> acc0            stage0_update_0(acc0, arg0) -> v1
    becomes
        stage0_backward(acc0) -> acc0            stage0_update_1(acc0, v2, arg0) -> v1
        stage2_backward(acc1) -> acc1            stage2_update_0(acc1) -> v2
    """

    name = "shardc-replicate-stages"

    def apply(self, module: ir.Operation) -> None:
        if NUM_REPLICAS in module.attributes:
            return
        if (get_int(module, NUM_MICROBATCHES) or 1) < 2:
            raise StageError(
                "two copies of each stage share the microbatches, and there is only one",
                help="ask for more microbatches, or take a schedule with one copy of each stage",
                code="SHARDC-164",
            )
        num_stages = get_int(module, NUM_STAGES) or 1
        own = list(functions(module))
        sums = _Sums(own)
        _delay_updates(own)
        for function in own:
            if _is_of_microbatch(function):
                _copy(module, function, num_stages, sums)
        for stage, found in sums.by_stage.items():
            _hand_over(module, num_stages + stage, found, sums)
        for function in own:
            _add_copies(function, sums)
        module.attributes[NUM_STAGES] = int_attr(2 * num_stages)
        module.attributes[NUM_REPLICAS] = int_attr(2)


def _is_of_microbatch(function: ir.Operation) -> bool:
    kind = function_kind(function)
    return kind is not None and kind.per_microbatch


def _values(attrs: Sequence[Mapping[str, ir.Attribute]]) -> list[str]:
    return [str(ir.StringAttr(each[VALUE]).value) for each in attrs]


class _Sums:
    """The accumulators of all stages, and the ids that go with them.

    Attributes:
        types: of each.
        by_stage: those of each stage.
        of_copy: id of the accumulator of the copy.
        handed: id of what the copy hands over.
    """

    def __init__(self, own: Sequence[ir.Operation]) -> None:
        self.types: dict[str, ir.Type] = {}
        self.by_stage: dict[int, list[str]] = {}
        for function in own:
            given = _values(result_attrs(function))
            for name, value in zip(given, terminator(function).operands, strict=True):
                if is_accumulator(name) and name not in self.types:
                    self.types[name] = value.type
                    self.by_stage.setdefault(get_int(function, STAGE) or 0, []).append(name)
        free = itertools.count(free_number(own))
        self.of_copy = {name: accumulator_id(next(free)) for name in self.types}
        self.handed = {name: computed_id(next(free)) for name in self.types}


def _delay_updates(own: Sequence[ir.Operation]) -> None:
    for function in own:
        if function_kind(function) is FunctionKind.UPDATE:
            _name(function, get_int(function, STAGE) or 0, 1 + (get_int(function, ROUND) or 0))


def _name(function: ir.Operation, stage: int, round_: int) -> None:
    kind = function_kind(function)
    number = f"_{round_}" if kind is FunctionKind.UPDATE else ""
    function.attributes["sym_name"] = str_attr(f"stage{stage}_{kind}{number}")
    function.attributes[STAGE] = int_attr(stage)
    function.attributes[ROUND] = int_attr(round_)


def _copy(module: ir.Operation, function: ir.Operation, num_stages: int, sums: _Sums) -> None:
    """Clones a function for the copy of its stage, with the copy's accumulators."""
    with ir.InsertionPoint(module.regions[0].blocks[0]):
        copy = function.clone()
    _name(copy, num_stages + (get_int(function, STAGE) or 0), get_int(function, ROUND) or 0)

    def renamed(attrs: list[dict[str, ir.Attribute]]) -> list[dict[str, ir.Attribute]]:
        return [
            each | {VALUE: str_attr(sums.of_copy.get(name, name))}
            for each, name in zip(attrs, _values(attrs), strict=True)
        ]

    set_arg_attrs(copy, renamed(arg_attrs(copy)))
    set_result_attrs(copy, renamed(result_attrs(copy)))


def _hand_over(module: ir.Operation, stage: int, found: Sequence[str], sums: _Sums) -> None:
    """The update of a copy: its sums, whole, for the functions that read the accumulators."""
    types = [sums.types[name] for name in found]
    unknown = ir.Location.unknown(module.context)
    with ir.InsertionPoint(module.regions[0].blocks[0]), unknown:
        written = func.FuncOp("update", ir.FunctionType.get(types, types)).operation
    block = written.regions[0].blocks.append(*types, arg_locs=[unknown] * len(types))
    written.attributes[KIND] = str_attr(FunctionKind.UPDATE)
    _name(written, stage, 0)
    with ir.InsertionPoint(block), unknown:
        # Devices may hold it as partial sums; see how outline-stages lets a sum leave its stage.
        func.ReturnOp([stablehlo.ReshapeOp(arg.type, arg).result for arg in block.arguments])
    set_arg_attrs(written, [{VALUE: str_attr(sums.of_copy[name])} for name in found])
    set_result_attrs(written, [{VALUE: str_attr(sums.handed[name])} for name in found])


def _add_copies(function: ir.Operation, sums: _Sums) -> None:
    """Makes a function that reads accumulators read their totals over both copies."""
    given = set(_values(result_attrs(function)))
    attrs = arg_attrs(function)
    block = body(function)
    for name, accumulator in zip(_values(attrs), list(block.arguments), strict=True):
        if name not in sums.handed or name in given:
            continue
        handed = block.add_argument(accumulator.type, function.location)
        attrs.append({VALUE: str_attr(sums.handed[name])})
        with ir.InsertionPoint.at_block_begin(block), function.location:
            total = stablehlo.AddOp(accumulator, handed)
        accumulator.replace_all_uses_except(total.result, total.operation)
    update_type(function)
    set_arg_attrs(function, attrs)
