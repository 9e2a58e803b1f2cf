"""Outline one function per stage and kind from @main, with ids for the values between them."""

from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardc.analysis.program.arguments import argument_names, donated_args, state_aliases
from shardc.analysis.stages.stage_functions import StageFunction, is_per_microbatch, stage_functions
from shardc.errors import PlanError
from shardc.ir.attributes import (
    ACCUMULATE,
    ARGUMENTS,
    ARRIVAL,
    ASKED_BY,
    BATCH_DIM,
    CAST_ONCE,
    DIRECTION,
    KIND,
    MICROBATCH_INDEX,
    NUM_MICROBATCHES,
    ORIGIN,
    PER_MICROBATCH,
    PHASE,
    PIECE,
    RECOMPUTED,
    RESULT_PIECES,
    RESULT_SHARDINGS,
    RESULT_STAGES,
    RESULT_TYPES,
    RESULTS,
    ROUND,
    SHARDING,
    STAGE,
    VALUE,
    arg_attrs,
    call_target,
    get_int,
    get_str,
    int_attr,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
    str_array,
    str_attr,
)
from shardc.ir.clone import clone_op
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import body, main_function, ops, terminator, where
from shardc.plan.function_kind import Phase
from shardc.plan.value_id import INDEX


@dataclass(frozen=True)
class OutlineStages(Pass):
    """Replaces @main by `@stage{s}_{before|forward|backward|update}` functions.

    Reads `shardc.stage`, `shardc.phase` and `shardc.direction`. Afterwards each function argument
    and result carries `shardc.value`, its id: "arg3" is argument 3 of @main, "v17" a value that
    another function computes, "acc5" an accumulator (argument and result of the function that
    adds to it), "index" the index of the microbatch. The update of a stage is split into rounds
    where it waits for values of other stages, such as the global norm of the gradients. Forward ops
    with `shardc.recomputed` also run in the backward function, and their results are not stashed.
    Sums of 16-bit floats are accumulated in float32. Module attributes describe the arguments and
    results of @main; the number and size of the functions do not depend on the number of
    microbatches.

    Options:
        accumulate: sums are added to accumulators even if there is one microbatch.
    """

    name = "shardc-outline-stages"

    accumulate: bool = False

    def apply(self, module: ir.Operation) -> None:
        main = main_function(module)
        for op in ops(main):
            if get_int(op, STAGE) is None:
                raise PlanError(
                    f"'{op.name}' has no stage",
                    where=where(op),
                    help="run shardc-plan-stages first",
                )
        many = self.accumulate or (get_int(module, NUM_MICROBATCHES) or 1) > 1
        if many:
            _widen_accumulators(main)
            _finish_sums(main)
        found = stage_functions(main, in_place=many)
        _write_tables(module, main, found.ids)
        with ir.InsertionPoint(main), main.location:
            for function in found.functions:
                _FunctionWriter(function, found.ids, many).write()
        main.erase()


def _widen_accumulators(main: ir.Operation) -> None:
    """Accumulates sums of 16-bit floats in float32, with converts before and after."""
    for op in ops(main):
        if call_target(op) != ACCUMULATE or get_str(op, KIND) != "sum":
            continue
        narrow = ir.RankedTensorType(op.results[0].type)
        if str(narrow.element_type) not in ("bf16", "f16"):
            continue
        wide = ir.RankedTensorType.get(narrow.shape, ir.F32Type.get())
        with ir.InsertionPoint(op), op.location:
            widened = stablehlo.ConvertOp(wide, op.operands[0]).operation
            narrowed = stablehlo.ConvertOp(narrow, op.results[0]).operation
        for name in (STAGE, PHASE, DIRECTION):
            widened.attributes[name] = op.attributes[name]
        narrowed.attributes[STAGE] = op.attributes[STAGE]
        narrowed.attributes[PHASE] = str_attr(Phase.AFTER)
        op.results[0].replace_all_uses_except(narrowed.results[0], narrowed)
        op.results[0].set_type(wide)
        op.operands[0] = widened.results[0]
        narrowed.move_after(op)


