"""The laws of the house that no other tool checks."""

import ast
import functools
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from shardc.errors import CODES
from shardc.plan.function_kind import FunctionKind

ROOT = Path(__file__).parents[2]
LIT = ROOT / "tests" / "lit"
ROOMS_THAT_KNOW_MLIR = {
    "ir", "rules", "rewrite", "specs", "analysis", "passes", "importer", "backend",
    "check",  # runs modules in every form
}  # fmt: skip
MOST_FILES = 14  # in a folder of shardc/
FULL_ROOMS = {"passes", "schedule/families", "cli"}  # one file per pass, mechanism, command
MLIR_MODULES = ("jax.extend.mlir", "jax.interpreters.mlir", "jaxlib.mlir")
# Names of two modules: one concept, of which one room does this and the other that.
PAIRS = {
    "collectives": "priced; inserted",
    "control_flow": "read; rewritten",
    "counterfactuals": "priced; put into words",
    "join_pieces": "the pass; its rewrite",
    "model": "of time; of what a report says",
    "stages": "those of jax.stages; those of a pipeline",
    "strip_mining": "found; done",
}
parsed = functools.cache(lambda path: ast.parse(path.read_text()))
NOT_PASSES = {"__init__.py", "pipeline.py", "registry.py"}


def source_files() -> list[Path]:
    """Every Python file of ours; the link `passes` and what tools leave behind are not walked."""
    found = []
    for room in ("shardc", "tests", "tools", "examples", "benchmarks"):
        found += (ROOT / room).rglob("*.py")
    return sorted(found)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def pass_files() -> list[Path]:
    files = sorted((ROOT / "shardc" / "passes").glob("*.py"))
    return [path for path in files if path.name not in NOT_PASSES]


def pass_fields(path: Path) -> dict[str, str]:
    """The string constants in the bodies of the classes of a pass file, and the class's name."""
    fields: dict[str, str] = {}
    for node in parsed(path).body:
        if not isinstance(node, ast.ClassDef):
            continue
        constants = {
            target.id: statement.value.value
            for statement in node.body
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
            for target in statement.targets
            if isinstance(target, ast.Name) and isinstance(statement.value.value, str)
        }
        if "name" in constants:
            assert "name" not in fields, f"{path.name} holds two passes"
            fields = constants | {"class": node.name}
            for statement in node.body:  # `never_refuses: ClassVar[str] = (...)` counts too
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    fields.setdefault(statement.target.id, ast.unparse(statement))
    return fields


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a file imports: `a.b` for `import a.b`, `a.b.c` for `from a.b import c`."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_cache_outlives_the_ir_that_it_is_keyed_by() -> None:
    """MLIR objects hash by address, and the next module may get the address of an erased op."""
    cached = {}
    for path in source_files():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef):
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                if re.search(r"\b(lru_)?cache\b", decorators):
                    cached[f"{relative(path)}: {node.name}"] = ast.unparse(node.args)
    assert cached
    assert [name for name, args in cached.items() if re.search(r"\bir\.", args)] == []


@pytest.mark.parametrize("path", pass_files(), ids=lambda path: path.stem)
def test_every_pass_has_its_names_a_lit_test_and_a_failure_test(path: Path) -> None:
    fields = pass_fields(path)
    assert fields.get("name") == "shardc-" + path.stem.replace("_", "-")
    assert fields["class"] == "".join(word.capitalize() for word in path.stem.split("_"))
    lit_test = LIT / f"{path.stem}.mlir"
    failure_test = LIT / f"{path.stem}_failure.mlir"
    assert lit_test.exists(), f"{relative(lit_test)} is missing"
    assert f"--passes={fields['name']}" in lit_test.read_text()
    assert failure_test.exists() != bool(fields.get("never_refuses")), (
        f"either {relative(failure_test)} or a `never_refuses` in {path.name} that says why"
    )


def test_every_lit_test_belongs_to_a_pass_or_says_what_it_covers() -> None:
    passes = {path.stem for path in pass_files()}
    strays = [
        path.name
        for path in LIT.rglob("*.mlir")
        if "inputs" not in path.parts
        and path.stem.removesuffix("_failure") not in passes
        and not path.stem.startswith(("pipeline_", "e2e_", "opt_"))
    ]
    assert strays == []


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    long = {relative(path): len(path.read_text().splitlines()) for path in source_files()}
    most = {path: 350 if path.startswith("shardc/") else 500 for path in long}
    assert {path: lines for path, lines in long.items() if lines > most[path]} == {}


