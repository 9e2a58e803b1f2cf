"""What is said of the bounds of a value holds whatever the arguments are."""

from random import Random

import numpy as np
import pytest

from shardc.ir.context import parse
from shardc.ir.walk import main_function, ops
from shardc.rules.bounds import ANY, bounds
from tests.py.passes.on_devices import run_whole

UNARY = "tanh sine cosine sign logistic exponential sqrt rsqrt negate abs".split()
NARROW = "f16 bf16 f8E4M3FN f8E5M2 f8E3M4".split()
BINARY = "add subtract multiply divide maximum minimum".split()
EXTREMES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1.0, -1.0, 3e38, 0.3, -7.5, 20.0]


def random_program(random: Random) -> str:
    """Forty ops on vectors: of floats, integers and booleans, and back."""
    size = len(EXTREMES)
    floats, integers, flags = ["%x", "%y"], ["%i"], ["%p"]
    lines = [
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        "%none = stablehlo.constant dense<-1> : tensor<i8>",
    ]

    def add(kind: list[str], line: str) -> None:
        name = f"%v{len(lines)}"
        lines.append(f"{name} = stablehlo.{line}")
        kind.append(name)

    f, i, p = f"tensor<{size}xf32>", f"tensor<{size}xi8>", f"tensor<{size}xi1>"
    pick = random.choice
    for _ in range(40):
        choice = random.randrange(15)
        if choice < 3:
            add(floats, f"{pick(UNARY)} {pick(floats)} : {f}")
        elif choice < 6:
            add(floats, f"{pick(BINARY)} {pick(floats)}, {pick(floats)} : {f}")
        elif choice == 6:
            number = pick([0.5, 1.0, -1.0, 2.0, 0.0, 100.0, 1e8, -1e8, 5e-4, 1e-30, -1e30])
            add(floats, f"constant dense<{number:e}> : {f}")
        elif choice == 7:
            op = pick(["add", "subtract", "multiply", "maximum", "minimum"])
            add(integers, f"{op} {pick(integers)}, {pick(integers)} : {i}")
            add(integers, f"constant dense<{random.randint(-128, 127)}> : {i}")
        elif choice == 8:
            add(floats, f"convert {pick(integers)} : ({i}) -> {f}")
            add(floats, f"convert {pick(flags)} : ({p}) -> {f}")
        elif choice == 9:
            add(flags, f"compare LT, {pick(floats)}, {pick(floats)} : ({f}, {f}) -> {p}")
            add(integers, f"convert {pick(flags)} : ({p}) -> {i}")
        elif choice == 10:
            add(floats, f"clamp {pick(floats)}, {pick(floats)}, {pick(floats)} : {f}")
        elif choice == 11:  # rows of eight, each one element
            spread = f"tensor<8x{size}x{{}}>"
            for kind, type_, name, start in [
                (floats, "f32", "add", "%zero"),
                (floats, "f32", pick(["maximum", "minimum"]), "%zero"),
                (integers, "i8", pick(["and", "or", "add", "maximum"]), "%none"),
            ]:
                wide = spread.format(type_)
                lines.append(
                    f"%w{len(lines)} = stablehlo.broadcast_in_dim {pick(kind)}, dims = [1]"
                    f" : (tensor<{size}x{type_}>) -> {wide}"
                )
                rows = f"%w{len(lines) - 1}"
                add(
                    kind,
                    f"reduce({rows} init: {start}) applies stablehlo.{name} across dimensions = [0]"
                    f" : ({wide}, tensor<{type_}>) -> tensor<{size}x{type_}>",
                )
        elif choice == 12:  # what is rounded to zero is no divisor
            narrow = f"tensor<{size}x{pick(NARROW)}>"
            lines.append(f"%w{len(lines)} = stablehlo.convert {pick(floats)} : ({f}) -> {narrow}")
            add(floats, f"convert %w{len(lines) - 1} : ({narrow}) -> {f}")
        elif choice == 13:  # so is what is gone on the way, whatever it is multiplied by
            for number in (1e-30, 1e-30, 1e30, 1e30):
                lines.append(f"%w{len(lines)} = stablehlo.constant dense<{number:e}> : {f}")
                add(floats, f"multiply {pick(floats[-3:])}, %w{len(lines) - 1} : {f}")
        else:
            add(floats, f"select {pick(flags)}, {pick(floats)}, {pick(floats)} : {p}, {f}")
    made = [name for name in (*floats, *integers) if name.startswith("%v")]
    types = [f if name in floats else i for name in made]
    return (
        f"func.func public @main(%x: {f}, %y: {f}, %i: {i}, %p: {p}) -> ({', '.join(types)}) {{\n"
        + "\n".join(lines)
        + f"\nreturn {', '.join(made)} : {', '.join(types)} }}"
    )


@pytest.mark.parametrize("seed", range(20))
def test_every_bound_holds(seed: int) -> None:
    random = Random(seed)
    module = parse(random_program(random))
    with module.context:
        function = main_function(module.operation)
        results = list(function.regions[0].blocks[0].operations)[-1].operands
        found = [bounds(value) for value in results]
    numbers = np.random.default_rng(seed)
    assert any(each != ANY for each in found)
    for _ in range(8):
        args = [numbers.permutation(EXTREMES).astype(np.float32) for _ in range(2)]
        args.append(numbers.integers(-128, 128, len(EXTREMES)).astype(np.int8))
        args.append(numbers.integers(0, 2, len(EXTREMES)).astype(bool))
        for (low, high), values in zip(found, run_whole(module, args), strict=True):
            real = values[~np.isnan(values)].astype(float)
            slack = 1e-5 * np.abs(real)
            with np.errstate(invalid="ignore"):
                assert np.all((real >= low - slack) | (real == low))
                assert np.all((real <= high + slack) | (real == high))


