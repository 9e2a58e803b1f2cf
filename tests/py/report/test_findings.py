"""Avoidable costs: what is found, and for what price."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import pytest

import shardc
from shardc.analysis.roles.replicated_values import ReplicatedValue
from shardc.cluster import Cluster, Device, Level
from shardc.plan.notes import Data, Note, NoteCode
from shardc.plan.priced_work import Work
from shardc.report.findings.lint import _of_value
from shardc.report.findings.of_plan import findings
from shardc.report.findings.padding import _most_shards
from shardc.report.model import Finding

DEVICE = Device("test", 1 << 30, {"default": 1e12}, 1e11)
CLUSTER = Cluster("test", DEVICE, (Level("link", 8, 1e11, 1e-7),))
SLOW = Cluster("slow", DEVICE, (Level("link", 8, 1e7, 1e-3),))  # all devices do the same there


def step(state: Any, tokens: Any) -> Any:
    """Reads tokens, and says which word comes next; momentum."""

    def loss(params: Any) -> Any:
        scores = jnp.tanh(params["in"][tokens]) @ params["out"]
        return -jnp.mean(jax.nn.log_softmax(scores)[..., 0])

    params, momentum = state["params"], state["momentum"]
    value, gradients = jax.value_and_grad(loss)(params)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return {
        "params": jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum),
        "momentum": momentum,
    }, value


def planned(
    words: int, rows: int = 64, wish: tuple[Any, ...] = (), cluster: Cluster = CLUSTER
) -> Any:
    params = {
        "in": jax.ShapeDtypeStruct((words, 256), jnp.float32),
        "out": jax.ShapeDtypeStruct((256, words), jnp.float32),
    }
    tokens = jax.ShapeDtypeStruct((rows, 16), jnp.int32)
    function = shardc.jit(
        step,
        stages=1,
        microbatches=1,
        cluster=cluster,
        donate_argnums=0,
        mesh={"d": 8},
        shardings=dict(wish),
    )
    return function.lower({"params": params, "momentum": params}, tokens).plan()


def found(plan: Any) -> dict[str, Finding]:
    """The most expensive finding of each kind."""
    return {each.kind: each for each in reversed(findings(plan))}


@pytest.mark.parametrize(("words", "padded"), [(515, 520), (509, 512), (1001, 1008)])
def test_a_dim_that_just_fails_to_divide_is_padded_as_little_as_it_takes(
    words: int, padded: int
) -> None:
    uneven = found(planned(words).plan)["uneven-dim"]
    assert f"has size {words:,}, which no axis of 8 divides" in uneven.words
    assert f"pad it to {padded:,} (" in uneven.help
    assert uneven.seconds is not None and uneven.seconds > 0 and uneven.num_bytes > 0


def test_padding_divides_by_as_many_devices_as_it_can() -> None:
    assert [_most_shards(n, [2, 4]) for n in (520, 516, 514, 515)] == [8, 4, 2, 1]
    assert _most_shards(12, [3, 8]) == 3


def test_replicated_state_costs_its_update_and_memory() -> None:
    whole = jax.sharding.PartitionSpec()
    rows = jax.sharding.PartitionSpec("d")
    wish = (("params.*", whole), ("momentum.*", whole), ("tokens", rows))
    plan = planned(512, 64, wish).plan
    state = found(plan)["unsharded-optimizer"]
    held = 2 * 512 * 256 * 4
    assert state.num_bytes == held - held // 8
    update_s = sum(part.seconds for part in plan.account.parts if part.kind.value == "update")
    assert state.seconds == pytest.approx(update_s / 2 * 7 / 8)
    parameters = found(plan)["replicated-value"]
    assert parameters.seconds == pytest.approx(update_s / 4 * 7 / 8)
    assert "of all-gathers per step" in parameters.help
    assert "2 large values of the optimizer state" in state.words


def test_what_has_another_finding_is_not_called_replicated() -> None:
    names = [each.words for each in findings(planned(515).plan) if each.kind == "replicated-value"]
    assert not any("['out']" in words for words in names)


def test_a_batch_that_is_not_found_costs_activations_and_no_known_time() -> None:
    plan = planned(512).plan
    note = Note(NoteCode.FEWER, {"what": "microbatches", "count": 1, "reason": "none is found"})
    missing = found(msgspec.structs.replace(plan, notes=(note,)))["no-batch"]
    held = plan.stages[0].memory.stash + plan.stages[0].memory.temporaries
    assert missing.seconds is None and missing.num_bytes == held // 2 > 0
    assert missing.price.endswith("KiB") or missing.price.endswith("MiB")


def test_a_batch_that_cannot_be_split_gets_the_help_of_its_refusal() -> None:
    def contrastive(params: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            rows = jnp.tanh(x @ params["in"]) @ params["out"]
            return -jnp.mean(jnp.diagonal(jax.nn.log_softmax(rows @ rows.T)))

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    params = {name: jax.ShapeDtypeStruct((512, 512), jnp.float32) for name in ("in", "out")}
    function = shardc.jit(contrastive, stages=2, microbatches=4, schedule="1f1b", cluster=CLUSTER)
    x = jax.ShapeDtypeStruct((64, 512), jnp.float32)
    with pytest.warns(shardc.RequestWarning, match="1 microbatch instead of 4"):
        plan = function.lower(params, x).plan().plan
    whole, waiting = found(plan)["no-batch"], found(plan)["waiting"]
    assert "compute this per example" in whole.help and "batch_argnums" not in whole.help
    assert "has one microbatch" in waiting.words and waiting.help == "use fewer stages"
    free = found(msgspec.structs.replace(plan, notes=()))
    assert "no-batch" not in free and "more microbatches" in free["waiting"].help


def test_a_batch_split_into_fewer_microbatches_than_requested_is_split() -> None:
    data: Data = {"what": "microbatches", "count": 2, "asked": 3, "reason": "", "help": "use 2"}
    plan = msgspec.structs.replace(planned(512).plan, num_microbatches=2)
    assert "no-batch" not in found(
        msgspec.structs.replace(plan, notes=(Note(NoteCode.FEWER, data),))
    )


def test_a_price_is_a_time_bytes_both_or_not_known() -> None:
    assert Finding("a", "", "", 0.002, 2048).price == "2 ms, 2 KiB"
    assert Finding("a", "", "", 0.0).price == "0 ns"
    assert Finding("a", "", "", num_bytes=2048).price == "2 KiB"
    assert Finding("a", "", "").price == "not priced"
    large = Finding("a", "too large", "make it smaller", 0.002, place="a.py:3")
    assert str(large) == "a [2 ms] at a.py:3: too large\n    make it smaller"


def test_lint_in_python_has_all_findings_and_results_that_every_device_computes() -> None:
    made = planned(512, 60, (), SLOW)
    listed = made.lint()
    assert [each.kind for each in findings(made.plan)] <= [each.kind for each in listed]
    assert {each.kind for each in made.warnings()} <= {each.kind for each in listed}
    prices = [each.seconds or 0.0 for each in listed]
    assert prices == sorted(prices, reverse=True)
    results = [each for each in listed if each.kind == "replicated-result"]
    words = "dot_general of stage 0 makes 60x16x512 float32"
    (scores,) = (each for each in results if each.words.startswith(words))
    num_bytes = 60 * 16 * 512 * 4
    assert scores.num_bytes == num_bytes * 7 // 8
    flops_s = 2 * 60 * 16 * 512 * 256 / 1e12
    assert scores.seconds is not None and flops_s * 7 / 8 <= scores.seconds
    assert scores.seconds < made.plan.terms.step_time_s
    assert "test_findings.py:" in scores.place


def test_what_would_divide_is_not_said_to_lack_a_dim() -> None:
    plan = planned(512, 60, (), SLOW).plan
    value = ReplicatedValue(
        "stablehlo.add", 0, "", (3, 8), "float32", 1, 96, Work("float32", 24, 288, 1), 1
    )
    odd = replace(value, shape=(3, 7))
    assert _of_value(value, plan).help.startswith("splitting costs more than it saves here")
    assert _of_value(odd, plan).help.startswith("give it a dim that divides by the mesh")


@pytest.mark.slow
def test_results_that_are_split_are_not_found() -> None:
    rows = (("tokens", jax.sharding.PartitionSpec("d")),)
    for each in planned(512, 64, rows).lint():
        if each.kind == "replicated-result":
            assert "64x16x512" not in each.words
