"""Reading back the table of arguments and results that shardc-outline-stages wrote."""

from jax.extend.mlir import ir

ARGUMENTS = "shardc.arguments"  # module: one dict per argument of the user's function
RESULTS = "shardc.results"  # module: value id of each result
RESULT_TYPES = "shardc.result_types"  # module: type of each result
RESULT_STAGES = "shardc.result_stages"  # module: stage that returns it


def result_values(module: ir.Operation) -> list[str]:
    """Value id of each result of the user's function."""
    return [str(ir.StringAttr(v).value) for v in ir.ArrayAttr(module.attributes[RESULTS])]


def next_states(module: ir.Operation) -> dict[str, str]:
    """Value id of a returned state -> value id of the argument that it replaces next step."""
    if ARGUMENTS not in module.attributes:
        return {}
    values = result_values(module)
    found = {}
    for n, entry in enumerate(ir.ArrayAttr(module.attributes[ARGUMENTS])):
        row = ir.DictAttr(entry)
        if "result" in row:
            value = values[ir.IntegerAttr(row["result"]).value]
            if value.startswith("v"):
                found[value] = f"arg{n}"
    return found
