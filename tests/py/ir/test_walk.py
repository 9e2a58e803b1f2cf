"""Positions are those of the user's files, in a form that fits on a line."""

import pytest

import shardc.ir.walk
from shardc.ir.context import parse
from shardc.ir.walk import readable_location

OURS = shardc.ir.walk.__file__

READABLE = {
    'loc("step.mlir":9:4)': "step.mlir:9",
    'loc("jit(step)/add"("step"("/home/a/train.py":41:8)))': "train.py:41 (step)",
    'loc("jit(step)/add"("/home/a/train.py":41:8))': "train.py:41",
    'loc("jit(step)/add")': "jit(step)/add",
    "loc(unknown)": "an unknown place",
    'loc("-":0:0)': "an unknown place",
    'loc(callsite("step.<locals>.loss"("a.py":7:1) at "step"("a.py":9:1)))': "a.py:7 (loss)",
    'loc(callsite("relu"("/site-packages/nn.py":1:1) at "net"("net.py":2:1)))': "net.py:2 (net)",
    'loc("relu"("/site-packages/nn.py":1:1))': "nn.py:1 (relu)",
    f'loc(callsite("where"("{OURS}":3:1) at "main"("train.py":60:1)))': "train.py:60 (main)",
    'loc(fused["jit(step)", "a.py":1:1, "b.py":2:2])': "a.py:1",
}


@pytest.mark.parametrize("text", READABLE)
def test_a_location_reads_as_its_innermost_position_in_the_users_files(text: str) -> None:
    location = parse(f"module {{}} {text}").operation.location
    assert readable_location(location) == READABLE[text]
