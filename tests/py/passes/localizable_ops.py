"""One small program for each op that may run on parts, the op in question marked `{target}`."""

ADD = """({
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %s = stablehlo.add %l, %r : tensor<f32>
      stablehlo.return %s : tensor<f32>
    })"""
MAX = ADD.replace("stablehlo.add", "stablehlo.maximum")
GREATER = """({
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %s = stablehlo.compare GE, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %s : tensor<i1>
    })"""


def program(arguments: str, results: str, body: str) -> str:
    """@main with `body`, which returns by itself."""
    return f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}"


def _elementwise(name: str, count: int, source: str = "f32", target: str = "") -> str:
    operands = [f"%a{i}" for i in range(count)]
    type, result = f"tensor<4x8x{source}>", f"tensor<4x8x{target or source}>"
    return program(
        ", ".join(f"{operand}: {type}" for operand in operands),
        result,
        f'%0 = "stablehlo.{name}"({", ".join(operands)}) {{target}} :'
        f" ({', '.join([type] * count)}) -> {result}\nreturn %0 : {result}",
    )


UNARY = """abs cbrt ceil cosine exponential exponential_minus_one floor log log_plus_one logistic
    negate round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh""".split()
BINARY = "add atan2 divide maximum minimum multiply power remainder subtract".split()
INTEGER = "and or xor shift_left shift_right_arithmetic shift_right_logical".split()

ELEMENTWISE = {
    **{name: _elementwise(name, 1) for name in UNARY},
    **{name: _elementwise(name, 2) for name in BINARY},
    **{name: _elementwise(name, 2, "i32") for name in INTEGER},
    **{name: _elementwise(name, 1, "i32") for name in "count_leading_zeros not popcnt".split()},
    "is_finite": _elementwise("is_finite", 1, "f32", "i1"),
    "convert": _elementwise("convert", 1, "f32", "i32"),
    "convert_up": _elementwise("convert", 1, "f32", "f64"),
    "add_integers": _elementwise("add", 2, "i32"),
    "add_booleans": _elementwise("add", 2, "i1"),
    "compare": program(
        "%a: tensor<4x8xf32>, %b: tensor<4x8xf32>",
        "tensor<4x8xi1>",
        """%0 = stablehlo.compare LT, %a, %b {target}
          : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>
        return %0 : tensor<4x8xi1>""",
    ),
    "reduce_precision": program(
        "%a: tensor<4x8xf32>",
        "tensor<4x8xf32>",
        """%0 = stablehlo.reduce_precision %a, format = e5m1 {target} : tensor<4x8xf32>
        return %0 : tensor<4x8xf32>""",
    ),
    "complex": program(
        "%a: tensor<4x8xf32>, %b: tensor<4x8xf32>",
        "tensor<4x8xf32>",
        """%0 = stablehlo.complex %a, %b {target} : tensor<4x8xcomplex<f32>>
        %1 = stablehlo.imag %0 : (tensor<4x8xcomplex<f32>>) -> tensor<4x8xf32>
        return %1 : tensor<4x8xf32>""",
    ),
    **{
        name: program(
            "%a: tensor<4x8xf32>",
            "tensor<4x8xf32>",
            f"""%0 = stablehlo.complex %a, %a : tensor<4x8xcomplex<f32>>
            %1 = stablehlo.{name} %0 {{target}} : (tensor<4x8xcomplex<f32>>) -> tensor<4x8xf32>
            return %1 : tensor<4x8xf32>""",
        )
        for name in ("real", "imag")
    },
    "select": program(
        "%p: tensor<4x8xi1>, %a: tensor<4x8xf32>, %b: tensor<4x8xf32>",
        "tensor<4x8xf32>",
        """%0 = stablehlo.select %p, %a, %b {target} : tensor<4x8xi1>, tensor<4x8xf32>
        return %0 : tensor<4x8xf32>""",
    ),
    "select_by_one_boolean": program(
        "%p: tensor<i1>, %a: tensor<4x8xf32>, %b: tensor<4x8xf32>",
        "tensor<4x8xf32>",
        """%0 = stablehlo.select %p, %a, %b {target} : tensor<i1>, tensor<4x8xf32>
        return %0 : tensor<4x8xf32>""",
    ),
    "clamp": program(
        "%l: tensor<f32>, %a: tensor<4x8xf32>, %h: tensor<4x8xf32>",
        "tensor<4x8xf32>",
        """%b = stablehlo.broadcast_in_dim %l, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
        %0 = stablehlo.clamp %b, %a, %h {target} : tensor<4x8xf32>
        return %0 : tensor<4x8xf32>""",
    ),
    "clamp_between_scalars": program(
        "%l: tensor<f32>, %a: tensor<4x8xf32>, %h: tensor<f32>",
        "tensor<4x8xf32>",
        """%0 = stablehlo.clamp %l, %a, %h {target}
          : (tensor<f32>, tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
        return %0 : tensor<4x8xf32>""",
    ),
    "optimization_barrier": program(
        "%a: tensor<4x8xf32>, %b: tensor<4xi32>",
        "tensor<4x8xf32>, tensor<4xi32>",
        """%0:2 = stablehlo.optimization_barrier {target} %a, %b : tensor<4x8xf32>, tensor<4xi32>
        return %0#0, %0#1 : tensor<4x8xf32>, tensor<4xi32>""",
    ),
}