CASES = {
    "%c = stablehlo.constant dense<[0.5, -1.0]> : tensor<2xf32>": (-1, 0.5),
    "%c = stablehlo.constant dense<0x7F800000> : tensor<2xf32>": (np.inf, np.inf),
    "%c = stablehlo.constant dense<(0.5, -2.0)> : tensor<2xcomplex<f32>>": (-2, 0.5),
    "%c = stablehlo.iota dim = 0 : tensor<100xf32>": (0, 99),
    "%c = stablehlo.iota dim = 0 : tensor<300xi8>": (-128, 127),  # wraps around
    "%c = stablehlo.convert %i : (tensor<2xi32>) -> tensor<2xf16>": ANY,  # overflows
    "%c = stablehlo.convert %i : (tensor<2xi32>) -> tensor<2xf32>": (-(2.0**31), 2.0**31 - 1),
    "%c = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xi1>": (0, 1),
    "%c = stablehlo.constant dense<9007199254740993> : tensor<2xi64>": (2**53 + 1, 2**53 + 1),
    """%d = stablehlo.constant dense<5.0e-4> : tensor<2xf32>
        %r = stablehlo.convert %d : (tensor<2xf32>) -> tensor<2xf8E4M3FN>
        %c = stablehlo.convert %r : (tensor<2xf8E4M3FN>) -> tensor<2xf32>""": (0, np.inf),  # 0
    """%d = stablehlo.constant dense<1.0e-30> : tensor<2xf32>
        %l = stablehlo.constant dense<1.0e30> : tensor<2xf32>
        %e = stablehlo.multiply %d, %d : tensor<2xf32>
        %f = stablehlo.multiply %e, %l : tensor<2xf32>
        %c = stablehlo.multiply %f, %l : tensor<2xf32>""": (0, 1),  # 0
    """%d = stablehlo.constant dense<1.220703125e-4> : tensor<2xf16>
        %e = stablehlo.multiply %d, %d : tensor<2xf16>
        %c = stablehlo.sqrt %e : tensor<2xf16>""": (0, 1.2207e-4),  # 0
    "%c = stablehlo.rsqrt %x : tensor<2xf32>": ANY,  # -inf of -0
    """%d = stablehlo.constant dense<0.999999999999> : tensor<2xf64>
        %r = stablehlo.convert %d : (tensor<2xf64>) -> tensor<2xf32>
        %c = stablehlo.floor %r : tensor<2xf32>""": ANY,  # of what is rounded up to 1
    "%c = stablehlo.subtract %t, %t : tensor<2xf32>": (-2, 2),
    "%c = sdy.reshard %t <@mesh, [{}]> : tensor<2xf32>": (-1, 1),
}


@pytest.mark.parametrize("line", CASES)
def test_what_is_known(line: str) -> None:
    module = parse(
        'sdy.mesh @mesh = <["x"=2]> func.func public @main(%x: tensor<2xf32>, %i: tensor<2xi32>) {'
        f" %t = stablehlo.tanh %x : tensor<2xf32> {line} return }}"
    )
    with module.context:
        assert bounds(ops(main_function(module.operation))[-1].results[0]) == CASES[line]


def test_what_cancels_is_not_known() -> None:
    """1e8 + 1 is 1e8 in float32, and 64 times 1 in bfloat16 no divisor either."""
    module = parse("""func.func public @main() -> (tensor<f32>, tensor<f32>, tensor<bf16>) {
        %large = stablehlo.constant dense<1.0e8> : tensor<f32>
        %one = stablehlo.constant dense<1.0> : tensor<f32>
        %sum = stablehlo.add %large, %one : tensor<f32>
        %rest = stablehlo.subtract %sum, %large : tensor<f32>
        %some = stablehlo.constant dense<0.1> : tensor<300xf32>
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %all = stablehlo.reduce(%some init: %zero) applies stablehlo.add across dimensions = [0]
            : (tensor<300xf32>, tensor<f32>) -> tensor<f32>
        %ones = stablehlo.constant dense<1.0> : tensor<300xbf16>
        %none = stablehlo.constant dense<0.0> : tensor<bf16>
        %count = stablehlo.reduce(%ones init: %none) applies stablehlo.add across dimensions = [0]
            : (tensor<300xbf16>, tensor<bf16>) -> tensor<bf16>
        %less = stablehlo.constant dense<2.56e2> : tensor<bf16>
        %left = stablehlo.subtract %count, %less : tensor<bf16>
        return %rest, %all, %left : tensor<f32>, tensor<f32>, tensor<bf16> }""")
    with module.context:
        function = main_function(module.operation)
        results = list(function.regions[0].blocks[0].operations)[-1].operands
        rest, total, left = (bounds(value) for value in results)
    assert rest.low <= 0
    assert total.low < 30 < total.high < 30.1
    assert left.low <= 0


def test_a_long_way_back_is_not_gone() -> None:
    lines = ["%v0 = stablehlo.tanh %x : tensor<2xf32>"]
    lines += [f"%v{n} = stablehlo.negate %v{n - 1} : tensor<2xf32>" for n in range(1, 300)]
    module = parse(f"func.func public @main(%x: tensor<2xf32>) {{ {' '.join(lines)} return }}")
    with module.context:
        made = ops(main_function(module.operation))
        assert bounds(made[50].results[0]) == (-1, 1)
        assert bounds(made[-1].results[0]) == ANY
