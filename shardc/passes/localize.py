"""Lower every function to the program of one device of its mesh."""

from collections.abc import Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardc.analysis.shardings.sharding_checks import disagreement
from shardc.errors import PlanError
from shardc.ir.attributes import (
    REDUCE_AXES,
    SHARDING,
    is_local,
    result_attrs,
)
from shardc.ir.clone import hollow_copy, replace_inputs
from shardc.ir.constants import is_zero, splat_text
from shardc.ir.pass_manager import Pass
from shardc.ir.shardings import (
    RESHARDING_OPS,
    from_attr,
    local_type,
    mesh_name,
    meshes,
    sharding_or_replicated,
    value_shardings,
)
from shardc.ir.tensor_types import sum_type
from shardc.ir.walk import (
    CONTROL_FLOW,
    RETURN,
    body,
    functions,
    ops,
    symbol,
    terminator,
    where,
    where_step,
)
from shardc.plan.layout import Mesh, TensorSharding
from shardc.rewrite.calls.specialize_calls import fit_calls
from shardc.rewrite.local.collectives import DeviceProgram
from shardc.rewrite.local.extremes import all_reduce_by
from shardc.rewrite.local.indexing import gather_part, looked_up, scatter_indices, scattered_to
from shardc.rewrite.local.local_ops import make_local, without_shardings
from shardc.rewrite.local.planned_shardings import keep_global_types
from shardc.rules.allowed_factors import BARRIER, COUNTED_ONCE
from shardc.rules.op_rule import OpRule
from shardc.rules.program_rules import rules_of
from shardc.rules.reducers import reducer


@dataclass(frozen=True)
class Localize(Pass):
    """Gives each function local types and explicit StableHLO collectives over its mesh.

    Reads `sdy.sharding` and the `sdy` collectives. Afterwards a function is the program of one
    device: its ops carry no shardings. Its arguments and results keep `sdy.sharding` and get
    `shardc.global_type`, which say how the parts form global values; a function that has these is
    left alone, so a second run changes nothing. Each op is checked against the table of
    `shardc.rules.allowed_factors`: an op that the table does not allow is refused, never
    miscompiled. Partial sums of 16-bit floats are f32 until they are reduced, and are narrowed
    again where a function returns.

        %1 = sdy.all_gather [{"x"}] %0 out_sharding=<@mesh, [{}]> : tensor<8xf32>
    becomes, with "x" of size 2 as the only axis,
        %1 = "stablehlo.all_gather"(%0) <{all_gather_dim = 0, replica_groups = [[0, 1]], ...}>
            : (tensor<4xf32>) -> tensor<8xf32>
    """

    name = "shardc-localize"

    def apply(self, module: ir.Operation) -> None:
        placed = meshes(module)
        rules = rules_of(module)
        for function in functions(module):
            if not is_local(function):
                _Localizer(function, placed, rules[symbol(function)]).run()
        fit_calls(module)


