"""Random StableHLO programs over integers of all widths, on their way through floats and back."""

import math
from dataclasses import dataclass, field
from random import Random

INTEGERS = ("i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64")
FLOATS = ("bf16", "f16", "f32", "f64")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
OF_INTEGERS = ("and", "or", "xor", "divide", "remainder")
SHIFTS = ("shift_left", "shift_right_arithmetic", "shift_right_logical")
DIRECTIONS = ("LT", "LE", "GT", "GE", "EQ", "NE")

Shape = tuple[int, ...]


def tensor(shape: Shape, element: str) -> str:
    return "tensor<" + "".join(f"{size}x" for size in shape) + element + ">"


def limits(element: str) -> tuple[int, int]:
    """The numbers that constants of a type are drawn from, the ends of its range included."""
    if element in FLOATS:
        most = {"bf16": 256, "f16": 2048, "f32": 1 << 24, "f64": 1 << 53}[element]
        return -most, most
    width = int(element.lstrip("ui"))
    return (0, (1 << width) - 1) if element[0] == "u" else (-(1 << width - 1), (1 << width - 1) - 1)


@dataclass
class Draft:
    """Lines of a program, and the values that they make.

    Attributes:
        made: (name, shape, element type) of each value.
    """

    random: Random
    prefix: str = "v"
    lines: list[str] = field(default_factory=list)
    made: list[tuple[str, Shape, str]] = field(default_factory=list)

    def emit(self, text: str, shape: Shape, element: str) -> str:
        name = f"%{self.prefix}{len(self.made)}"
        self.lines.append(f"{name} = {text}")
        self.made.append((name, shape, element))
        return name

    def constant(self, shape: Shape, element: str, number: int | None = None) -> str:
        low, high = limits(element)
        near = [low, high, 0, 1, 2, 3, 5, self.random.randint(low, high), self.random.randint(0, 9)]
        number = self.random.choice(near) if number is None else number
        text = f"{float(number)!r}" if element in FLOATS else str(number)
        return self.emit(
            f"stablehlo.constant dense<{text}> : {tensor(shape, element)}", shape, element
        )

    def iota(self, shape: Shape, element: str) -> str:
        dim = self.random.randrange(len(shape))
        return self.emit(f"stablehlo.iota dim = {dim} : {tensor(shape, element)}", shape, element)

    def same(self, op: str, element: str, shape: Shape, *operands: str) -> str:
        return self.emit(
            f"stablehlo.{op} {', '.join(operands)} : {tensor(shape, element)}", shape, element
        )

    def convert(self, value: str, shape: Shape, before: str, after: str) -> str:
        types = f"({tensor(shape, before)}) -> {tensor(shape, after)}"
        return self.emit(f"stablehlo.convert {value} : {types}", shape, after)

    def like(self, shape: Shape, element: str) -> str:
        """Another value of a type, often one that is there."""
        if element == "i1":
            return self.like_truth(shape)
        found = [v for v, s, e in self.made if (s, e) == (shape, element)]
        if found and self.random.random() < 0.6:
            return self.random.choice(found)
        others = [(v, e) for v, s, e in self.made if s == shape]
        if others and self.random.random() < 0.5:
            value, before = self.random.choice(others)
            return self.convert(value, shape, before, element)
        return self.constant(shape, element)

    def step(self) -> None:
        """One more op on what is there."""
        value, shape, element = self.random.choice(self.made)
        kinds = ["convert"] * 3 + ["compute"] * 5 + ["compare", "clamp", "select"]
        kinds += ["broadcast"] + ["move"] * 3 * bool(shape)
        getattr(self, f"_{self.random.choice(kinds)}")(value, shape, element)

    def _convert(self, value: str, shape: Shape, element: str) -> None:
        self.convert(value, shape, element, self.random.choice([*INTEGERS, *FLOATS]))

    def _compute(self, value: str, shape: Shape, element: str) -> None:
        if element == "i1":
            name = self.random.choice(["and", "or", "xor", "not"])
            others = [] if name == "not" else [self.like_truth(shape)]
            self.same(name, element, shape, value, *others)
            return
        names = ["negate", *BINARY, *BINARY]
        names += ["floor", "sign"] if element in FLOATS else ["not", *OF_INTEGERS, *SHIFTS]
        name = self.random.choice([*names, "abs"] if element[0] != "u" else names)
        if name in ("negate", "abs", "sign", "not", "floor"):
            self.same(name, element, shape, value)
            return
        other = self.like(shape, element)
        if name in ("divide", "remainder"):  # never by zero, which ends the interpreter
            other = self.same("or", element, shape, other, self.constant(shape, element, 1))
        if name in SHIFTS:
            width = int(element.lstrip("ui"))
            other = self.constant(shape, element, self.random.randrange(width))
        self.same(name, element, shape, value, other)

    def like_truth(self, shape: Shape) -> str:
        found = [v for v, s, e in self.made if (s, e) == (shape, "i1")]
        if found and self.random.random() < 0.7:
            return self.random.choice(found)
        value, element = self.random.choice(
            [(v, e) for v, s, e in self.made if s == shape and e != "i1"] or [("", "")]
        )
        if not value:
            element = "i32"
            value = self.constant(shape, element)
        return self._comparison(value, shape, element)

    def _comparison(self, value: str, shape: Shape, element: str) -> str:
        direction = self.random.choice(DIRECTIONS)
        other, type_ = self.like(shape, element), tensor(shape, element)
        types = f"({type_}, {type_}) -> {tensor(shape, 'i1')}"
        return self.emit(f"stablehlo.compare {direction}, {value}, {other} : {types}", shape, "i1")

    def _compare(self, value: str, shape: Shape, element: str) -> None:
        if element != "i1":
            self._comparison(value, shape, element)

    def _clamp(self, value: str, shape: Shape, element: str) -> None:
        if element == "i1":
            return
        ends = () if self.random.random() < 0.5 else shape
        low, high = self.constant(ends, element), self.constant(ends, element)
        scalar, whole = tensor(ends, element), tensor(shape, element)
        types = f"({scalar}, {whole}, {scalar}) -> {whole}"
        self.emit(f"stablehlo.clamp {low}, {value}, {high} : {types}", shape, element)

    def _select(self, value: str, shape: Shape, element: str) -> None:
        if element == "i1":
            return
        chosen, other = self.like_truth(shape), self.like(shape, element)
        types = f"{tensor(shape, 'i1')}, {tensor(shape, element)}"
        self.emit(f"stablehlo.select {chosen}, {value}, {other} : {types}", shape, element)

    def _broadcast(self, value: str, shape: Shape, element: str) -> None:
        if len(shape) > 1:
            return
        size = self.random.choice([1, 3, 300 if math.prod(shape) < 4 else 2])
        after, dims = self.random.choice(
            [((*shape, size), range(len(shape))), ((size, *shape), range(1, len(shape) + 1))]
        )
        types = f"({tensor(shape, element)}) -> {tensor(after, element)}"
        self.emit(
            f"stablehlo.broadcast_in_dim {value}, dims = {list(dims)} : {types}", after, element
        )

    def _move(self, value: str, shape: Shape, element: str) -> None:
        kind = self.random.choice(["reshape", "transpose", "slice", "reverse", "join", "dynamic"])
        before = tensor(shape, element)
        dim = self.random.randrange(len(shape))
        if kind == "reshape":
            count = math.prod(shape)
            options = [(count,), (1, count), (count, 1)]
            options += [(k, count // k) for k in (2, 3, 4) if count % k == 0]
            after = self.random.choice(options)
            types = f"({before}) -> {tensor(after, element)}"
            self.emit(f"stablehlo.reshape {value} : {types}", after, element)
        elif kind == "transpose":
            order = self.random.sample(range(len(shape)), len(shape))
            after = tuple(shape[d] for d in order)
            types = f"({before}) -> {tensor(after, element)}"
            self.emit(f"stablehlo.transpose {value}, dims = {order} : {types}", after, element)
        elif kind == "slice":
            start = self.random.randrange(shape[dim])
            end = self.random.randint(start + 1, shape[dim])
            step = self.random.choice([1, 2])
            parts = [f"0:{size}" for size in shape]
            parts[dim] = f"{start}:{end}:{step}"
            after = (*shape[:dim], -(-(end - start) // step), *shape[dim + 1 :])
            types = f"({before}) -> {tensor(after, element)}"
            self.emit(f"stablehlo.slice {value} [{', '.join(parts)}] : {types}", after, element)
        elif kind == "reverse":
            self.emit(f"stablehlo.reverse {value}, dims = [{dim}] : {before}", shape, element)
        elif kind == "join" and shape[dim] < 400:
            other = self.like(shape, element)
            after = (*shape[:dim], 2 * shape[dim], *shape[dim + 1 :])
            types = f"({before}, {before}) -> {tensor(after, element)}"
            self.emit(
                f"stablehlo.concatenate {value}, {other}, dim = {dim} : {types}", after, element
            )
        elif kind == "dynamic":
            self.dynamic_slice(value, shape, element, dim)

    def dynamic_slice(self, value: str, shape: Shape, element: str, dim: int) -> None:
        index = self.random.choice(INTEGERS)
        starts = [self.constant((), index, 0) for _ in shape]
        starts[dim] = self.like((), index)
        sizes = list(shape)
        sizes[dim] = self.random.randint(1, shape[dim])
        types = ", ".join([tensor(shape, element), *[tensor((), index)] * len(shape)])
        after = tuple(sizes)
        self.emit(
            f"stablehlo.dynamic_slice {value}, {', '.join(starts)}, sizes = {sizes} :"
            f" ({types}) -> {tensor(after, element)}",
            after,
            element,
        )


def _wide(element: str) -> str:
    return "f64" if element in FLOATS else "ui64" if element == "ui64" else "i64"


def straight_program(random: Random, length: int) -> str:
    """A function that gives every value it makes: integers as i64 or ui64, floats as f64."""
    draft = Draft(random)
    for _ in range(2):
        shape = random.choice([(300,), (5,), (3, 4), (2, 130), (1, 7)])
        draft.iota(shape, random.choice([*INTEGERS, *FLOATS]))
    for _ in range(length):
        draft.step()
    results, types = [], []
    for value, shape, element in list(draft.made):
        results.append(draft.convert(value, shape, element, _wide(element)))
        types.append(tensor(shape, _wide(element)))
    body = "\n  ".join(draft.lines)
    return (
        f"func.func @main() -> ({', '.join(types)}) {{\n  {body}\n"
        f"  return {', '.join(results)} : {', '.join(types)}\n}}"
    )


@dataclass(frozen=True)
class Counter:
    """A loop's counter: `for (i = start; i direction bound; i += step)`."""

    element: str
    start: int
    step: int
    direction: str
    bound: int

    @staticmethod
    def drawn(random: Random) -> "Counter":
        """One that may wrap around, or never end."""
        element = random.choice(INTEGERS)
        low, high = limits(element)
        step = random.choice([1, 1, 1, 2, 3, 100, *([] if low == 0 else [-1, -1, -2, -100])])
        near = [low, low + 1, high, high - 1, 0, 3, min(high, 200)]
        bound = random.choice(near)
        back = random.choice([0, 1, 5, 6, 12, 255, 300])
        start = min(max(bound - step * back, low), high)
        return Counter(element, start, step, random.choice((*DIRECTIONS[:4], "NE")), bound)

    def counts(self, most: int) -> list[int] | None:
        """What it counts before it ends, step by step; None if these are more than `most`."""
        low, high = limits(self.element)
        ends = {
            "LT": lambda i: i >= self.bound,
            "LE": lambda i: i > self.bound,
            "GT": lambda i: i <= self.bound,
            "GE": lambda i: i < self.bound,
            "NE": lambda i: i == self.bound,
        }[self.direction]
        found, i = [], self.start
        while not ends(i):
            found.append(i)
            i = (i + self.step - low) % (high - low + 1) + low
            if len(found) > most:
                return None
        return found


def loop_program(random: Random, counter: Counter, length: int, trips: int) -> str:
    """A loop whose results are, for each value of its body, what it is in every iteration.

    Behind `counter` the loop carries another number that counts, and the number of the iteration.
    """
    body = Draft(random)
    other = random.choice(INTEGERS)
    low, high = limits(other)
    begin, by = random.choice([low, 0, max(low, high - trips)]), random.choice([1, 1, 2])
    for name, element in (("%i", counter.element), ("%j", other)):
        body.made.append((name, (), element))
    body.iota((random.choice([2, 130, 300]),), random.choice([*INTEGERS, *FLOATS]))
    value, shape, element = body.made[-1]
    body.dynamic_slice(value, shape, element, 0)
    for _ in range(length):
        body.step()
    made = [each for each in body.made if math.prod(each[1]) < 10]
    carried = [
        ("%i", tensor((), counter.element), "%i0"),
        ("%j", tensor((), other), "%j0"),
        ("%k", tensor((), "i64"), "%zero"),
    ]
    handed, before = ["%inext", "%jnext", "%knext"], []
    number = tensor((), "i64")
    for n, (value, shape, element) in enumerate(made):
        wide, row = _wide(element), (1, math.prod(shape))
        stack = tensor((trips, row[1]), wide)
        before.append(f"%s{n} = stablehlo.constant dense<0{'.0' * (wide == 'f64')}> : {stack}")
        carried.append((f"%b{n}", stack, f"%s{n}"))
        name = body.convert(value, shape, element, wide)
        flat = body.emit(
            f"stablehlo.reshape {name} : ({tensor(shape, wide)}) -> {tensor(row, wide)}", row, wide
        )
        handed.append(f"%w{n}")
        body.lines.append(
            f"%w{n} = stablehlo.dynamic_update_slice %b{n}, {flat}, %k, %zero :"
            f" ({stack}, {tensor(row, wide)}, {number}, {number}) -> {stack}"
        )
    types = ", ".join(type_ for _, type_, _ in carried)
    lines = "\n    ".join(body.lines)
    own, second = tensor((), counter.element), tensor((), other)
    return f"""func.func @main() -> ({types}) {{
  %zero = stablehlo.constant dense<0> : {number}
  %one = stablehlo.constant dense<1> : {number}
  %i0 = stablehlo.constant dense<{counter.start}> : {own}
  %istep = stablehlo.constant dense<{counter.step}> : {own}
  %bound = stablehlo.constant dense<{counter.bound}> : {own}
  %j0 = stablehlo.constant dense<{begin}> : {second}
  %jstep = stablehlo.constant dense<{by}> : {second}
  {chr(10).join(before)}
  %loop:{len(carried)} = stablehlo.while({", ".join(f"{a} = {c}" for a, _, c in carried)}) : {types}
  cond {{
    %more = stablehlo.compare {counter.direction}, %i, %bound : ({own}, {own}) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    {lines}
    %inext = stablehlo.add %i, %istep : {own}
    %jnext = stablehlo.add %j, %jstep : {second}
    %knext = stablehlo.add %k, %one : {number}
    stablehlo.return {", ".join(handed)} : {types}
  }}
  return {", ".join(f"%loop#{n}" for n in range(len(carried)))} : {types}
}}"""
