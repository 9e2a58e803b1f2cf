"""Plan files from strangers and damaged caches: refused or made again, and nothing else happens."""

import json
import os
import stat

import jax
import jax.numpy as jnp
import msgspec
import pytest

import shardc
from shardc import files
from shardc.api.planning import plan_cache
from shardc.errors import PlanError, ShardcError
from shardc.files import read_data, write_whole
from shardc.plan.decisions import Plan, StagePlan
from shardc.plan.layout import Mesh
from shardc.plan.predicted import Predicted

PLAN = Plan(
    num_stages=2,
    num_microbatches=4,
    schedule="1f1b",
    stages=(
        StagePlan(Mesh((("x", 2),), (0, 1)), (0,)),
        StagePlan(Mesh((("x", 2),), (2, 3)), (1,)),
    ),
    shardings={},
    predicted=Predicted(1.0, 1, 1, 1.0, 0.0),
    objective=1.0,
    lower_bound=1.0,
    planning_time_s=1.0,
    fingerprint="abc",
)


def hostile(path, value):
    """The JSON of `PLAN` with another value at a path."""
    data = json.loads(msgspec.json.encode(PLAN))
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return json.dumps(data)


MESH = ("stages", 0, "mesh")
TEXTS = {
    "deep": '{"x":' + "[" * 100_000,
    "deeper in a field": '{"notes":' + '[{"data":' * 50_000,
    "NaN": hostile(("objective",), float("nan")),
    "infinite": hostile(("lower_bound",), 0).replace('"lower_bound": 0', '"lower_bound": 1e999'),
    "no stages": hostile(("stages",), []),
    "too many microbatches": hostile(("num_microbatches",), 10**12),
    "microbatches below 0": hostile(("num_microbatches",), -4),
    "a count of 5,000 digits": hostile(("num_chunks",), 1).replace(
        '"num_chunks": 1', f'"num_chunks": {"9" * 5000}'
    ),
    "more stages said": hostile(("num_stages",), 10**9),
    "an axis of 10^9": hostile((*MESH, "axes"), [["x", 10**9]]),
    "no such axis size": hostile((*MESH, "axes"), [["x", 0], ["y", -2]]),
    "axes twice": hostile((*MESH, "axes"), [["x", 2], ["x", 1]]),
    "an axis of 10^5 letters": hostile((*MESH, "axes"), [["x" * 100_000, 2]]),
    "an axis with line breaks": hostile((*MESH, "axes"), [["x\n}\nmodule {", 2]]),
    "devices below 0": hostile((*MESH, "device_ids"), [-1, 0]),
    "devices twice": hostile((*MESH, "device_ids"), [1, 1]),
    "a device of 10^9": hostile((*MESH, "device_ids"), [0, 10**9]),
    "layers below 0": hostile(("stages", 1, "layers"), [-1]),
    "arguments below 0": hostile(("batch_arguments",), [-1]),
    "dims of nothing": hostile(("batch_dims",), [0]),
    "a fingerprint with a path": hostile(("fingerprint",), "../../../etc/cron.d/x"),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_plan_file_of_a_stranger_is_refused(text, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        Plan.load(path)
    assert caught.value.code == "SHARDC-200" and caught.value.where == str(path)


def test_files_that_never_end_are_refused_at_once(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    (tmp_path / "large").write_bytes(b" " * 1001)
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero", tmp_path / "large"):
        with pytest.raises(PlanError):
            Plan.load(path)


def step(w, x):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w["a"]) @ w["b"]))(w)
    return jax.tree.map(lambda p, g: p - g, w, gradient), loss


def renamed_axis(data, name):
    return json.loads(json.dumps(data).replace('"x"', json.dumps(name)))


def renamed_functions(data):
    functions = {f"../../{name}": each for name, each in data["shardings"].items()}
    return {**data, "shardings": functions}


CHANGES = {
    "functions with paths": renamed_functions,
    "axis with quotes": lambda data: renamed_axis(data, 'x", "y"=2]> module {'),
    "axis that is a path": lambda data: renamed_axis(data, "../../x"),
    "loop cuts that are not there": lambda data: {**data, "loop_cuts": [999_999]},
    "a cut that is not there": lambda data: {
        **data, "stages": [{**stage, "cut": 10**6} for stage in data["stages"]],
    },
    "devices that are not there": lambda data: json.loads(
        json.dumps(data).replace('"device_ids": [0, 1]', '"device_ids": [0, 999999]')
    ),
    "no shardings": lambda data: {**data, "shardings": {}},
    "lanes of other words": lambda data: {**data, "lanes": [["rm", "-rf"]]},
    "a schedule of another name": lambda data: {**data, "schedule": "../../1f1b"},
}  # fmt: skip


@pytest.mark.slow
def test_a_plan_that_was_changed_is_refused_or_runs_right_and_writes_nothing(tmp_path, monkeypatch):
    w, x = {"a": jnp.eye(8), "b": jnp.ones((8, 2))}, jnp.ones((8, 8))
    made = shardc.jit(step, stages=1, microbatches=2, mesh={"x": 2}, devices=jax.devices()[:2])
    plan = made.lower(w, x).plan().plan
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "a" / "cache"))
    wrong = []
    for what, change in CHANGES.items():
        changed = change(json.loads(msgspec.json.encode(plan)))
        (inside / "plan.json").write_text(json.dumps(changed))
        try:
            got = shardc.jit(step, plan="plan.json", devices=jax.devices()[:2])(w, x)[1]
            wrong += [] if jnp.allclose(got, step(w, x)[1]) else [what]
        except ShardcError as error:
            wrong += [f"{what}: {error}"] if error.exit_code == 4 else []
    assert wrong == []
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "plan.json"]


def test_the_cache_is_private_and_a_damaged_plan_is_made_again(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(folder))
    plan_cache.store(PLAN)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert plan_cache.load("abc") == msgspec.structs.replace(PLAN, from_cache=True)
    (folder / "abc.json").rename(folder / "def.json")
    with pytest.warns(shardc.RequestWarning, match="damaged and will be replaced: it was made for"):
        assert plan_cache.load("def") is None
    (folder / "abc.json").write_bytes(msgspec.json.encode(PLAN)[:-20])
    with pytest.warns(shardc.RequestWarning, match="damaged and will be replaced"):
        assert plan_cache.load("abc") is None
    plan_cache.store(PLAN)
    assert plan_cache.load("abc") is not None
    assert sorted(path.name for path in folder.iterdir()) == ["abc.json", "def.json"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    write_whole(path, b"old")
    path.chmod(0o640)

    def full(*names):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            write_whole(path, b"new")
    assert read_data(path) == b"old" and os.listdir(tmp_path) == ["plan.json"]
    write_whole(path, b"new")
    assert read_data(path) == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o640
