"""As `localizable_ops`: the ops that reduce, contract, slide, gather and scatter."""

from tests.py.passes.localizable_ops import ADD, GREATER, MAX, program


def _reduce(operand: str, dims: str, init: str, name: str, result: str) -> str:
    element = operand.split("x")[-1]
    return program(
        f"%a: tensor<{operand}>",
        f"tensor<{result}>",
        f"""%c = stablehlo.constant dense<{init}> : tensor<{element}>
        %0 = stablehlo.reduce(%a init: %c) applies stablehlo.{name} across dimensions = [{dims}]
          {{target}} : (tensor<{operand}>, tensor<{element}>) -> tensor<{result}>
        return %0 : tensor<{result}>""",
    )


REDUCTIONS = {
    "reduce_sum": _reduce("4x8xf32", "1", "0.0", "add", "4xf32"),
    "reduce_sum_of_all": _reduce("4x8xf32", "0, 1", "0.0", "add", "f32"),
    "reduce_sum_from_one": _reduce("4x8xf32", "1", "1.0", "add", "4xf32"),
    "reduce_sum_of_integers": _reduce("4x8xi32", "0", "0", "add", "8xi32"),
    "reduce_product": _reduce("4x8xf32", "1", "1.0", "multiply", "4xf32"),
    "reduce_product_from_two": _reduce("4x8xf32", "1", "2.0", "multiply", "4xf32"),
    "reduce_max": _reduce("4x8xf32", "1", "0xFF800000", "maximum", "4xf32"),
    "reduce_max_from_two": _reduce("4x8xf32", "1", "2.0", "maximum", "4xf32"),
    "reduce_min": _reduce("4x8xf32", "0", "0x7F800000", "minimum", "8xf32"),
    "reduce_and": _reduce("4x8xi1", "1", "true", "and", "4xi1"),
    "reduce_or": _reduce("4x8xi1", "0, 1", "false", "or", "i1"),
    "reduce_or_of_bits": _reduce("4x8xi32", "1", "0", "or", "4xi32"),
    "reduce_xor": _reduce("4x8xi1", "1", "false", "xor", "4xi1"),
    "argmax": program(
        "%a: tensor<4x8xf32>",
        "tensor<4xf32>, tensor<4xi32>",
        """%i = stablehlo.iota dim = 1 : tensor<4x8xi32>
        %c = stablehlo.constant dense<0xFF800000> : tensor<f32>
        %z = stablehlo.constant dense<0> : tensor<i32>
        %0:2 = "stablehlo.reduce"(%a, %i, %c, %z) <{dimensions = array<i64: 1>}> ({
        ^bb0(%l: tensor<f32>, %li: tensor<i32>, %r: tensor<f32>, %ri: tensor<i32>):
          %p = stablehlo.compare GE, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %v = stablehlo.select %p, %l, %r : tensor<i1>, tensor<f32>
          %w = stablehlo.select %p, %li, %ri : tensor<i1>, tensor<i32>
          stablehlo.return %v, %w : tensor<f32>, tensor<i32>
        }) {target} : (tensor<4x8xf32>, tensor<4x8xi32>, tensor<f32>, tensor<i32>)
          -> (tensor<4xf32>, tensor<4xi32>)
        return %0#0, %0#1 : tensor<4xf32>, tensor<4xi32>""",
    ),
}

NHWC = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
GRADIENT = "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]"

