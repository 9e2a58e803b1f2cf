"""The lit suite, one pytest test per file, so that one command shows one count.

A server that has imported JAX already forks for lit and each command of the tests: see
tests/lit/fork_server.py. `lit tests/lit` runs the same tests without it.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

LIT = Path(__file__).parents[1] / "lit"
SERVER = LIT / "fork_server.py"
FILES = sorted(path.relative_to(LIT).as_posix() for path in LIT.glob("*.mlir"))
SLOW = ("join_pieces.mlir", "keep_forward_values.mlir")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Path of the socket at which commands are taken."""
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path has at most 107 bytes
        path = f"{folder}/lit"
        command = [sys.executable, str(SERVER), "SERVE", path]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=LIT.parents[1]
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield path
            process.kill()


@pytest.mark.parametrize(
    "file", [pytest.param(f, marks=pytest.mark.slow) if f in SLOW else f for f in FILES]
)
def test_lit(file: str, tmp_path: Path, server: str) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-S", "-E", str(SERVER), server, "lit", "lit.main", str(LIT / file)),
            *("--verbose", "--workers=1", "--param", f"exec_root={tmp_path}"),
            *("--param", f"server={server}"),
        ],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, f"{file}\n{run.stdout}{run.stderr}"
    assert "Passed: 1" in run.stdout, f"lit ran nothing for {file}\n{run.stdout}{run.stderr}"
