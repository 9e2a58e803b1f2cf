"""Classes of dims that are cut together, and which of them is taken for the batch."""

from collections.abc import Mapping

from shardc.analysis.batch.axes import batch_axes
from shardc.analysis.batch.partition import find_partition, named_partition
from shardc.analysis.batch.step_program import program_of
from shardc.ir.context import parse

DOT = "stablehlo.dot_general"


def classes(source: str, state: tuple[int, ...] = ()) -> list[tuple[int, Mapping[int, int]]]:
    """Size and dims of the classes of all arguments but the state, likeliest first."""
    module = parse(source)
    program = program_of(module.operation)
    args = [a for a in range(program.graph.num_args) if a not in state]
    return [(axis.size, axis.dims) for axis in batch_axes(program, args, state)]


def by_size(found: list[tuple[int, Mapping[int, int]]]) -> list[tuple[int, Mapping[int, int]]]:
    return sorted(found, key=lambda each: (each[0], list(each[1].items())))


def test_scalars_keys_and_dims_of_one_are_no_batch() -> None:
    source = """func.func public @main(%key: tensor<2xui32>, %rate: tensor<f32>,
                                       %one: tensor<1x8xf32>, %keys: tensor<8x2xui32>) { return }"""
    assert by_size(classes(source)) == [(2, {3: 1}), (8, {2: 1}), (8, {3: 0})]


def test_dims_of_a_product_are_three_classes() -> None:
    source = f"""func.func public @main(%x: tensor<8x6xf32>, %w: tensor<6x4xf32>) {{
        %y = {DOT} %x, %w, contracting_dims = [1] x [0]
          : (tensor<8x6xf32>, tensor<6x4xf32>) -> tensor<8x4xf32>
        return }}"""
    assert by_size(classes(source)) == [(4, {1: 1}), (6, {0: 1, 1: 0}), (8, {0: 0})]


def test_a_shared_constant_joins_nothing() -> None:
    """Of a broadcast zero each user can make its own part: rows of 4 and features of 4 stay two."""
    source = """func.func public @main(%x: tensor<4xf32>, %w: tensor<4xf32>) {
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %all = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<4xf32>
        %a = stablehlo.maximum %x, %all : tensor<4xf32>
        %b = stablehlo.maximum %all, %w : tensor<4xf32>
        return }"""
    assert [dict(dims) for _, dims in classes(source)] == [{1: 0}, {0: 0}]


def test_a_loop_hands_dims_on_by_position() -> None:
    source = """func.func public @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %out:2 = stablehlo.while(%i = %zero, %h = %x) : tensor<i32>, tensor<8xf32> cond {
          %three = stablehlo.constant dense<3> : tensor<i32>
          %go = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        } do {
          %one = stablehlo.constant dense<1> : tensor<i32>
          %next = stablehlo.add %i, %one : tensor<i32>
          %more = stablehlo.add %h, %y : tensor<8xf32>
          stablehlo.return %next, %more : tensor<i32>, tensor<8xf32>
        }
        return %out#1 : tensor<8xf32> }"""
    assert classes(source) == [(8, {0: 0, 1: 0})]


SELF_ATTENTION = f"""func.func public @main(%x: tensor<4x8x6xf32>) -> tensor<4x8x8xf32> {{
    %s = {DOT} %x, %x, batching_dims = [0] x [0], contracting_dims = [2] x [2]
      : (tensor<4x8x6xf32>, tensor<4x8x6xf32>) -> tensor<4x8x8xf32>
    return %s : tensor<4x8x8xf32> }}"""


def test_positions_that_meet_each_other_are_crossed_and_come_later() -> None:
    module = parse(SELF_ATTENTION)
    axes = batch_axes(program_of(module.operation), [0], ())
    assert [(axis.size, axis.crossed) for axis in axes] == [(4, 0), (8, 1), (6, 0)]
    assert axes[2].contracted == axes[2].parallel_flops == 2 * 4 * 8 * 8 * 6  # features


