"""Import of a plain JAX function, traced as by jax.jit, into a shardc context."""

import contextlib
import contextvars
import dataclasses
import inspect
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.mlir import ir
from jax.sharding import AbstractMesh, AxisType, NamedSharding, Sharding

from shardc.errors import InputError
from shardc.importer.check_ops import refuse_host_calls, refuse_layouts, refuse_stateful_ops
from shardc.importer.explicit_axes import drop_unsplit_shardings, is_explicit
from shardc.importer.program import (
    Argument,
    Imported,
    Result,
    describe,
    mark_donated,
    name_arguments,
)
from shardc.importer.static_arguments import split_static
from shardc.ir.bugs import bugs_while
from shardc.ir.context import parse
from shardc.ir.walk import main_function


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct))


def _struct(shape: tuple[int, ...], dtype: Any, weak_type: bool = False) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, weak_type=weak_type)


def is_on_host(lies: Sharding) -> bool:
    """Whether a sharding names a memory kind other than its devices' default."""
    if isinstance(lies, NamedSharding) and isinstance(lies.mesh, AbstractMesh):
        return False
    device: Any = next(iter(lies.device_set))
    return lies.memory_kind not in (None, device.default_memory().kind)


def abstract(tree: Any) -> Any:
    """A pytree with arrays replaced by their shapes and types, without their shardings.

    Python scalars stay (they are weakly typed), and so does every tree without arrays, which may
    be a static argument. Shardings are dropped because arrays of one state may be on the devices of
    different stages, which `jax.jit` would refuse. On a context mesh with explicit axes, the
    sharding is part of the type, and stays; so does a memory kind other than the device's.
    """
    if not any(map(_is_array, jax.tree.leaves(tree))):
        return tree

    def leaf(x: Any) -> Any:
        if not _is_array(x):
            return x
        aval = jax.typeof(x) if not isinstance(x, jax.ShapeDtypeStruct) else x
        lies = getattr(x, "sharding", None)
        if explicit and isinstance(lies, NamedSharding) and lies.mesh.abstract_mesh == context:
            return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=lies)
        if isinstance(lies, Sharding) and is_on_host(lies):
            host = jax.memory.Space.Host
            return ShapedArray(aval.shape, aval.dtype, aval.weak_type, memory_space=host)
        return _struct(aval.shape, aval.dtype, weak_type=aval.weak_type)

    context = jax.sharding.get_abstract_mesh()
    explicit = AxisType.Explicit in context.axis_types
    return jax.tree.map(leaf, tree)


_SHARDINGS = ("in_shardings", "out_shardings")
_HOISTED = {"Debug", "IO"}  # effects of unordered callbacks, as JAX prints them
_IMPORTING = contextvars.ContextVar("importing", default=False)