def test_no_folder_holds_more_files_than_a_reader_can_survey() -> None:
    shardc = ROOT / "shardc"
    sizes = {
        folder.relative_to(shardc).as_posix(): len(list(folder.glob("*.py")))
        for folder in {path.parent for path in shardc.rglob("*.py")}
    }
    full = {room: size for room, size in sizes.items() if size > MOST_FILES}
    assert {room: size for room, size in full.items() if room not in FULL_ROOMS} == {}


def test_no_file_has_a_name_that_everything_moves_into() -> None:
    vague = {"utils", "util", "core", "common", "helpers", "helper", "misc"}
    assert [relative(path) for path in source_files() if path.stem in vague] == []


def test_a_module_has_its_name_alone() -> None:
    """Except commands, which are called what they do, and pairs."""
    shardc = ROOT / "shardc"
    commands = shardc / "cli"
    stems = [path.stem for path in shardc.rglob("*.py") if path.parent != commands]
    several = {stem for stem, count in Counter(stems).items() if count > 1} - {"__init__"}
    assert several == set(PAIRS)


def test_nothing_uses_the_private_modules_of_jax() -> None:
    """Except one file: the key-value store of jax.distributed has no public name."""
    private = "jax." + "_src"
    users = [relative(path) for path in source_files() if private in path.read_text()]
    assert users == ["shardc/runtime/processes/coordination.py"]


def test_only_the_rooms_of_the_compiler_know_mlir() -> None:
    trespassers = {
        relative(path): name
        for path in (ROOT / "shardc").rglob("*.py")
        if path.relative_to(ROOT / "shardc").parts[0] not in ROOMS_THAT_KNOW_MLIR
        for name in imports(path)
        if name.startswith(MLIR_MODULES)
    }
    assert trespassers == {}


def test_no_module_imports_itself_in_a_circle() -> None:
    """Whether at its top, inside a function or under TYPE_CHECKING."""
    paths = (ROOT / "shardc").rglob("*.py")
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }
    graph = {
        name: {
            found if found in modules else found.rpartition(".")[0]
            for found in imports(path)
            if found.startswith("shardc")
        }
        for name, path in modules.items()
    }
    list(TopologicalSorter(graph).static_order())  # raises CycleError, with the circle


def test_every_error_code_is_provoked_by_a_test() -> None:
    tests = [*(ROOT / "tests").rglob("*.py"), *LIT.rglob("*.mlir")]
    text = "\n".join(path.read_text() for path in tests)
    assert [code for code in CODES if code not in text] == []


def test_every_error_code_in_the_source_is_registered() -> None:
    used = {
        (relative(path), code)
        for path in (ROOT / "shardc").rglob("*.py")
        for code in re.findall(r"SHARDC-\d{3}", path.read_text())
    }
    assert {(path, code) for path, code in used if code not in CODES} == set()


def test_py_tests_mirror_the_rooms() -> None:
    shardc, tests = ROOT / "shardc", ROOT / "tests" / "py"
    modules = {path.relative_to(shardc).with_suffix("") for path in shardc.rglob("*.py")}
    rooms = modules | {module.parent for module in modules}
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert sorted(map(str, folders - rooms)) == ["end_to_end"]


def test_passes_at_the_top_is_a_link_and_no_package_of_its_own() -> None:
    assert os.readlink(ROOT / "passes") == "shardc/passes"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["packages"]["find"]["include"] == ["shardc*"]


def test_the_site_has_every_document() -> None:
    docs = ROOT / "docs"
    listed = set((docs / "index.md").read_text().split())
    found = {path.relative_to(docs).with_suffix("").as_posix() for path in docs.rglob("*.md")}
    missing = {name for name in found - listed if not name.startswith("gallery/")}
    assert missing == {"index"}


@pytest.mark.slow
def test_the_gallery_says_what_its_plans_do() -> None:
    script = ROOT / "tools" / "write_gallery.py"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0, (
        "run tools/write_gallery.py"
    )


def test_contributing_names_every_make_target() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [target for target in targets if f"make {target} " not in text] == []


