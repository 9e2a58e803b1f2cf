"""Classes of ops, each by what it means for a decision: the one table of them.

A class says which question it answers. Two questions with the same answer share a class; where the
answers differ by an op, the difference stands here. A class that
one file alone asks for stands there.
"""

from shardc.ir.user_shardings import CONSTRAINT
from shardc.rules.allowed_factors import BARRIER, ELEMENTWISE


def _stablehlo(names: str) -> frozenset[str]:
    return frozenset(f"stablehlo.{name}" for name in names.split())


# ---- what an op is -------------------------------------------------------------------------------

# Arithmetic worth more than its traffic: layers are clustered around these.
PRODUCTS = _stablehlo("dot_general dot convolution")
WINDOWS = _stablehlo("scatter select_and_scatter reduce_window")
RANDOM = _stablehlo("rng rng_bit_generator")
# Nothing is known of what they do to the parts of their operands.
OPAQUE = _stablehlo("while case if custom_call fft cholesky triangular_solve")
# Results are operands, one by one.
IDENTITIES = frozenset((BARRIER,))

# ---- what an op costs ----------------------------------------------------------------------------

# They only name or reinterpret a value: no arithmetic and no traffic.
WITHOUT_COST = _stablehlo(
    "constant reshape bitcast_convert tuple get_tuple_element optimization_barrier return"
    " create_token after_all"
) | {"func.return", "sdy.mesh", "sdy.return", CONSTRAINT}
# They move elements without arithmetic.
MOVES = _stablehlo(
    "broadcast_in_dim transpose slice concatenate pad iota reverse gather dynamic_slice"
    " dynamic_update_slice real imag custom_call infeed outfeed"
) | {"sdy.reshard", "func.call"}
# XLA makes them on the fly inside their users: no time and no memory of their own.
ON_THE_FLY = _stablehlo("constant iota broadcast_in_dim reshape transpose convert slice") | {
    CONSTRAINT
}
# XLA makes them inside a kernel with their neighbours.
FUSED = _stablehlo(" ".join(ELEMENTWISE)) - {BARRIER}

# ---- how often an op may run ---------------------------------------------------------------------

# They cannot be computed in parts: once per step.
ONCE = OPAQUE | RANDOM | _stablehlo("sort")
# Too costly to compute twice, or not sure to give the same twice: neither for a second stage nor
# again in every microbatch, whatever their size.
NEVER_TWICE = ONCE | PRODUCTS | WINDOWS
# Computed again in every microbatch, whatever their size.
CHEAP = _stablehlo("constant iota broadcast_in_dim convert reshape transpose slice bitcast_convert")