CONTRACTIONS = {
    "dot_general": program(
        "%a: tensor<2x4x8xf32>, %b: tensor<2x8x6xf32>",
        "tensor<2x4x6xf32>",
        """%0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0],
          contracting_dims = [2] x [1] {target}
          : (tensor<2x4x8xf32>, tensor<2x8x6xf32>) -> tensor<2x4x6xf32>
        return %0 : tensor<2x4x6xf32>""",
    ),
    "dot_general_over_two_dims": program(
        "%a: tensor<4x2x8xf32>, %b: tensor<8x2x4xf32>",
        "tensor<4x4xf32>",
        """%0 = stablehlo.dot_general %a, %b, contracting_dims = [1, 2] x [1, 0]
          {target} : (tensor<4x2x8xf32>, tensor<8x2x4xf32>) -> tensor<4x4xf32>
        return %0 : tensor<4x4xf32>""",
    ),
    **{
        name: program(
            f"%a: tensor<{image}xf32>, %k: tensor<{kernel}xf32>",
            f"tensor<{result}xf32>",
            f"""%0 = stablehlo.convolution(%a, %k) dim_numbers = {numbers},
              window = {{stride = [1, 1], pad = [[{pad}], [{pad}]]}}
              {{batch_group_count = {groups[0]} : i64, feature_group_count = {groups[1]} : i64,
              target}}
              : (tensor<{image}xf32>, tensor<{kernel}xf32>) -> tensor<{result}xf32>
            return %0 : tensor<{result}xf32>""",
        )
        for name, image, kernel, result, numbers, pad, groups in [
            ("convolution", "2x4x4x4", "3x3x4x6", "2x4x4x6", NHWC, "1,1", (1, 1)),
            ("convolution_1x1", "4x4x4x4", "1x1x4x4", "4x4x4x4", NHWC, "0,0", (1, 1)),
            ("convolution_whole_window", "2x4x4x4", "4x4x4x6", "2x1x1x6", NHWC, "0,0", (1, 1)),
            (
                "convolution_weight_gradient",
                "2x4x4x4",
                "2x4x4x6",
                "3x3x4x6",
                GRADIENT,
                "1,1",
                (1, 1),
            ),
            ("convolution_in_groups", "2x4x4x4", "3x3x2x4", "2x4x4x4", NHWC, "1,1", (1, 2)),
            ("convolution_depthwise", "2x4x4x4", "3x3x1x4", "2x4x4x4", NHWC, "1,1", (1, 4)),
            ("convolution_in_four_groups", "2x4x4x8", "3x3x2x8", "2x4x4x8", NHWC, "1,1", (1, 4)),
            (
                "convolution_depthwise_weight_gradient",
                "4x4x4x8",
                "4x4x4x8",
                "3x3x1x8",
                GRADIENT,
                "1,1",
                (8, 1),
            ),
            ("convolution_in_batch_groups", "4x4x4x4", "3x3x4x4", "2x4x4x4", NHWC, "1,1", (2, 1)),
        ]
    },
}

WINDOWS = {
    "max_pool": program(
        "%a: tensor<2x4x4x2xf32>",
        "tensor<2x2x2x2xf32>",
        f"""%c = stablehlo.constant dense<0xFF800000> : tensor<f32>
        %0 = "stablehlo.reduce_window"(%a, %c) <{{window_dimensions = array<i64: 1, 2, 2, 1>,
          window_strides = array<i64: 1, 2, 2, 1>}}> {MAX} {{target}}
          : (tensor<2x4x4x2xf32>, tensor<f32>) -> tensor<2x2x2x2xf32>
        return %0 : tensor<2x2x2x2xf32>""",
    ),
    "cumulative_sum": program(
        "%a: tensor<4x8xf32>",
        "tensor<4x8xf32>",
        f"""%c = stablehlo.constant dense<0.0> : tensor<f32>
        %0 = "stablehlo.reduce_window"(%a, %c) <{{window_dimensions = array<i64: 1, 8>,
          padding = dense<[[0, 0], [7, 0]]> : tensor<2x2xi64>}}> {ADD} {{target}}
          : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
        return %0 : tensor<4x8xf32>""",
    ),
    "window_shifted": program(
        "%a: tensor<4x8xf32>",
        "tensor<4x8xf32>",
        f"""%c = stablehlo.constant dense<0.0> : tensor<f32>
        %0 = "stablehlo.reduce_window"(%a, %c) <{{window_dimensions = array<i64: 1, 1>,
          padding = dense<[[0, 0], [1, -1]]> : tensor<2x2xi64>}}> {ADD} {{target}}
          : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
        return %0 : tensor<4x8xf32>""",
    ),
    "window_over_dilated_base": program(
        "%a: tensor<4x4xf32>",
        "tensor<4x7xf32>",
        f"""%c = stablehlo.constant dense<0.0> : tensor<f32>
        %0 = "stablehlo.reduce_window"(%a, %c) <{{window_dimensions = array<i64: 1, 1>,
          base_dilations = array<i64: 1, 2>}}> {ADD} {{target}}
          : (tensor<4x4xf32>, tensor<f32>) -> tensor<4x7xf32>
        return %0 : tensor<4x7xf32>""",
    ),
    "max_pool_gradient": program(
        "%a: tensor<2x4x4x2xf32>, %g: tensor<2x2x2x2xf32>",
        "tensor<2x4x4x2xf32>",
        f"""%c = stablehlo.constant dense<0.0> : tensor<f32>
        %0 = "stablehlo.select_and_scatter"(%a, %g, %c) <{{window_dimensions = array<i64: 1,2,2,1>,
          window_strides = array<i64: 1, 2, 2, 1>}}> ({GREATER[1:-1]}, {ADD[1:-1]}) {{target}}
          : (tensor<2x4x4x2xf32>, tensor<2x2x2x2xf32>, tensor<f32>) -> tensor<2x4x4x2xf32>
        return %0 : tensor<2x4x4x2xf32>""",
    ),
    "sort": program(
        "%a: tensor<4x8xf32>, %b: tensor<4x8xi32>",
        "tensor<4x8xf32>, tensor<4x8xi32>",
        """%0:2 = "stablehlo.sort"(%a, %b) <{dimension = 1 : i64, is_stable = true}> ({
        ^bb0(%l: tensor<f32>, %r: tensor<f32>, %li: tensor<i32>, %ri: tensor<i32>):
          %s = stablehlo.compare LT, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %s : tensor<i1>
        }) {target} : (tensor<4x8xf32>, tensor<4x8xi32>) -> (tensor<4x8xf32>, tensor<4x8xi32>)
        return %0#0, %0#1 : tensor<4x8xf32>, tensor<4x8xi32>""",
    ),
}

