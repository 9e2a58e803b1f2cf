"""Which arguments are state: what the step returns in place of what it took."""

from jax.extend.mlir import ir

from shardc.ir.attributes import NAME, arg_attrs

ALIASING = "tf.aliasing_output"
DONOR = "jax.buffer_donor"
STATE_RESULT = "shardc.state_result"  # argument: the result that is its next value


def state_aliases(function: ir.Operation) -> dict[int, int]:
    """Argument -> result that is its next state, as the microbatch split or jax wrote it."""
    found = {}
    for n, attrs in enumerate(arg_attrs(function)):
        for name in (STATE_RESULT, ALIASING):
            if name in attrs:
                found[n] = int(ir.IntegerAttr(attrs[name]).value)
                break
    return found


def donated_args(function: ir.Operation) -> set[int]:
    """Arguments whose buffers the caller gave away."""
    return {n for n, attrs in enumerate(arg_attrs(function)) if ALIASING in attrs or DONOR in attrs}


def argument_names(function: ir.Operation) -> list[str]:
    """The user's name of every argument."""
    return [
        str(ir.StringAttr(attrs[NAME]).value) if NAME in attrs else f"argument {n}"
        for n, attrs in enumerate(arg_attrs(function))
    ]
