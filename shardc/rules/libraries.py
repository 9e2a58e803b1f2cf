"""Library calls on batches of independent problems: which of their dims may be split."""

from jax.extend.mlir import ir

from shardc.ir.attributes import ACCUMULATE, call_target, named_attributes
from shardc.ir.calls import called, functions_by_name
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import walk
from shardc.rules.op_rule import OpRule

APPROX_TOP_K = "ApproxTopK"
TRIANGULAR_SOLVES = {f"lapack_{letter}trsm_ffi" for letter in "sdcz"}
_COMPUTATIONS = "called_computations"
_NUM_BATCH_DIMS = (
    "num_batch_dims"  # written by JAX and XLA: leading dims that a foreign function maps over
)


def called_computations(module: ir.Operation, function: ir.Operation) -> list[ir.Operation]:
    """The functions of `module` that `function` calls or refers to, transitively."""
    by_name = functions_by_name(module)
    found: dict[str, ir.Operation] = {}
    waiting = [function]
    while waiting:
        for op in walk(waiting.pop()):
            for name in _named(op):
                if name not in found:
                    found[name] = by_name[name]
                    waiting.append(by_name[name])
    return list(found.values())


def names_functions(op: ir.Operation) -> bool:
    """Whether a custom call refers to functions of its module."""
    return call_target(op) is not None and _COMPUTATIONS in op.attributes


def _named(op: ir.Operation) -> list[str]:
    if (name := called(op)) is not None:
        return [name]
    if not names_functions(op):
        return []
    named = ir.ArrayAttr(op.attributes[_COMPUTATIONS])
    return [str(ir.FlatSymbolRefAttr(each).value) for each in named]


def num_batch_dims(call: ir.Operation) -> int:
    """Number of leading dims of all operands and results that a foreign function maps over.

    JAX annotates calls of LAPACK and similar libraries, and calls of `jax.ffi` that are batched by
    `vmap_method="broadcast_all"` or a similar method. 0 if unknown.
    """
    if "mhlo.frontend_attributes" not in call.attributes:
        return 0
    known = named_attributes(call.attributes["mhlo.frontend_attributes"])
    if _NUM_BATCH_DIMS not in known:
        return 0
    count = int(ir.StringAttr(known[_NUM_BATCH_DIMS]).value)
    shapes = [shape_of(value) for value in (*call.operands, *call.results)]
    return count if len({shape[:count] for shape in shapes}) == 1 <= len(shapes) else 0


def solved_along(call: ir.Operation) -> int | None:
    """The dim of the last operand along which LAPACK solves independent triangular systems; None
    for other calls.
    """
    if (call_target(call) or "") not in TRIANGULAR_SOLVES:
        return None
    config = named_attributes(call.attributes["mhlo.backend_config"])
    last = len(shape_of(call.results[0])) - 1
    return last if int(ir.IntegerAttr(config["side"]).value) == ord("L") else last - 1


def is_divisible(op: ir.Operation, rule: OpRule, factor: int) -> bool:
    """Whether the factor enumerates independent problems: the call can run on any subset."""
    if call_target(op) == ACCUMULATE:
        return True
    if (dim := solved_along(op)) is not None and factor in rule.results[0][dim]:
        return factor in rule.operands[-1][dim]
    mappings = [m for m in (*rule.operands, *rule.results) if m]
    dims = {d for m in mappings for d, factors in enumerate(m) if factor in factors}
    if not all(any(factor in factors for factors in m) for m in mappings):
        return False
    if call_target(op) == APPROX_TOP_K:
        config = named_attributes(op.attributes["mhlo.backend_config"])
        return int(ir.IntegerAttr(config["reduction_dim"]).value) not in dims
    return max(dims) < num_batch_dims(op)
