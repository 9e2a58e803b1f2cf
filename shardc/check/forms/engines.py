"""Two engines that share nothing but the program: StableHLO's interpreter, and XLA.

An engine runs one function on the arrays of each of its devices. The interpreter is preferred:
it is slow, but it compiles nothing, so no XLA rewrite can hide an error. `lacks` tells what it
cannot run, before it aborts the process.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import numpy.typing as npt
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.sharding import PartitionSpec

from shardc.analysis.program.op_classes import COLLECTIVES, POSITIONS
from shardc.backend.mergeable_module import mergeable_module
from shardc.backend.primitive import ProgramModule, run_program
from shardc.check.forms.plain_main import PROGRAM, alone, plain_main
from shardc.check.forms.unrolled import repeats_unknown
from shardc.ir.attributes import call_target
from shardc.ir.copy import bytecode, module_digest
from shardc.ir.effects import is_host_call
from shardc.ir.tensor_types import dtype_of, shape_of
from shardc.ir.walk import body, main_function, terminator, walk
from shardc.rules.libraries import called_computations

Array = npt.NDArray[Any]
Arrays = list[Array]
Run = Callable[[Sequence[Arrays]], list[Arrays]]  # per device: arrays in, arrays out
Engine = Callable[[ir.Operation, ir.Operation, int], Run]  # module, function, number of devices

# XLA's compilation takes longer than the run, and far less time without LLVM's optimisations. XLA
# turns products with converted predicates into selects where it sees both ops; that drops NaNs.
XLA_OPTIONS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

# Most passes change one function out of several, and each program runs on several inputs.
_COMPILED: dict[tuple[Any, ...], Any] = {}
_MOST_COMPILED = 64

_LACKING = (
    "stablehlo.custom_call",
    "stablehlo.rng_bit_generator",
    "stablehlo.rng",
    "sdy.manual_computation",
)


def lacks(module: ir.Operation, function: ir.Operation, num_devices: int = 1) -> tuple[str, ...]:
    """Why the interpreter cannot run `function`; empty if it can.

    It cannot run custom calls, the device's random bits, collectives on a single device, or, on
    several devices, collectives in loops that cannot be unrolled (`shardc.check.forms.unrolled`).
    """
    found: dict[str, None] = {}
    for each in (function, *called_computations(module, function)):
        for op in walk(each):
            if op.name in _LACKING:
                found[f"{op.name} {call_target(op) or ''}".strip()] = None
            elif num_devices == 1 and (op.name in COLLECTIVES or op.name in POSITIONS):
                found["a collective of one device"] = None
        called = each != function and any(op.name in COLLECTIVES for op in walk(each))
        if num_devices > 1 and (called or repeats_unknown(each)):
            found["a collective that runs an unknown number of times"] = None
    return tuple(found)


def interpreter(module: ir.Operation, function: ir.Operation, num_devices: int) -> Run:
    """Runs `function` by StableHLO's interpreter."""
    program = plain_main(module, function, num_devices)
    types = [value.type for value in body(main_function(program.operation)).arguments]
    dtypes = [np.dtype(dtype_of(value)) for value in terminator(function).operands]

    def run(per_device: Sequence[Arrays]) -> list[Arrays]:
        plain = [part for args in per_device for array in args for part in _plain(array)]
        with program.context:
            dense = [_dense(array, type_) for array, type_ in zip(plain, types, strict=True)]
            found = iter([np.array(each) for each in stablehlo.eval_module(program, dense)])
        return [[_from_plain(dtype, found) for dtype in dtypes] for _ in per_device]

    return run


def _plain(array: Array) -> Arrays:
    array = np.asarray(array)
    if array.dtype.kind == "c":
        return [array.real, array.imag]
    if array.dtype.kind == "f" and array.dtype.itemsize >= 4:
        return [array]
    if jnp.issubdtype(array.dtype, np.floating):
        return [array.astype(np.float32)]
    if array.dtype == np.bool_ or ml_dtypes.iinfo(array.dtype).bits < 8:
        unsigned = array.dtype == np.bool_ or array.dtype.name.startswith("u")
        return [array.astype(np.uint8 if unsigned else np.int8)]
    return [array]


def _dense(array: Array, type_: ir.Type) -> ir.Attribute:
    return ir.DenseElementsAttr.get(np.array(array, order="C"), type=type_)


def _from_plain(dtype: np.dtype[Any], arrays: Any) -> Array:
    if dtype.kind == "c":
        real, imag = next(arrays), next(arrays)
        value = np.empty(real.shape, dtype)
        value.real, value.imag = real, imag
        return value
    return np.asarray(next(arrays)).astype(dtype)


def xla(module: ir.Operation, function: ir.Operation, num_devices: int) -> Run:
    """Runs `function` by XLA on JAX's first devices. Needs JAX's x64 mode for 64-bit values."""
    return xla_with(XLA_OPTIONS)(module, function, num_devices)


def xla_with(options: Mapping[str, Any]) -> Engine:
    """The engine `xla` with other compiler options than its own."""
    return partial(_run_by_xla, options)


def _run_by_xla(
    options: Mapping[str, Any], module: ir.Operation, function: ir.Operation, num_devices: int
) -> Run:
    program_alone = alone(module, function)
    if any(is_host_call(op) for op in walk(program_alone.operation)):
        raise NotImplementedError("the program calls the host, which is not available")
    takes = tuple(map(_aval, body(function).arguments))
    results = tuple(map(_aval, terminator(function).operands))
    key = module_digest(program_alone), num_devices, tuple(sorted(options.items()))
    if key not in _COMPILED:
        if len(_COMPILED) == _MOST_COMPILED:
            _COMPILED.clear()
        code = bytecode(program_alone.operation)
        _COMPILED[key] = _compile(code, num_devices, takes, results, options)
    compiled = _COMPILED[key]

    def run(per_device: Sequence[Arrays]) -> list[Arrays]:
        stacked = [np.stack(parts) for parts in zip(*per_device, strict=True)]
        found = [np.asarray(each) for each in compiled(*stacked)]
        return [[each[i] for each in found] for i in range(num_devices)]

    return run


def _compile(
    code: bytes,
    num_devices: int,
    takes: Sequence[jax.core.ShapedArray],
    results: tuple[jax.core.ShapedArray, ...],
    options: Mapping[str, Any],
) -> Any:
    program = ProgramModule(mergeable_module(code, PROGRAM, local=True))

    def device(*args: jax.Array) -> list[jax.Array]:
        return [part[None] for part in run_program(tuple(a[0] for a in args), program, results)]

    places = jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), ("d",))
    spec = PartitionSpec("d")
    call = jax.jit(
        jax.shard_map(
            device,
            mesh=places,
            in_specs=tuple(spec for _ in takes),
            out_specs=[spec for _ in results],
            check_vma=False,
        )
    )
    examples = [jax.ShapeDtypeStruct((num_devices, *a.shape), a.dtype) for a in takes]
    return call.lower(*examples).compile(dict(options))


def _aval(value: ir.Value) -> jax.core.ShapedArray:
    return jax.core.ShapedArray(shape_of(value), np.dtype(dtype_of(value)))
