"""Random expressions that compute: elementwise, products, reductions, windows, sorts, loops."""

from tests.py.fuzz.draft import Draft, Value

UNARY = """jnp.sin jnp.tanh jnp.cos -{v} jnp.abs jnp.floor jnp.ceil jnp.round jnp.sign
    jax.nn.sigmoid lax.erf jax.nn.relu jax.nn.gelu jnp.cbrt jnp.square jax.nn.softplus
    lax.logistic jnp.exp(jnp.tanh({v})) jnp.sqrt(jnp.abs({v})+1) jnp.log1p(jnp.abs({v}))
    lax.rsqrt(jnp.abs({v})+1)
    jnp.expm1(jnp.tanh({v})) lax.erf_inv(jnp.tanh({v})/2) lax.lgamma(jnp.abs({v})+1) lax.asinh
    jnp.nan_to_num jnp.sinc lax.digamma(jnp.abs({v})+1) lax.optimization_barrier jnp.arctan
    jax.checkpoint(jnp.sin) lax.reduce_precision({v},8,7) jnp.where({v}>0,{v},0.1*{v})
    jnp.clip({v},-1,1) lax.stop_gradient""".split()
BINARY = """{v}+{w} {v}-{w} {v}*{w} {v}/(1+{w}*{w}) jnp.maximum({v},{w}) jnp.minimum({v},{w})
    jnp.arctan2({v},{w}) jnp.where({v}>{w},{v},{w}*2) jnp.power(jnp.abs({v})+1,jnp.tanh({w}))
    jnp.hypot({v},{w}) jnp.fmod({v},{w}*{w}+1) jnp.logaddexp({v},{w}) jnp.copysign({v},{w})
    lax.select({v}<{w},{v},{w}) lax.clamp({v}-1,{w},{v}+1) jnp.abs(lax.complex({v},{w}))
    jnp.real(jnp.exp(1j*{v})*(lax.complex({v},{w}))) jnp.nextafter({v},{w}) jnp.heaviside({v},{w})
    lax.betainc(jnp.abs({v})+1,jnp.abs({w})+1,0.3+0*{v})""".split()
INTEGERS = """{v}+1 {v}*{w} {v}&{w} {v}|{w} {v}^{w} ~{v} {v}//(1+{w}*{w}) {v}%(1+{w}*{w})
    jnp.maximum({v},{w}) lax.population_count({v}) lax.clz({v}) {v}<<2 {v}>>1
    lax.shift_right_logical({v},{w}&7) -{v} jnp.abs({v}) lax.rem({v},1+{w}*{w}) jnp.sign({v})
    ({v}).astype('uint8').astype('int32') ({v}<{w}).astype('int32')
    lax.bitcast_convert_type({v},'uint32').astype('int32')""".split()


def unary(d: Draft) -> str:
    v, text = d.pick(0), d.choice(UNARY)
    return text.format(v=v.name) if "{" in text else f"{text}({v.name})"


def binary(d: Draft) -> str:
    v = d.pick(0)
    w = d.like(v.shape)
    right = w.name if w.dtype == v.dtype else f"{w.name}.astype({v.name}.dtype)"
    return d.choice(BINARY).format(v=v.name, w=right)


def broadcasted(d: Draft) -> str:
    """One operand has fewer dims, or dims of size 1."""
    v = d.pick(1)
    shape = tuple(d.choice([1, size]) for size in v.shape)[d.random.randint(0, v.rank) :]
    return f"{v.name} {d.choice('+-*')} {d.like(shape).name}"


def integers(d: Draft) -> str:
    v = d.pick(0, kind="integer")
    w = d.like(v.shape, "integer")
    return d.choice(INTEGERS).format(v=v.name, w=w.name)


def convert(d: Draft) -> str:
    v = d.pick(0, kind="any")
    if v.is_float:
        text = d.choice(
            ["(jnp.tanh({v}) * 7).astype('int32')", "{v} > 0.25", "{v}.astype('float32')"]
        )
        return text.format(v=v.name)
    return f"{v.name}.astype('{d.float_type}')"


def booleans(d: Draft) -> str:
    v = d.pick(0, kind="bool")
    w = d.like(v.shape, "bool")
    return d.choice(["{v} & {w}", "{v} | ~{w}", "{v} ^ {w}"]).format(v=v.name, w=w.name)


