"""What is said of squares of queries and keys is so in every element that they have."""

import collections
import itertools
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from shardc.analysis.slices.squares.above_diagonal import VANISHES, Fact, Low, Square
from shardc.analysis.slices.squares.premises import DEEPEST, Answers, Premise
from shardc.analysis.slices.squares.regions import Region
from shardc.check.forms.engines import interpreter
from shardc.ir.context import parse
from shardc.ir.walk import body, main_function, terminator

N, BATCH, WIDTH = 5, 2, 3
SHAPE = (BATCH, N, N)
FLOATS = ("float64", "float32", "float16", "bfloat16")
NUMBERS = (0, 1, -1, 2, 0.5, 3e-5, 20, 1e4, -1e4, -2e4, -1e9, 1e9, -1e30, 2**24, np.inf, -np.inf)
LOW = (-1e9, -1e30, -np.inf)


class Squares:
    """Random ops on masks, numbers, scores and data.

    Args:
        data: queries, keys, a square, and one number per row; all of one float type. The last two
            have numbers as low as those of masks.
    """

    def __init__(self, seed: int, data: list[Any]) -> None:
        self._draw = random.Random(seed)
        self._queries, self._keys, square, self._row = data
        self._kind = square.dtype
        self._floats, self._bools, self._integers, self._cuts = [square], [], [], []
        self._numbers: list[jax.Array] = []  # those of the floats that are made of numbers alone

    def made(self, steps: int) -> list[jax.Array]:
        """All values; every op and mask may be drawn in every step."""
        leaves = (self._positions, self._number, self._score, self._mask, self._rows, self._integer)
        for make in leaves:
            make()
        makers = (*leaves, self._unary, self._binary, self._binary, self._select, self._select)
        movers = (self._logical, self._compare, self._move, self._convert)
        for _ in range(steps):
            for make in (self._draw.choice(makers), self._draw.choice(movers)):
                make()
        return [*self._floats, *self._bools, *self._integers, *self._cuts]

    def _one(self, pool: list[jax.Array]) -> jax.Array:
        return self._draw.choice(pool if self._draw.random() < 0.4 else pool[-4:])

    def _ahead(self) -> int:
        return self._draw.choice((0, 0, 0, 0, 1, -1))

    def _positions(self) -> None:
        rows, keys = (lax.broadcasted_iota(jnp.int32, SHAPE, dim) for dim in (1, 2))
        compare = self._draw.choice((lax.ge, lax.lt, lax.gt, lax.le, lax.eq, lax.ne))
        self._bools.append(compare(lax.add(rows, lax.full_like(rows, self._ahead())), keys))

    def _number(self) -> None:
        self._numbers.append(lax.full(SHAPE, self._draw.choice(NUMBERS), self._kind))
        if len(self._numbers) > 1:
            op = self._draw.choice((lax.add, lax.sub, lax.mul, lax.div))
            self._numbers.append(op(*self._draw.choices(self._numbers[-4:], k=2)))
        self._floats += self._numbers[-2:]

    def _integer(self) -> None:
        kind = self._draw.choice((jnp.int32, jnp.uint32))
        self._integers.append(lax.full(SHAPE, self._draw.choice((0, 1, 2, 3)), kind))

    def _score(self) -> None:
        self._floats.append(
            lax.dot_general(self._queries, self._keys, (((2,), (2,)), ((0,), (0,))))
        )

    def _mask(self) -> None:
        """A mask that the program closes over, or a score or number that one has hidden."""
        seen = np.broadcast_to(np.tril(np.ones((N, N), bool), self._ahead()), SHAPE)
        if self._draw.random() < 0.3:
            added = np.where(seen, 0, self._draw.choice((*LOW, 1)))
            self._floats.append(jnp.asarray(added, self._kind))
        self._bools.append(jnp.asarray(seen))
        self._score()
        other = self._floats[-1] if self._draw.random() < 0.6 else self._one(self._floats)
        low = lax.full(SHAPE, self._draw.choice(LOW), self._kind)
        hidden = lax.select(self._bools[-1], other, low)
        self._rows()
        op = self._draw.choice((lax.add, lax.sub, lax.mul))
        self._floats += [hidden, op(hidden, self._draw.choice(self._floats[-3:]))]

    def _rows(self) -> None:
        self._floats.append(lax.broadcast_in_dim(self._row, SHAPE, (self._draw.choice((1, 2)),)))

    def _unary(self) -> None:
        op = self._draw.choice(
            (lax.exp, lax.neg, lax.logistic, lax.tanh, lax.abs, lax.sqrt, lax.log)
        )
        self._floats.append(op(self._one(self._floats)))

    def _binary(self) -> None:
        op = self._draw.choice((lax.add, lax.sub, lax.mul, lax.div, lax.add, lax.mul, lax.max))
        self._floats.append(op(self._one(self._floats), self._one(self._floats)))
        left = self._one(self._integers)
        other = lax.full_like(left, self._draw.choice((1, 2, 3)))
        op = self._draw.choice((lax.add, lax.sub, lax.mul, lax.div))
        self._integers.append(op(left, other))

    def _select(self) -> None:
        sides = self._one(self._floats), self._one(self._floats)
        self._floats.append(lax.select(self._one(self._bools), *sides))

    def _logical(self) -> None:
        op = self._draw.choice((lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor))
        self._bools.append(op(self._one(self._bools), self._one(self._bools)))
        if self._draw.random() < 0.3:
            self._bools.append(lax.bitwise_not(self._one(self._bools)))

    def _compare(self) -> None:
        op = self._draw.choice((lax.gt, lax.le, lax.eq))
        self._bools.append(op(self._one(self._floats), self._one(self._floats)))

    def _move(self) -> None:
        pool = self._draw.choice((self._floats, self._bools))
        value = self._one(pool)
        match self._draw.randrange(5):
            case 0:
                pool.append(lax.transpose(value, (0, 2, 1)))
            case 1:
                first = lax.reshape(lax.slice_in_dim(value, 0, 1), (N, N))
                pool.append(lax.broadcast_in_dim(first, SHAPE, (1, 2)))
            case 2:
                row, key = (self._draw.choice((0, 0, 1)) for _ in range(2))
                end = BATCH, row + N - 1, key + N - 1
                self._cuts.append(lax.slice(value, (0, row, key), end))
            case 3:
                self._stack(pool)
            case _:
                pool.append(lax.rev(value, (self._draw.choice((1, 2)),)))

    def _stack(self, pool: list[jax.Array]) -> None:
        """What a scan writes row by row, and one row of it; and a part that a part was put into."""
        stack = lax.full((3, *SHAPE), 0, pool[0].dtype)
        for row in self._draw.choices((0, 0, 1, 2), k=3):
            stack = lax.dynamic_update_slice(stack, self._one(pool)[None], (row, 0, 0, 0))
        read = lax.dynamic_slice(stack, (self._draw.choice((0, 1, 3)), 0, 0, 0), (1, *SHAPE))
        pool.append(lax.reshape(read, SHAPE))
        size = BATCH, N - 1, N - 1
        part = lax.slice(self._one(pool), (0, 0, 0), size)
        at, there = ((0, *(self._draw.choice((0, 0, 1)) for _ in range(2))) for _ in range(2))
        put = lax.dynamic_update_slice(self._one(pool), part, at)
        self._cuts.append(lax.dynamic_slice(put, there, size))

    def _convert(self) -> None:
        value = self._one(self._draw.choice((self._bools, self._integers)))
        self._floats.append(lax.convert_element_type(value, self._kind))
        self._integers.append(lax.convert_element_type(self._one(self._bools), jnp.int32))


