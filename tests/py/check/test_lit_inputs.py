"""No pass of the lit suite changes what its inputs compute, as `--verify-each` checks."""

import shlex
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
import pytest

from shardc.check.child import Child, Outcome
from shardc.check.each_pass import EachPass
from shardc.cli.opt import split_input
from shardc.importer.parse_module import parse_module
from shardc.importer.pass_list import parse_passes
from shardc.ir import pass_manager
from shardc.ir.context import make_context
from shardc.passes.pipeline import PASSES

LIT = Path(__file__).parents[2] / "lit"

ENDLESS = "a loop does not end"
LACKING = "no engine has what it calls: the host, a library, the sums of a step"
RENAMED = "the function has another name afterwards"
PART = "it hands out values of each microbatch, of which a step has sums"
NO_FUNCTION = "no function of its name is left"
ALL = ("",)
# What cannot be compared: input -> its functions, and why.
LEFT_OUT: dict[str, tuple[tuple[str, ...], str]] = {
    "annotate_for_xla.mlir": (("stage0_backward", "stage0_update"), f"{ENDLESS}; {LACKING}"),
    "canonicalize.mlir": (("constant_in_a_loop",), ENDLESS),
    "cse.mlir": (("effects",), LACKING),
    "hoist_host_calls.mlir": (ALL, LACKING),
    "inline_calls.mlir": (("step",), RENAMED),
    "keep_forward_values.mlir": (ALL, PART),
    "pipeline_constants_made_again.mlir": (ALL, PART),
    "plan_residency.mlir": (ALL, PART),
    "simplify_loops.mlir": (ALL, ENDLESS),
    "strip_shardings.mlir": (("one_device",), LACKING),
    "widen_floats.mlir": (("library", "accumulated"), LACKING),
}
# They make functions that take and give something else; a step without tables cannot connect them.
SPLITTING = ("shardc-slice-tokens", "shardc-split-backward")


class Command(NamedTuple):
    """A `shardc-opt` of the lit suite: the file that asks for it, its input, and its passes."""

    file: str
    target: Path
    passes: str
    split: bool


def commands() -> Iterator[Command]:
    """Each command once that succeeds and applies no pass twice."""
    seen = set()
    for file in sorted(LIT.glob("*.mlir")):
        for line in file.read_text().splitlines():
            if not line.startswith("// RUN: shardc-opt ") or "--verify-diagnostics" in line:
                continue
            words = shlex.split(line.removeprefix("// RUN: ").split(" | ")[0])
            (passes,) = (w.removeprefix("--passes=") for w in words if w.startswith("--passes="))
            target = next(w for w in words[1:] if not w.startswith("--"))
            path = file if target == "%s" else LIT / target.removeprefix("%S/")
            names = [each.name for each in parse_passes(passes, PASSES)]
            if len(set(names)) == len(names) and (path, passes) not in seen:
                seen.add((path, passes))
                yield Command(file.name, path, passes, "--split-input-file" in words)


@pytest.mark.slow
def test_no_pass_changes_what_its_lit_inputs_compute() -> None:
    """One child for all, as its start takes longer than they do."""
    wrong, compared = [], 0
    fragments = mock.patch.object(pass_manager, "_watchers", [])  # have not all of a form's tables
    with Child() as child, jax.enable_x64(True), fragments:
        for command in commands():
            left_out, _ = LEFT_OUT.get(command.target.name, ((), ""))

            def run(
                module: Any, inputs: Mapping[str, list[np.ndarray]], left_out: Any = left_out
            ) -> Outcome:
                return child.evaluate(
                    module, {n: v for n, v in inputs.items() if n not in left_out}
                )

            if left_out == ALL:
                continue
            text = command.target.read_text()
            for part in split_input(text) if command.split else [text]:
                module = parse_module(part.encode(), command.file, make_context())
                passes = parse_passes(command.passes, PASSES)
                passes = list(takewhile(lambda each: each.name not in SPLITTING, passes))
                for check in EachPass(run, [("ordinary", 0)]).run(module, passes):
                    compared += check.compared
                    only_left_out = left_out and check.not_compared == (NO_FUNCTION,)
                    if check.outcome not in ("agrees", "unchanged") and not only_left_out:
                        wrong.append(f"{command}\n{check}")
    assert not wrong, "\n".join(wrong)
    assert compared >= 80


def test_what_is_left_out_is_there() -> None:
    for file, (functions, _) in LEFT_OUT.items():
        text = (LIT / file).read_text()
        for name in functions:
            assert f"@{name}(" in text or name in ALL, f"{file} has no @{name}"


@pytest.mark.slow
def test_every_lit_input_is_among_them() -> None:
    asked = {command.file for command in commands()}
    silent = {path.name for path in LIT.glob("*.mlir")} - asked
    assert all(name.endswith("_failure.mlir") for name in silent), silent