def _finish_sums(main: ir.Operation) -> None:
    """Gives an accumulated value that leaves its stage, or the step, an id of its own.

    The accumulator itself may hold partial sums per device, concatenated rows included, which only
    the functions of its stage can read; the value that the update derives from it is complete.
    """
    returned = terminator(main)
    for op in ops(main):
        if call_target(op) != ACCUMULATE:
            continue
        stage = get_int(op, STAGE)
        leaving = [
            (use.owner.operation, use.operand_number)
            for use in op.results[0].uses
            if use.owner.operation == returned or get_int(use.owner.operation, STAGE) != stage
        ]
        if not leaving:
            continue
        with ir.InsertionPoint(op), op.location:
            whole = stablehlo.ReshapeOp(op.results[0].type, op.results[0]).operation
        whole.move_after(op)
        whole.attributes[STAGE] = op.attributes[STAGE]
        whole.attributes[PHASE] = str_attr(Phase.AFTER)
        for user, position in leaving:
            user.operands[position] = whole.results[0]


def _write_tables(module: ir.Operation, main: ir.Operation, ids: dict[ir.Value, str]) -> None:
    """Records the arguments and results of @main in module attributes."""
    returned = list(terminator(main).operands)
    module.attributes[RESULTS] = str_array(ids[value] for value in returned)
    module.attributes[RESULT_TYPES] = ir.ArrayAttr.get([ir.TypeAttr.get(v.type) for v in returned])
    module.attributes[RESULT_STAGES] = ir.ArrayAttr.get(
        [attrs.get(STAGE, int_attr(0)) for attrs in result_attrs(main)]
    )
    if any(SHARDING in attrs for attrs in result_attrs(main)):
        module.attributes[RESULT_SHARDINGS] = ir.ArrayAttr.get(
            [attrs.get(SHARDING, ir.UnitAttr.get()) for attrs in result_attrs(main)]
        )
    module.attributes[RESULT_PIECES] = ir.ArrayAttr.get(
        [attrs.get(PIECE, ir.DenseI64ArrayAttr.get([])) for attrs in result_attrs(main)]
    )
    donated, aliases = donated_args(main), state_aliases(main)
    names = argument_names(main)
    rows = []
    for n, (value, attrs) in enumerate(zip(body(main).arguments, arg_attrs(main), strict=True)):
        row = {
            "name": str_attr(names[n]),
            "type": ir.TypeAttr.get(value.type),
            "stage": attrs.get(STAGE, int_attr(0)),
            "donated": ir.BoolAttr.get(n in donated),
        }
        if n in aliases:
            row["result"] = int_attr(aliases[n])
        if BATCH_DIM in attrs:
            row["batch_dim"] = attrs[BATCH_DIM]
        if SHARDING in attrs:
            row["sharding"] = attrs[SHARDING]
        if ASKED_BY in attrs:
            row["asked_by"] = attrs[ASKED_BY]
        if ARRIVAL in attrs and BATCH_DIM not in attrs:
            row["arrival"] = attrs[ARRIVAL]
        if PIECE in attrs:
            row["piece"] = attrs[PIECE]
        rows.append(ir.DictAttr.get(row))
    module.attributes[ARGUMENTS] = ir.ArrayAttr.get(rows)