class _Localizer:
    """Builds the local copy of a function after it, then replaces the function."""

    def __init__(
        self, function: ir.Operation, placed: dict[str, Mesh], rules: Sequence[OpRule | None]
    ) -> None:
        self.function, self.rules = function, iter(rules)
        self.written = value_shardings(function)
        self.shardings: dict[ir.Value, TensorSharding] = {}
        self.mesh = _mesh_of(function, self.written, placed)
        _check_results(function, self.written)
        self.device = DeviceProgram(self.mesh)
        self.local: dict[ir.Value, ir.Value] = {}

    def run(self) -> None:
        old = self.function
        with ir.InsertionPoint(old), old.location:
            inputs = [self._part_type(value) for value in body(old).arguments]
            outputs = [self._part_type(value) for value in terminator(old).operands]
            function_type = ir.FunctionType.get(inputs, outputs)
            new = func.FuncOp(symbol(old), function_type).operation
        for name in old.attributes:
            if name != "function_type":
                new.attributes[name] = old.attributes[name]
        locations = [value.location for value in body(old).arguments]
        block = new.regions[0].blocks.append(*inputs, arg_locs=locations)
        with ir.InsertionPoint(block):
            for value, argument in zip(body(old).arguments, block.arguments, strict=True):
                self.local[value] = _as_type(argument, self._local_type(value))
            for op in ops(old):
                self._add(op)
            with terminator(old).location:
                values = [self.local[value] for value in terminator(old).operands]
                func.ReturnOp([_as_type(v, t) for v, t in zip(values, outputs, strict=True)])
        keep_global_types(old, new)
        old.erase()

    def _add(self, op: ir.Operation) -> None:
        """The local copy of an op, nested ops included, at the current insertion point."""
        with op.location:
            results = self._run_op(op, next(self.rules))
        self.local.update(zip(op.results, results, strict=True))

    def _run_op(self, op: ir.Operation, rule: OpRule | None) -> Sequence[ir.Value]:
        if op.name == "sdy.reshard":
            raise PlanError(
                "a reshard has not been lowered to collectives",
                where=where(op),
                help="run shardc-lower-collectives first",
                code="SHARDC-201",
            )
        if op.name in RESHARDING_OPS:
            return [self._collective(op)]
        self._check(op, rule)
        if op.name == "stablehlo.iota":
            return [self._iota(op)]
        if op.name == "stablehlo.constant":
            return [self._constant(op)]
        if op.name == "sdy.sharding_constraint":
            return [self.local[op.operands[0]]]
        operands = [self.local[operand] for operand in op.operands]
        types = [self._local_type(result) for result in op.results]
        if op.name in CONTROL_FLOW:
            return self._control_flow(op, operands, types)
        if op.name == "stablehlo.gather":
            found = looked_up(op, self._sharding(op.operands[0]).dims)
            if found:
                return [gather_part(self.device, op, operands, found, types[0])]
        elif op.name == "stablehlo.scatter":
            found = scattered_to(op, self._sharding(op.operands[0]).dims)
            if found:
                operands[len(op.results)] = scatter_indices(self.device, op, operands, found)
        if types != [self._part_type(result) for result in op.results]:
            operands = _as_wide_as_sums(op, operands)
        if op.name in COUNTED_ONCE:
            operands = [
                self._counted_once(value, op.operands[i], op.results[0])
                for i, value in enumerate(operands)
            ]
        local = make_local(op, operands, types)
        without_shardings(local)
        if len(op.regions) > 0:
            replace_inputs(local, self.local)
        if axes := _reduce_axes(op):
            return [all_reduce_by(str(reducer(op)), self.device, local.results[0], axes)]
        return list(local.results)

    def _counted_once(self, local: ir.Value, operand: ir.Value, total: ir.Value) -> ir.Value:
        """The device's addend for an operand of the partial sum `total`."""
        missing = set(self._sharding(total).unreduced) - set(self._sharding(operand).unreduced)
        if not missing or is_zero(operand):
            return local
        return self.device.once(local, self._in_mesh_order(tuple(missing)))

    def _control_flow(
        self, op: ir.Operation, operands: list[ir.Value], types: list[ir.Type]
    ) -> Sequence[ir.Value]:
        """A loop or branch around the local copies of the ops inside."""
        local = hollow_copy(op, operands, types)
        outermost = self.device.control_flow is None
        if outermost:
            self.device.control_flow = local
        for old_region, new_region in zip(op.regions, local.regions, strict=True):
            old = old_region.blocks[0]
            carried = [self._local_type(value) for value in old.arguments]
            places = [value.location for value in old.arguments]
            new = new_region.blocks.append(*carried, arg_locs=places)
            self.local.update(zip(old.arguments, new.arguments, strict=True))
            with ir.InsertionPoint(new):
                for each in old.operations:
                    if each.operation.name == RETURN:
                        self._return(op, each.operation)
                    else:
                        self._add(each.operation)
        if outermost:
            self.device.control_flow = None
        return list(without_shardings(local).results)

    def _return(self, op: ir.Operation, end: ir.Operation) -> None:
        """Ends a region of `op`, after checking the shardings of the yielded values."""
        condition = op.name == "stablehlo.while" and end.block == op.regions[0].blocks[0]
        lies = (
            [TensorSharding.replicated(0)] if condition else list(map(self._sharding, op.results))
        )
        if list(map(self._sharding, end.operands)) != lies:
            raise _unsupported(op, "its regions hand on values that do not lie as its results do")
        with end.location:
            stablehlo.ReturnOp([self.local[value] for value in end.operands])

    def _collective(self, op: ir.Operation) -> ir.Value:
        """One StableHLO collective per dim that the `sdy` collective changes."""
        operand = op.operands[0]
        value = self.local[operand]
        before, after = self._sharding(operand), self._sharding(op.results[0])
        if op.name == "sdy.all_reduce":
            axes = tuple(a for a in before.unreduced if a not in after.unreduced)
            reduced = self.device.all_reduce(value, self._in_mesh_order(axes))
            return _as_type(reduced, self._local_type(op.results[0]))
        if op.name == "sdy.all_to_all":
            pairs = zip(before.dims, after.dims, strict=True)
            changes = [len(now) - len(was) for was, now in pairs]
            sources = [dim for dim, change in enumerate(changes) if change < 0]
            targets = [dim for dim, change in enumerate(changes) if change > 0]
            if len(sources) != 1 or len(targets) != 1:
                raise _unsupported(op, "it moves axes between more than two dims")
            (src,), (dst,) = sources, targets
            return self.device.all_to_all(value, after.dims[dst][-changes[dst] :], src, dst)
        for dim, (was, now) in enumerate(zip(before.dims, after.dims, strict=True)):
            if was == now:
                continue
            if op.name == "sdy.all_gather":
                value = self.device.all_gather(value, was[len(now) :], dim)
            elif op.name == "sdy.all_slice":
                value = self.device.part(value, now[len(was) :], dim)
            else:
                value = self.device.reduce_scatter(value, now[len(was) :], dim)
        return _as_type(value, self._local_type(op.results[0]))

    def _iota(self, op: ir.Operation) -> ir.Value:
        """An iota that starts at the offset of this device's part."""
        dim = int(ir.IntegerAttr(op.attributes["iota_dimension"]).value)
        part = ir.RankedTensorType(self._local_type(op.results[0]))
        axes = self._sharding(op.results[0]).dims[dim]
        if not axes:
            return stablehlo.IotaOp(part, dim).result
        i32 = ir.IntegerType.get_signless(32)
        numbers = ir.RankedTensorType.get(part.shape, i32)  # exact, whatever the element type
        counted = stablehlo.IotaOp(numbers, dim).result
        start = stablehlo.BroadcastInDimOp(numbers, self.device.start(axes, part.shape[dim]), [])
        return stablehlo.ConvertOp(part, stablehlo.AddOp(counted, start).result).result

    def _constant(self, op: ir.Operation) -> ir.Value:
        """The local part of a constant: of a splat directly, of any other by slicing."""
        result = op.results[0]
        if splat_text(op) is not None:
            value: ir.Value = without_shardings(
                make_local(op, [], [self._local_type(result)])
            ).results[0]
        else:
            value = without_shardings(make_local(op, [], [result.type])).results[0]
            for dim, axes in enumerate(self._sharding(result).dims):
                if axes:
                    value = self.device.part(value, axes, dim)
        return value

    def _check(self, op: ir.Operation, rule: OpRule | None) -> None:
        operands = [self._sharding(operand) for operand in op.operands]
        results = [self._sharding(result) for result in op.results]
        if op.name == "sdy.sharding_constraint" and operands == results:
            return
        reason = disagreement(op, rule, self.mesh, operands, results, _reduce_axes(op))
        if reason is not None:
            raise _unsupported(op, reason)

    def _in_mesh_order(self, axes: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name, _ in self.mesh.axes if name in axes)

    def _sharding(self, value: ir.Value) -> TensorSharding:
        found = self.shardings.get(value)
        if found is None:
            found = self.shardings[value] = sharding_or_replicated(value, self.written)
        return found

    def _part_type(self, value: ir.Value) -> ir.Type:
        return local_type(value.type, self._sharding(value), self.mesh)

    def _local_type(self, value: ir.Value) -> ir.Type:
        """Local type of a value; partial sums of 16-bit floats are f32."""
        part = self._part_type(value)
        return sum_type(part) if self._sharding(value).unreduced else part


