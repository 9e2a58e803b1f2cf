"""`shardc.export`: writes a function as a StableHLO file for shardc's commands."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardc.api.function import ShardedFunction
from shardc.api.request import jax_jitted
from shardc.errors import writing
from shardc.files import write_whole
from shardc.importer.from_jax import abstract, importing


def export(
    fun: Any,
    /,
    *args: Any,
    path: str | Path,
    donate_argnums: int | Sequence[int] = (),
    **kwargs: Any,
) -> None:
    """Writes the program of `fun(*args, **kwargs)` to `path` as StableHLO text.

    The text has the names of the arguments' leaves (`params['w']`), which `--sharding` patterns and
    messages use, the donated arguments, and source lines. Nothing is planned or run.

    Args:
        fun: a plain function, or one of `jax.jit` or `shardc.jit`, which keeps its static and
            donated arguments.
        args, kwargs: arrays, `jax.ShapeDtypeStruct`s, scalars, or pytrees of them.
        donate_argnums: as in `jax.jit`, for a plain function: its state.
    Raises:
        InputError: SHARDC-180, `fun` is no function, or `path` cannot be written.
        Whatever JAX raises if it cannot trace the function.
    """
    if isinstance(fun, ShardedFunction):
        jitted = fun.jitted
    elif callable(fun) and hasattr(fun, "trace"):
        jitted = fun
    else:
        jitted = jax_jitted(fun, donate_argnums=donate_argnums, keep_unused=True)
    with importing():
        lowered = jitted.trace(*map(abstract, args), **{k: abstract(v) for k, v in kwargs.items()})
    text = lowered.lower().as_text(debug_info=True)
    with writing("the program", path):
        write_whole(path, text.encode())
