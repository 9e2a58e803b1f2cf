"""Every block of Python and every `shardc` command in the documents runs, and prints what they say.

Blocks of a document run one after the other in a namespace that has the training step of the
README, as `train.py` in an empty folder. A ```text block behind a block is its output: numbers with
their units may differ, a line of `...` stands for any lines. `<!-- not run: why -->` in front of a
block says why it is not.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import shardc
from shardc.cli import opt
from tests.py.cli import programs

ROOT = Path(__file__).parents[3]
FENCE = re.compile(
    r"^(?P<skip><!-- not run: [^>]+ -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
NUMBER = re.compile(r"\d[\d.,]*(?:e-?\d+)?(?: ?(?:[KMGT]i?B|[mun]?s|B|M|G)\b)?")
RUN = {"python", "sh"}
INDENTED = re.compile(r"^    (\$ )?(shardc|shardc-opt|python|make|pip|srun) .*$", re.M)
HIDDEN = "<!-- as train.py has it:"  # code that a document needs and does not show


@dataclass(frozen=True)
class Block:
    """What is to run, and what the document says that it prints (None: nothing is said)."""

    kind: str
    text: str
    output: str | None
    line: int


def blocks(document: Path) -> Iterator[Block]:
    """Of Python and the shell, those that say why they are not run left out."""
    found = list(FENCE.finditer(document.read_text()))
    for n, fence in enumerate(found):
        if fence["kind"] not in RUN or fence["skip"]:
            continue
        behind = found[n + 1] if n + 1 < len(found) else None
        output = behind["text"] if behind is not None and behind["kind"] == "text" else None
        line = fence.string[: fence.start("text")].count("\n")
        yield Block(fence["kind"], fence["text"], output, line)


DOCUMENTS = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if any(True for _ in blocks(path))
]


def namespace() -> dict[str, Any]:
    """The names that documents use without saying where they come from: those of the README."""
    names = {"jax": jax, "jnp": jnp, "np": np, "optax": optax, "shardc": shardc}
    (program,) = (block.text for block in blocks(ROOT / "README.md") if block.kind == "python")
    run_python(program.partition("for _ in range")[0], names, 0)
    names["shapes_of_state"] = jax.eval_shape(lambda: names["state"])
    names["shapes_of_batch"] = jax.eval_shape(lambda: names["batch"])
    return names


def run_python(text: str, names: dict[str, Any], line: int) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * line + text, "train.py", "exec"), names)
    return printed.getvalue()


def run_commands(text: str) -> str:
    printed = ""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "shardc-opt":
            told = io.StringIO()
            with contextlib.redirect_stdout(told):
                assert opt.main(words[1:]) == 0, told.getvalue()
            printed += told.getvalue()
            continue
        assert words[0] == "shardc", f"only commands of shardc are run, not {line}"
        ran = programs.shardc(*words[1:])
        assert ran.exit_code == 0, f"{line}\n{ran.output}"
        printed += ran.stdout
    return printed


def masked(text: str) -> str:
    return re.sub("─+", "─", NUMBER.sub("#", text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_blocks_run_and_print_what_the_document_says(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {} if document.name == "README.md" else namespace()
    for hidden in re.findall(rf"^{HIDDEN}\n(.*?)^-->$", document.read_text(), re.M | re.S):
        run_python(hidden, names, 0)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for block in blocks(document):
        if block.kind == "sh":
            got = run_commands(block.text)
        else:
            got = run_python(block.text, names, 0)
        if block.output is not None:
            want = masked(block.output)
            assert doctest.OutputChecker().check_output(want, masked(got), flags), (
                f"{document.name}:{block.line} prints\n{got}"
            )


def test_no_command_is_indented_where_it_would_not_be_run() -> None:
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        outside = FENCE.sub("", document.read_text())
        assert [each[0] for each in INDENTED.finditer(outside)] == [], document.name


def test_every_public_name_is_in_the_api_pages() -> None:
    pages = (ROOT / "docs" / "api.md").read_text()
    assert [
        name for name in shardc._HOMES if not re.search(rf":: shardc\.{name}$", pages, re.M)
    ] == []


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("sphinx") is None, reason="sphinx is not installed: pip install '.[site]'"
)
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    """As `make site`, which also writes the reports of the gallery."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    built = subprocess.run(
        [*command, ROOT / "docs", tmp_path], env=environment, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    api = (tmp_path / "api.html").read_text()
    assert "shardc.rank_times" in api and "shardc.jit" in api
    plan = (tmp_path / "gallery" / "hf_gpt2.html").read_text()
    assert '<a href="reports/hf_gpt2.html">' in plan
    assert "hf_gpt2.timeline.svg" in plan
