"""A stage program, brought to the form in which JAX can take it in."""

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, sdy
from jax.interpreters import mlir

from shardc.ir.copy import bare_bytecode

SHARDING = "sdy.sharding"


def mergeable_module(module: bytes, name: str, *, local: bool) -> bytes:
    """The module with `name` as its public @main and without what only shardc reads.

    Two programs that differ only in their names, stages and value ids come out equal, so one
    lowering serves both. A local program loses its shardings and meshes too: they tell how the
    pieces form whole values, and XLA must not shard the pieces once more. A global program keeps
    them, and its only mesh is called @stage whatever the stage.

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
