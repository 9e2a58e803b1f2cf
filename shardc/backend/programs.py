"""Compile stage programs: MLIR text in, loaded XLA executables out."""

import functools
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.export import default_export_platform
from jax.sharding import AbstractMesh, NamedSharding

from shardc.backend.mergeable_module import mergeable_module
from shardc.backend.meshes import (
    abstract_mesh,
    concrete_mesh,
    local_shape,
    mesh_devices,
    partition_spec,
)
from shardc.backend.primitive import Callback, ProgramModule, run_program
from shardc.backend.room_for_programs import check_room_for
from shardc.errors import InputError
from shardc.plan.executable import Executable, StageProgram, ValueSpec
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.value_id import argument_id
from shardc.progress import say


@dataclass(frozen=True)
class CompiledProgram:
    """A stage program on its devices.

    Attributes:
        call: takes the arrays of `args`, returns those of `results`; never blocks.
        args: the program's arguments, reordered so that donation is in place.
        results: the program's results, likewise.
        in_shardings: one per arg, on the stage's devices.
        out_shardings: one per result.
        donated: positions in `args` whose buffers are gone after the call.
    """

    program: StageProgram
    call: "jax.stages.Compiled | Elsewhere"
    args: tuple[ValueSpec, ...]
    results: tuple[ValueSpec, ...]
    in_shardings: tuple[NamedSharding, ...]
    out_shardings: tuple[NamedSharding, ...]
    donated: tuple[int, ...]


class Elsewhere:
    """Placeholder for a program whose devices all belong to other processes."""

    def __call__(self, *args: Any) -> Any:
        raise AssertionError("a program runs on the processes of its devices")

    def as_text(self) -> str:
        """Nothing: this process did not compile it."""
        return ""

    def cost_analysis(self) -> None:
        """Nothing."""

    def memory_analysis(self) -> None:
        """Nothing."""