def test_labels_behind_features_and_examples_in_front_of_them_are_one_batch() -> None:
    source = f"""func.func public @main(%w: tensor<6x5xf32>, %x: tensor<6x8xf32>,
                                        %y: tensor<8x5xf32>) {{
        %p = {DOT} %x, %w, contracting_dims = [0] x [0]
          : (tensor<6x8xf32>, tensor<6x5xf32>) -> tensor<8x5xf32>
        %d = stablehlo.subtract %p, %y : tensor<8x5xf32>
        return }}"""
    module = parse(source)
    found = find_partition(program_of(module.operation), (0,), (0,))
    assert found is not None and found.flow.batch_args == {1: 1, 2: 0} and not found.others


TWO_BATCHES = f"""func.func public @main(%w: tensor<3x3xf32>, %x: tensor<8x3xf32>,
                                         %u: tensor<6x3xf32>) -> tensor<3x3xf32> {{
    %p = {DOT} %x, %w, contracting_dims = [1] x [0]
      : (tensor<8x3xf32>, tensor<3x3xf32>) -> tensor<8x3xf32>
    %g = {DOT} %x, %p, contracting_dims = [0] x [0]
      : (tensor<8x3xf32>, tensor<8x3xf32>) -> tensor<3x3xf32>
    %q = {DOT} %u, %w, contracting_dims = [1] x [0]
      : (tensor<6x3xf32>, tensor<3x3xf32>) -> tensor<6x3xf32>
    %h = {DOT} %u, %q, contracting_dims = [0] x [0]
      : (tensor<6x3xf32>, tensor<6x3xf32>) -> tensor<3x3xf32>
    %s = stablehlo.add %g, %h : tensor<3x3xf32>
    return %s : tensor<3x3xf32> }}"""


def test_batches_that_meet_in_sums_only_are_a_disjoint_cover() -> None:
    module = parse(TWO_BATCHES)
    found = find_partition(program_of(module.operation), (0,), (0,))
    assert found is not None and found.flow.batch_args == {1: 0} and found.others == (({2: 0}, 6),)
    assert found.cut_into(2).batch_args == {1: 0, 2: 0}
    assert found.cut_into(4).batch_args == {1: 0} == found.cut_into(1).batch_args


def test_an_optimizers_products_do_not_hide_a_small_batch() -> None:
    """Newton-Schulz on the gradient (Muon) costs more than the batch of 4; the microbatches cannot
    divide it, however they are cut."""
    tensor, batch = "tensor<8x8xf32>", "tensor<4x8xf32>"
    forward = f"""func.func public @main(%w: {tensor}, %v: {tensor}, %x: {batch}) -> {tensor} {{
        %p = {DOT} %x, %w, contracting_dims = [1] x [0] : ({batch}, {tensor}) -> {batch}
        %h = stablehlo.tanh %p : {batch}
        %q = {DOT} %h, %v, contracting_dims = [1] x [0] : ({batch}, {tensor}) -> {batch}
        %b = {DOT} %q, %v, contracting_dims = [1] x [1] : ({batch}, {tensor}) -> {batch}
        %0 = {DOT} %x, %b, contracting_dims = [0] x [0] : ({batch}, {batch}) -> {tensor}"""
    newton_schulz = "".join(
        f"""
        %a{i} = {DOT} %{i}, %{i}, contracting_dims = [1] x [1] : ({tensor}, {tensor}) -> {tensor}
        %{i + 1} = {DOT} %a{i}, %{i}, contracting_dims = [1] x [0]
          : ({tensor}, {tensor}) -> {tensor}"""
        for i in range(6)
    )
    module = parse(f"{forward}{newton_schulz}\n return %6 : {tensor} }}")
    found = find_partition(program_of(module.operation), (0, 1), (0, 1))
    assert found is not None and found.flow.batch_args == {2: 0}
    assert found.flow.obstacle is None


def test_named_arguments_are_cut_along_dims_of_one_size() -> None:
    module = parse(TWO_BATCHES)
    program = program_of(module.operation)
    features, rows = named_partition(program, [1, 2]), named_partition(program, [2])
    assert features is not None and features.flow.batch_args == {1: 1, 2: 1}
    assert rows is not None and rows.flow.batch_args == {2: 0}
    source = "func.func public @main(%x: tensor<8xf32>, %y: tensor<6xf32>) { return }"
    apart = parse(source)
    assert named_partition(program_of(apart.operation), [0, 1]) is None