SHAPES = {
    "broadcast_in_dim": program(
        "%a: tensor<4x1xf32>",
        "tensor<8x4x6xf32>",
        """%0 = stablehlo.broadcast_in_dim %a, dims = [1, 2] {target}
          : (tensor<4x1xf32>) -> tensor<8x4x6xf32>
        return %0 : tensor<8x4x6xf32>""",
    ),
    "broadcast_a_scalar": program(
        "%a: tensor<f32>",
        "tensor<4x8xf32>",
        """%0 = stablehlo.broadcast_in_dim %a, dims = [] {target}
          : (tensor<f32>) -> tensor<4x8xf32>
        return %0 : tensor<4x8xf32>""",
    ),
    "transpose": program(
        "%a: tensor<4x2x8xf32>",
        "tensor<8x4x2xf32>",
        """%0 = stablehlo.transpose %a, dims = [2, 0, 1] {target}
          : (tensor<4x2x8xf32>) -> tensor<8x4x2xf32>
        return %0 : tensor<8x4x2xf32>""",
    ),
    **{
        f"reshape_{source}_to_{target}": program(
            f"%a: tensor<{source}xf32>",
            f"tensor<{target}xf32>",
            f"""%0 = stablehlo.reshape %a {{target}}
              : (tensor<{source}xf32>) -> tensor<{target}xf32>
            return %0 : tensor<{target}xf32>""",
        )
        for source, target in [
            ("8x4", "32"),
            ("32", "4x8"),
            ("8x4", "4x8"),
            ("8x4", "2x4x4"),
            ("4x1x8", "1x4x8"),
            ("4x6", "6x4"),
        ]
    },
    "bitcast_convert": program(
        "%a: tensor<4x8xf32>",
        "tensor<4x8xi32>",
        """%0 = stablehlo.bitcast_convert %a {target} : (tensor<4x8xf32>) -> tensor<4x8xi32>
        return %0 : tensor<4x8xi32>""",
    ),
    "bitcast_convert_to_halves": program(
        "%a: tensor<4x8xi32>",
        "tensor<4x8x2xi16>",
        """%0 = stablehlo.bitcast_convert %a {target} : (tensor<4x8xi32>) -> tensor<4x8x2xi16>
        return %0 : tensor<4x8x2xi16>""",
    ),
    "concatenate": program(
        "%a: tensor<4x8xf32>, %b: tensor<4x4xf32>",
        "tensor<4x12xf32>",
        """%0 = stablehlo.concatenate %a, %b, dim = 1 {target}
          : (tensor<4x8xf32>, tensor<4x4xf32>) -> tensor<4x12xf32>
        return %0 : tensor<4x12xf32>""",
    ),
    "reverse": program(
        "%a: tensor<4x8xf32>",
        "tensor<4x8xf32>",
        """%0 = stablehlo.reverse %a, dims = [1] {target} : tensor<4x8xf32>
        return %0 : tensor<4x8xf32>""",
    ),
    **{
        name: program(
            "%a: tensor<4x8xf32>",
            f"tensor<{result}xf32>",
            f"""%0 = stablehlo.slice %a [{limits}] {{target}}
              : (tensor<4x8xf32>) -> tensor<{result}xf32>
            return %0 : tensor<{result}xf32>""",
        )
        for name, limits, result in [
            ("slice", "0:4, 2:6", "4x4"),
            ("slice_with_strides", "0:4:2, 0:8", "2x8"),
            ("slice_of_everything", "0:4, 0:8", "4x8"),
        ]
    },
    **{
        name: program(
            "%a: tensor<4x8xf32>, %v: tensor<f32>",
            f"tensor<{result}xf32>",
            f"""%0 = stablehlo.pad %a, %v, low = {low}, high = {high}, interior = {interior}
              {{target}} : (tensor<4x8xf32>, tensor<f32>) -> tensor<{result}xf32>
            return %0 : tensor<{result}xf32>""",
        )
        for name, low, high, interior, result in [
            ("pad", "[0, 1]", "[0, 1]", "[0, 0]", "4x10"),
            ("pad_and_crop", "[0, -1]", "[0, 1]", "[0, 0]", "4x8"),
            ("pad_inside", "[0, 0]", "[0, -7]", "[0, 1]", "4x8"),
        ]
    },
    "dynamic_slice": program(
        "%a: tensor<4x8xf32>, %i: tensor<i32>, %j: tensor<i32>",
        "tensor<4x2xf32>",
        """%0 = stablehlo.dynamic_slice %a, %i, %j, sizes = [4, 2] {target}
          : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x2xf32>
        return %0 : tensor<4x2xf32>""",
    ),
    "dynamic_update_slice": program(
        "%a: tensor<4x8xf32>, %u: tensor<4x2xf32>, %i: tensor<i32>, %j: tensor<i32>",
        "tensor<4x8xf32>",
        """%0 = stablehlo.dynamic_update_slice %a, %u, %i, %j {target}
          : (tensor<4x8xf32>, tensor<4x2xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
        return %0 : tensor<4x8xf32>""",
    ),
}

OPS = ELEMENTWISE | SHAPES
