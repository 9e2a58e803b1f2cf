"""A function as a separate module, with a @main whose types NumPy knows."""

from collections.abc import Sequence

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo

from shardc.check.forms.signed_indices import sign_indices
from shardc.check.forms.unrolled import write_out
from shardc.ir.pass_manager import run_registered
from shardc.ir.tensor_types import dtype_name
from shardc.ir.walk import body, symbol, terminator, walk
from shardc.rules.libraries import called_computations

MAIN = "main"
PROGRAM = "shardc_checked_program"
_PLAIN = frozenset(
    f"{kind}{width}" for kind in ("int", "uint") for width in (8, 16, 32, 64)
) | {"float32", "float64"}  # fmt: skip
_COMPLEX_PARTS = {"complex64": "f32", "complex128": "f64"}


def alone(module: ir.Operation, function: ir.Operation) -> ir.Module:
    """A module of `function`, under the name `PROGRAM`, and its callees, in plain StableHLO.

    Annotations are removed, as are `sdy` ops, which move data without changing a value; CHLO ops
    are expanded.
    """
    with module.context, ir.Location.unknown():
        found = ir.Module.create()
        with ir.InsertionPoint(found.body):
            copies = [
                each.clone().operation
                for each in (function, *called_computations(module, function))
            ]
        entry = copies[0]
        ir.SymbolTable(found.operation).set_symbol_name(entry, PROGRAM)
        entry.attributes["sym_visibility"] = ir.StringAttr.get("public")
        for copy in copies:
            _clean(copy)
        if any(op.name.startswith("chlo.") for op in walk(found.operation)):
            run_registered(found.operation, "func.func(chlo-legalize-to-stablehlo)")
        return found


def plain_main(module: ir.Operation, function: ir.Operation, num_devices: int) -> ir.Module:
    """`alone` with a @main of plain types that starts the function on every device.

    Booleans and integers of less than a byte are passed as bytes, narrow floats as float32,
    complex values as two arrays: StableHLO's interpreter aborts the process if NumPy has no
    such array type.

    Args:
        num_devices: @main takes the arguments of device 0, then those of device 1, ...; with 1 it
            calls the function, with more it runs the function as that many partitions.
    """
    with module.context, ir.Location.unknown():
        found = alone(module, function)
        entry = ir.SymbolTable(found.operation)[PROGRAM].operation
        entry.attributes["sym_visibility"] = ir.StringAttr.get("private")
        if num_devices > 1:
            write_out(entry)
        for each in found.body.operations:
            sign_indices(each.operation)
        _write_main(found, entry, num_devices)
        return found


def _clean(function: ir.Operation) -> None:
    for name in ("arg_attrs", "res_attrs"):
        if name in function.attributes:
            del function.attributes[name]
    for op in (function, *walk(function)):
        for name in [each for each in op.attributes if each.startswith(("sdy.", "shardc."))]:
            del op.attributes[name]
    for op in list(walk(function)):
        if op.name.startswith("sdy.") and len(op.operands) == len(op.results) == 1:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()


def _write_main(module: ir.Module, entry: ir.Operation, num_devices: int) -> None:
    takes = [value.type for value in body(entry).arguments] * num_devices
    gives = [value.type for value in terminator(entry).operands] * num_devices
    plain_takes = [plain for type_ in takes for plain in plain_types(type_)]
    plain_gives = [plain for type_ in gives for plain in plain_types(type_)]
    with ir.InsertionPoint(module.body):
        main = func.FuncOp(MAIN, ir.FunctionType.get(plain_takes, plain_gives))
    block = main.add_entry_block()
    with ir.InsertionPoint(block):
        arrived = iter(block.arguments)
        values = [
            _from_plain(type_, [next(arrived) for _ in plain_types(type_)]) for type_ in takes
        ]
        callee = ir.FlatSymbolRefAttr.get(symbol(entry))
        if num_devices == 1:
            results = list(func.CallOp(gives, callee, values).results)
        else:
            programs = ir.ArrayAttr.get([ir.ArrayAttr.get([callee] * num_devices)])
            stablehlo.register_interpreter_dialect(module.context)
            started = ir.Operation.create(
                "interpreter.run_parallel",
                results=gives,
                operands=values,
                attributes={"programs": programs},
            )
            results = list(started.results)
        func.ReturnOp([plain for value in results for plain in _to_plain(value)])


def plain_types(type_: ir.Type) -> list[ir.Type]:
    """The types in which a value of `type_` enters and leaves @main."""
    tensor = ir.RankedTensorType(type_)
    name = dtype_name(tensor.element_type)
    if name in _PLAIN:
        return [type_]
    if name in _COMPLEX_PARTS:
        part = ir.Type.parse(_COMPLEX_PARTS[name])
        return [ir.RankedTensorType.get(tensor.shape, part)] * 2
    carrier = "f32" if "float" in name else "ui8" if name.startswith(("u", "bool")) else "i8"
    return [ir.RankedTensorType.get(tensor.shape, ir.Type.parse(carrier))]


def _from_plain(type_: ir.Type, parts: Sequence[ir.Value]) -> ir.Value:
    if len(parts) == 2:
        return stablehlo.ComplexOp(parts[0], parts[1]).result
    (value,) = parts
    return value if value.type == type_ else stablehlo.ConvertOp(type_, value).result


def _to_plain(value: ir.Value) -> list[ir.Value]:
    types = plain_types(value.type)
    if len(types) == 2:
        return [stablehlo.RealOp(value).result, stablehlo.ImagOp(value).result]
    return [value if value.type == types[0] else stablehlo.ConvertOp(types[0], value).result]
