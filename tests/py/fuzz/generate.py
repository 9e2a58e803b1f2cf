"""Random programs: a few lines of every kind, some of them differentiated or mapped over rows."""

from random import Random

from tests.py.fuzz.draft import Draft, Source, Value
from tests.py.fuzz.math_lines import CONTROL_FLOW, ELEMENTWISE, OTHERS, SUMS, WINDOWS
from tests.py.fuzz.shape_lines import POSITIONS, SHAPES

FAMILIES = (ELEMENTWISE, SUMS, SHAPES, POSITIONS, WINDOWS, OTHERS, CONTROL_FLOW)
WEIGHTS = (4, 4, 4, 3, 2, 2, 1)


def random_source(random: Random, num_lines: int = 6) -> Source:
    """A function of a few arrays, all of whose lines count."""
    draft = Draft(random, random.choice(["float64", "float64", "float64", "float32"]))
    draft.argument(draft.shape(2, 3))
    while len(draft.lines) < num_lines:
        add_random_line(draft)
    return draft.finished()


def add_random_line(draft: Draft) -> Value | None:
    """Adds a line of any kind; None where that came to nothing."""
    (family,) = draft.random.choices(FAMILIES, WEIGHTS)
    expression = draft.choice(family)(draft)
    if draft.chance(0.2):
        expression = differentiated(draft, expression)
    return draft.add(expression)


def differentiated(draft: Draft, expression: str) -> str:
    """The gradient of an expression for one of its float arguments, where it has one."""
    used = [v for v in draft.values if v.is_float and _stands_alone(expression, v)]
    if not used:
        return expression
    value = draft.choice(used)
    return (
        f"jax.grad(lambda {value.name}:"
        f" jnp.sum(jnp.sin(({expression}).astype('{draft.float_type}'))).real)({value.name})"
    )


def _stands_alone(expression: str, value: Value) -> bool:
    return f"{value.name}" in expression.replace("(", " ").replace(",", " ").split()