class _FunctionWriter:
    """Writes one function at the current insertion point: arguments, ops, results.

    Args:
        many: whether there are several microbatches, so that accumulations add to an accumulator.
    """

    def __init__(self, function: StageFunction, ids: dict[ir.Value, str], many: bool) -> None:
        self.function, self.ids = function, ids
        self.slots: dict[str, tuple[ir.Type, bool]] = {}  # value id -> type, per microbatch
        for value in function.inputs:
            self.slots[ids[value]] = (value.type, is_per_microbatch(value))
        self.accumulating = {
            op
            for op in function.ops
            if many and call_target(op) == ACCUMULATE and op.results[0] in ids
        }
        concats = any(get_str(op, KIND) == "concat" for op in self.accumulating)
        if concats or any(call_target(op) == MICROBATCH_INDEX for op in function.ops):
            i32 = ir.RankedTensorType.get([], _i32())
            self.slots[INDEX] = (i32, False)
        for op in function.ops:
            if op in self.accumulating:
                self.slots[ids[op.results[0]]] = (op.results[0].type, False)

    def write(self) -> None:
        types = [type for type, _ in self.slots.values()]
        results = [value.type for value in self.function.outputs]
        written = func.FuncOp(self.function.name, ir.FunctionType.get(types, results)).operation
        written.attributes[STAGE] = int_attr(self.function.stage)
        written.attributes[KIND] = str_attr(self.function.kind)
        written.attributes[ROUND] = int_attr(self.function.round)
        entry = written.regions[0].blocks.append(*types, arg_locs=[written.location] * len(types))
        self.arguments = dict(zip(self.slots, entry.arguments, strict=True))
        self.mapping = {value: self.arguments[self.ids[value]] for value in self.function.inputs}
        with ir.InsertionPoint(entry):
            for op in self.function.ops:
                with op.location:
                    together = self.function.barriers.get(op, [])
                    if together:
                        passed = [self.mapping[value] for value in together]
                        barrier = stablehlo.OptimizationBarrierOp(passed)
                        self.mapping.update(zip(together, barrier.results, strict=True))
                    self._write_op(op)
            func.ReturnOp([self.mapping[value] for value in self.function.outputs])
        set_arg_attrs(written, [_value_attrs(name, each) for name, (_, each) in self.slots.items()])
        set_result_attrs(
            written,
            [_value_attrs(self.ids[v], is_per_microbatch(v)) for v in self.function.outputs],
        )

    def _write_op(self, op: ir.Operation) -> None:
        target = call_target(op)
        if target == MICROBATCH_INDEX:
            self.mapping[op.results[0]] = self.arguments[INDEX]
        elif target == ACCUMULATE:
            self.mapping[op.results[0]] = self._accumulated(op)
        else:
            copy = clone_op(op, self.mapping)
            for attribute in (STAGE, PHASE, DIRECTION, ORIGIN, CAST_ONCE, RECOMPUTED):
                if attribute in copy.attributes:
                    del copy.attributes[attribute]
            self.mapping.update(zip(op.results, copy.results, strict=True))

    def _accumulated(self, op: ir.Operation) -> ir.Value:
        """The accumulator after this microbatch; with one microbatch the value itself."""
        value = self.mapping[op.operands[0]]
        concat = get_str(op, KIND) == "concat"
        dim = get_int(op, BATCH_DIM) or 0
        if concat:
            tensor = ir.RankedTensorType(value.type)
            shape = [*tensor.shape[:dim], 1, *tensor.shape[dim:]]
            row = ir.RankedTensorType.get(shape, tensor.element_type)
            value = stablehlo.ReshapeOp(row, value).result
        if op not in self.accumulating:
            return value
        total = self.arguments[self.ids[op.results[0]]]
        if not concat:
            return stablehlo.AddOp(total, value).result
        index = self.arguments[INDEX]
        zero = stablehlo.ConstantOp(
            ir.DenseElementsAttr.get_splat(index.type, ir.IntegerAttr.get(_i32(), 0))
        ).result
        starts = [zero] * len(shape)
        starts[dim] = index
        return stablehlo.DynamicUpdateSliceOp(total, value, starts).result


def _i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def _value_attrs(value_id: str, per_microbatch: bool) -> dict[str, ir.Attribute]:
    attrs = {VALUE: str_attr(value_id)}
    if per_microbatch:
        attrs[PER_MICROBATCH] = ir.UnitAttr.get()
    return attrs
