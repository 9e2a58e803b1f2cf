"""A plan in words: what its axes do, what repeats, when it is tightest."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import shardc
from shardc.cluster import Cluster, Device, Level
from shardc.plan.account import AxisUse, PlacedArgument, Product, Role, Timed
from shardc.plan.alternatives import Alternative
from shardc.plan.decisions import Plan
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import TensorSharding
from shardc.plan.predicted import Memory
from shardc.report.axis_words import axis_words, headline
from shardc.report.folding import fold_arguments, fold_layers, short
from shardc.report.memory_curve import memory_curve, worst_microbatch
from shardc.report.model import AxisWords, Crossing
from shardc.report.reading import read_plan
from shardc.report.words import about, in_words

CLUSTER = Cluster(
    "test", Device("test", 1 << 30, {"default": 1e9}, 1e30), (Level("link", 4, 1e8, 0.0),)
)
LAYERS, BATCH = 3, 512


def step(state: Any, x: Any, y: Any) -> Any:
    """Three equal layers, with momentum."""

    def loss(params: Any) -> Any:
        h = x
        for layer in params["layers"]:
            h = h + jax.nn.relu(h @ layer["up"]) @ layer["down"]
        return jnp.mean((h - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(state["params"])
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradients)
    params = jax.tree.map(lambda p, m: p - 0.1 * m, state["params"], momentum)
    return {"params": params, "momentum": momentum}, value


WISHES: dict[str, dict[str, Any]] = {
    "data": {"*.up": P(), "*.down": P(), "x": P("d"), "y": P("d")},
    "zero1": {"params.*": P(), "momentum.*": P("d"), "x": P("d"), "y": P("d")},
    "fsdp": {"params.*": P("d"), "momentum.*": P("d"), "x": P("d"), "y": P("d")},
    "megatron": {"*.up": P(None, "d"), "*.down": P("d"), "x": P(), "y": P()},
}


@functools.cache
def planned(wish: str, stages: int = 1, microbatches: int = 1) -> Plan:
    """The step on four devices, laid out as a person would."""
    one = {"up": np.ones((64, 128), np.float32), "down": np.ones((128, 64), np.float32)}
    params = {"layers": [one] * LAYERS}
    data = np.ones((16 if wish == "megatron" else BATCH, 64), np.float32)
    function = shardc.jit(
        step,
        donate_argnums=0,
        cluster=CLUSTER,
        mesh={"d": 4 // stages},
        stages=stages,
        microbatches=microbatches,
        schedule="1f1b" if stages > 1 else "auto",
        shardings=WISHES.get(wish, {}),
    )
    plan: Plan = function.lower({"params": params, "momentum": params}, data, data).plan().plan
    return plan


@pytest.mark.parametrize(
    ("wish", "has", "has_not"),
    [
        ("data", ["data parallel 100%"], ["ZeRO", "tensor"]),
        ("zero1", ["data parallel 100%", "ZeRO-"], ["FSDP", "tensor"]),
        ("fsdp", ["data parallel 100%", "FSDP (ZeRO-3"], ["tensor"]),
        ("megatron", ["Megatron tensor parallel 100%"], ["data", "FSDP"]),
    ],
)
def test_axes_are_named_by_what_their_shardings_do(
    wish: str, has: list[str], has_not: list[str]
) -> None:
    (axis,) = read_plan(planned(wish)).axes
    assert all(word in axis.words for word in has), axis
    assert not any(word in axis.words for word in has_not), axis


def test_stages_whose_axes_do_nearly_the_same_share_a_headline() -> None:
    def axis(stage: int, *flops: tuple[Role, float]) -> AxisWords:
        return axis_words(AxisUse(stage, "x", 8, dict(flops)))

    data, expert, rows, tokens = Role.DATA, Role.EXPERT, Role.ROWS, Role.SEQUENCE
    near = [axis(n, (expert, 0.6 + n / 100), (data, 0.4 - n / 100)) for n in range(3)]
    assert headline(3, 1, near, 3) == (
        "pipeline over 3 device groups; x (8): expert parallel 60-62%, data parallel 38-40%"
    )
    last = axis(3, (rows, 1.0))
    assert headline(4, 1, [*near, last], 4).endswith(
        "stages 0-2: x (8): expert parallel 60-62%, data parallel 38-40%;"
        " stage 3: x (8): tensor parallel 100%"
    )
    copies = [axis(n, (data if n < 2 else rows, 1.0)) for n in range(4)]
    assert headline(2, 1, copies, 2).endswith(
        "stages 0-1: x (8): data parallel 100%; stages 0', 1': x (8): tensor parallel 100%"
    )
    many = [
        axis(0, (data, 1.0)),
        axis(1, (data, 0.9), (rows, 0.1)),
        axis(2, (data, 0.6), (tokens, 0.4)),
    ]
    assert headline(4, 1, [*many, axis(3, (data, 0.6), (expert, 0.4))], 4) == (
        "pipeline over 4 device groups; x (8): mostly data parallel 60-100%"
    )
    idle = [axis(0, (tokens, 0.4), (rows, 0.6)), axis(1, (Role.WHOLE, 1.0))]
    idle += [axis(2, (tokens, 0.4), (Role.WHOLE, 0.6))]
    assert headline(3, 1, idle, 3) == (
        "pipeline over 3 device groups; stage 0: x (8): mostly tensor parallel 60%;"
        " stage 1: x (8): repeats all work on every device;"
        " stage 2: x (8): partly sequence parallel 40%"
    )


def test_equal_layers_and_arguments_are_one_line() -> None:
    reading = read_plan(planned("megatron"))
    (layers,) = reading.layers
    assert (layers.name, layers.count) == ("layers 0-2", LAYERS)
    assert layers.products == (
        "up 64x128 [-, d] -> [-, d]",
        "down 128x64 [d, -] -> [-, -] unreduced over d",
    )
    names = {each.name: each for each in reading.groups}
    up = names["state['params']['layers'][0-2]['up']"]
    assert (up.count, up.lies, up.num_bytes) == (LAYERS, "[-, d]", LAYERS * 64 * 128)


def test_words_json_and_a_pattern_say_the_same() -> None:
    plan = planned("megatron")
    reading = read_plan(plan)
    text = in_words(reading)
    assert text.startswith("plan: d (4): Megatron tensor parallel 100%\n")
    assert "layers 0-2: 3 equal ones" in text
    assert "MiB at the peak (" in text or "KiB of 1 GiB at the peak (" in text
    assert msgspec.json.decode(msgspec.json.encode(reading))["headline"] in text
    found = about(plan, "params.layers.1.up")
    assert found[0].startswith("state['params']['layers'][1]['up'], stage 0: parameters")
    assert any(line.startswith("backward of ") for line in found)
    assert about(plan, "no.such.thing") == []


def test_the_account_survives_json(tmp_path: Any) -> None:
    plan = planned("megatron")
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").account == plan.account


def test_a_peak_in_the_update_is_named_once() -> None:
    plan = planned("megatron")
    assert plan.account is not None
    worst = tuple(
        msgspec.structs.replace(each, kind=FunctionKind.UPDATE, path=("update",), place="a.py:3")
        for each in plan.account.worst
    )
    account = msgspec.structs.replace(plan.account, worst=worst)
    fit = read_plan(msgspec.structs.replace(plan, account=account)).fit
    assert fit.when == "update, a.py:3"


def test_a_pipeline_says_what_crosses_and_when_it_is_tightest() -> None:
    plan = planned("", 2, 4)
    reading = read_plan(plan)
    assert reading.headline.startswith("pipeline over 2 device groups")
    forward, backward = reading.crossings
    assert (forward.source, forward.target, forward.num_messages % 4) == (0, 1, 0)
    assert (backward.source, backward.target) == (1, 0)
    assert forward.num_bytes % (BATCH * 64 * 4) == 0 < forward.num_bytes
    assert plan.account is not None
    ends = [each.end_s for each in plan.account.timeline]
    assert max(ends) == pytest.approx(plan.predicted.step_time_s, rel=1e-6)


def test_the_memory_curve_holds_a_stash_for_each_microbatch_in_flight() -> None:
    """Two microbatches, both forward first: the second makes it fullest, in its backward."""
    plan = planned("", 2, 4)
    assert plan.account is not None
    stage = msgspec.structs.replace(plan.stages[0], memory=Memory(parameters=100, stash=20))
    timeline = tuple(
        Timed(action, 0, float(at), float(at + 1))
        for at, action in enumerate(["0F0", "0F1", "0B0", "0B1"])
    )
    account = msgspec.structs.replace(plan.account, timeline=timeline)
    alone = msgspec.structs.replace(plan, stages=(stage,))
    assert memory_curve(alone, account, 0) == [
        (0.0, 100.0),
        (0.0, 110.0),
        (1.0, 120.0),
        (2.0, 120.0),
        (3.0, 110.0),
    ]
    assert worst_microbatch(account, 0, "F") == 1
    assert worst_microbatch(account, 0, "B") == 0


@pytest.mark.parametrize("wish", [("megatron",), ("", 2, 4)])
def test_values_at_the_peak_add_up_to_the_memory_of_the_stage(wish: Any) -> None:
    plan = planned(*wish)
    assert plan.account is not None
    for stage, its in enumerate(plan.stages):
        held = dict.fromkeys(Memory.__struct_fields__, 0)
        for each in plan.account.alive:
            held[each.kind] += each.num_bytes if each.stage == stage else 0
        assert Memory(**held) == its.memory


def test_values_at_the_peak_have_the_names_of_the_model() -> None:
    alive = {(each.kind, each.name): each for each in read_plan(planned("megatron")).alive}
    ups = alive["parameters", "state['params']['layers'][0-2]['up']"]
    assert (ups.stages, ups.count, ups.num_bytes) == ("0", LAYERS, LAYERS * 64 * 128)
    gradients = alive["gradients", "params.layers.0-2.up"]
    assert (gradients.count, gradients.num_bytes) == (LAYERS, LAYERS * 64 * 128)
    assert gradients.what.startswith("dot_general ")
    assert any(kind == "stash" and name == "params.layers.0-2.up" for kind, name in alive)


def test_plans_of_older_versions_are_read_without_an_account() -> None:
    plan = msgspec.structs.replace(planned("megatron"), account=None)
    reading = read_plan(plan)
    assert not reading.has_account
    assert "plan again" in in_words(reading)


def test_what_was_judged_stands_beside_the_plan() -> None:
    plan = planned("megatron")
    assert plan.account is not None
    other = Alternative("by hand", 1, "gpipe", ((4,),), estimate_s=10.0)
    account = msgspec.structs.replace(plan.account, judged=(other,))
    judged = read_plan(msgspec.structs.replace(plan, account=account)).judged
    assert [each.name for each in judged] == ["this plan", "by hand"]


def test_layers_repeat_only_where_their_shardings_do() -> None:
    def product(n: int, lies: str) -> Product:
        return Product(0, (4, 4), lies, "[-]", f"p['h'][{n}]['w']")

    folded = fold_layers([product(n, "[x]" if n < 3 else "[-]") for n in range(6)])
    assert [(each.name, each.count) for each in folded] == [("h 0-2", 3), ("h 3-5", 3)]


def test_arguments_of_other_layouts_are_apart() -> None:
    def argument(n: int, axes: tuple[str, ...]) -> PlacedArgument:
        account = planned("megatron").account
        assert account is not None
        kind = account.arguments[0].kind
        return PlacedArgument(f"w[{n}]", kind, 0, (4,), "float32", TensorSharding((axes,)), 16)

    groups = fold_arguments([argument(n, ("x",) if n % 2 else ()) for n in range(4)])
    assert {each.name: each.count for each in groups} == {"w[0,2]": 2, "w[1,3]": 2}


def test_stages_with_the_same_products_share_their_lines() -> None:
    def product(stage: int, name: str, width: int) -> Product:
        return Product(stage, (4, width), "[-, x]", "[-]", name)

    def stage(n: int) -> list[Product]:
        return [product(n, "", 8), product(n, "", 8), product(n, "p['w']", 4)]

    plan = planned("", 2, 4)
    assert plan.account is not None

    def words(*products: Product) -> list[str]:
        account = msgspec.structs.replace(plan.account, products=products)
        return in_words(read_plan(msgspec.structs.replace(plan, account=account))).splitlines()

    lines = words(*stage(0), *stage(1))
    at = lines.index("  stages 0-1:")
    assert lines[at + 1 : at + 3] == ["    2 x 4x8 [-, x] -> [-]", "    w 4x4 [-, x] -> [-]"]
    lines = words(*stage(0), product(1, "p['head']", 9))
    at = lines.index("  stage 1:")
    assert lines[at - 3] == "  stage 0:"
    assert lines[at + 1] == "    head 4x9 [-, x] -> [-]"


def test_what_does_not_train_has_no_parameters() -> None:
    plan = planned("fsdp")
    assert plan.account is not None
    forward = tuple(part for part in plan.account.parts if part.kind is FunctionKind.FORWARD)
    account = msgspec.structs.replace(plan.account, parts=forward)
    reading = read_plan(msgspec.structs.replace(plan, account=account))
    assert "FSDP" not in reading.axes[0].words
    assert {each.kind for each in reading.groups} == {"state", "optimizer_state", "inputs"}
    assert "FSDP" in read_plan(plan).axes[0].words


def test_a_plan_in_which_all_devices_do_the_same_says_so() -> None:
    plan = planned("data")
    assert plan.account is not None
    idle = tuple(msgspec.structs.replace(use, flops={Role.WHOLE: 1.0}) for use in plan.account.axes)
    account = msgspec.structs.replace(plan.account, axes=idle)
    reading = read_plan(msgspec.structs.replace(plan, account=account))
    assert reading.headline == "no parallelism: each of 4 devices runs the whole step"


@pytest.mark.parametrize(
    ("names", "layer"),
    [
        ("p['blocks'][{}]['{}'][0]", "blocks 0-3"),
        ("p.blocks_{}.{}[0]", "blocks 0-3"),
        ("{}.{}[0]", "0-3"),
    ],
)
def test_layers_are_counted_by_the_number_in_which_their_names_differ(
    names: str, layer: str
) -> None:
    products = [
        Product(0, (4, 4), "[-]", "[x]", names.format(block, part))
        for block in range(4)
        for part in ("up", "down")
    ]
    (layers,) = fold_layers(products)
    assert (layers.name, layers.count) == (layer, 4)
    assert layers.products == ("up.0 4x4 [-] -> [x]", "down.0 4x4 [-] -> [x]")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("state['params']['x'], rows 2:4", "params.x"),
        ("argument 7", "argument 7"),
        ("argument 7, rows 2:4", "argument 7"),
        ("w", "w"),
    ],
)
def test_names_of_single_arguments_are_short(name: str, words: str) -> None:
    assert short(name) == words


def test_names_of_large_groups_are_cut() -> None:
    account = planned("megatron").account
    assert account is not None
    kind, lies = account.arguments[0].kind, TensorSharding(((),))
    arguments = [
        PlacedArgument(f"w[{2 * n}]", kind, 0, (4,), "float32", lies, 16) for n in range(9)
    ]
    (group,) = fold_arguments(arguments)
    assert (group.name, group.count) == ("w[0,2,4,6,8,...]", 9)


def test_collectives_that_differ_by_type_are_one_line() -> None:
    plan = planned("zero1")
    (stage,) = plan.stages
    other = tuple(msgspec.structs.replace(c, dtype="bfloat16") for c in stage.collectives)
    doubled = msgspec.structs.replace(stage, collectives=(*stage.collectives, *other))
    once = read_plan(plan).communication
    twice = read_plan(msgspec.structs.replace(plan, stages=(doubled,))).communication
    assert [(c.axes, c.kind, c.count) for c in twice] == [
        (c.axes, c.kind, 2 * c.count) for c in once
    ]


def test_an_axis_that_splits_parameters_alone_says_so() -> None:
    """As the columns of embedding tables, whose lookups are no products."""
    use = AxisUse(0, "x", 8, {Role.WHOLE: 1.0}, {}, {"parameters": 0.9})
    assert axis_words(use).words == "repeats all work on every device, splits 90% of the parameters"


def test_equal_transfers_of_a_pipeline_share_a_line() -> None:
    forth = [Crossing(g, g + 1, 8, 8 << 10) for g in range(3)]
    apart = [Crossing(0, 3, 1, 4), Crossing(3, 0, 1, 5), Crossing(3, 1, 1, 5)]
    reading = msgspec.structs.replace(read_plan(planned("fsdp")), crossings=(*forth, *apart))
    assert [line for line in in_words(reading).splitlines() if line.startswith("crosses")] == [
        "crosses from each of the device groups 0-2 to the next one: 8 messages of 1 KiB per step",
        "crosses from device group 0 to 3: 1 message of 4 B per step",
        "crosses from device group 3 to each of 0-1: 1 message of 5 B per step",
    ]


def test_layers_of_a_stage_stand_under_it() -> None:
    def product(stage: int, name: str) -> Product:
        return Product(stage, (4, 8), "[-, x]", "[-]", name)

    plan = planned("", 2, 4)
    assert plan.account is not None
    names = (0, "l[0]['w']"), (0, "l[1]['w']"), (0, "out"), (1, "l[2]['w']")
    account = msgspec.structs.replace(plan.account, products=[product(*each) for each in names])
    lines = in_words(read_plan(msgspec.structs.replace(plan, account=account))).splitlines()
    at = lines.index("  stage 0:")
    assert lines[at + 1 : at + 7] == [
        "    l 0-1: 2 equal ones",
        "      w 4x8 [-, x] -> [-]",
        "    then",
        "      out 4x8 [-, x] -> [-]",
        "  stage 1:",
        "    2.w 4x8 [-, x] -> [-]",
    ]
