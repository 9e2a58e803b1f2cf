"""Maxima and minima over a split dim: nan wins on several devices as it does on one."""

import itertools

import jax
import numpy as np
import pytest

from shardc.ir.context import parse
from tests.py.passes.on_devices import run_local, run_whole
from tests.py.passes.one_op import MESH, annotated, localized, strategies, target_of

NUMBERS = [0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, -np.nan]
LEAST = {"maximum": {"f16": "0xFC00", "bf16": "0xFF80", "f32": "0xFF800000", "f8E5M2": "0xFC"}}
LEAST["minimum"] = {"f16": "0x7C00", "bf16": "0x7F80", "f32": "0x7F800000", "f8E5M2": "0x7C"}
for reducer, number in (("maximum", "-240.0"), ("minimum", "240.0")):  # these have no infinity
    LEAST[reducer] |= {"f8E4M3FN": number, "f8E4M3FNUZ": number}


def program(reducer: str, element: str) -> str:
    return f"""func.func public @main(%a: tensor<4x64xf32>) -> tensor<64xf32> {{
        %c = stablehlo.constant dense<{LEAST[reducer][element]}> : tensor<{element}>
        %x = stablehlo.convert %a : (tensor<4x64xf32>) -> tensor<4x64x{element}>
        %0 = stablehlo.reduce(%x init: %c) applies stablehlo.{reducer} across dimensions = [0]
            {{target}} : (tensor<4x64x{element}>, tensor<{element}>) -> tensor<64x{element}>
        %y = stablehlo.convert %0 : (tensor<64x{element}>) -> tensor<64xf32>
        return %y : tensor<64xf32> }}"""


@pytest.mark.slow
@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("element", list(LEAST["maximum"]))
@pytest.mark.parametrize("reducer", ["maximum", "minimum"])
def test_nan_wins_on_whatever_device_it_is(reducer: str, element: str, xla: bool) -> None:
    text = program(reducer, element)
    module = parse(text)
    with module.context:
        ways = [s for s in strategies(*target_of(module)) if s.reduce_axes]
    pairs = np.array(list(itertools.product(NUMBERS, NUMBERS)), np.float32).T  # [2, 64]
    rows = np.concatenate([pairs, np.full_like(pairs, -1.0)])
    assert ways
    for way, order in itertools.product(ways, [(0, 1, 2, 3), (2, 0, 3, 1), (3, 2, 1, 0)]):
        args = [rows[list(order)]]
        (want,) = run_whole(module, args, xla=xla)
        (have,) = run_local(localized(annotated(text, way)), MESH, args, xla=xla)
        np.testing.assert_array_equal(have, want)


@pytest.mark.slow
def test_doubles_too() -> None:
    text = program("maximum", "f32").replace("f32", "f64").replace("0xFF800000", "-1.0e300")
    module = parse(text)
    with module.context:
        way = next(s for s in strategies(*target_of(module)) if s.reduce_axes)
    rows = np.array(list(itertools.product(NUMBERS, repeat=2))).T.repeat(2, axis=0)
    with jax.enable_x64(True):
        for xla in (False, True):
            (want,) = run_whole(module, [rows], xla=xla)
            (have,) = run_local(localized(annotated(text, way)), MESH, [rows], xla=xla)
            np.testing.assert_array_equal(have, want)
