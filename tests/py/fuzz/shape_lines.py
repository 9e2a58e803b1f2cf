"""Random expressions that move elements: shapes, slices, pads, gathers, scatters."""

from tests.py.fuzz.draft import Draft, Value


def reshape(d: Draft) -> str:
    """Merges neighbours, splits a dim, or anything of as many elements."""
    v = d.pick(1, kind=d.choice(["float", "any"]))
    shape = list(v.shape)
    for _ in range(d.random.randint(1, 3)):
        at = d.random.randrange(len(shape))
        if d.chance(0.5) and at + 1 < len(shape):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        else:
            divisors = [n for n in range(1, shape[at] + 1) if shape[at] % n == 0]
            part = d.choice(divisors)
            shape[at : at + 1] = [part, shape[at] // part]
    return f"jnp.reshape({v.name}, {tuple(shape[:6]) if len(shape) <= 6 else (-1,)})"


def transpose(d: Draft) -> str:
    v = d.pick(2, kind=d.choice(["float", "any"]))
    order = list(range(v.rank))
    d.random.shuffle(order)
    return f"jnp.transpose({v.name}, {tuple(order)})"


def broadcast(d: Draft) -> str:
    v = d.pick(0, 3)
    rank = v.rank + d.random.randint(1, 2)
    dims = sorted(d.random.sample(range(rank), v.rank))
    shape = [d.choice([1, 2, 4]) for _ in range(rank)]
    for dim, size in zip(dims, v.shape, strict=True):
        shape[dim] = d.choice([2, 4]) if size == 1 else size
    return f"lax.broadcast_in_dim({v.name}, {tuple(shape)}, {tuple(dims)})"


def slices(d: Draft) -> str:
    """Python slices of any sign, and of any step."""
    v = d.pick(1, kind=d.choice(["float", "any"]))
    parts = []
    for size in v.shape:
        step = d.choice([1, 1, 2, 3, -1, -1, -2])
        low, high = sorted(d.random.randint(0, size) for _ in range(2))
        text = d.choice([f"{low}:{max(high, low + 1)}", ":", f"{-high or ''}:"])
        if step < 0:
            text = d.choice([":", f"{high}:", f":{low - 1 if low else ''}"])
        empty = len(range(*eval(f"slice({_as_slice(text)}, {step})").indices(size))) == 0
        parts.append(":" if empty else f"{text}:{step}")
    return f"{v.name}[{', '.join(parts)}]"


def _as_slice(text: str) -> str:
    return ", ".join(part or "None" for part in text.split(":"))


def pad(d: Draft) -> str:
    """Low, high and interior, the first two negative at times."""
    v = d.pick(1, 3)
    config = []
    for size in v.shape:
        interior = d.choice([0, 0, 1, 2])
        wide = size + interior * (size - 1)
        low, high = (d.choice([0, 0, 1, 2, 3, -1]) for _ in range(2))
        config.append((low, high, interior) if wide + low + high > 0 else (0, 0, 0))
    return f"lax.pad({v.name}, jnp.asarray(0.5, {v.name}.dtype), {config})"


def concatenate(d: Draft) -> str:
    v = d.pick(1, 3)
    dim = d.dim(v)
    others = [v.name]
    for _ in range(d.random.randint(1, 2)):
        shape = list(v.shape)
        shape[dim] = d.size()
        others.append(d.like(tuple(shape)).name)
    if len({t.dtype for t in d.values if t.name in others}) > 1:
        others = [v.name, f"-{v.name}"]
    return f"jnp.concatenate([{', '.join(others)}], {dim})"


def roll(d: Draft) -> str:
    v = d.pick(1, kind=d.choice(["float", "any"]))
    return f"jnp.roll({v.name}, {d.random.randint(-5, 5)}, {d.dim(v)})"


def tile(d: Draft) -> str:
    v = d.pick(1, 3)
    if d.chance(0.5):
        return f"jnp.repeat({v.name}, {d.choice([2, 3])}, {d.dim(v)})"
    return f"jnp.tile({v.name}, {tuple(d.choice([1, 2]) for _ in v.shape)})"


def stack(d: Draft) -> str:
    v = d.pick(0, 3)
    w = d.like(v.shape)
    return f"jnp.stack([{v.name}, {w.name}.astype({v.name}.dtype)], {d.random.randint(0, v.rank)})"


def triangle(d: Draft) -> str:
    v = d.pick(2, 3)
    return f"jnp.{d.choice(['tril', 'triu'])}({v.name}, {d.random.randint(-2, 2)})"


# ---- positions that are data


def _indices(d: Draft, low: int = 0, high: int = 2) -> Value:
    return d.pick(low, high, "integer")


def gather(d: Draft) -> str:
    v = d.pick(1, kind=d.choice(["float", "any"]))
    mode = d.choice(["clip", "fill", "wrap"])
    return f"jnp.take({v.name}, {_indices(d).name}, {d.dim(v)}, mode={mode!r})"


def gather_mixed(d: Draft) -> str:
    """Index arrays and slices side by side, as in x[i, :, 1:3]."""
    v = d.pick(2)
    i = _indices(d)
    parts = []
    for _ in range(v.rank):
        parts.append(d.choice([i.name, f"{i.name} - 1", ":", ":", "::2", "None, :", "0"]))
    if not any(i.name in part for part in parts):
        parts[0] = i.name
    mode = d.choice(["clip", "fill", "drop"])
    return f"{v.name}.at[{', '.join(parts)}].get(mode={mode!r})"


def gather_along(d: Draft) -> str:
    v = d.pick(1, 3)
    dim = d.dim(v)
    shape = list(v.shape)
    shape[dim] = d.size()
    i = d.like(tuple(shape), "integer")
    return f"jnp.take_along_axis({v.name}, {i.name}, {dim}, mode={d.choice(['clip', 'fill'])!r})"


def scatter(d: Draft) -> str:
    v = d.pick(1, kind=d.choice(["float", "float", "integer"]))
    dim = d.dim(v)
    how = d.choice(["add", "add", "multiply", "min", "max", "set"])
    mode, index = d.choice(["clip", "drop"]), _indices(d, 0, 1).name
    options = ""
    if how == "set" or d.chance(0.2):  # which of two equal positions wins is nobody's promise
        index = f"jnp.arange({min(2, v.shape[dim])})"
        options = d.choice(["", ", unique_indices=True, indices_are_sorted=True"])
    parts = [":"] * dim + [index] + [d.choice([":", "::2"]) for _ in v.shape[dim + 1 :]]
    base = d.choice([v.name, v.name, f"jnp.zeros_like({v.name})"])
    value = d.choice(["2", f"{v.name}.reshape(-1)[0]", f"jnp.sin({v.name}[{', '.join(parts)}])"])
    if not v.is_float:
        value = "2"
    return f"{base}.at[{', '.join(parts)}].{how}({value}, mode={mode!r}{options})"


def scatter_rows(d: Draft) -> str:
    """One update per index, as the gradient of an embedding has."""
    v, i = d.pick(1, 3), _indices(d, 1, 2)
    updates = d.like(i.shape + v.shape[1:])
    how = d.choice(["add", "max"])
    return f"{v.name}.at[{i.name}].{how}({updates.name}.astype({v.name}.dtype), mode='drop')"


def dynamic_slice(d: Draft) -> str:
    v = d.pick(1, 3)
    starts = ", ".join(_scalar(d) for _ in v.shape)
    sizes = tuple(d.choice([size, size, max(1, size // 2), 1]) for size in v.shape)
    return f"lax.dynamic_slice({v.name}, [{starts}], {sizes})"


def dynamic_update(d: Draft) -> str:
    v = d.pick(1, 3)
    starts = ", ".join(_scalar(d) for _ in v.shape)
    sizes = tuple(d.choice([size, size, max(1, size // 2), 1]) for size in v.shape)
    part = d.like(sizes)
    return f"lax.dynamic_update_slice({v.name}, {part.name}.astype({v.name}.dtype), [{starts}])"


def _scalar(d: Draft) -> str:
    """An int32 scalar: what an index is, a constant, or from the data."""
    if d.chance(0.4):
        return f"jnp.int32({d.random.randint(-2, 6)})"
    i = _indices(d, 0, 2)
    name = f"{i.name}.astype('int32')"
    return name if i.rank == 0 else f"{name}.reshape(-1)[{d.choice([0, -1])}]"


SHAPES = (reshape, reshape, transpose, broadcast, slices, slices, pad, pad, concatenate)
SHAPES += (roll, tile, stack, triangle)
POSITIONS = (gather, gather_mixed, gather_along, scatter, scatter_rows)
POSITIONS += (dynamic_slice, dynamic_update)