INDEXED = {
    "gather_rows": program(
        "%a: tensor<8x4xf32>, %i: tensor<6x1xi32>",
        "tensor<6x4xf32>",
        """%0 = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<
          offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0],
          index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}> {target}
          : (tensor<8x4xf32>, tensor<6x1xi32>) -> tensor<6x4xf32>
        return %0 : tensor<6x4xf32>""",
    ),
    **{
        name: program(
            "%f: tensor<8x4xf32>, %n: tensor<6x1xi32>",
            "tensor<6x4xf32>",
            f"""%a = stablehlo.convert %f : (tensor<8x4xf32>) -> tensor<8x4x{element}>
            %i = stablehlo.convert %n : (tensor<6x1xi32>) -> tensor<6x1x{index}>
            %0 = "stablehlo.gather"(%a, %i) <{{dimension_numbers = #stablehlo.gather<
              offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0],
              index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}}> {{target}}
              : (tensor<8x4x{element}>, tensor<6x1x{index}>) -> tensor<6x4x{element}>
            %1 = stablehlo.convert %0 : (tensor<6x4x{element}>) -> tensor<6x4xf32>
            return %1 : tensor<6x4xf32>""",
        )
        for name, element, index in [
            ("gather_bfloat16", "bf16", "i64"),
            ("gather_integers", "i32", "i8"),
            ("gather_booleans", "i1", "i32"),
            ("gather_by_bytes", "f32", "ui8"),
            ("gather_by_unsigned", "f32", "ui32"),
        ]
    },
    "gather_points": program(
        "%a: tensor<8x4xf32>, %i: tensor<2x6xi32>",
        "tensor<6xf32>",
        """%0 = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<
          collapsed_slice_dims = [0, 1], start_index_map = [1, 0], index_vector_dim = 0>,
          slice_sizes = array<i64: 1, 1>}> {target}
          : (tensor<8x4xf32>, tensor<2x6xi32>) -> tensor<6xf32>
        return %0 : tensor<6xf32>""",
    ),
    "gather_by_scalars": program(
        "%a: tensor<8x4xf32>, %i: tensor<6xi32>",
        "tensor<6x4xf32>",
        """%0 = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<
          offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0],
          index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}> {target}
          : (tensor<8x4xf32>, tensor<6xi32>) -> tensor<6x4xf32>
        return %0 : tensor<6x4xf32>""",
    ),
    "gather_in_batches": program(
        "%a: tensor<2x8x4xf32>, %i: tensor<2x6x1xi32>",
        "tensor<2x6x4xf32>",
        """%0 = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<
          offset_dims = [2], collapsed_slice_dims = [1], operand_batching_dims = [0],
          start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>,
          slice_sizes = array<i64: 1, 1, 4>}> {target}
          : (tensor<2x8x4xf32>, tensor<2x6x1xi32>) -> tensor<2x6x4xf32>
        return %0 : tensor<2x6x4xf32>""",
    ),
    "gather_windows": program(
        "%a: tensor<8x4xf32>, %i: tensor<6x2xi32>",
        "tensor<6x2x4xf32>",
        """%0 = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<
          offset_dims = [1, 2], start_index_map = [0, 1], index_vector_dim = 1>,
          slice_sizes = array<i64: 2, 4>}> {target}
          : (tensor<8x4xf32>, tensor<6x2xi32>) -> tensor<6x2x4xf32>
        return %0 : tensor<6x2x4xf32>""",
    ),
    **{
        name: program(
            "%a: tensor<8x4xf32>, %i: tensor<6x1xi32>, %u: tensor<6x4xf32>",
            "tensor<8x4xf32>",
            f"""%z = stablehlo.constant dense<0.0> : tensor<f32>
            %zeros = stablehlo.broadcast_in_dim %z, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
            %0 = "stablehlo.scatter"({operand}, %i, %u) <{{scatter_dimension_numbers =
              #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
              scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> {reducer} {{target}}
              : (tensor<8x4xf32>, tensor<6x1xi32>, tensor<6x4xf32>) -> tensor<8x4xf32>
            return %0 : tensor<8x4xf32>""",
        )
        for name, operand, reducer in [
            ("scatter_add_to_zeros", "%zeros", ADD),
            ("scatter_add", "%a", ADD),
            ("scatter_max", "%zeros", MAX),
        ]
    },
    "scatter_points": program(
        "%a: tensor<8x4xf32>, %i: tensor<6x2xi32>, %u: tensor<6xf32>",
        "tensor<8x4xf32>",
        f"""%0 = "stablehlo.scatter"(%a, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
          inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [1, 0],
          index_vector_dim = 1>}}> {ADD} {{target}}
          : (tensor<8x4xf32>, tensor<6x2xi32>, tensor<6xf32>) -> tensor<8x4xf32>
        return %0 : tensor<8x4xf32>""",
    ),
    "scatter_in_batches": program(
        "%i: tensor<2x6x1xi32>, %u: tensor<2x6x4xf32>",
        "tensor<2x8x4xf32>",
        f"""%zeros = stablehlo.constant dense<0.0> : tensor<2x8x4xf32>
        %0 = "stablehlo.scatter"(%zeros, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
          update_window_dims = [2], inserted_window_dims = [1], input_batching_dims = [0],
          scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1],
          index_vector_dim = 2>}}> {ADD} {{target}}
          : (tensor<2x8x4xf32>, tensor<2x6x1xi32>, tensor<2x6x4xf32>) -> tensor<2x8x4xf32>
        return %0 : tensor<2x8x4xf32>""",
    ),
    "scatter_windows": program(
        "%a: tensor<8x4xf32>, %i: tensor<6x2xi32>, %u: tensor<6x2x4xf32>",
        "tensor<8x4xf32>",
        f"""%0 = "stablehlo.scatter"(%a, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
          update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0, 1],
          index_vector_dim = 1>}}> {ADD} {{target}}
          : (tensor<8x4xf32>, tensor<6x2xi32>, tensor<6x2x4xf32>) -> tensor<8x4xf32>
        return %0 : tensor<8x4xf32>""",
    ),
}