@pytest.mark.parametrize("document", ["README.md", "CHANGELOG.md"])
def test_paths_in_documents_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    rooms = "shardc|tests|tools|examples|benchmarks|docs"
    paths = re.findall(rf"(?<![\w/.-])(?:{rooms})/[\w/.-]*\w", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_file_that_could_conclude_something_stands_in_the_proofs() -> None:
    text = (ROOT / "docs" / "proofs.md").read_text()
    named = set(re.findall(r"\(\.\./([\w/]+\.py)\)", text))
    rooms = ("analysis", "rules", "ir", "passes", "rewrite", "importer", "backend", "runtime")
    own = {relative(path) for room in rooms for path in (ROOT / "shardc" / room).rglob("*.py")}
    own = {path for path in own if not path.endswith("__init__.py")}
    assert sorted(own - named) == []
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_links_in_documents_lead_somewhere() -> None:
    """To files, and to headings as GitHub and MyST name them."""

    def anchors(path: Path) -> set[str]:
        headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
        words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
        return {each.strip().replace(" ", "-") for each in words}

    lost = []
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            file, _, anchor = link.partition("#")
            if file.startswith(("http:", "https:")):
                continue
            target = path.parent / file if file else path
            if not target.exists() or (anchor and anchor not in anchors(target)):
                lost.append((relative(path), link))
    assert lost == []


def test_find_python_prints_one_that_is_new_enough() -> None:
    script = ROOT / "tools" / "find_python.sh"
    found = subprocess.run(
        ["sh", script], capture_output=True, text=True, check=True
    ).stdout.strip()
    check = "import sys; sys.exit(sys.version_info < (3, 12))"
    assert subprocess.run([found, "-c", check], check=False).returncode == 0


def test_find_python_says_what_is_missing(tmp_path: Path) -> None:
    script = ROOT / "tools" / "find_python.sh"
    nothing = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    run = subprocess.run(["/bin/sh", script], env=nothing, capture_output=True, text=True)
    if run.returncode == 0:
        pytest.skip("this machine has a Python in a fixed place, which the script found")
    assert "shardc needs Python 3.12 or newer" in run.stderr
    assert "help: install one" in run.stderr


def test_the_picture_of_the_architecture_is_what_the_source_imports() -> None:
    script = ROOT / "tools" / "draw_architecture.py"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0, (
        "run tools/draw_architecture.py"
    )


def test_the_answers_in_contributing_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    answers = re.findall(r"`(shardc/[\w/]+\.py)`: `(\w+)`", text)
    assert len(answers) >= 10
    missing = [
        (path, name)
        for path, name in answers
        if not re.search(rf"^(def|class) {name}\b|^{name}\b", (ROOT / path).read_text(), re.M)
    ]
    assert missing == []


ERRORS = {"error", "bug", "refusal", "refused", "raised", "exception", "warning", "note"}
NAMES = {
    "name", "names", "symbol", "kind", "value", "function", "note", "stage", "label", "state"
}  # fmt: skip
READERS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition"}
OF_MLIR = ("stablehlo.", "chlo.", "sdy.", "shardc.")  # of ops and attributes
# Names that others give, and the only way to know what they say.
READ_NAMES = {
    "shardc/api/signature.py": "JAX calls the module of f jit_f",
    "shardc/check/forms/plain_main.py": "dtypes of NumPy",
    "shardc/cli/export.py": "module:function, as the user writes it",
}


def expressions(path: Path) -> Iterator[ast.AST]:
    return ast.walk(parsed(path))


def last_name(node: ast.AST) -> str:
    """`c` of `a.b.c`, of `c(...)` and of `c[...]`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return last_name(inner)
    return ""


def test_nothing_branches_on_the_code_or_the_words_of_an_error_or_a_note() -> None:
    """Refusals are facts (MicrobatchRefusal, StageRefusal), notes have a NoteCode."""
    found = []
    for path in (ROOT / "shardc").rglob("*.py"):
        for node in expressions(path):
            if not isinstance(node, ast.Compare):
                continue
            if all(isinstance(how, ast.Is | ast.IsNot) for how in node.ops):
                continue
            for side in (node.left, *node.comparators):
                words = isinstance(side, ast.Attribute) and side.attr in {"code", "message", "help"}
                if isinstance(side, ast.Call) and last_name(side) == "str" and side.args:
                    words = last_name(side.args[0]) in ERRORS
                if words:
                    found.append((relative(path), ast.unparse(node)))
    assert sorted(found) == [
        ("shardc/errors.py", "self.code in CODES"),  # the assertion that it is registered
        # Statuses of XLA and of JAX's coordination service, which have no types:
        ("shardc/ir/bugs.py", "'RESOURCE_EXHAUSTED' in str(error)"),
        ("shardc/runtime/processes/coordination.py", "'DEADLINE_EXCEEDED' in str(error)"),
    ]


def test_the_planner_catches_no_refusal() -> None:
    refusals = {"MicrobatchError", "StageError"}
    caught = {
        relative(path)
        for path in (ROOT / "shardc" / "planner").rglob("*.py")
        for node in expressions(path)
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        for each in ast.walk(node.type)
        if last_name(each) in refusals
    }
    assert caught == set()


def test_nothing_reads_a_fact_out_of_a_name() -> None:
    """What a value or function is, is a ValueId, a FunctionKind, an attribute."""
    found = set()
    for path in (ROOT / "shardc").rglob("*.py"):
        for node in expressions(path):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            reads, read = node.func.attr, node.func.value
            mlirs = isinstance(read, ast.Attribute) and last_name(read.value) in {"op", "dtype"}
            if reads not in READERS or last_name(read) not in NAMES or mlirs:
                continue
            constants = [
                each.value
                for argument in node.args
                for each in ast.walk(argument)
                if isinstance(each, ast.Constant)
            ]
            if not constants or not all(str(each).startswith(OF_MLIR) for each in constants):
                found.add(relative(path))
    assert found == set(READ_NAMES)


def test_attributes_are_declared_in_one_file() -> None:
    home = ROOT / "shardc" / "ir" / "attributes.py"
    found = {
        (relative(path), node.value)
        for path in (ROOT / "shardc").rglob("*.py")
        if path not in (home, ROOT / "shardc" / "__init__.py")  # which names modules
        for node in expressions(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"shardc\.[a-z_]+", node.value)
    }
    assert found == set()


def test_kinds_of_functions_are_compared_as_such() -> None:
    words = {kind.value for kind in FunctionKind} - {"before", "reduce"}  # a phase, and an op, too
    found = {
        (relative(path), ast.unparse(node))
        for path in (ROOT / "shardc").rglob("*.py")
        for node in expressions(path)
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        for each in ast.walk(side)
        if isinstance(each, ast.Constant) and each.value in words
    }
    assert found == set()


def own_lines(path: Path) -> list[tuple[int, str]]:
    """Lines of a file by number: no blank ones, no imports, no heads of functions, no texts."""
    text = path.read_text()
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            skipped.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            skipped.update(range(first, node.body[0].lineno))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return [(n, line.strip()) for n, line in lines if line.strip() and n not in skipped]


def test_no_block_of_six_lines_stands_twice() -> None:
    places: dict[tuple[str, ...], list[str]] = {}
    for path in sorted((ROOT / "shardc").rglob("*.py")):
        lines = own_lines(path)
        for k in range(len(lines) - 5):
            block = tuple(line for _, line in lines[k : k + 6])
            places.setdefault(block, []).append(f"{relative(path)}:{lines[k][0]}")
    assert [found for found in places.values() if len(found) > 1] == []


def test_no_class_of_ops_is_listed_twice() -> None:
    """A question with the same answer has the same table."""
    tables: dict[frozenset[str], set[str]] = {}
    for path in (ROOT / "shardc").rglob("*.py"):
        for node in parsed(path).body:
            if not isinstance(node, ast.Assign):
                continue
            constants = (each for each in ast.walk(node.value) if isinstance(each, ast.Constant))
            words = [word for each in constants for word in str(each.value).split()]
            of_ops = len(words) > 1 and all(word.startswith(OF_MLIR[:3]) for word in words)
            if of_ops and not isinstance(node.value, ast.Dict):
                tables.setdefault(frozenset(words), set()).add(f"{relative(path)}: {node.lineno}")
    assert tables
    assert [found for found in tables.values() if len(found) > 1] == []


def test_files_are_written_by_renaming() -> None:
    """The others write to a pipe, and to new files that only they know."""
    writes = r"\.write_(?:text|bytes)\(|open\([^)\n]*[\"'][wax]b?\+?[\"']"
    own = {"shardc/files.py", "shardc/check/child.py", "shardc/cli/doctor.py", "shardc/ir/bugs.py"}
    found = {
        relative(path)
        for path in (ROOT / "shardc").rglob("*.py")
        if re.search(writes, path.read_text())
    }
    assert found <= own


def test_nothing_is_unpickled_or_run_that_came_as_data() -> None:
    forbidden = (
        r"^\s*(?:import|from) (?:c?[pP]ickle|dill|cloudpickle|marshal|shelve|joblib)\b"
        r"|(?<![\w.])(?:eval|exec)\(|allow_pickle=(?!False)"
    )
    found = {
        relative(path): hit[0]
        for path in (ROOT / "shardc").rglob("*.py")
        for hit in re.finditer(forbidden, path.read_text(), re.MULTILINE)
    }
    assert found == {}
