"""The table of op classes that more than one file uses.

Each class answers one question. Questions with the same answer share a class; if two answers differ
by an op, both classes are here.
"""

from jax.extend.mlir import ir

from shardc.ir.calls import CALL
from shardc.ir.user_shardings import CONSTRAINT
from shardc.rules.allowed_factors import BARRIER, COUNTED_ONCE, ELEMENTWISE
from shardc.rules.reducers import picks, reducer


def _stablehlo(names: str) -> frozenset[str]:
    return frozenset(f"stablehlo.{name}" for name in names.split())


# ---- what an op is -------------------------------------------------------------------------------

# Arithmetic worth more than its traffic: layers are clustered around these.
PRODUCTS = _stablehlo("dot_general dot convolution")
WINDOWS = _stablehlo("scatter select_and_scatter reduce_window")
ADDITIONS = frozenset(COUNTED_ONCE)
RANDOM = _stablehlo("rng rng_bit_generator")
# Their effect on parts of their operands is unknown.
OPAQUE = _stablehlo("while case if custom_call fft cholesky triangular_solve")
COLLECTIVES = _stablehlo(
    "all_gather all_reduce all_to_all collective_broadcast collective_permute reduce_scatter"
)
# They ask for the position of the device.
POSITIONS = _stablehlo("partition_id replica_id")
# Result n is operand n.
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
# XLA rematerializes them inside their users: they cost no time and no memory.
ON_THE_FLY = _stablehlo("constant iota broadcast_in_dim reshape transpose convert slice") | {
    CONSTRAINT
}
# XLA fuses them into a kernel with their neighbours.
FUSED = _stablehlo(" ".join(ELEMENTWISE)) - {BARRIER}

# They give elements of their operands, or their negatives; a convert rounds, but all copies alike.
CHOOSING = (
    (MOVES | ON_THE_FLY | _stablehlo("select maximum minimum clamp sort negate abs convert"))
    - OPAQUE
    - {CALL}
)
_EXTREMES = _stablehlo("reduce reduce_window scatter")

# ---- how often an op may run ---------------------------------------------------------------------

# They cannot be computed in parts: once per step.
ONCE = OPAQUE | RANDOM | _stablehlo("sort")
# Too costly, or not certain, to compute the same value twice: never cloned to a second stage or
# rematerialized in every microbatch, whatever their size.
NEVER_TWICE = ONCE | PRODUCTS | WINDOWS
# Rematerialized in every microbatch, whatever their size.
CHEAP = _stablehlo("constant iota broadcast_in_dim convert reshape transpose slice bitcast_convert")


def is_extreme(op: ir.Operation) -> bool:
    """Whether an op gives the largest or smallest of many elements, as an argmax does, too, or all
    in their order."""
    if op.name in _EXTREMES:
        return reducer(op) in ("maximum", "minimum") or (len(op.results) > 1 and picks(op))
    return op.name == "stablehlo.sort"


def chooses(op: ir.Operation) -> bool:
    """Whether the elements of the results are elements of the operands, not rounded."""
    return op.name in CHOOSING or is_extreme(op)
