"""What is kept costs as little as any choice does; comparisons see values of one time."""

import itertools
import random

import pytest
from jax.extend.mlir import ir

from shardc.analysis.residency.recomputed import Recomputation, recomputations
from shardc.analysis.residency.selection import op_seconds, worth_keeping
from shardc.cluster import Cluster
from shardc.cost.model import CostModel
from shardc.ir.clone import inputs
from shardc.ir.context import parse
from shardc.ir.tensor_types import dtype_of, num_bytes
from shardc.ir.walk import defining_op, main_function
from shardc.plan.priced_work import Work

MODEL = CostModel(Cluster.parse("h100-8"))
SIZES = (8, 64, 512)


def marked(direction: str, place: int) -> str:
    origin = f"shardc.origin = array<i64: {place}, 0>"
    return (
        f'{{shardc.direction = "{direction}", {origin}, shardc.phase = "body",'
        " shardc.stage = 0 : i64}"
    )


def random_step(draw: random.Random) -> str:
    """Products and elementwise ops of each other, and, behind barriers, once more; some of the
    copies are used."""
    sizes, lines, again, used = [draw.choice(SIZES)], [], [], []
    count = draw.randint(1, 7)

    def matrix(size: int) -> str:
        return f"tensor<64x{size}xf32>"

    for i in range(1, count + 1):
        source = draw.randrange(i)
        same = [k for k in range(i) if sizes[k] == sizes[source]]
        kind = draw.choice(["product", "tanh", "add"])
        size = draw.choice(SIZES) if kind == "product" else sizes[source]
        sizes.append(size)
        other = draw.choice(same)
        for out, name, direction in ((lines, "v", "forward"), (again, "r", "backward")):
            where = marked(direction, i if direction == "forward" else 50 + i)
            a, b = f"%{name}{source}", f"%{name}{other}"
            own, result = matrix(sizes[source]), matrix(size)
            out.append(
                {
                    "product": f"%{name}{i} = stablehlo.dot_general {a}, %w{sizes[source]}x{size},"
                    f" contracting_dims = [1] x [0] {where} : ({own},"
                    f" tensor<{sizes[source]}x{size}xf32>) -> {result}",
                    "tanh": f"%{name}{i} = stablehlo.tanh {a} {where} : {result}",
                    "add": f"%{name}{i} = stablehlo.add {a}, {b} {where} : {result}",
                }[kind]
            )
        if draw.random() < 0.5 or i == count:
            used.append(i)
    first = matrix(sizes[0])
    uses = [
        f"%g{i} = stablehlo.sine %r{i} {marked('backward', 100 + i)} : {matrix(sizes[i])}"
        for i in used
    ]
    weights = [f"%w{a}x{b}: tensor<{a}x{b}xf32>" for a in SIZES for b in SIZES]
    types = ", ".join(matrix(sizes[i]) for i in [count, *used])
    return "\n".join(
        [
            "module attributes {shardc.num_microbatches = 1 : i64, shardc.num_stages = 1 : i64} {",
            f"func.func public @main(%v0: {first} {{shardc.batch_dim = 0 : i64}},"
            f" {', '.join(weights)}) -> ({types}) {{",
            *lines,
            f'%r0 = "stablehlo.optimization_barrier"(%v0) {marked("backward", 50)}'
            f" : ({first}) -> {first}",
            *again,
            *uses,
            f"return {', '.join([f'%v{count}', *(f'%g{i}' for i in used)])} : {types}",
            "}",
            "}",
        ]
    )


def cost(found: Recomputation, kept: frozenset[ir.Value], price: float) -> float:
    """Seconds of what still runs again, and the price of what is kept."""
    own = set(found.again)
    todo = [
        value
        for op in found.again
        for value in op.results
        if any(use.owner.operation not in own for use in value.uses)
    ]
    ran: set[ir.Operation] = set()
    had: set[ir.Value] = set()
    while todo:
        value = todo.pop()
        op = defining_op(value)
        if value in kept:
            had.add(value)
        elif op is not None and op in own and op not in ran:
            ran.add(op)
            todo += inputs(op)
    moving = sum(MODEL.op_s(Work(dtype_of(v), 0, 2 * num_bytes(v))) for v in had)
    return price * moving + sum(op_seconds(op, MODEL) for op in ran)


