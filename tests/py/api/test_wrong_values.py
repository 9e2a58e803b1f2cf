"""Whatever a public function is given, its error has a code, unless JAX raised it in tracing."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.plan.stages_spec import StageSpec
from shardc.schedule import registry

PARAMS, X = {"a": jnp.ones((8, 8)), "b": jnp.ones((8, 8))}, jnp.ones((8, 8))
GONE = Path("/dev/null/file")  # nobody can make it
STRANGE: list[Any] = [
    *(3, -1, 1.5, True, float("nan"), float("inf"), 10**30, b"x", "nonsense", "", "a\0b", None),
    *([], (), {}, [3], ["x"], [None], {"a": 3}, {3: 4}, set(), object(), lambda: 0),
    *(np.zeros(3), GONE, jax.devices()[0], "/proc/none.json", "/"),
]


def step(params: Any, x: Any) -> Any:
    def loss(params: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ params["a"]) @ params["b"]) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def check(call: Callable[[Any], object], values: list[Any] = STRANGE) -> int:
    """Calls it with each of the values; the number of coded errors."""
    codes: list[str] = []
    for value in values:
        try:
            call(value)
        except shardc.ShardcError as error:
            codes.append(error.code)
        except Exception as error:  # without a code: the bug that this looks for
            raise AssertionError(f"{value!r}: {type(error).__name__}: {error}") from error
    assert "SHARDC-999" not in codes
    return len(codes)


def given(call: Callable[..., object], rest: dict[str, Any], name: str) -> Callable[[Any], object]:
    """`call` as a function of one of its keyword arguments, with the others as they are."""
    return lambda value: call(**{**rest, name: value})


TRACED = {  # with these, JAX traces the function, and fails in it
    "static_argnums": ("-1", "True"),
    "static_argnames": ("['x']",),
}
OPTIONS = [name for name in inspect.signature(shardc.jit).parameters if name != "fun"]


@pytest.mark.parametrize("option", OPTIONS)
def test_options_of_jit(option: str) -> None:
    def lower(value: Any) -> None:
        options: dict[str, Any] = {"stages": 1, "microbatches": 1, option: value}
        shardc.jit(step, **options).lower(PARAMS, X)

    refused = check(lower, [v for v in STRANGE if repr(v) not in TRACED.get(option, ())])
    if option not in ("keep_unused",):  # taken for its truth, as by jax.jit, and without effect
        assert refused > 3


def test_the_function_of_jit_and_export() -> None:
    values = [each for each in STRANGE if not (callable(each) or each is None)]
    assert check(shardc.jit, values) == len(values)
    exported = [*values, None]
    refused = check(lambda fun: shardc.export(fun, PARAMS, X, path="/dev/null"), exported)
    assert refused == len(exported)
    check(lambda n: shardc.export(step, PARAMS, X, path="/dev/null", donate_argnums=n))


@pytest.fixture(scope="module")
def planned() -> Any:
    return shardc.jit(step, stages=1, microbatches=1).lower(PARAMS, X).plan()


def test_files_that_cannot_be_written(planned: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    spec = shardc.StagesSpec(1, (StageSpec(),))
    cluster = shardc.Cluster.load("cpu8")

    def opened(manager: Any) -> None:
        with manager:
            step(PARAMS, X)

    writers: list[Callable[[Any], object]] = [
        planned.plan.save,
        planned.report().save,
        spec.save,
        cluster.save,
        lambda path: shardc.export(step, PARAMS, X, path=path),
        lambda path: opened(shardc.trace(path)),
        lambda path: opened(shardc.rank_times(path)),
    ]
    paths = [each for each in STRANGE if repr(each) != "'nonsense'"]
    for write in writers:
        assert check(write, paths) >= len(paths) - 1
    with pytest.raises(shardc.ShardcError) as error:
        planned.plan.save(GONE / "r.json")
    assert error.value.where == str(GONE / "r.json")
    assert ".part" not in str(error.value)
    assert not list(tmp_path.glob("*"))


def test_files_that_cannot_be_read(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for load in (shardc.Plan.load, shardc.StagesSpec.load, shardc.Cluster.load):
        assert check(load) == len(STRANGE)
    assert check(shardc.Cluster.parse) == len(STRANGE)


def test_a_number_is_not_read_as_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("{}")
    with path.open() as file:
        with pytest.raises(shardc.ShardcError, match="is not a path"):
            shardc.Plan.load(file.fileno())  # type: ignore[arg-type]  # a wrong type
        assert file.read() == "{}"


def test_functions_of_the_state(planned: Any) -> None:
    check(shardc.gather)
    check(shardc.view)
    assert check(lambda device: shardc.gather(PARAMS, device)) == len(STRANGE) - 2
    assert check(lambda plan: shardc.reallocate(PARAMS, None, plan)) >= len(STRANGE) - 1
    assert check(lambda plan: shardc.reallocate(PARAMS, plan, planned)) >= len(STRANGE) - 2
    assert check(lambda state: shardc.reallocate(state, None, planned)) == len(STRANGE)
    assert check(shardc.batch_sharding) >= len(STRANGE) - 1


def test_stages_of_jit(planned: Any) -> None:
    compiled = planned.compile()
    check(planned.explain)
    for each in (planned, compiled):
        check(each.as_text)
        check(each.abstract_state)
    options = [
        each for each in STRANGE if repr(each) != "{'a': 3}"
    ]  # XLA refuses an unknown option itself
    check(lambda given: planned.compile(given), options)
    check(lambda x: compiled(PARAMS, x))
    check(lambda params: compiled(params, X))


def test_clusters_specs_and_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_own", {})
    monkeypatch.setattr(registry, "_registered", {})
    cluster = shardc.Cluster.load("cpu8")
    check(cluster.with_devices)
    check(cluster.with_memory)
    spec: dict[str, Any] = {"version": 1, "stages": (StageSpec(),)}
    for field in shardc.StagesSpec.__struct_fields__:
        check(given(shardc.StagesSpec, spec, field))
    for field in StageSpec.__struct_fields__:
        check(given(StageSpec, {}, field))
    family: dict[str, Any] = {"name": "mine", "order": lambda work, costs: []}
    for name in inspect.signature(shardc.register_schedule).parameters:
        check(given(shardc.register_schedule, family, name))


def test_every_public_name_is_here() -> None:
    """A new public function belongs into one of the tests above."""
    text = Path(__file__).read_text()
    types = {"ShardcError", "RequestWarning"}
    others = {"use_orbax", "initialize"}  # no arguments; those of jax.distributed.initialize
    for name in shardc._HOMES:
        assert name in types | others or f"shardc.{name}" in text