def compile_programs(
    executable: Executable,
    devices: Sequence[jax.Device],
    compiler_options: dict[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    doing: str = "compiling",
) -> tuple[CompiledProgram, ...]:
    """Compiles every program of `executable`, in the order of `executable.programs`.

    Programs that are equal up to names are lowered once; on the same devices they are also compiled
    once and share the XLA executable. For other devices XLA needs another executable (its device
    assignment is fixed), compiled from the same lowering. Different programs are compiled in
    parallel threads (XLA releases the GIL). `Lowered.compile` compiles them all, so JAX's
    persistent compilation cache applies.

    Args:
        devices: the cluster's devices; `Mesh.device_ids` are positions in it.
        compiler_options: XLA's, for every program.
        callbacks: of the host calls in the programs, by their number.
        doing: what progress says.
    Raises:
        InputError: SHARDC-261, a program has 64-bit values and `jax_enable_x64` is off; 265, the
            process cannot take so many more programs.
    """
    platform = lowering_platform(devices[0])
    orders = [_order(program, executable) for program in executable.programs]
    lowered: dict[_Key, jax.stages.Lowered] = {}
    placed: dict[tuple[_Key, tuple[int, ...]], int] = {}
    jobs: list[tuple[jax.stages.Lowered, tuple[jax.Device, ...]]] = []
    job_of_program: list[int | None] = []
    own = {device for device in devices if device.process_index == jax.process_index()}
    for program, order in zip(executable.programs, orders, strict=True):
        mesh = executable.meshes[program.stage]
        if own.isdisjoint(mesh_devices(mesh, devices)):
            job_of_program.append(None)
            continue
        key = _key(program, mesh, order, callbacks)
        if key not in lowered:
            lowered[key] = _lower(program, mesh, order, key.module, platform, devices)
        job = placed.setdefault((key, mesh.device_ids), len(jobs))
        if job == len(jobs):
            jobs.append((lowered[key], mesh_devices(mesh, devices)))
        job_of_program.append(job)
    if platform == "cpu":
        check_room_for(len(jobs))
    compile_one = functools.partial(_compile, compiler_options)
    say(f"{doing}: 0 of {len(jobs)} programs")
    pool = ThreadPoolExecutor(max_workers=os.cpu_count())
    try:
        compiling = [pool.submit(compile_one, job) for job in jobs]
        for number, done in enumerate(as_completed(compiling), 1):
            done.result()  # an error is not held back until all are done
            say(f"{doing}: {number} of {len(jobs)} programs")
        calls = [each.result() for each in compiling]
    finally:  # Ctrl-C does not wait for the programs that XLA is compiling
        pool.shutdown(wait=False, cancel_futures=True)
    return tuple(
        _bundle(
            program,
            executable.meshes[program.stage],
            order,
            Elsewhere() if job is None else calls[job],
            devices,
        )
        for program, order, job in zip(executable.programs, orders, job_of_program, strict=True)
    )


def placed_programs(
    executable: Executable, devices: Sequence[jax.Device]
) -> tuple[CompiledProgram, ...]:
    """Every program on its devices, not compiled: shows the placement of values."""
    return tuple(
        _bundle(
            program,
            executable.meshes[program.stage],
            _order(program, executable),
            Elsewhere(),
            devices,
        )
        for program in executable.programs
    )


@dataclass(frozen=True)
class _Order:
    """Order of args and results in the compiled call.

    The first ones are pairs: such a result may reuse the arg's buffer.
    """

    args: tuple[int, ...]
    results: tuple[int, ...]
    donated: tuple[int, ...]


@dataclass(frozen=True)
class _Key:
    """Programs with equal keys have equal lowerings."""

    module: ProgramModule
    args: tuple[tuple[tuple[int, ...], str, TensorSharding], ...]
    results: tuple[tuple[tuple[int, ...], str, TensorSharding], ...]
    axes: tuple[tuple[str, int], ...]
    order: _Order
    local: bool
    pinned: tuple[int, ...]


def _key(program: StageProgram, mesh: Mesh, order: _Order, callbacks: Sequence[Callback]) -> _Key:
    module = mergeable_module(program.module, program.name, local=program.local)
    args = tuple((spec.shape, spec.dtype, spec.sharding) for spec in program.args)
    results = tuple((spec.shape, spec.dtype, spec.sharding) for spec in program.results)
    pinned = () if program.args else mesh.device_ids
    return _Key(
        ProgramModule(module, callbacks), args, results, mesh.axes, order, program.local, pinned
    )


def _order(program: StageProgram, executable: Executable) -> _Order:
    """Puts each donated arg and the result that replaces it at the same position.

    JAX assigns a donated buffer to the first result of that type. With the pairs first, each
    accumulator and each parameter is updated in place.
    """
    result_of_value = {spec.value: i for i, spec in enumerate(program.results)}
    successor = {
        argument_id(i): executable.results[argument.aliased_result].value
        for i, argument in enumerate(executable.arguments)
        if argument.aliased_result is not None
    }
    pairs = []
    for position in program.donated:
        arg = program.args[position]
        result = result_of_value.get(successor.get(arg.value, arg.value))
        if result is not None and _same_type(arg, program.results[result]):
            pairs.append((position, result))
    first_args = [position for position, _ in pairs]
    first_results = [result for _, result in pairs]
    args = first_args + [i for i in range(len(program.args)) if i not in set(first_args)]
    results = first_results + [
        i for i in range(len(program.results)) if i not in set(first_results)
    ]
    donated = tuple(i for i, position in enumerate(args) if position in set(program.donated))
    return _Order(tuple(args), tuple(results), donated)


def lowering_platform(device: jax.Device) -> str:
    """JAX's lowering platform of a device: "cuda" or "rocm" for a platform "gpu"."""
    return default_export_platform() if device.platform == "gpu" else device.platform


def _same_type(arg: ValueSpec, result: ValueSpec) -> bool:
    return (arg.shape, arg.dtype, arg.sharding) == (result.shape, result.dtype, result.sharding)


def _lower(
    program: StageProgram,
    mesh: Mesh,
    order: _Order,
    text: ProgramModule,
    platform: str,
    devices: Sequence[jax.Device],
) -> jax.stages.Lowered:
    """Traces and lowers a program for any devices in a mesh of this shape."""
    for spec in program.args + program.results:
        _check_dtype(spec, program)
    jax_mesh: AbstractMesh | jax.sharding.Mesh = abstract_mesh(mesh)
    if not program.args:
        jax_mesh = concrete_mesh(mesh, devices)
    args = [program.args[i] for i in order.args]
    results = [program.results[i] for i in order.results]
    in_specs = tuple(partition_spec(spec.sharding) for spec in args)
    out_specs = [partition_spec(spec.sharding) for spec in results]
    place_of_arg = np.argsort(order.args).tolist()
    avals = tuple(
        ShapedArray(local_shape(spec, mesh) if program.local else spec.shape, np.dtype(spec.dtype))
        for spec in program.results
    )

    def body(*values: jax.Array) -> list[jax.Array]:
        own = run_program(tuple(values[i] for i in place_of_arg), text, avals)
        return [own[i] for i in order.results]

    body.__name__ = program.name
    # Of what returns nothing, JAX would drop all arguments, and the devices with them.
    options: dict[str, Any] = {"donate_argnums": order.donated, "keep_unused": not results}
    function: Callable[..., Any] = body
    if program.local:
        function = jax.shard_map(
            body, mesh=jax_mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )
    else:
        unreduced = [spec.value for spec in args + results if spec.sharding.unreduced]
        assert not unreduced, f"{program.name}: XLA cannot be handed partial sums: {unreduced}"
        options["out_shardings"] = [NamedSharding(jax_mesh, spec) for spec in out_specs]
    example: Callable[..., jax.ShapeDtypeStruct] = jax.ShapeDtypeStruct
    examples = [
        example(spec.shape, np.dtype(spec.dtype), sharding=NamedSharding(jax_mesh, partition))
        for spec, partition in zip(args, in_specs, strict=True)
    ]
    with warnings.catch_warnings():
        # A donated stash may match no result's size; freeing it is enough.
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        traced = jax.jit(function, **options).trace(*examples)
        return traced.lower(lowering_platforms=(platform,))


def _check_dtype(spec: ValueSpec, program: StageProgram) -> None:
    if jax.dtypes.canonicalize_dtype(spec.dtype) != np.dtype(spec.dtype):
        raise InputError(
            f"'{program.name}' has values of type {spec.dtype}, and jax_enable_x64 is off",
            code="SHARDC-261",
            help="jax.config.update('jax_enable_x64', True) before the program is compiled",
        )


def _compile(
    options: dict[str, Any] | None, job: tuple[jax.stages.Lowered, tuple[jax.Device, ...]]
) -> jax.stages.Compiled:
    lowered, devices = job
    return lowered.compile(compiler_options=options, device_assignment=devices)


def _bundle(
    program: StageProgram,
    mesh: Mesh,
    order: _Order,
    call: jax.stages.Compiled | Elsewhere,
    devices: Sequence[jax.Device],
) -> CompiledProgram:
    jax_mesh = concrete_mesh(mesh, devices)
    args = tuple(program.args[i] for i in order.args)
    results = tuple(program.results[i] for i in order.results)
    return CompiledProgram(
        program,
        call,
        args,
        results,
        tuple(NamedSharding(jax_mesh, partition_spec(spec.sharding)) for spec in args),
        tuple(NamedSharding(jax_mesh, partition_spec(spec.sharding)) for spec in results),
        order.donated,
    )
