"""Inlining ends: also where a file is written to make it not end."""

import pytest
from jax.extend.mlir import ir

from shardc.errors import ImportFileError
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import all_functions, functions, symbol, walk
from shardc.passes.inline_calls import InlineCalls


def tower(height: int, calls: int) -> ir.Module:
    """@main calls @f0 so often, which calls @f1 so often ...; the last one adds."""
    lines = []
    for i in range(height):
        name = "@main" if i == 0 else f"private @f{i}"
        lines.append(f"func.func {name}(%x: tensor<f32>) -> tensor<f32> {{")
        value = "%x"
        for call in range(calls):
            what = f"func.call @f{i + 1}({value}) : (tensor<f32>) -> tensor<f32>"
            if i == height - 1:
                what = f"stablehlo.add {value}, %x : tensor<f32>"
            lines.append(f"  %{call} = {what}")
            value = f"%{call}"
        lines.append(f"  return {value} : tensor<f32>\n}}")
    return parse("\n".join(lines))


def test_a_deep_chain_of_calls_is_inlined() -> None:
    module = tower(height=3000, calls=1)
    run_passes(module, [InlineCalls()])
    assert len(list(functions(module.operation))) == 1
    assert [op.name for op in walk(module.operation)] == [
        "func.func",
        "stablehlo.add",
        "func.return",
    ]


def test_what_would_explode_stays_functions() -> None:
    module = tower(height=40, calls=2)  # 2^40 additions
    run_passes(module, [InlineCalls(most_ops=200)])
    assert len(list(walk(module.operation))) < 200
    before = str(module)
    run_passes(module, [InlineCalls(most_ops=200)])
    assert str(module) == before


def test_functions_with_effects_that_would_explode_are_refused() -> None:
    module = tower(height=40, calls=2)
    with module.context, ir.Location.unknown():
        last = next(f for f in all_functions(module.operation) if symbol(f) == "f39")
        for op in walk(last):
            op.attributes["has_side_effect"] = ir.BoolAttr.get(True)
    with pytest.raises(ImportFileError, match=r"inlining all calls gives \d+ ops, most of them"):
        run_passes(module, [InlineCalls()])