def is_importing() -> bool:
    """Whether JAX is tracing a function for shardc: its callees are planned with it."""
    return _IMPORTING.get()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Inside, `shardc.jit` functions are inlined into the traced function."""
    token = _IMPORTING.set(True)
    try:
        yield
    finally:
        _IMPORTING.reset(token)


def _position(fun: Callable[..., Any]) -> str | None:
    function = inspect.unwrap(fun)
    code = getattr(function, "__code__", None)
    return code and f"{Path(code.co_filename).name}:{code.co_firstlineno} ({function.__name__})"


def key_impl(aval: Any) -> str | None:
    """Implementation of a PRNG key type, such as "threefry2x32"; None for every other type."""
    if not jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return None
    found: list[str] = []

    def note(key: jax.Array) -> jax.Array:
        found.append(str(jax.random.key_impl(key)))
        return jax.random.key_data(key)

    jax.eval_shape(note, _struct((), aval.dtype))
    return found[0]


def import_function(
    fun: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    platform: str | None = None,
    **jit_options: Any,
) -> Imported:
    """Traces and lowers `fun(*args, **kwargs)` to StableHLO.

    Every dynamic argument becomes an argument of `@main`, used or not, so that flat argument i
    of the call is argument i of the program. Constants that `fun` closes over are in the module.
    Where the arguments lie is ignored; `in_shardings` is not.

    Args:
        args, kwargs: arrays, `jax.ShapeDtypeStruct`s, scalars, or pytrees of them.
        platform: "cpu", "cuda" ...: what to lower for; None is JAX's default backend.
        jit_options: arguments of jax.jit (static_argnums, donate_argnums, in_shardings ...).
    Raises:
        InputError: SHARDC-123, the function talks to the host (jax.debug.print, io_callback ...);
            180, JAX refuses `in_shardings` or `out_shardings`; 205, they ask for a layout in
            memory.
        ImportFileError: SHARDC-126, an op may run only once, such as `jax.lax.rng_uniform`.
        What JAX raises where it cannot trace `fun`.
    """
    kwargs = dict(kwargs or {})
    jitted = jax.jit(fun, **{**jit_options, "keep_unused": True})
    static = {name: jit_options.get(name) for name in ("static_argnums", "static_argnames")}
    fixed = {place for place, _ in split_static(fun, args, kwargs, **static).static}
    call_args = [arg if i in fixed else abstract(arg) for i, arg in enumerate(args)]
    call_kwargs = {
        name: value if name in fixed else abstract(value) for name, value in kwargs.items()
    }
    with importing():
        try:
            traced = jitted.trace(*call_args, **call_kwargs)
        except (AssertionError, TypeError, ValueError) as error:
            _refuse_shardings(fun, jit_options, call_args, call_kwargs, error)
            raise
    if any(str(effect) not in _HOISTED for effect in traced.effects):
        raise InputError(
            f"'{traced.fun_name}' has side effects on the host:"
            f" {', '.join(sorted(str(effect) for effect in traced.effects))}",
            where=_position(fun),
            code="SHARDC-123",
            help="return the value from the step and print or save it outside",
        )
    with warnings.catch_warnings():
        # shardc frees every donated argument, even if no result can reuse its buffer.
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        platforms = None if platform is None else (platform,)
        lowered = traced.lower(lowering_platforms=platforms)

    with bugs_while("importing a function"):  # user code has already run
        # JAX caches the lowered module for later calls, so this copies it to another context.
        bytecode = io.BytesIO()
        lowered.compiler_ir("stablehlo").operation.write_bytecode(bytecode)
        module = parse(bytecode.getvalue())
        asked = (jit_options.get(name) for name in _SHARDINGS)
        if is_explicit(jax.sharding.get_abstract_mesh()) and not any(map(_has_sharding, asked)):
            drop_unsplit_shardings(module)

        dynamic = split_static(fun, call_args, call_kwargs, **static)
        in_tree = jax.tree.structure((dynamic.args, dynamic.kwargs))
        assert in_tree == lowered.in_tree, f"arguments {in_tree}, but JAX has {lowered.in_tree}"
        out_tree = lowered.out_tree
        infos = jax.tree.leaves(lowered.args_info)
        with module.context, ir.Location.unknown():
            main = main_function(module.operation)
            refuse_layouts(main)
            num_host_calls = refuse_host_calls(module.operation, can_call=True)
            refuse_stateful_ops(module.operation)
            name_arguments(main)
            mark_donated(main, [info.donated for info in infos])
        arguments, results = describe(module)
        out_avals = traced.jaxpr.out_avals
        assert len(infos) == len(arguments), "JAX added or removed arguments"
        assert len(out_avals) == len(results), "JAX added or removed results"
        arguments = tuple(map(_with_type, arguments, traced.jaxpr.in_avals))
        results = tuple(map(_with_type, results, out_avals))
        return Imported(
            module,
            arguments,
            results,
            in_tree,
            out_tree,
            lowered.args_info,
            lowered.out_info,
            _callbacks(lowered) if num_host_calls else (),
        )


def _refuse_shardings(
    fun: Callable[..., Any],
    jit_options: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    error: Exception,
) -> None:
    """InputError (SHARDC-180) if JAX can trace `fun` without the requested shardings."""
    asked = {n: v for n, v in jit_options.items() if n in _SHARDINGS and v is not None}
    if not asked:
        return
    others = {name: value for name, value in jit_options.items() if name not in asked}
    try:
        jax.jit(fun, **others).trace(*args, **kwargs)
    except (AssertionError, TypeError, ValueError):
        return
    raise InputError(
        f"{' or '.join(asked)} do not fit the function: {str(error) or 'JAX refuses them'}",
        where=_position(fun),
        help="give one sharding for all, or a tree like that of the arguments or of the results,"
        " with None for what shardc may choose",
    ) from error


def _has_sharding(asked: Any) -> bool:
    """Whether `in_shardings=` or `out_shardings=` requests any."""
    return any(each is not None for each in jax.tree.leaves(asked))


def _callbacks(lowered: jax.stages.Lowered) -> tuple[Callable[..., Any], ...]:
    """The host functions of a program's callbacks, for which JAX has no public API."""
    return tuple(lowered._lowering.compile_args["host_callbacks"])


def _with_type[T: (Argument, Result)](each: T, aval: Any) -> T:
    """`each` with the properties of JAX's type beyond shape and dtype."""
    host = aval.memory_space == jax.memory.Space.Host
    return dataclasses.replace(
        each,
        weak_type=bool(getattr(aval, "weak_type", False)),
        key_impl=key_impl(aval),
        memory_kind=each.memory_kind or ("pinned_host" if host else None),
    )
