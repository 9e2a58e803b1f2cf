"""The model as a tree: one namespace for products and all other ops, in each library."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import shardc
from shardc.analysis.roles.parts import tell_layers_apart
from shardc.plan.function_kind import FunctionKind
from shardc.report.page.tree import Node, tree_of
from tests.py.report.test_reading import CLUSTER

WIDTH, LAYERS, BATCH = 32, 3, 256
Step = Callable[[Any, Any], Any]


def trained(loss: Callable[[Any, Any], Any]) -> Step:
    """A step of gradient descent."""

    def step(params: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    return step


class LinenBlock(nn.Module):
    """A residual block of flax.linen, which names JAX's scopes after its modules."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))


class LinenNet(nn.Module):
    """Three of them."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(LAYERS):
            x = LinenBlock()(x)
        return x


class NnxBlock(nnx.Module):
    """The same in flax.nnx, which writes no scopes."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return x + self.down(nnx.gelu(self.up(self.norm(x))))


class NnxNet(nnx.Module):
    """Three of them."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.blocks = nnx.List([NnxBlock(rngs) for _ in range(LAYERS)])

    def __call__(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


class EquinoxBlock(eqx.Module):
    """The same in equinox, whose scopes are the library's own classes."""

    norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self) -> None:
        key = jax.random.key(0)
        self.norm = eqx.nn.LayerNorm(WIDTH)
        self.up = eqx.nn.Linear(WIDTH, 4 * WIDTH, key=key)
        self.down = eqx.nn.Linear(4 * WIDTH, WIDTH, key=key)

    def __call__(self, x: Any) -> Any:
        return x + self.down(jax.nn.gelu(self.up(self.norm(x))))


def of_linen() -> tuple[Step, Any]:
    net = LinenNet()
    params = net.init(jax.random.key(0), jnp.ones((1, WIDTH)))
    return trained(lambda p, x: jnp.mean(net.apply(p, x) ** 2)), params


def of_nnx() -> tuple[Step, Any]:
    definition, params = nnx.split(NnxNet(nnx.Rngs(0)))
    return trained(lambda p, x: jnp.mean(nnx.merge(definition, p)(x) ** 2)), params


def of_equinox() -> tuple[Step, Any]:
    net = {"blocks": [EquinoxBlock() for _ in range(LAYERS)]}
    params, rest = eqx.partition(net, eqx.is_array)

    def loss(params: Any, x: Any) -> Any:
        for block in eqx.combine(params, rest)["blocks"]:
            x = jax.vmap(block)(x)
        return jnp.mean(x**2)

    return trained(loss), params


def tree(made: tuple[Step, Any]) -> Node:
    """The only stage of the tree of a step, without the update."""
    step, params = made
    function = shardc.jit(step, donate_argnums=0, cluster=CLUSTER, mesh=(4,), stages=1)
    plan = function.lower(params, jnp.ones((BATCH, WIDTH))).plan().plan
    assert plan.account is not None
    kinds = (FunctionKind.FORWARD, FunctionKind.BACKWARD)
    parts = [each for each in plan.account.parts if each.kind in kinds]
    shapes = {each.name: each.shape for each in plan.account.arguments}
    (stage,) = tree_of(parts, shapes).children
    return stage


def named(node: Node, *path: str) -> Node:
    for name in path:
        (node,) = (each for each in node.children if each.name.split(" (")[0] == name)
    return node


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "model", "product", "weight"),
    [
        (
            of_linen,
            ("LinenNet",),
            ("LinenBlock_0-2", "Dense_0"),
            "params['params']['LinenBlock_{}']['Dense_0']['kernel']",
        ),
        (
            of_nnx,
            ("blocks",),
            ("0-2", "up", "kernel", "value"),
            "params['blocks'][{}]['up']['kernel'].value",
        ),
        (of_equinox, ("blocks",), ("0-2", "up", "weight"), "params['blocks'][{}].up.weight"),
    ],
)
def test_the_node_of_the_model_has_nearly_the_whole_step(
    make: Callable[[], tuple[Step, Any]],
    model: tuple[str, ...],
    product: tuple[str, ...],
    weight: str,
) -> None:
    """All products, and all other ops but the loss."""
    stage = tree(make())
    found = named(stage, *model)
    assert found.num_flops > 0.98 * stage.num_flops
    assert found.total_s > 0.9 * stage.total_s
    assert all(each.num_flops for each in found.children)
    own = named(found, *product)
    assert own.num_flops > 0.3 * stage.num_flops
    assert list(own.weights) == [weight.format(n) for n in range(LAYERS)]


def test_gradients_in_programs_of_their_own_belong_to_their_parameter() -> None:
    params, x = [jnp.ones((WIDTH, WIDTH))] * 4, jnp.ones((BATCH, WIDTH))

    def loss(params: Any, x: Any) -> Any:
        for w in params:
            x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    function = shardc.jit(
        trained(loss), donate_argnums=0, cluster=CLUSTER, mesh=(1,), stages=2, microbatches=4,
        schedule="zb-h1",
    )  # fmt: skip
    account = function.lower(params, x).plan().plan.account
    assert account is not None
    found: dict[str, set[FunctionKind]] = {}
    for each in account.parts:
        if each.lies:
            found.setdefault(each.weight, set()).add(each.kind)
    first = {FunctionKind.FORWARD, FunctionKind.WEIGHT}  # the first stage sends nothing back
    second = first | {FunctionKind.BACKWARD}
    assert found == {f"params[{n}]": first if n < 2 else second for n in range(4)}


def test_scopes_name_parts_if_they_tell_layers_apart() -> None:
    by_module = [(("Net", f"Block_{n}"), ("params", f"Block_{n}", "kernel")) for n in range(3)]
    by_class = [(("Linear",), ("blocks", str(n), "weight")) for n in range(3)]
    assert tell_layers_apart(by_module)
    assert not tell_layers_apart(by_class)
    assert tell_layers_apart([(("Linear",), ())] * 3)  # parameters without names
    assert tell_layers_apart([(("mlp",), ("up",)), (("mlp",), ("down",))])


@pytest.mark.slow
def test_products_in_a_loop_over_converted_layers_have_their_parameter() -> None:
    """The stack is cast outside of the loop, which captures it."""

    def loss(params: Any, x: Any) -> Any:
        low = params.astype(jnp.bfloat16)

        def layer(h: Any, w: Any) -> Any:
            return jnp.tanh(h @ w), None

        return jnp.mean(jax.lax.scan(layer, x.astype(jnp.bfloat16), low)[0].astype(jnp.float32))

    function = shardc.jit(trained(loss), donate_argnums=0, cluster=CLUSTER, mesh=(4,), stages=1)
    stack = jnp.ones((LAYERS, WIDTH, WIDTH))
    account = function.lower(stack, jnp.ones((BATCH, WIDTH))).plan().plan.account
    assert account is not None
    assert [each.weight for each in account.products] == [(WIDTH, WIDTH)]
    assert {each.weight for each in account.parts if each.lies} == {"params"}
