"""Stage programs become XLA executables that compute, donate and are shared as they should."""

import threading

import jax
import msgspec
import numpy as np
import pytest

import shardc
from shardc.backend import programs
from shardc.backend.programs import CompiledProgram, compile_programs
from shardc.errors import InputError
from shardc.plan.executable import ArgumentSpec, Executable, ResultSpec, StageProgram, ValueSpec
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.value_id import is_computed
from tests.py.runtime.toy_step import toy_executable

AXES = (("x", 2), ("y", 2))
FIRST, SECOND = Mesh(AXES, (0, 1, 2, 3)), Mesh(AXES, (4, 5, 6, 7))

# A piece of a [8, 16] @ [16, 8] whose contracted dim lies over y, and the device's own index.
LOCAL = """
module {
  func.func @stage0_forward(%a: tensor<4x8xf32>, %b: tensor<8x8xf32>)
      -> (tensor<4x8xf32>, tensor<ui32>) {
    %part = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %sum = "stablehlo.all_reduce"(%part) <{
      replica_groups = dense<[[0,1],[2,3]]> : tensor<2x2xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}> ({
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %s = stablehlo.add %l, %r : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %id = stablehlo.partition_id : tensor<ui32>
    return %sum, %id : tensor<4x8xf32>, tensor<ui32>
  }
}"""

# The same product of whole values, with shardings for XLA's partitioner.
GLOBAL = """
module {
  sdy.mesh @stage0 = <["x"=2, "y"=2]>
  func.func @stage0_forward(
      %a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {"y"}]>},
      %b: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"y"}, {}]>})
      -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@stage0, [{"x"}, {}]>}, tensor<ui32>) {
    %sum = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      {sdy.sharding = #sdy.sharding_per_value<[<@stage0, [{"x"}, {}]>]>}
      : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
    %id = stablehlo.constant dense<7> : tensor<ui32>
    return %sum, %id : tensor<8x8xf32>, tensor<ui32>
  }
}"""


def product(stage: int, text: str = LOCAL, *, local: bool = True) -> StageProgram:
    """Donates its first arg, which no result replaces."""
    module = text.replace("stage0", f"stage{stage}").encode()
    return StageProgram(
        f"stage{stage}_forward", stage, FunctionKind.FORWARD, 0, module,
        (
            ValueSpec("v0", (8, 16), "float32", TensorSharding((("x",), ("y",)))),
            ValueSpec("v1", (16, 8), "float32", TensorSharding((("y",), ()))),
        ),
        (
            ValueSpec("v2", (8, 8), "float32", TensorSharding((("x",), ()))),
            ValueSpec("v3", (), "uint32", TensorSharding((), ("x", "y") if local else ())),
        ),
        (0,), local,
    )  # fmt: skip


def compiled(*programs: StageProgram, meshes=(FIRST, SECOND)) -> tuple[CompiledProgram, ...]:
    return compile_programs(Executable(meshes, programs, (), (), 1, ((), ())), jax.devices())


def run(program: CompiledProgram):
    random = np.random.default_rng(0)
    a, b = (random.normal(size=s).astype(np.float32) for s in ((8, 16), (16, 8)))
    first, second = (
        jax.device_put(v, s) for v, s in zip((a, b), program.in_shardings, strict=True)
    )
    results = program.call(first, second)
    np.testing.assert_allclose(results[0], a @ b, atol=1e-5)
    for result, sharding in zip(results, program.out_shardings, strict=True):
        assert result.sharding.is_equivalent_to(sharding, result.ndim)
    return first, results


@pytest.mark.parametrize("stage", [0, 1])
def test_a_local_program_runs_on_its_mesh_with_its_own_collectives(stage):
    (program,) = compiled(product(stage))
    donated, (_, ids) = run(program)
    assert donated.is_deleted()
    # The ids are "partial sums": each device keeps its own, counted from the mesh's first device.
    assert [int(shard.data) for shard in ids.addressable_shards] == [0, 1, 2, 3]


@pytest.mark.parametrize("stage", [0, 1])
def test_a_global_program_is_partitioned_by_xla(stage):
    (program,) = compiled(product(stage, GLOBAL, local=False))
    run(program)
    assert "all-reduce" in program.call.as_text()
    assert "f32[4,8]" in program.call.as_text()


def test_equal_programs_on_the_same_devices_share_one_executable():
    again = msgspec.structs.replace(
        product(0), name="other", module=LOCAL.replace("stage0_forward", "other").encode()
    )
    one, two, elsewhere = compiled(product(0), again, product(1))
    assert one.call is two.call
    assert one.call is not elsewhere.call
    assert run(one)[1][0].devices() != run(elsewhere)[1][0].devices()


def test_one_device_needs_no_axes():
    text = "func.func @one(%a: tensor<3xf32>) -> tensor<3xf32> { return %a : tensor<3xf32> }"
    value = ValueSpec("v0", (3,), "float32", TensorSharding(((),)))
    program = StageProgram("one", 0, FunctionKind.FORWARD, 0, text.encode(), (value,), (value,))
    (one,) = compiled(program, meshes=(Mesh((), (5,)),))
    (result,) = one.call(jax.device_put(np.arange(3, dtype=np.float32), one.in_shardings[0]))
    assert result.devices() == {jax.devices()[5]}


