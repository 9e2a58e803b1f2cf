"""Scripts name what exists: no other test runs most of them."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [p for room in ("benchmarks", "tools", "examples") for p in (ROOT / room).rglob("*.py")]


def test_what_first_step_measures_exists() -> None:
    """It names functions as text, and was broken by a move of one of them."""
    from benchmarks.first_step import IMPORTING, SOLVING

    for name in (*IMPORTING, *SOLVING):
        module, _, function = name.partition(":")
        assert callable(getattr(importlib.import_module(module), function)), name


def defined_in(path: Path) -> set[str]:
    """The names at the top of a file, and of the modules in its folder."""
    found = {each.stem for each in path.parent.iterdir()} if path.name == "__init__.py" else set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom | ast.Import):
            found |= {(each.asname or each.name) for each in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.TypeAlias):
            found.add(node.name.id if isinstance(node.name, ast.Name) else node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@pytest.mark.slow
def test_scripts_import_what_exists() -> None:
    """Nothing else runs or checks most of them: `make test-table` had ended with an ImportError."""
    missing = []
    for path in SCRIPTS:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            at = ROOT / node.module.replace(".", "/")
            home = next(
                (p for p in (at.with_suffix(".py"), at / "__init__.py") if p.exists()), None
            )
            if home is None and node.module.startswith(("shardc", "tests.")) and not at.is_dir():
                missing.append(f"{path.relative_to(ROOT)}: there is no {node.module}")
            if home is not None:
                names = {each.name for each in node.names} - defined_in(home)
                missing += [
                    f"{path.relative_to(ROOT)}: {node.module} has no {name}" for name in names
                ]
    assert missing == []
