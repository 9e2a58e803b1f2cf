"""Runs a localised program on every device of a mesh and puts the parts together.

Two engines share nothing but the program: the interpreter of StableHLO, which runs many devices in
one process, and XLA on the virtual CPU devices.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.sharding import PartitionSpec

from shardc.backend.mergeable_module import mergeable_module
from shardc.backend.primitive import ProgramModule, run_program
from shardc.ir.attributes import SHARDING, arg_attrs, result_attrs
from shardc.ir.context import parse
from shardc.ir.shardings import from_attr
from shardc.ir.tensor_types import dtype_of, shape_of
from shardc.ir.walk import body, main_function, terminator
from shardc.plan.layout import Mesh, TensorSharding

Arrays = list[np.ndarray]

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

# XLA makes selects of products with converted predicates, which ends NaNs: where it sees one. FFTs
# cannot do without what this leaves out.
AS_WRITTEN = {**QUICK, "xla_disable_hlo_passes": "algsimp"}

# In older releases the interpreter has fewer threads than devices on small machines, and stops.
INTERPRETER_RUNS_DEVICES = jax.__version_info__ >= (0, 12, 0)


def run_whole(
    module: ir.Module,
    args: Sequence[np.ndarray],
    *,
    xla: bool = False,
    options: Mapping[str, Any] = QUICK,
) -> Arrays:
    """@main on one device, which sees whole values; `options` are XLA's."""
    if xla or not INTERPRETER_RUNS_DEVICES:  # the engines differ on windows out of bounds
        return _with_xla(module, [list(args)], options)[0]
    return _interpret(module, args)


def run_local(
    module: ir.Module,
    mesh: Mesh,
    args: Sequence[np.ndarray],
    *,
    xla: bool = False,
    options: Mapping[str, Any] = QUICK,
) -> Arrays:
    """The localised @main on all devices of `mesh`, from whole arguments to whole results."""
    main = main_function(module.operation)
    takes = [from_attr(attrs[SHARDING]) for attrs in arg_attrs(main)]
    gives = [from_attr(attrs[SHARDING]) for attrs in result_attrs(main)]
    per_arg = [split(array, way, mesh) for array, way in zip(args, takes, strict=True)]
    per_device = [list(parts) for parts in zip(*per_arg, strict=True)]
    if not args:
        per_device = [[] for _ in mesh.device_ids]
    if xla or not INTERPRETER_RUNS_DEVICES:
        found = _with_xla(module, per_device, options)
    else:
        found = _interpret_on_devices(module, per_device)
    return [join([parts[i] for parts in found], way, mesh) for i, way in enumerate(gives)]


def split(array: np.ndarray, sharding: TensorSharding, mesh: Mesh) -> Arrays:
    """Each device's part; where the value is unreduced, random parts that sum to it."""
    found = []
    summands = _summands(array, mesh.num_shards(sharding.unreduced))
    for place in _places(mesh):
        whole = summands[_index(place, sharding.unreduced, mesh)]
        found.append(np.array(whole[_slices(array.shape, sharding, place, mesh)], order="C"))
    return found


def join(parts: Arrays, sharding: TensorSharding, mesh: Mesh) -> np.ndarray:
    """The whole value; devices that hold the same part must agree on it."""
    counts = [mesh.num_shards(axes) for axes in sharding.dims]
    shape = [size * count for size, count in zip(parts[0].shape, counts, strict=True)]
    summands = [np.zeros(shape, parts[0].dtype) for _ in range(mesh.num_shards(sharding.unreduced))]
    seen: dict[tuple[int, ...], np.ndarray] = {}
    for place, part in zip(_places(mesh), parts, strict=True):
        which = _index(place, sharding.unreduced, mesh)
        slices = _slices(tuple(shape), sharding, place, mesh)
        first = seen.setdefault((which, *(s.start for s in slices)), part)
        np.testing.assert_array_equal(first, part, err_msg=f"{place} disagrees with a replica")
        summands[which][slices] = part
    return sum(summands[1:], start=summands[0])


def _summands(array: np.ndarray, count: int) -> Arrays:
    random = np.random.default_rng(1)
    parts = [random.integers(-9, 9, array.shape).astype(array.dtype) for _ in range(count - 1)]
    return [*parts, (array - sum(parts, start=np.zeros_like(array))) if parts else array]


