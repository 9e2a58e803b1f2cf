"""Every op of StableHLO and CHLO is proved in parts, needs whole operands for a reason, or has no
way into a program of JAX."""

import pytest
from jax.extend.mlir.dialects import chlo, stablehlo

from shardc import compiler
from shardc.ir.context import parse
from shardc.ir.walk import walk
from shardc.rules.allowed_factors import ALLOWED

NOT_EMITTED = {
    "of older programs, or of other front ends": """batch_norm_grad batch_norm_inference
        batch_norm_training broadcast cross-replica-sum dot einsum map torch_index_select
        unary_einsum""",
    "of quantised types, which are refused": "uniform_dequantize uniform_quantize",
    "of shapes that are not static, which are refused": """dynamic_broadcast_in_dim dynamic_conv
        dynamic_gather dynamic_iota dynamic_pad dynamic_reshape get_dimension_size
        real_dynamic_slice set_dimension_size""",
    "of programs of several devices, which are refused or dropped": """all_gather all_reduce
        all_to_all async_done async_start collective_broadcast collective_permute
        collective_reduce partition_id recv reduce_scatter replica_id send""",
    "of the host, which JAX calls in other ways": "infeed outfeed",
}
OTHERWISE = {
    "made by each device for its own part": "constant iota",
    "control flow, whose ops are split one by one": "case if return while",
    "random bits are those of one device": "rng rng_bit_generator",
    "order, not data": "after_all create_token get_tuple_element tuple",
    "inlined before anything is planned": "composite",
}


def named(table: dict[str, str]) -> list[str]:
    return " ".join(table.values()).split()


def ops_of(dialect: object, prefix: str) -> set[str]:
    """The ops of a dialect, without its name."""
    classes = (value for value in vars(dialect).values() if isinstance(value, type))
    names = (str(getattr(each, "OPERATION_NAME", "")) for each in classes)
    return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}


def test_every_op_has_its_place() -> None:
    split = {op.removeprefix("stablehlo.") for op, _ in ALLOWED if op.startswith("stablehlo.")}
    placed = [*split, *named(NOT_EMITTED), *named(OTHERWISE)]
    assert len(placed) == len(set(placed))
    # What a newer or older release has more or fewer of is named when it is tested.
    assert ops_of(stablehlo, "stablehlo.") - set(placed) == set()


# CHLO ops that JAX writes, by the form of their operands.
UNARY = """acos acosh asin asinh atan atanh bessel_i1e cosh digamma erf erf_inv erfc is_inf lgamma
    sinh square tan""".split()
BINARY = "next_after polygamma zeta".split()
OTHER_CHLO = {
    "end to end in tests/py/end_to_end/test_jit_ops.py": "mulhi ragged_dot top_k",
    "written by no function of JAX that was found": "conj scan",
    "of other front ends": """_asin_acos_kernel constant constant_like is_neg_inf is_pos_inf
        broadcast_add broadcast_and broadcast_atan2 broadcast_compare broadcast_complex
        broadcast_divide broadcast_maximum broadcast_minimum broadcast_multiply
        broadcast_next_after broadcast_or broadcast_polygamma broadcast_power broadcast_remainder
        broadcast_select broadcast_shift_left broadcast_shift_right_arithmetic
        broadcast_shift_right_logical broadcast_subtract broadcast_xor broadcast_zeta""",
}


def test_every_op_of_chlo_has_its_place() -> None:
    assert ops_of(chlo, "chlo.") - {*UNARY, *BINARY, *named(OTHER_CHLO)} == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_chlo_is_expanded_before_anything_is_planned(name: str) -> None:
    if name not in ops_of(chlo, "chlo."):
        pytest.skip("this release does not have it")
    type_ = "tensor<4x8xf32>"
    result = "tensor<4x8xi1>" if name == "is_inf" else type_
    operands = ["%a"] * (2 if name in BINARY else 1)
    module = parse(
        f"""func.func @main(%a: {type_}) -> {result} {{
          %0 = "chlo.{name}"({", ".join(operands)})
            : ({", ".join(type_ for _ in operands)}) -> {result}
          return %0 : {result}
        }}"""
    )
    compiler.prepare(module)
    assert {op.name.split(".")[0] for op in walk(module.operation)} == {"func", "stablehlo"}