def chosen(d: Draft) -> str:
    v = d.pick(0)
    p, w = d.like(v.shape, "bool"), d.like(v.shape)
    return f"jnp.where({p.name}, {v.name}, {w.name})"


def counted(d: Draft) -> str:
    """An iota among the operands."""
    v = d.pick(1)
    return f"{v.name} * lax.broadcasted_iota({v.name}.dtype, {v.shape}, {d.dim(v)}) / 8"


# ---- products and sums


def dot(d: Draft) -> str:
    """Any number of contracted and batch dims, operands in any order of dims."""
    v = d.pick(1, 3)
    letters = "abcd"[: v.rank]
    kinds = [d.choice("ccbf") for _ in letters]  # contracted, batch, free
    right = [(x, n) for x, n, k in zip(letters, v.shape, kinds, strict=True) if k in "cb"]
    right += [(x, d.size()) for x in "xy"[: d.random.randint(0, 2)]]
    d.random.shuffle(right)
    w = d.like(tuple(n for _, n in right))
    out = [x for x, k in zip(letters, kinds, strict=True) if k in "bf"]
    out += [x for x, _ in right if x in "xy"]
    d.random.shuffle(out)
    spec = f"{letters},{''.join(x for x, _ in right)}->{''.join(out)}"
    return f"jnp.einsum('{spec}', {v.name}, {w.name})"


def reduce(d: Draft) -> str:
    v = d.pick(1)
    dims = tuple(sorted(d.random.sample(range(v.rank), d.random.randint(1, v.rank))))
    how = d.choice(
        "jnp.sum jnp.sum jnp.mean jnp.max jnp.min jnp.prod jax.nn.logsumexp jnp.var".split()
    )
    return f"{how}({v.name}, {dims})"


def reduce_other(d: Draft) -> str:
    kind = d.choice(["integer", "bool", "float"])
    v = d.pick(1, kind=kind)
    how = {
        "integer": ["jnp.sum", "jnp.max", "jnp.bitwise_or.reduce", "jnp.bitwise_xor.reduce"],
        "bool": ["jnp.any", "jnp.all", "jnp.sum", "jnp.count_nonzero"],
        "float": ["jnp.argmax", "jnp.argmin"],
    }[kind]
    return f"{d.choice(how)}({v.name}, axis={d.dim(v)})"


def softmax(d: Draft) -> str:
    v = d.pick(1)
    return f"jax.nn.{d.choice(['softmax', 'log_softmax', 'standardize'])}({v.name}, {d.dim(v)})"