# Ops that the interpreter does not know: XLA is the reference, on one device and on four.
ONLY_XLA = {
    "cholesky": program(
        "%a: tensor<4x2x2xf32>",
        "tensor<4x2x2xf32>",
        """%d = stablehlo.constant dense<[[99.0, 0.0], [0.0, 99.0]]> : tensor<2x2xf32>
        %m = stablehlo.broadcast_in_dim %d, dims = [1, 2] : (tensor<2x2xf32>) -> tensor<4x2x2xf32>
        %t = stablehlo.transpose %a, dims = [0, 2, 1] : (tensor<4x2x2xf32>) -> tensor<4x2x2xf32>
        %s = stablehlo.add %a, %t : tensor<4x2x2xf32>
        %p = stablehlo.add %s, %m : tensor<4x2x2xf32>
        %0 = stablehlo.cholesky %p, lower = true {target} : tensor<4x2x2xf32>
        return %0 : tensor<4x2x2xf32>""",
    ),
    "fft": program(
        "%a: tensor<4x2x8xf32>, %b: tensor<4x2x8xf32>",
        "tensor<4x2x8xf32>",
        """%c = stablehlo.complex %a, %b : tensor<4x2x8xcomplex<f32>>
        %0 = stablehlo.fft %c, type = FFT, length = [8] {target}
          : (tensor<4x2x8xcomplex<f32>>) -> tensor<4x2x8xcomplex<f32>>
        %1 = stablehlo.real %0 : (tensor<4x2x8xcomplex<f32>>) -> tensor<4x2x8xf32>
        return %1 : tensor<4x2x8xf32>""",
    ),
    "fft_of_reals": program(
        "%a: tensor<4x2x8xf32>",
        "tensor<4x2x5xf32>",
        """%0 = stablehlo.fft %a, type = RFFT, length = [2, 8] {target}
          : (tensor<4x2x8xf32>) -> tensor<4x2x5xcomplex<f32>>
        %1 = stablehlo.imag %0 : (tensor<4x2x5xcomplex<f32>>) -> tensor<4x2x5xf32>
        return %1 : tensor<4x2x5xf32>""",
    ),
    "triangular_solve": program(
        "%a: tensor<4x2x2xf32>, %b: tensor<4x2x8xf32>",
        "tensor<4x2x8xf32>",
        """%0 = "stablehlo.triangular_solve"(%a, %b) <{left_side = true, lower = true,
          transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> {target}
          : (tensor<4x2x2xf32>, tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
        return %0 : tensor<4x2x8xf32>""",
    ),
}

SUMS = REDUCTIONS | CONTRACTIONS | WINDOWS | INDEXED
