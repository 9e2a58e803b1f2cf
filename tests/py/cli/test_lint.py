"""`shardc lint`, `what-if` and `doctor`: what a program pays for, here and elsewhere."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from shardc.analysis.roles.costly_collectives import costly_collectives
from shardc.calibrate.link_probes import PAIR_BYTES, probe_pair
from shardc.cli import doctor
from shardc.cluster import Cluster, Device, Level
from shardc.ir.context import parse
from tests.py.cli.programs import shardc


def step(state: Any, tokens: Any) -> Any:
    """Reads tokens, and says which of 509 words comes next."""

    def loss(params: Any) -> Any:
        h = params["in"][tokens]
        scores = jnp.tanh(h) @ params["out"]
        return -jnp.mean(jax.nn.log_softmax(scores)[..., 0])

    value, gradients = jax.value_and_grad(loss)(state)
    return jax.tree.map(lambda p, g: p - 0.1 * g, state, gradients), value


def example(size: int = 32) -> Any:
    """Arguments for `step`; `size` sequences."""
    params = {
        "in": jax.ShapeDtypeStruct((512, 64), jnp.float32),
        "out": jax.ShapeDtypeStruct((64, 509), jnp.float32),
    }
    return params, jax.ShapeDtypeStruct((size, 8), jnp.int32)


FUNCTION = ("tests.py.cli.test_lint:step", "tests.py.cli.test_lint:example", "--donate", "0")
SHAPE = ("--stages", 1, "--microbatches", 1)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    device = Device("test", 1 << 24, {"default": 1e9}, 1e11)
    Cluster("test", device, (Level("link", 4, 1e8, 1e-6),)).save(tmp_path / "cluster.json")
    return tmp_path / "cluster.json"


@pytest.mark.slow
def test_findings_have_prices_and_strict_is_exit_1(cluster: Path) -> None:
    given = ["lint", *FUNCTION, *SHAPE, "--cluster", cluster, "--mesh", "4"]
    found = shardc(*given, "--format", "json")
    assert found.exit_code == 0, found.output
    findings = {each["kind"]: each for each in json.loads(found.stdout)["findings"]}
    uneven = findings["uneven-dim"]
    assert "has size 509" in uneven["words"]
    assert "pad it to 512" in uneven["help"]
    assert uneven["seconds"] > 0 or uneven["num_bytes"] > 0
    assert shardc(*given, "--strict").exit_code == 1


LOCAL = """
module attributes {shardc.num_microbatches = 2 : i64} {
  func.func @stage0_forward(%a: tensor<8xbf16>) -> tensor<16xf32>
      attributes {shardc.kind = "forward", shardc.stage = 0 : i64} {
    %0 = stablehlo.convert %a : (tensor<8xbf16>) -> tensor<8xf32>
    %1 = "stablehlo.all_gather"(%0) {all_gather_dim = 0 : i64,
      replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<8xf32>) -> tensor<16xf32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %five = stablehlo.constant dense<5> : tensor<i32>
    %2:2 = stablehlo.while(%i = %zero, %x = %1) : tensor<i32>, tensor<16xf32>
    cond {
      %c = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %n = stablehlo.add %i, %one : tensor<i32>
      %y = "stablehlo.all_reduce"(%x) ({
        ^bb0(%l: tensor<f32>, %r: tensor<f32>):
          %s = stablehlo.add %l, %r : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<16xf32>) -> tensor<16xf32>
      stablehlo.return %n, %y : tensor<i32>, tensor<16xf32>
    }
    return %2#1 : tensor<16xf32>
  }
}
"""


def test_collectives_in_loops_and_behind_upcasts_are_found() -> None:
    module = parse(LOCAL)
    with module.context:
        upcast, in_loop = costly_collectives(module.operation)
    assert (upcast.narrow, upcast.wasted_bytes) == ("bfloat16", 2 * 8 * 2)
    assert (in_loop.loops, in_loop.times, in_loop.wasted_bytes) == (5, 10, 4 * 64 * 2)


@pytest.mark.slow
def test_what_if_is_a_table_of_machines_and_batches(cluster: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    found = shardc(
        *("what-if", *FUNCTION, *SHAPE, "--clusters", cluster, "--devices", "1,4"),
        *("--batches", "32", "--memory-limits", "16MiB,1KiB", "--csv", table, "--format", "json"),
    )
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    rows = data["rows"]
    assert [(row["devices"], row["fits"]) for row in rows] == [
        (1, True),
        (1, False),
        (4, True),
        (4, False),
    ]
    assert rows[0]["tokens_per_s"] == pytest.approx(32 * 8 / rows[0]["step_s"])
    assert data["cheapest"] == [min((0, 2), key=lambda n: rows[n]["device_s"])]
    assert len(list(csv.DictReader(table.read_text().splitlines()))) == 4
    for row in rows:
        assert row["fits"] == bool(row["judged"])
    ranked = [each["exact"]["step_time_s"] for each in rows[2]["judged"] if each["exact"]]
    assert len(ranked) > 1 and ranked == sorted(ranked) and ranked[0] == rows[2]["step_s"]


@pytest.mark.slow
def test_what_if_writes_a_page_and_counts_prices(cluster: Path, tmp_path: Path) -> None:
    page, given = tmp_path / "page.html", ("--clusters", cluster, "--devices", "4")
    found = shardc(
        *("what-if", *FUNCTION, *SHAPE, *given, "--prices", f"{cluster}=7.2", "-o", page),
        *("--memory-limits", "16MiB,1KiB", "--format", "json"),
    )
    assert found.exit_code == 0, found.output
    first, second = json.loads(found.stdout)["rows"]
    assert first["price"] == pytest.approx(7.2 * 4 * first["step_s"] / 3600)
    assert second["price"] is None
    html = page.read_text()
    assert "Step time" in html and "Price per step" in html
    assert "does not fit" in html


@pytest.mark.slow
def test_clusters_may_be_listed_or_repeated(cluster: Path) -> None:
    """The last one replaced the others."""
    clusters = ("--cluster", cluster, "--cluster", "a100-8,h100-8")
    found = shardc("what-if", *FUNCTION, *SHAPE, *clusters, "--devices", "1", "--format", "json")
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)["rows"]
    assert [row["cluster"] for row in rows][1:] == ["a100-8", "h100-8"] and len(rows) == 3


@pytest.mark.parametrize("prices", ["h100", "nothing=1", "CLUSTER=0", "CLUSTER=x"])
def test_prices_are_of_the_clusters_asked_for(prices: str, cluster: Path) -> None:
    prices = prices.replace("CLUSTER", str(cluster))
    found = shardc("what-if", *FUNCTION, "--clusters", cluster, "--prices", prices)
    assert found.exit_code == 2
    assert "SHARDC-180" in found.stderr


def test_no_machine_has_no_devices(cluster: Path) -> None:
    found = shardc("what-if", *FUNCTION, "--cluster", cluster, "--devices", "8,0")
    assert found.exit_code == 2
    assert "--devices 8,0 has numbers below 1" in found.stderr


def test_batches_need_a_function(cluster: Path) -> None:
    found = shardc("what-if", "step.mlir", "--cluster", cluster, "--batches", "1")
    assert found.exit_code == 2
    assert "SHARDC-180" in found.stderr


@pytest.mark.slow
def test_the_doctor_tries_what_steps_need() -> None:
    found = json.loads(shardc("doctor", "--format", "json").stdout)
    assert all(check["works"] for check in found["checks"]), found
    assert found["facts"]["jax"] == jax.__version__
    assert re.fullmatch(
        r"all-reduce of 4 KiB in [\d.]+ \w+, .*; transfer of 4 KiB in [\d.]+ \w+, .*",
        found["facts"]["link"],
    )


@pytest.mark.slow
def test_the_link_of_two_devices_is_measured_for_small_and_large_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = probe_pair(jax.devices()[:2], 1e9)
    assert found.keys() == {"all_reduce", "transfer"}
    assert all(each.keys() == set(PAIR_BYTES) and min(each.values()) > 0 for each in found.values())
    monkeypatch.setattr(doctor, "LINK_S", 1e-9)
    assert doctor._link(jax.devices()[:2]) == "not measured: the machine is too busy"


@pytest.mark.slow
def test_the_doctor_says_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no child")

    monkeypatch.setattr(doctor, "_parser", fail)
    found = shardc("doctor")
    assert found.exit_code == 1
    assert "the parser's child process: fails: OSError: no child" in found.output


@pytest.mark.slow
@pytest.mark.parametrize("command", [("lint", "--cluster"), ("what-if", "--clusters")])
def test_what_looks_at_a_program_keeps_to_the_shardings_asked_for(
    command: tuple[str, str], cluster: Path
) -> None:
    name, option = command
    found = shardc(name, *FUNCTION, *SHAPE, option, cluster, "--sharding", "nothing.like.it=x")
    assert found.exit_code == 2 and "nothing.like.it" in found.output


@pytest.mark.slow
def test_lint_takes_a_plan_for_its_own_program_alone(cluster: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    given = ["lint", *FUNCTION, "--cluster", cluster, "--plan", plan]
    plan.write_text("{}")
    found = shardc(*given, "--stages", 2)
    assert found.exit_code == 2 and "SHARDC-200" in found.output