def cumulative(d: Draft) -> str:
    v = d.pick(1, 3)
    how = d.choice(["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
    return f"lax.{how}({v.name}, {d.dim(v)}, reverse={d.chance(0.5)})"


def associative_scan(d: Draft) -> str:
    v = d.pick(1, 3)
    how = d.choice(["jnp.add", "jnp.maximum", "lambda l, r: l * 0.5 + r"])
    return f"lax.associative_scan({how}, {v.name}, axis={d.dim(v)}, reverse={d.chance(0.5)})"


def recurrence(d: Draft) -> str:
    """The scan of a linear recurrence, as state-space models have it."""
    v = d.pick(1, 3)
    w = d.like(v.shape)
    combine = "lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1])"
    pair = f"(jax.nn.sigmoid({w.name}), {v.name}.astype({w.name}.dtype))"
    return f"lax.associative_scan({combine}, {pair}, axis={d.dim(v)})[1]"


# ---- windows


def convolution(d: Draft, free: bool = True) -> str:
    """Any layout, groups, strides, dilations; its gradients come from differentiating it."""
    spatial = d.random.randint(1, 2)
    groups, batch_groups = d.choice([(1, 1), (1, 1), (2, 1), (4, 1), (1, 2)])
    batch, features = d.choice([2, 4]), d.choice([4, 8])
    out = d.choice([4, 8])
    sizes = [d.choice([4, 5, 8]) for _ in range(spatial)]
    kernel = [d.choice([1, 2, 3]) for _ in range(spatial)]
    space = "HW"[:spatial]
    layouts = [list(x + space) for x in ("NC", "IO", "NC")]
    for layout in layouts:
        d.random.shuffle(layout)
    lhs = dict(zip("NC" + space, [batch, features, *sizes], strict=True))
    rhs = dict(zip("IO" + space, [features // groups, out, *kernel], strict=True))
    v = d.like(tuple(lhs[x] for x in layouts[0]))
    w = d.like(tuple(rhs[x] for x in layouts[1]))
    dilation = [d.choice([1, 1, 2]) for _ in range(spatial)]
    fits = all((k - 1) * r + 1 <= n for k, r, n in zip(kernel, dilation, sizes, strict=True))
    padding = [(2, 2)] * spatial
    if fits:
        padding = [(0, 0) if d.chance(0.3) else (d.choice([0, 1]), d.choice([1, 2])) for _ in space]
    lhs_dilation = [d.choice([1, 1, 2]) for _ in range(spatial)]
    names = tuple("".join(layout) for layout in layouts)
    return (
        f"lax.conv_general_dilated({v.name}, {w.name}.astype({v.name}.dtype),"
        f" {tuple(d.choice([1, 1, 2]) for _ in range(spatial))}, {padding},"
        f" {tuple(lhs_dilation)}, {tuple(dilation)}, {names},"
        f" feature_group_count={groups}, batch_group_count={batch_groups})"
    )


def pool(d: Draft) -> str:
    v = d.pick(1, 4)
    window, strides, padding, base, dilation = [], [], [], [], []
    for size in v.shape:
        window.append(d.choice([1, 1, 2, 3, size]))
        strides.append(d.choice([1, 1, 2]))
        base.append(d.choice([1, 1, 1, 2]))
        dilation.append(d.choice([1, 1, 1, 2]))
        needed = (window[-1] - 1) * dilation[-1] + 1
        spare = max(0, needed - ((size - 1) * base[-1] + 1))
        padding.append((spare, d.choice([0, 0, 1])))
    how = d.choice(["-jnp.inf, lax.max", "jnp.inf, lax.min", "0.0, lax.add"])
    return (
        f"lax.reduce_window({v.name}, {how}, {tuple(window)}, {tuple(strides)}, {padding},"
        f" {tuple(base)}, {tuple(dilation)})"
    )


def pool_gradient(d: Draft) -> str:
    """Select-and-scatter: where the maximum of each window was."""
    v = d.pick(1, 3)
    dims = [d.choice([1, 2]) if size > 1 else 1 for size in v.shape]
    same = d.choice(["'VALID'", "'SAME'"])
    strides = d.choice([tuple(dims), (1,) * v.rank])
    window = f"lax.reduce_window(t, -jnp.inf, lax.max, {tuple(dims)}, {strides}, {same})"
    return f"jax.grad(lambda t: jnp.sum(jnp.sin({window})))({v.name})"


# ---- order


def sort(d: Draft) -> str:
    v = d.pick(1, 3)
    dim = d.dim(v)
    w = d.like(v.shape)
    return d.choice(
        [
            f"jnp.sort({v.name}, {dim}, descending={d.chance(0.3)})",
            f"jnp.argsort({v.name}, {dim})",
            f"lax.sort([{v.name}, {w.name}], dimension={dim}, num_keys=1)[1]",
            f"lax.sort([jnp.round({v.name}), {w.name}], dimension={dim}, num_keys=2)[1]",
            f"jnp.median({v.name}, {dim})",
            f"lax.top_k({v.name}, {max(1, v.shape[-1] // 2)})[{d.choice([0, 1])}]",
            f"lax.approx_max_k({v.name}, 1, reduction_dimension={dim})[0]",
            f"jax.nn.one_hot(jnp.argmax({v.name}, {dim}), {v.shape[dim]}, axis={dim})",
        ]
    )


def random_bits(d: Draft) -> str:
    shape, seed = d.shape(0, 3), d.random.randint(0, 99)
    impl = d.choice(["threefry2x32", "threefry2x32", "rbg", "unsafe_rbg"])
    key = f"jax.random.key({seed}, impl='{impl}')"
    if d.chance(0.3):
        key = f"jax.random.fold_in({key}, {_scalar(d)})"
    how = d.choice(["normal({k}, {s})", "uniform({k}, {s})", "bernoulli({k}, 0.5, {s}) * 1.0"])
    drawn = f"jax.random.{how.format(k=key, s=shape)}"
    fits = [v for v in d.values if v.shape == shape and v.is_float]
    return f"{drawn} * {d.choice(fits).name}" if fits else drawn


def _scalar(d: Draft) -> str:
    i: Value = d.pick(0, 2, "integer")
    return i.name if i.rank == 0 else f"{i.name}.reshape(-1)[0]"


# ---- linear algebra


def triangular(d: Draft) -> str:
    n, m, batch = d.choice([2, 3, 4]), d.choice([1, 2, 4]), d.choice([(), (2,), (4,)])
    v, w = d.like((*batch, n, n)), d.like((*batch, n, m))
    matrix = f"({v.name} @ {v.name}.mT + 4 * jnp.eye({n}, dtype={v.name}.dtype))"
    if d.chance(0.5):
        return f"lax.linalg.cholesky({matrix})"
    return (
        f"lax.linalg.triangular_solve({matrix}, {w.name}.astype({v.name}.dtype),"
        f" left_side=True, lower={d.chance(0.5)}, transpose_a={d.chance(0.5)})"
    )


def fft(d: Draft) -> str:
    v = d.pick(1, 3)
    how = d.choice(["jnp.abs(jnp.fft.fft({v}, axis={a}))", "jnp.real(jnp.fft.ifft({v}, axis={a}))"])
    how = d.choice([how, "jnp.imag(jnp.fft.rfft({v}, axis={a}))"])
    return how.format(v=v.name, a=d.dim(v))


# ---- control flow


def scan(d: Draft) -> str:
    """Over the rows of a value; what it carries has the shape of a row, or is a matrix state."""
    v = d.pick(2, 3)
    row, w = v.shape[1:], d.like(v.shape[1:])
    steps = [
        "(jnp.tanh(c + x), c * x)",
        f"(c * 0.5 + jnp.sin(x), c[::-1] + {w.name}.astype(c.dtype))",
        f"(c + x * {w.name}.astype(c.dtype), jnp.cumsum(c, 0))",
        "(lax.cond(x.sum() > 0, lambda: c + x, lambda: c - x), jnp.max(c, 0))",
        "(jnp.roll(c, 1, 0) + x, jnp.sum(x))",
    ]
    start = d.choice([f"jnp.zeros({row}, {v.name}.dtype)", f"{w.name}.astype({v.name}.dtype)"])
    body = f"lambda c, x: {d.choice(steps)}"
    options = f"reverse={d.chance(0.3)}, unroll={d.choice([1, 1, 2])}"
    return f"lax.scan({body}, {start}, {v.name}, {options})[{d.choice([0, 1])}]"


def loop(d: Draft) -> str:
    v = d.pick(1, 3)
    at = d.random.randrange(v.shape[0])
    return d.choice(
        [
            f"lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + i, {v.name})",
            f"lax.fori_loop(0, {v.shape[0]}, lambda i, c: c.at[i].add(c[{at}] * 0.5), {v.name})",
            f"lax.while_loop(lambda c: jnp.sum(c * c) > 0.5, lambda c: c * 0.5,"
            f" lax.stop_gradient({v.name}))",
            f"lax.map(lambda r: jnp.sort(r, axis=None), {v.name})",
        ]
    )


def branch(d: Draft) -> str:
    v = d.pick(1, 3)
    w = d.like(v.shape)
    i = _scalar(d)
    return d.choice(
        [
            f"lax.cond(jnp.sum({v.name}) > 0, lambda: jnp.sin({v.name}),"
            f" lambda: {v.name} * {w.name}.astype({v.name}.dtype))",
            f"lax.switch({i}, [lambda: {v.name}, lambda: {v.name}[::-1], lambda: -{v.name}])",
        ]
    )


ELEMENTWISE = (
    unary,
    unary,
    binary,
    binary,
    broadcasted,
    integers,
    convert,
    booleans,
    chosen,
    counted,
)
SUMS = (dot, dot, reduce, reduce, reduce_other, softmax, cumulative, associative_scan, recurrence)
WINDOWS = (convolution, convolution, pool, pool_gradient)
OTHERS = (sort, sort, random_bits, triangular, fft)
CONTROL_FLOW = (scan, loop, branch)