def _places(mesh: Mesh) -> list[dict[str, int]]:
    names = [name for name, _ in mesh.axes]
    return [
        dict(zip(names, place, strict=True)) for place in itertools.product(*map(range, mesh.shape))
    ]


def _index(place: dict[str, int], axes: Sequence[str], mesh: Mesh) -> int:
    index = 0
    for axis in axes:
        index = index * mesh.size(axis) + place[axis]
    return index


def _slices(
    shape: tuple[int, ...], sharding: TensorSharding, place: dict[str, int], mesh: Mesh
) -> tuple[slice, ...]:
    found = []
    for size, axes in zip(shape, sharding.dims, strict=True):
        part = size // mesh.num_shards(axes)
        start = _index(place, axes, mesh) * part
        found.append(slice(start, start + part))
    return tuple(found)


def _interpret(module: ir.Module, args: Sequence[np.ndarray]) -> Arrays:
    with module.context:
        return [_array(a) for a in stablehlo.eval_module(module, [_dense(a) for a in args])]


def _interpret_on_devices(module: ir.Module, per_device: list[Arrays]) -> list[Arrays]:
    """Wraps @main in a function that starts it on each device as a partition of its own."""
    main = main_function(module.operation)
    count = len(per_device)
    takes = [str(value.type) for value in body(main).arguments] * count
    gives = [str(value.type) for value in terminator(main).operands] * count
    names = [f"%a{i}" for i in range(len(takes))]
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, takes, strict=True))
    program = str(parse(mergeable_module(str(module).encode(), "main", local=True)))
    program = program.replace("func.func public @main(", "func.func private @device(")
    start = program.rindex("}")
    text = f"""{program[:start]}
    func.func @main({arguments}) -> ({", ".join(gives)}) {{
      %r:{len(gives)} = "interpreter.run_parallel"({", ".join(names)})
        {{programs = [[{", ".join(["@device"] * count)}]]}}
        : ({", ".join(takes)}) -> ({", ".join(gives)})
      return {", ".join(f"%r#{i}" for i in range(len(gives)))} : {", ".join(gives)}
    }}
    }}"""
    context = module.context
    stablehlo.register_interpreter_dialect(context)
    found = _interpret(parse(text, context), list(itertools.chain(*per_device)))
    size = len(found) // count
    return [found[i * size : (i + 1) * size] for i in range(count)]


def _with_xla(
    module: ir.Module, per_device: list[Arrays], options: Mapping[str, Any]
) -> list[Arrays]:
    program = ProgramModule(mergeable_module(str(module).encode(), "main", local=True))
    results = tuple(
        jax.core.ShapedArray(shape_of(value), jax.numpy.dtype(dtype_of(value)))
        for value in terminator(main_function(module.operation)).operands
    )

    def device(*args: jax.Array) -> list[jax.Array]:
        return [part[None] for part in run_program(tuple(a[0] for a in args), program, results)]

    places = jax.sharding.Mesh(np.array(jax.devices()[: len(per_device)]), ("d",))
    spec = PartitionSpec("d")
    call = jax.jit(
        jax.shard_map(
            device,
            mesh=places,
            in_specs=tuple(spec for _ in per_device[0]),
            out_specs=[spec for _ in results],
            check_vma=False,
        )
    )
    stacked = [np.stack(parts) for parts in zip(*per_device, strict=True)]
    # Compiling takes longer than running: without LLVM's optimisations it takes a fraction.
    compiled = call.lower(*stacked).compile(dict(options))
    return [list(parts) for parts in zip(*map(np.asarray, compiled(*stacked)), strict=True)]


def _dense(array: np.ndarray) -> ir.Attribute:
    if array.dtype == np.bool_:
        dims = "".join(f"{size}x" for size in array.shape)
        return ir.Attribute.parse(f"dense<{str(array.tolist()).lower()}> : tensor<{dims}i1>")
    return ir.DenseElementsAttr.get(np.array(array, order="C"))


def _array(attribute: ir.Attribute) -> np.ndarray:
    dense = ir.DenseElementsAttr(attribute)
    if str(dense.type.element_type) == "i1":
        return np.array([bool(v) for v in ir.DenseIntElementsAttr(dense)]).reshape(dense.type.shape)
    return np.array(attribute)