def holds(fact: Fact, square: np.ndarray, region: Region) -> bool:
    """Whether a fact is true of a square, queries first. Numbers from 10,000 up only have to be
    large, as docs/proofs.md says. Nan is allowed where a row has it in what is seen: then a
    premise about the largest of the row does not hold."""
    rows, keys = np.indices(square.shape[:2])
    parts = square[rows < keys if region is Region.ABOVE else rows == keys]
    if isinstance(fact, Low):
        seen = np.where((rows >= keys)[..., None], square, -np.inf).max(axis=1)
        below = square <= seen[:, None] - fact.by * (1 - 1e-2)
        return bool(np.all((below | np.isnan(seen)[:, None])[rows < keys]))
    assert fact is not None
    if VANISHES <= abs(fact) < np.inf:
        return bool(np.all(parts * np.sign(fact) >= VANISHES * (1 - 1e-2)))
    return bool(np.all(parts == fact))


def facts_of(seed: int, steps: int = 25) -> collections.Counter[str]:
    """Asserts that each fact about one program holds if its premises do; how many of each type
    there are."""
    draw = np.random.default_rng(seed)
    kind = FLOATS[seed % len(FLOATS)]
    shapes = (BATCH, N, WIDTH), (BATCH, N, WIDTH), SHAPE, (N,)
    told: collections.Counter[str] = collections.Counter()
    with jax.enable_x64(True), np.errstate(over="ignore"):
        data = [jnp.asarray(draw.normal(size=shape), kind) for shape in shapes]
        data[2:] = [jnp.where(each < -0.5, jnp.asarray(-1e9, kind), each) for each in data[2:]]
        text = jax.jit(lambda *data: Squares(seed, list(data)).made(steps)).lower(*data).as_text()
        module = parse(text)
        with module.context:
            main = main_function(module.operation)
            run = interpreter(module.operation, main, 1)
            results = run([[np.asarray(each) for each in data]])[0]
            values = [*body(main).arguments, *terminator(main).operands]
            numbers = dict(zip(values, [*data, *results], strict=True))
            at_hand = set(random.Random(seed).sample(values, len(values) // 3)) | set(values[:4])
            square = Square({}, at_hand.__contains__)
            for value, dims, region in itertools.product(values[4:], ((1, 2), (2, 1)), Region):
                fact, premises = square.resting_on(lambda: square.fact(value, dims, region))  # noqa: B023
                if fact is None:
                    continue
                told["facts"] += 1
                told["premises"] += bool(premises)
                if all(keeps_to(each, numbers[each.value]) for each in premises):
                    told[type(fact).__name__] += 1
                    elements = np.moveaxis(np.asarray(numbers[value], float), dims, (0, 1))
                    assert holds(fact, elements, region), (seed, value, dims, region, fact)
                    told["on premises"] += bool(premises)
    return told


def keeps_to(premise: Premise, numbers: Any) -> bool:
    size = np.abs(np.asarray(numbers, float))
    return bool(np.all((size <= premise.most) & (size >= premise.least)))


@pytest.mark.slow
def test_facts_hold_in_the_interpreter() -> None:
    told: collections.Counter[str] = sum(map(facts_of, range(12)), collections.Counter())
    assert told["float"] > 100 and told["Low"] > 3 and told["on premises"] > 20
    assert told["premises"] > told["on premises"]  # data that does not keep to them is drawn, too


def _hidden(made: Any) -> Any:
    """`made` above the diagonal, multiplied by zero there."""
    seen = jnp.asarray(np.broadcast_to(np.tril(np.ones((N, N), bool)), SHAPE))
    return lax.mul(made, lax.convert_element_type(seen, made.dtype))


def _filled(number: float, kind: Any) -> Any:
    return lax.broadcast_in_dim(lax.optimization_barrier(jnp.asarray(number, kind)), SHAPE, ())


OVERFLOWN: dict[str, Any] = {
    "a product": lambda: lax.mul(_filled(1e4, "float16"), _filled(-1e4, "float16")),
    "a quotient": lambda: lax.div(_filled(1e4, "float16"), _filled(2**-5, "float16")),
    "a convert": lambda: lax.convert_element_type(_filled(-1e9, "float32"), jnp.float16),
    "a convert to few bits": lambda: lax.convert_element_type(
        _filled(float(jnp.finfo("float32").min), "float32"), jnp.bfloat16
    ),
    "a convert from float64": lambda: lax.convert_element_type(
        _filled(1e300, "float64"), jnp.float32
    ),
}


@pytest.mark.parametrize("case", OVERFLOWN)
def test_zero_times_what_has_overflown_is_not_zero(case: str) -> None:
    """It is nan on one device."""
    with jax.enable_x64(True):
        text = jax.jit(lambda: _hidden(OVERFLOWN[case]())).lower().as_text()
    module = parse(text)
    with module.context:
        main = main_function(module.operation)
        (got,) = interpreter(module.operation, main, 1)([[]])[0]
        assert np.isnan(np.asarray(got, float)[0, 0, 1])
        (value,) = terminator(main).operands
        assert Square({}, lambda _: False).fact(value, (1, 2), Region.ABOVE) is None


def test_a_subnormal_divisor_may_be_zero() -> None:
    """XLA's CPU backend flushes it."""
    text = jax.jit(lambda: lax.div(_hidden(_filled(1, "float32")), _filled(1e-40, "float32")))
    module = parse(text.lower().as_text())
    with module.context:
        (value,) = terminator(main_function(module.operation)).operands
        assert Square({}, lambda _: False).fact(value, (1, 2), Region.ABOVE) is None


def test_long_chains_of_questions_end_without_an_answer() -> None:
    """An update in terms of hundreds of values, say: Python allows about a thousand frames."""
    answers = Answers()

    def number(of: int) -> int:
        return answers.of(of, -1, lambda: number(of - 1) if of else 0)

    assert number(DEEPEST - 1) == 0
    assert number(100_000) == -1