def _as_type(value: ir.Value, wanted: ir.Type) -> ir.Value:
    return value if value.type == wanted else stablehlo.ConvertOp(wanted, value).result


def _as_wide_as_sums(op: ir.Operation, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """Operands in the element type of partial sums; products may widen as they accumulate."""
    if op.name in ("stablehlo.dot_general", "stablehlo.convolution", BARRIER):
        return list(operands)
    return [_as_type(operand, sum_type(operand.type)) for operand in operands]


def _mesh_of(
    function: ir.Operation, written: dict[ir.Value, ir.Attribute], placed: dict[str, Mesh]
) -> Mesh:
    names = {mesh_name(attr) for attr in written.values()}
    if len(names) > 1:
        raise PlanError(
            f"the values of @{symbol(function)} lie on several meshes: {', '.join(sorted(names))}",
            where=where_step(function),
            help="run shardc-outline-stages first: a function runs on one mesh",
            code="SHARDC-201",
        )
    return placed[names.pop()] if names else Mesh((), (0,))


def _reduce_axes(op: ir.Operation) -> tuple[str, ...]:
    if REDUCE_AXES not in op.attributes:
        return ()
    return tuple(ir.StringAttr(axis).value for axis in ir.ArrayAttr(op.attributes[REDUCE_AXES]))


def _check_results(function: ir.Operation, written: dict[ir.Value, ir.Attribute]) -> None:
    for position, attrs in enumerate(result_attrs(function)):
        value = terminator(function).operands[position]
        if SHARDING not in attrs or not isinstance(value.type, ir.RankedTensorType):
            continue
        if from_attr(attrs[SHARDING]) != sharding_or_replicated(value, written):
            raise PlanError(
                f"result {position} of @{symbol(function)} does not have the sharding of its"
                " attribute",
                where=where_step(function),
                help="run shardc-insert-reshards and shardc-lower-collectives first",
                code="SHARDC-201",
            )


def _unsupported(op: ir.Operation, reason: str) -> PlanError:
    return PlanError(
        f"'{op.name}' cannot run on the parts that its shardings give to each device: {reason}",
        where=where(op),
        help="plan again: this plan was made for another version of the program",
        code="SHARDC-201",
    )
