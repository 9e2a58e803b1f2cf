"""How lit runs the .mlir tests: `lit tests/lit`, or `pytest tests/py/test_lit.py`.

lit's own shell knows `not`. The commands of this repository are started by the Python that runs
lit, from the source tree, so the tests need nothing installed but the test tools.
"""

import os
import shlex
import sys
from pathlib import Path

import lit.formats

ROOT = Path(__file__).parents[2]
PYTHON = shlex.quote(sys.executable)
SERVER = lit_config.params.get("server")  # takes commands: fork_server.py

config.name = "shardc"
config.suffixes = [".mlir"]
config.excludes = ["inputs"]
config.test_format = lit.formats.ShTest(execute_external=False)
config.test_source_root = str(ROOT / "tests" / "lit")
config.test_exec_root = lit_config.params.get("exec_root", str(ROOT / "build" / "lit"))

config.environment |= {
    "JAX_PLATFORMS": "cpu",
    "NO_COLOR": "1",
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(ROOT),
    "PYTHONWARNINGS": "error",
}


def command(name: str, module: str) -> tuple[str, str]:
    """A substitution for a whole word, so that `shardc-reshard` or a path is left alone."""
    word = rf"(?<![\w./=-]){name}(?![\w./-])"
    if SERVER is not None:
        client = shlex.quote(str(ROOT / "tests" / "lit" / "fork_server.py"))
        return word, f"{PYTHON} -S -E {client} {SERVER} {name} {module}"
    program = f"import sys; from {module} import main; sys.argv[0] = '{name}'; sys.exit(main())"
    return word, f'{PYTHON} -c "{program}"'


config.substitutions += [
    command("shardc", "shardc.cli"),
    command("shardc-opt", "shardc.cli.opt"),
    command("filecheck", "filecheck.main"),
    ("%examples", str(ROOT / "examples")),
    ("%python", PYTHON),
]
