"""The lit suite, one pytest test per file, so that one command shows one count."""

import subprocess
import sys
from pathlib import Path

import pytest

LIT = Path(__file__).parents[1] / "lit"
FILES = sorted(path.relative_to(LIT).as_posix() for path in LIT.glob("*.mlir"))


@pytest.mark.parametrize("file", FILES)
def test_lit(file: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-c", "from lit.main import main; main()", str(LIT / file)),
            *("--verbose", "--workers=1", "--param", f"exec_root={tmp_path}"),
        ],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, f"{file}\n{run.stdout}{run.stderr}"
    assert "Passed: 1" in run.stdout, f"lit ran nothing for {file}\n{run.stdout}{run.stderr}"
