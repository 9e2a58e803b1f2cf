"""A random JAX function, written line by line as source text that a person can read and run."""

import math
import re
from dataclasses import dataclass
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

NAMESPACE = {"jax": jax, "jnp": jnp, "lax": lax, "np": np}
SIZES = (1, 2, 3, 4, 4, 4, 6, 8, 8)
MOST_ELEMENTS = 1024


@dataclass(frozen=True)
class Value:
    """A variable of the program; of several results `name` is one, such as `v3[0]`."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in ("float64", "float32", "bfloat16")

    @property
    def is_integer(self) -> bool:
        return self.dtype.startswith(("int", "uint"))


@dataclass(frozen=True)
class Source:
    """A function `step` as text, and the shapes and dtypes of its arguments.

    Attributes:
        lines: assignments, one each.
        results: the names that it returns.
    """

    arguments: tuple[Value, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]

    def __str__(self) -> str:
        header = f"def step({', '.join(a.name for a in self.arguments)}):"
        body = [*self.lines, f"return {', '.join(self.results)},"]
        types = ", ".join(f"({a.shape}, '{a.dtype}')" for a in self.arguments)
        return "\n".join([header, *(f"    {line}" for line in body), f"# {types}"])

    @staticmethod
    def parse(text: str) -> "Source":
        """The inverse of `str`."""
        header, *lines, returned, types = (line.strip() for line in text.strip().splitlines())
        names = header[header.index("(") + 1 : header.index(")")].split(", ")
        shapes = eval(f"[{types.removeprefix('#')}]")
        arguments = [
            Value(n, shape, dtype) for n, (shape, dtype) in zip(names, shapes, strict=True)
        ]
        results = returned.removeprefix("return ").rstrip(",").split(", ")
        return Source(tuple(arguments), tuple(lines), tuple(results))

    def function(self) -> Any:
        """The function itself."""
        names: dict[str, Any] = dict(NAMESPACE)
        exec(str(self), names)
        return names["step"]

    def values(self, seed: int = 0) -> list[np.ndarray]:
        """Seeded arguments: small numbers, indices a little out of bounds among them."""
        random = np.random.default_rng(seed)
        return [random_array(random, value) for value in self.arguments]


def random_array(random: np.random.Generator, value: Value) -> np.ndarray:
    """Floats around 0, integers from -2 to 8, booleans."""
    if value.is_float:
        return random.normal(size=value.shape).astype(jnp.dtype(value.dtype))
    if value.dtype == "bool":
        return random.integers(0, 2, value.shape).astype(bool)
    low = 0 if value.dtype.startswith("uint") else -2
    return random.integers(low, 9, value.shape).astype(value.dtype)


class Draft:
    """A function that is being written; `random` makes every choice.

    Attributes:
        float_type: dtype of new float arguments.
        values: what later lines may use.
    """

    def __init__(self, random: Random, float_type: str = "float64") -> None:
        self.random, self.float_type = random, float_type
        self.arguments: list[Value] = []
        self.lines: list[str] = []
        self.values: list[Value] = []

    # ---- choices

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def choice(self, options: Any) -> Any:
        return self.random.choice(list(options))

    def size(self) -> int:
        return self.choice(SIZES)

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        """A shape of `low` to `high` dims that is not too large."""
        while True:
            shape = tuple(self.size() for _ in range(self.random.randint(low, high)))
            if math.prod(shape) <= MOST_ELEMENTS:
                return shape

    def dim(self, value: Value) -> int:
        return self.random.randrange(value.rank)

    # ---- values

    def argument(self, shape: tuple[int, ...], dtype: str | None = None) -> Value:
        """A new argument of the function."""
        value = Value(f"a{len(self.arguments)}", shape, dtype or self.float_type)
        self.arguments.append(value)
        self.values.append(value)
        return value

    def pick(self, low: int = 0, high: int = 4, kind: str = "float") -> Value:
        """A value of `low` to `high` dims, late ones rather than early ones, or a new one."""
        fits = [v for v in self.values if low <= v.rank <= high and _is(v, kind)]
        if fits and self.chance(0.85):
            late = max(self.random.randrange(len(fits)), self.random.randrange(len(fits)))
            return fits[late]
        dtype = {"float": None, "integer": "int32", "bool": "bool", "any": None}[kind]
        return self.argument(self.shape(max(low, 1), high), dtype)

    def like(self, shape: tuple[int, ...], kind: str = "float") -> Value:
        """A value of this very shape; a new argument if there is none."""
        fits = [v for v in self.values if v.shape == shape and _is(v, kind)]
        if fits and self.chance(0.7):
            return self.choice(fits)
        return self.argument(shape, {"float": None, "integer": "int32", "bool": "bool"}[kind])

    def add(self, expression: str) -> Value | None:
        """Writes a line; None, and no line, where the result would be too large, or where JAX has
        no derivative."""
        names = ", ".join(v.name for v in self.values if "[" not in v.name)
        function = eval(f"lambda {names}: {expression}", dict(NAMESPACE))
        inputs = [
            jax.ShapeDtypeStruct(v.shape, jnp.dtype(v.dtype))
            for v in self.values
            if "[" not in v.name
        ]
        try:
            result = jax.eval_shape(function, *inputs)
        except NotImplementedError:  # JAX's word for a derivative that it does not have
            return None
        if math.prod(result.shape) > MOST_ELEMENTS:
            return None
        value = Value(f"v{len(self.lines)}", tuple(result.shape), str(result.dtype))
        self.lines.append(f"{value.name} = {expression}")
        self.values.append(value)
        return value

    def finished(self) -> Source:
        """The function as it stands; it returns what nothing else uses."""
        text = " ".join(line.split(" = ", 1)[1] for line in self.lines)
        made = [v for v in self.values if v.name.startswith("v")]
        unused = [v.name for v in made if not _names(text, v.name)]
        return Source(tuple(self.arguments), tuple(self.lines), tuple(unused[-6:]))


def _names(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _is(value: Value, kind: str) -> bool:
    if kind == "float":
        return value.is_float
    if kind == "integer":
        return value.is_integer
    return value.dtype == "bool" if kind == "bool" else True