def test_each_accumulator_and_parameter_is_updated_in_its_own_buffer():
    for program in compile_programs(toy_executable(), jax.devices()):
        for i, spec in enumerate(program.args):
            if spec.value.startswith("acc") and i in program.donated and i < len(program.results):
                assert program.results[i].value == spec.value
    by_name = {p.program.name: p for p in compile_programs(toy_executable(), jax.devices())}
    assert (
        "{0}: (0, {}, may-alias), {1}: (1, {}, may-alias)"
        in by_name["stage1_forward"].call.as_text()
    )


def test_an_update_reuses_the_gradients_of_a_single_microbatch():
    """They are no accumulators: the backward pass hands them over, and nothing else reads them."""

    def step(w, x):
        loss, gradient = jax.value_and_grad(lambda w: jax.numpy.mean(jax.numpy.tanh(x @ w)))(w)
        return w - gradient, loss

    args = np.ones((8, 8), np.float32), np.ones((16, 8), np.float32)
    wrapped = shardc.jit(step, devices=jax.devices()[:1], stages=1, microbatches=1)
    made = wrapped.lower(*args).plan().executable.programs
    [update] = [each for each in made if each.kind is FunctionKind.UPDATE]
    donated = {update.args[position].value for position in update.donated}
    computed = {spec.value for spec in update.args if is_computed(spec.value)}
    assert computed
    assert computed == donated & computed
    assert "arg0" not in donated  # the caller keeps it


def test_two_arguments_of_one_type_do_not_swap_buffers():
    text = """func.func @swap(%a: tensor<4xf32>, %b: tensor<4xf32>)
        -> (tensor<4xf32>, tensor<4xf32>) {
      %c = stablehlo.add %a, %a : tensor<4xf32>
      %d = stablehlo.add %b, %b : tensor<4xf32>
      return %d, %c : tensor<4xf32>, tensor<4xf32>
    }"""
    values = [
        ValueSpec(v, (4,), "float32", TensorSharding(((),))) for v in ("arg0", "arg1", "v0", "v1")
    ]
    program = StageProgram(
        "swap",
        0,
        FunctionKind.UPDATE,
        0,
        text.encode(),
        tuple(values[:2]),
        tuple(values[2:]),
        (0, 1),
    )
    arguments = tuple(
        ArgumentSpec(f"a{i}", (4,), "float32", 0, donated=True, aliased_result=1 - i)
        for i in (0, 1)
    )
    results = tuple(ResultSpec(f"v{i}", (4,), "float32", 0) for i in (0, 1))
    executable = Executable((Mesh((), (0,)),), (program,), arguments, results, 1, ((),))
    (swap,) = compile_programs(executable, jax.devices())
    assert [spec.value for spec in swap.args] == ["arg0", "arg1"]
    assert [spec.value for spec in swap.results] == ["v1", "v0"]
    first, second = (
        jax.device_put(jax.numpy.full(4, i, np.float32), s)
        for i, s in zip((1, 2), swap.in_shardings, strict=True)
    )
    pointers = [first.unsafe_buffer_pointer(), second.unsafe_buffer_pointer()]
    out = swap.call(first, second)
    assert [float(value[0]) for value in out] == [2.0, 4.0]
    assert [value.unsafe_buffer_pointer() for value in out] == pointers


def test_programs_go_through_the_persistent_compilation_cache(tmp_path, monkeypatch):
    events: list[str] = []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
    settings = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        jax.experimental.compilation_cache.compilation_cache.reset_cache()
        compiled(product(0))
        assert events.count("/jax/compilation_cache/cache_hits") == 0
        run(compiled(product(0))[0])
        assert events.count("/jax/compilation_cache/cache_hits") == 1
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        jax.experimental.compilation_cache.compilation_cache.reset_cache()


def test_an_interrupt_does_not_wait_for_what_xla_compiles(monkeypatch):
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def compile_one(options, job):
        if job[1][0] == jax.devices()[0]:
            assert begun.wait(10)
            raise KeyboardInterrupt
        begun.set()
        assert release.wait(10)
        ended.set()

    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(programs, "_compile", compile_one)
    with pytest.raises(KeyboardInterrupt):
        compiled(product(0), product(1))
    assert not ended.is_set()
    release.set()
    assert ended.wait(10)


def test_64_bit_values_need_x64():
    value = ValueSpec("v0", (3,), "float64", TensorSharding(((),)))
    text = "func.func @wide(%a: tensor<3xf64>) -> tensor<3xf64> { return %a : tensor<3xf64> }"
    program = StageProgram("wide", 0, FunctionKind.FORWARD, 0, text.encode(), (value,), (value,))
    with pytest.raises(InputError, match="jax_enable_x64 is off") as caught:
        compiled(program, meshes=(Mesh((), (0,)),))
    assert caught.value.code == "SHARDC-261"
    with jax.enable_x64(True):
        (wide,) = compiled(program, meshes=(Mesh((), (0,)),))
        assert wide.call(jax.device_put(np.ones(3), wide.in_shardings[0]))[0].dtype == np.float64
