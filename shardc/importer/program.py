"""The result of an import: the module, and its arguments and results with the user's names."""

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.mlir import ir

from shardc.errors import ImportFileError
from shardc.ir.attributes import NAME, UNNAMED, arg_attrs, result_attrs, set_arg_attrs, str_attr
from shardc.ir.walk import body, main_function, where

_ALIAS = "tf.aliasing_output"
_DONOR = "jax.buffer_donor"
_RESULT_NAME = "jax.result_info"
_MEMORY = "mhlo.memory_kind"


@dataclass(frozen=True)
class Leaf:
    """One flat argument or result of `@main`.

    Attributes:
        name: the user's name, such as "state['w']", or "argument 3".
        shape, dtype: of the physical array (a PRNG key is uint32[..., 2 or 4] here).
        weak_type: the type of a Python scalar, which promotes to an array's.
        key_impl: for PRNG keys their implementation ("threefry2x32"), else None. A program takes
            `jax.random.key_data(key)` and gives what `jax.random.wrap_key_data(data, impl=...)`
            makes a key.
        memory_kind: its memory outside the step, such as "pinned_host"; None: the device's own.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    weak_type: bool = False
    key_impl: str | None = None
    memory_kind: str | None = None


@dataclass(frozen=True)
class Argument(Leaf):
    """One flat argument of `@main`.

    Attributes:
        donated: whether the caller donates the buffer.
        aliased_result: flat result that may reuse the buffer according to JAX, or None.
    """

    donated: bool = False
    aliased_result: int | None = None


@dataclass(frozen=True)
class Result(Leaf):
    """One flat result of `@main`."""


@dataclass(frozen=True)
class Imported:
    """One program: `module` has a public function whose arguments carry `shardc.name`.

    Attributes:
        module: calls are not yet inlined and CHLO is not yet legalised; passes do that.
        in_tree: of `(dynamic args, kwargs)`, None for a file.
        out_tree: of the results, None for a file.
        args_info, out_info: as in `jax.stages.Lowered`, None for a file.
        host_calls: the callbacks of the program's host calls, by number.
    """

    module: ir.Module
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    in_tree: jax.tree_util.PyTreeDef | None = None
    out_tree: jax.tree_util.PyTreeDef | None = None
    args_info: Any = None
    out_info: Any = None
    host_calls: tuple[Callable[..., Any], ...] = ()


_COMPLEX = {"complex<f32>": "complex64", "complex<f64>": "complex128"}


def dtype_name(element_type: ir.Type) -> str:
    """NumPy or ml_dtypes name of an MLIR element type: `bf16` -> "bfloat16", `i1` -> "bool"."""
    text = str(element_type)
    if text in _COMPLEX:
        return _COMPLEX[text]
    if text == "bf16":
        return "bfloat16"
    if text == "i1":
        return "bool"
    name = ""
    if match := re.fullmatch(r"(u?i|f)(\d+)", text):
        kind, bits = match.groups()
        name = {"ui": "uint", "i": "int", "f": "float"}[kind] + bits
    elif match := re.fullmatch(r"f(\d+)(E\d+M\d+\w*)", text):
        name = f"float{match[1]}_{match[2].lower()}"
    with contextlib.suppress(TypeError):  # no type of NumPy's or of ml_dtypes'
        return np.dtype(name).name
    raise ImportFileError(
        f"arrays of '{text}' have no counterpart in JAX",
        code="SHARDC-124",
        help="convert them inside the program and pass a type that NumPy or ml_dtypes has",
    )


def _tensor(type_: ir.Type, what: str, place: str) -> tuple[tuple[int, ...], str]:
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        raise ImportFileError(
            f"{what} is a {type_}, and only tensors of known shape can be planned",
            where=place,
            code="SHARDC-124",
            help="export the program with concrete shapes and without tokens or tuples",
        )
    return tuple(type_.shape), dtype_name(type_.element_type)


def _memory_kind(attrs: dict[str, ir.Attribute]) -> str | None:
    """The memory kind of an argument or result; None for the device's own."""
    kind = str(ir.StringAttr(attrs[_MEMORY]).value) if _MEMORY in attrs else "device"
    return None if kind == "device" else kind


def name_arguments(main: ir.Operation) -> None:
    """Writes `shardc.name` on every argument: the name of its location, or "argument 3"."""
    attrs = arg_attrs(main)
    for i, argument in enumerate(body(main).arguments):
        location = argument.location
        name = location.name_str if isinstance(location, ir.NameLoc) else ""
        if NAME not in attrs[i] and not name:
            attrs[i][UNNAMED] = ir.UnitAttr.get()
        attrs[i].setdefault(NAME, str_attr(name or f"argument {i}"))
    set_arg_attrs(main, attrs)


def describe(module: ir.Module) -> tuple[tuple[Argument, ...], tuple[Result, ...]]:
    """Arguments and results of the public function, from its types and attributes.

    Raises:
        ImportFileError: SHARDC-121 no such function, SHARDC-124 a shape that is not static.
    """
    main = main_function(module.operation)
    place = where(main)
    arguments = []
    for i, (value, attrs) in enumerate(zip(body(main).arguments, arg_attrs(main), strict=True)):
        name = str(ir.StringAttr(attrs[NAME]).value) if NAME in attrs else f"argument {i}"
        shape, dtype = _tensor(value.type, f"argument '{name}'", place)
        alias = int(ir.IntegerAttr(attrs[_ALIAS]).value) if _ALIAS in attrs else None
        donated = alias is not None or _DONOR in attrs
        kind = _memory_kind(attrs)
        arguments.append(
            Argument(name, shape, dtype, donated=donated, aliased_result=alias, memory_kind=kind)
        )
    results = []
    types = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results
    for i, (type_, attrs) in enumerate(zip(types, result_attrs(main), strict=True)):
        shape, dtype = _tensor(type_, f"result {i}", place)
        info = str(ir.StringAttr(attrs[_RESULT_NAME]).value) if _RESULT_NAME in attrs else ""
        results.append(Result(info or f"result {i}", shape, dtype, memory_kind=_memory_kind(attrs)))
    return tuple(arguments), tuple(results)


def mark_donated(main: ir.Operation, donated: list[bool]) -> None:
    """Writes `jax.buffer_donor` on donated arguments that alias no result."""
    attrs = arg_attrs(main)
    for entry, is_donated in zip(attrs, donated, strict=True):
        if is_donated and _ALIAS not in entry:
            entry[_DONOR] = ir.BoolAttr.get(True)
    set_arg_attrs(main, attrs)
