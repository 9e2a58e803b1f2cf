"""shardc-opt is what the lit tests stand on, so its own failures must be loud."""

from pathlib import Path

import pytest

from shardc.cli.opt import expected_errors, main, mismatches, split_input
from shardc.errors import ImportFileError
from shardc.ir.context import parse

MODULE = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n  return %a : tensor<2xf32>\n}\n"


def test_parts_of_a_file_keep_their_line_numbers() -> None:
    parts = split_input("one\n// -----\nthree\n// -----\nfive")
    assert [part.split("\n") for part in parts] == [
        ["one", ""],
        ["", "", "three", ""],
        ["", "", "", "", "five"],
    ]


EXPECTED = """\
op // expected-error {{first}}
// expected-error@+1 {{second}}
op
op
// expected-error@-1 {{third}}
// expected-error@above {{fourth}}
// expected-error@below {{fifth}}
// expected-error@unknown {{sixth}}
"""


def test_expected_errors_are_read_with_their_lines() -> None:
    assert [(e.line, e.text) for e in expected_errors(EXPECTED)] == [
        (1, "first"),
        (3, "second"),
        (4, "third"),
        (5, "fourth"),
        (8, "fifth"),
        (None, "sixth"),
    ]


def test_diagnostics_differ_by_line_by_text_and_by_absence() -> None:
    text = "// expected-error@+1 {{is bad}}\nop\n"
    right = ImportFileError("it is bad", where="x.mlir:2")
    assert mismatches(text, "x.mlir", right) == []
    assert mismatches("op\n", "x.mlir", None) == []
    assert len(mismatches(text, "x.mlir", None)) == 1
    assert len(mismatches("op\n", "x.mlir", right)) == 1
    assert len(mismatches(text, "x.mlir", ImportFileError("it is bad", where="x.mlir:3"))) == 2
    assert len(mismatches(text, "x.mlir", ImportFileError("it is odd", where="x.mlir:2"))) == 2


def run(tmp_path: Path, text: str, *options: str) -> int:
    file = tmp_path / "in.mlir"
    file.write_text(text)
    return main([str(file), *options])


def test_the_module_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, MODULE, "--passes=shardc-cse,canonicalize") == 0
    assert "func.func @main(%arg0: tensor<2xf32>)" in capsys.readouterr().out


def test_verify_diagnostics_fails_where_nothing_goes_wrong(tmp_path: Path) -> None:
    assert run(tmp_path, "// expected-error@+1 {{bad}}\n" + MODULE, "--verify-diagnostics") == 1
    assert run(tmp_path, MODULE, "--verify-diagnostics") == 0


def test_a_bad_part_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "nonsense\n// -----\n" + MODULE, "--split-input-file") == 2
    shown = capsys.readouterr()
    assert "error[SHARDC-120]" in shown.err
    assert f"{tmp_path}/in.mlir:1" in shown.err
    assert "func.func @main" in shown.out


def test_a_failing_pass_of_mlir_is_the_inputs_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, MODULE, "--passes=stablehlo-refine-arguments") == 2
    shown = capsys.readouterr().err
    assert "error[SHARDC-182]: the pass 'stablehlo-refine-arguments' failed" in shown
    assert "--> in.mlir:1" in shown


def test_an_unknown_pass_and_a_missing_file_are_usage_errors(tmp_path: Path) -> None:
    assert run(tmp_path, MODULE, "--passes=no-such-pass") == 2
    assert main([str(tmp_path / "missing.mlir")]) == 2


@pytest.mark.slow
def test_bytecode_is_read_too_and_has_no_parts(tmp_path: Path) -> None:
    file = tmp_path / "in.mlirbc"
    with file.open("wb") as stream:
        parse(MODULE).operation.write_bytecode(stream)
    assert main([str(file)]) == 0
    assert main([str(file), "--split-input-file"]) == 2