@pytest.mark.parametrize("seed", range(25))
def test_the_choice_is_as_good_as_any(seed: int) -> None:
    draw = random.Random(seed)
    module = parse(random_step(draw))
    with module.context:
        (found,) = recomputations(main_function(module.operation))
        values = list(found.originals)
        for price in (0.01, 0.3, 1.0, 3.0, 30.0):
            chosen = worth_keeping(found, price, MODEL)
            least = min(
                cost(found, frozenset(kept), price)
                for n in range(len(values) + 1)
                for kept in itertools.combinations(values, n)
            )
            assert cost(found, frozenset(chosen), price) <= least * (1 + 1e-6) + 1e-15


@pytest.mark.parametrize("seed", range(10))
def test_a_higher_price_never_keeps_more_bytes(seed: int) -> None:
    module = parse(random_step(random.Random(seed)))
    with module.context:
        (found,) = recomputations(main_function(module.operation))
        kept = [
            sum(num_bytes(value) for value in worth_keeping(found, price, MODEL))
            for price in (0.01, 0.1, 1.0, 10.0, 100.0)
        ]
        assert kept == sorted(kept, reverse=True)


LARGEST = """
%v1 = stablehlo.dot_general %v0, %w, contracting_dims = [1] x [0] {forward1}
  : (tensor<64x64xf32>, tensor<64x8192xf32>) -> tensor<64x8192xf32>
%v2 = stablehlo.reduce(%v1 init: %low) applies stablehlo.maximum across dimensions = [1]
  {forward2} : (tensor<64x8192xf32>, tensor<f32>) -> tensor<64xf32>
%r0 = "stablehlo.optimization_barrier"(%v0) {backward50}
  : (tensor<64x64xf32>) -> tensor<64x64xf32>
%r1 = stablehlo.dot_general %r0, %w, contracting_dims = [1] x [0] {backward51}
  : (tensor<64x64xf32>, tensor<64x8192xf32>) -> tensor<64x8192xf32>
%r2 = stablehlo.reduce(%r1 init: %low) applies stablehlo.maximum across dimensions = [1]
  {backward52} : (tensor<64x8192xf32>, tensor<f32>) -> tensor<64xf32>
%r3 = stablehlo.broadcast_in_dim %r2, dims = [0] {backward53}
  : (tensor<64xf32>) -> tensor<64x8192xf32>
%g = stablehlo.compare EQ, %r1, %r3, FLOAT {backward54}
  : (tensor<64x8192xf32>, tensor<64x8192xf32>) -> tensor<64x8192xi1>
"""


@pytest.mark.parametrize(("price", "wanted"), [(0.1, ["1", "2"]), (3.0, [])])
def test_what_is_compared_is_kept_together_or_not_at_all(price: float, wanted: list[str]) -> None:
    """The maximum alone is worth both prices. But then the product must be kept, too, and that is
    worth the lower price only."""
    lines = LARGEST.replace("\n  ", " ")
    for direction in ("forward", "backward"):
        for place in (1, 2, *range(50, 55)):
            lines = lines.replace(f"{{{direction}{place}}}", marked(direction, place))
    module = parse(
        "module attributes {shardc.num_microbatches = 1 : i64, shardc.num_stages = 1 : i64} {\n"
        "func.func public @main(%v0: tensor<64x64xf32> {shardc.batch_dim = 0 : i64},"
        " %w: tensor<64x8192xf32>) -> (tensor<64xf32>, tensor<64x8192xi1>) {\n"
        f"%low = stablehlo.constant dense<0xFF800000> : tensor<f32>\n{lines}"
        "return %v2, %g : tensor<64xf32>, tensor<64x8192xi1>\n}\n}"
    )
    with module.context:
        (found,) = recomputations(main_function(module.operation))
        kept = worth_keeping(found, price, MODEL)
        assert sorted(found.originals[value].name for value in kept) == wanted
        largest = next(v for v, each in found.originals.items() if each.name == "2")
        assert cost(found, frozenset({largest}), price) < cost(found, frozenset(), price)
