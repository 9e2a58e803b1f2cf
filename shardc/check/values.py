"""Random small inputs for a program, including the extremes of their types."""

from collections.abc import Sequence
from typing import Any, Literal

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import numpy.typing as npt
from jax.extend.mlir import ir

from shardc.analysis.program.index_ranges import index_limits, rooted_arguments
from shardc.check.forms.evaluate import signatures, step_types
from shardc.check.inputs import seeded_inputs
from shardc.importer.program import Argument
from shardc.ir.walk import functions, symbol

Array = npt.NDArray[Any]
Kind = Literal["ordinary", "extremes", "nonfinite"]
KINDS: tuple[Kind, ...] = ("ordinary", "extremes", "nonfinite")

_SHARE = 0.2  # of the elements are special, as the kind says


def random_values(module: ir.Operation, kind: Kind, seed: int) -> dict[str, list[Array]]:
    """Arguments, in the user's types, for every function that can be run in the module, by name.

    Args:
        kind: "ordinary": small numbers, indices in bounds; "extremes": a fifth of the
            elements are zeros, ones and large numbers, and for integers the least and the greatest
            (scalars stay small, because loops count up to them); "nonfinite": also infinities, NaN
            and subnormal numbers among the floats.
    """
    by_name = {symbol(function): function for function in functions(module)}
    found = {}
    for position, (name, signature) in enumerate(signatures(module).items()):
        types = step_types(signature)
        arguments = [Argument(f"argument {i}", *type_) for i, type_ in enumerate(types)]
        small: Sequence[int] = ()
        limits: dict[int, int] = {}
        if name in by_name and len(types) == len(signature.takes):
            limits = index_limits(by_name[name])
            small = tuple(rooted_arguments(by_name[name]))
        values = seeded_inputs(arguments, small, limits, seed + 1000 * position)
        random = np.random.default_rng(seed)
        found[name] = [with_special_values(value, kind, random) for value in values]
    return found


def with_special_values(value: Array, kind: Kind, random: np.random.Generator) -> Array:
    """`value` with a share of its elements as `kind` says in `random_values`."""
    if kind == "ordinary" or value.ndim == 0 or value.dtype == np.bool_:
        return value
    special: list[Any] = [0.0, -0.0, 1.0, -1.0, 1e3]
    if jnp.issubdtype(value.dtype, np.integer):
        ends = ml_dtypes.iinfo(value.dtype)
        special = [0, 1, int(ends.min), int(ends.max)]
    elif kind == "nonfinite":
        tiny = float(ml_dtypes.finfo(_real(value.dtype)).smallest_subnormal)
        special += [np.inf, -np.inf, np.nan, tiny]
    chosen = random.choice(np.array(special).astype(value.dtype), value.shape)
    return np.where(random.random(value.shape) < _SHARE, chosen, value)


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype
