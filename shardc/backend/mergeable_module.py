"""A stage program in the form that JAX can merge into its module."""

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy
from jax.interpreters import mlir

from shardc.ir.copy import bare_bytecode

SHARDING = "sdy.sharding"


def mergeable_module(module: bytes, name: str, *, local: bool) -> bytes:
    """The module with `name` as its public @main and without shardc's own attributes.

    Programs that differ only in names, stages and value ids become equal, so they share one
    lowering. A local program also loses its shardings and meshes: they describe global values, and
    XLA must not shard the local parts again. A global program keeps them, and its only mesh is
    called @stage for every stage.

    Args:
        module: MLIR text or bytecode of a module with a function @name.
        name: the function to run; other functions in the module are its callees.
        local: the program is per device (StageProgram.local).
    Returns:
        MLIR bytecode.
    """
    with mlir.make_ir_context(), ir.Location.unknown():
        merged = ir.Module.parse(module)
        symbols = ir.SymbolTable(merged.operation)
        _drop_attributes(merged.operation, "shardc.", "sym_name")
        meshes = []
        for op in list(merged.body.operations):
            if isinstance(op, sdy.MeshOp):
                meshes.append(op)
            elif isinstance(op, func.FuncOp):
                _clean_function(op, keep_shardings=not local)
        if local:
            for mesh in meshes:
                mesh.operation.erase()
        elif len(meshes) == 1:
            _rename(merged, symbols, meshes[0].operation, "stage")
        entry = symbols[name].operation
        _rename(merged, symbols, entry, "main")
        entry.attributes["sym_visibility"] = ir.StringAttr.get("public")
        return bare_bytecode(merged.operation)


def _rename(module: ir.Module, symbols: ir.SymbolTable, op: ir.Operation, name: str) -> None:
    old = ir.StringAttr(op.attributes["sym_name"]).value
    if old == name:
        return
    symbols.set_symbol_name(op, name)
    ir.SymbolTable.replace_all_symbol_uses(old, name, module.operation)


def _drop_attributes(op: ir.Operation, *prefixes: str) -> None:
    for attribute in list(op.attributes):
        if attribute.startswith(prefixes):
            del op.attributes[attribute]


def _clean_function(function: func.FuncOp, *, keep_shardings: bool) -> None:
    _drop_attributes(function.operation, "shardc.", "tf.", "jax.")
    for key in ("arg_attrs", "res_attrs"):
        if key not in function.attributes:
            continue
        kept = [
            ir.DictAttr.get(
                {SHARDING: entry[SHARDING]} if keep_shardings and SHARDING in entry else {}
            )
            for entry in map(ir.DictAttr, ir.ArrayAttr(function.attributes[key]))
        ]
        function.attributes[key] = ir.ArrayAttr.get(kept)
