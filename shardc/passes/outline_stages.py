"""Cut @main into one function per stage and purpose; name every value that crosses."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardc.analysis.stage_table import ARGUMENTS, RESULT_STAGES, RESULT_TYPES, RESULTS
from shardc.analysis.state import donated_args, state_aliases
from shardc.errors import PlanError
from shardc.ir.attributes import (
    ACCUMULATE,
    BATCH_DIM,
    DIRECTION,
    KIND,
    MICROBATCH_INDEX,
    NUM_MICROBATCHES,
    PER_MICROBATCH,
    PHASE,
    ROUND,
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
from shardc.ir.clone import clone_op, inputs
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import body, main_function, ops, terminator, where

KINDS = ("before", "forward", "backward", "update")

Key = tuple[int, int, int]  # stage, index into KINDS, round


@dataclass(frozen=True)
class OutlineStages(Pass):
    """Replaces @main by `@stage{s}_{before|forward|backward|update}` functions.

    Reads `shardc.stage`, `shardc.phase` and `shardc.direction`. Afterwards each function argument
    and result carries `shardc.value`, its id: "arg3" is argument 3 of @main, "v17" a value that
    another function computes, "acc5" an accumulator (argument and result of the function that
    adds to it), "index" the index of the microbatch. The update of a stage is cut into rounds
    where it waits for values of other stages, such as the global norm of the gradients.
    Accumulators of 16-bit floats are kept in float32.
    """

    name = "shardc-outline-stages"

    def apply(self, module: ir.Operation) -> None:
        main = main_function(module)
        for op in ops(main):
            if get_int(op, STAGE) is None:
                raise PlanError(
                    f"'{op.name}' has no stage",
                    where=where(op),
                    help="run shardc-plan-stages first",
                )
        num_microbatches = get_int(module, NUM_MICROBATCHES) or 1
        _Outliner(module, main, num_microbatches).run()


@dataclass
class _Outlined:
    """A function being built: the ops it takes over and what goes in and out."""

    key: Key
    ops: list[ir.Operation] = field(default_factory=list)
    arguments: dict[str, ir.Type] = field(default_factory=dict)
    results: dict[str, ir.Value] = field(default_factory=dict)


class _Outliner:
    def __init__(self, module: ir.Operation, main: ir.Operation, num_microbatches: int) -> None:
        self.module = module
        self.main = main
        self.num_microbatches = num_microbatches
        self.main_args = {value: n for n, value in enumerate(body(main).arguments)}
        self.ops = ops(main)
        self.key_of: dict[ir.Operation, Key] = {}
        self.home: dict[ir.Value, ir.Operation] = {
            result: op for op in self.ops for result in op.results
        }
        self.ids: dict[ir.Value, str] = {}

    def run(self) -> None:
        functions: dict[Key, _Outlined] = {}
        for op in self.ops:
            self.key_of[op] = self._key(op)
            functions.setdefault(self.key_of[op], _Outlined(self.key_of[op])).ops.append(op)
        needed = self._crossing_values()
        for number, value in enumerate(v for op in self.ops for v in op.results if v in needed):
            accumulates = call_target(self.home[value]) == ACCUMULATE and self.num_microbatches > 1
            self.ids[value] = f"acc{number}" if accumulates else f"v{number}"
        return_op = terminator(self.main)
        self.module.attributes[RESULTS] = str_array(self._id(v) for v in return_op.operands)
        self.module.attributes[RESULT_TYPES] = ir.ArrayAttr.get(
            [ir.TypeAttr.get(v.type) for v in return_op.operands]
        )
        attrs = result_attrs(self.main)
        self.module.attributes[RESULT_STAGES] = ir.ArrayAttr.get(
            [a.get(STAGE, int_attr(0)) for a in attrs]
        )
        self.module.attributes[ARGUMENTS] = self._argument_table()
        for key in sorted(functions, key=lambda k: (k[0], k[1], k[2])):
            self._build(functions[key], needed)
        self.main.erase()

    def _key(self, op: ir.Operation) -> Key:
        stage = get_int(op, STAGE) or 0
        phase = get_str(op, PHASE)
        if phase == "before":
            return stage, 0, 0
        if phase == "body":
            return stage, 1 if get_str(op, DIRECTION) == "forward" else 2, 0
        level = 0
        for value in inputs(op):
            producer = self.home.get(value)
            if producer is not None and self.key_of[producer][1] == 3:
                there = self.key_of[producer]
                level = max(level, there[2] + (there[0] != stage))
        return stage, 3, level

    def _crossing_values(self) -> set[ir.Value]:
        """Results used by another function or returned by @main."""
        crossing = {v for v in terminator(self.main).operands if v in self.home}
        for op in self.ops:
            for value in inputs(op):
                if value in self.home and self.key_of[self.home[value]] != self.key_of[op]:
                    crossing.add(value)
        return crossing

    def _id(self, value: ir.Value) -> str:
        return self.ids[value] if value in self.ids else f"arg{self.main_args[value]}"

    def _argument_table(self) -> ir.Attribute:
        donated, aliases = donated_args(self.main), state_aliases(self.main)
        rows = []
        for n, (value, attrs) in enumerate(
            zip(body(self.main).arguments, arg_attrs(self.main), strict=True)
        ):
            row = {
                "name": attrs.get("shardc.name", str_attr(f"argument {n}")),
                "type": ir.TypeAttr.get(value.type),
                "stage": attrs.get(STAGE, int_attr(0)),
                "donated": ir.BoolAttr.get(n in donated),
            }
            if n in aliases:
                row["result"] = int_attr(aliases[n])
            if BATCH_DIM in attrs:
                row["batch_dim"] = attrs[BATCH_DIM]
            rows.append(ir.DictAttr.get(row))
        return ir.ArrayAttr.get(rows)

    def _build(self, outlined: _Outlined, needed: set[ir.Value]) -> None:
        stage, kind, level = outlined.key
        builder = _FunctionBuilder(self, outlined)
        name = f"stage{stage}_{KINDS[kind]}" + (f"_{level}" if kind == 3 else "")
        function = builder.build(name, needed)
        function.attributes[STAGE] = int_attr(stage)
        function.attributes[KIND] = str_attr(KINDS[kind])
        function.attributes[ROUND] = int_attr(level)

    def is_per_microbatch(self, value: ir.Value) -> bool:
        """Whether there is one such value per microbatch (accumulators are one per step)."""
        producer = self.home.get(value)
        if producer is None or call_target(producer) == ACCUMULATE:
            return False
        return get_str(producer, PHASE) == "body"

    def external_inputs(self, outlined: _Outlined) -> Iterable[ir.Value]:
        inside = {result for op in outlined.ops for result in op.results}
        seen: dict[ir.Value, None] = {}
        for op in outlined.ops:
            seen.update((v, None) for v in inputs(op) if v not in inside)
        return seen


class _FunctionBuilder:
    """Writes one function: arguments, ops, accumulations, results."""

    def __init__(self, outer: _Outliner, outlined: _Outlined) -> None:
        self.outer = outer
        self.outlined = outlined
        self.arg_ids: list[str] = []
        self.arg_types: list[ir.Type] = []
        self.arg_flags: list[bool] = []

    def _add_argument(self, value_id: str, type: ir.Type, per_microbatch: bool) -> int:
        self.arg_ids.append(value_id)
        self.arg_types.append(type)
        self.arg_flags.append(per_microbatch)
        return len(self.arg_ids) - 1

    def build(self, name: str, needed: set[ir.Value]) -> ir.Operation:
        outer, many = self.outer, self.outer.num_microbatches > 1
        slots: dict[ir.Value, int] = {}
        for value in outer.external_inputs(self.outlined):
            value_type = value.type
            if many and value in outer.home and outer._id(value).startswith("acc"):
                value_type = accumulator_type(outer.home[value])
            slots[value] = self._add_argument(
                outer._id(value), value_type, outer.is_per_microbatch(value)
            )
        accumulators: dict[ir.Operation, int] = {}
        index_slot = -1
        for op in self.outlined.ops:
            target = call_target(op)
            is_concat = target == ACCUMULATE and get_str(op, KIND) == "concat"
            if target == MICROBATCH_INDEX or (is_concat and many):
                if index_slot < 0:
                    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
                    index_slot = self._add_argument("index", i32, False)
            if target == ACCUMULATE and many and op.results[0] in outer.ids:
                accumulators[op] = self._add_argument(
                    outer.ids[op.results[0]], accumulator_type(op), False
                )
        with ir.InsertionPoint(outer.main), outer.main.location:
            function = func.FuncOp(name, ir.FunctionType.get(self.arg_types, [])).operation
        entry = function.regions[0].blocks.append(
            *self.arg_types, arg_locs=[outer.main.location] * len(self.arg_types)
        )
        mapping: dict[ir.Value, ir.Value] = {}
        outputs: list[tuple[str, ir.Value, bool]] = []
        with ir.InsertionPoint(entry), outer.main.location:
            for value, slot in slots.items():
                argument = entry.arguments[slot]
                if argument.type != value.type:
                    argument = stablehlo.ConvertOp(value.type, argument).result
                mapping[value] = argument
            for op in self.outlined.ops:
                target = call_target(op)
                if target == MICROBATCH_INDEX:
                    mapping[op.results[0]] = entry.arguments[index_slot]
                elif target == ACCUMULATE:
                    self._accumulate(op, accumulators, index_slot, entry, mapping, outputs)
                else:
                    copy = clone_op(op, mapping)
                    for attribute in (STAGE, PHASE, DIRECTION):
                        if attribute in copy.attributes:
                            del copy.attributes[attribute]
                    mapping.update(zip(op.results, copy.results, strict=True))
            for op in self.outlined.ops:
                if op in accumulators:
                    continue
                for result in op.results:
                    if result in needed:
                        per_microbatch = outer.is_per_microbatch(result)
                        outputs.append((outer.ids[result], mapping[result], per_microbatch))
            func.ReturnOp([value for _, value, _ in outputs])
        function.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(self.arg_types, [value.type for _, value, _ in outputs])
        )
        set_arg_attrs(function, [_value_attrs(*x) for x in zip(self.arg_ids, self.arg_flags)])
        set_result_attrs(function, [_value_attrs(i, flag) for i, _, flag in outputs])
        return function

    def _accumulate(
        self,
        op: ir.Operation,
        accumulators: dict[ir.Operation, int],
        index_slot: int,
        entry: ir.Block,
        mapping: dict[ir.Value, ir.Value],
        outputs: list[tuple[str, ir.Value, bool]],
    ) -> None:
        value = mapping[op.operands[0]]
        concat = get_str(op, KIND) == "concat"
        if concat:
            dim = get_int(op, BATCH_DIM) or 0
            shape = list(ir.RankedTensorType(value.type).shape)
            element = ir.RankedTensorType(value.type).element_type
            row = ir.RankedTensorType.get([*shape[:dim], 1, *shape[dim:]], element)
            value = stablehlo.ReshapeOp(row, value).result
        if op not in accumulators:
            mapping[op.results[0]] = value
            return
        total = entry.arguments[accumulators[op]]
        if concat:
            i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
            zero = stablehlo.ConstantOp(
                ir.DenseElementsAttr.get_splat(i32, ir.IntegerAttr.get(i32.element_type, 0))
            ).result
            starts = [zero] * len(ir.RankedTensorType(total.type).shape)
            starts[dim] = entry.arguments[index_slot]
            total = stablehlo.DynamicUpdateSliceOp(total, value, starts).result
        else:
            if value.type != total.type:
                value = stablehlo.ConvertOp(total.type, value).result
            total = stablehlo.AddOp(total, value).result
        outputs.append((self.outer.ids[op.results[0]], total, False))


def accumulator_type(accumulate: ir.Operation) -> ir.Type:
    """The type in which an accumulation is kept: sums of 16-bit floats in float32."""
    tensor = ir.RankedTensorType(accumulate.results[0].type)
    if get_str(accumulate, KIND) == "sum" and str(tensor.element_type) in ("bf16", "f16"):
        return ir.RankedTensorType.get(tensor.shape, ir.F32Type.get())
    return tensor


def _value_attrs(value_id: str, per_microbatch: bool) -> dict[str, ir.Attribute]:
    attrs = {VALUE: str_attr(value_id)}
    if per_microbatch:
        attrs[PER_MICROBATCH] = ir.UnitAttr.get()
    return attrs
