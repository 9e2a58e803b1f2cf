"""How long it takes to plan a large program of functions that are called many times.

    python benchmarks/calls.py                          100 functions of 2,000 ops, 22 calls each
    python benchmarks/calls.py --functions 10 --ops 1000 --calls 50

The program (a matrix product every 50 ops, else elementwise ones) is written as StableHLO text,
which is not counted; `shardc plan` of it for 8 H100s runs as a process of its own, which is.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MATRIX = "tensor<64x64xf32>"
PRODUCT_EVERY = 50


def function_text(number: int, num_ops: int) -> str:
    """A function of two matrices, all ops of it in a row."""
    lines, last = [], "%x"
    for n in range(num_ops):
        if n % PRODUCT_EVERY == PRODUCT_EVERY - 1:
            types = f"({MATRIX}, {MATRIX}) -> {MATRIX}"
            op = f"stablehlo.dot_general {last}, %w, contracting_dims = [1] x [0] : {types}"
        elif n % 3:
            op = f"stablehlo.tanh {last} : {MATRIX}"
        else:
            op = f"stablehlo.add {last}, %x : {MATRIX}"
        last = f"%{n}"
        lines.append(f"  {last} = {op}")
    head = f"func.func private @f{number}(%x: {MATRIX}, %w: {MATRIX}) -> {MATRIX} {{"
    return "\n".join([head, *lines, f"  return {last} : {MATRIX}", "}"])


def program_text(num_functions: int, num_ops: int, num_calls: int) -> str:
    """All functions one after the other, again and again."""
    lines, last = [], "%x"
    for k, (_, f) in enumerate(itertools.product(range(num_calls), range(num_functions))):
        types = f"({MATRIX}, {MATRIX}) -> {MATRIX}"
        lines.append(f"  %{k} = func.call @f{f}({last}, %w) : {types}")
        last = f"%{k}"
    head = f"func.func public @main(%x: {MATRIX}, %w: {MATRIX}) -> {MATRIX} {{"
    main = "\n".join([head, *lines, f"  return {last} : {MATRIX}", "}"])
    return "\n".join([main, *(function_text(f, num_ops) for f in range(num_functions))])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--functions", type=int, default=100)
    parser.add_argument("--ops", type=int, default=2_000, help="of each function")
    parser.add_argument("--calls", type=int, default=22, help="of each function")
    options = parser.parse_args()
    inside = options.functions * options.ops
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "calls.mlir"
        path.write_text(program_text(options.functions, options.ops, options.calls))
        command = [sys.executable, "-c", "from shardc.cli import main; raise SystemExit(main())"]
        command += ["plan", str(path), "--cluster", "h100-8", "--no-cache"]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        start_s = time.perf_counter()
        with tempfile.TemporaryFile() as output:
            environment = {**os.environ, "PYTHONPATH": paths}
            child = subprocess.Popen(command, stdout=output, env=environment)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start_s
    if child.returncode != 0:
        raise SystemExit(f"shardc plan ended with exit code {child.returncode}")
    print(f"{inside:,} ops, {inside * options.calls:,} with all calls inlined:", end=" ")
    print(f"{seconds:.1f} s ({usage.ru_utime + usage.ru_stime:.1f} s of CPU),", end=" ")
    print(f"{usage.ru_maxrss / (1 << 20):.2f} GiB")


if __name__ == "__main__":
    main()
