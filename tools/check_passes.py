"""Take programs through every pass, and compare the module before and after each.

    python tools/check_passes.py --files 'DIRECTORY/*.mlir.gz'     StableHLO files
    python tools/check_passes.py --steps 0 200      seeds of random steps, of every kind each
    python tools/check_passes.py --sources 0 200    seeds of random programs

Each module runs on random inputs in StableHLO's interpreter, or, where that lacks something, by
XLA: what it lacks is counted. Each program has a child process, which the interpreter may end.
Exit code 1 if a pass changed what a program computes.
"""

import argparse
import collections
import glob
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
DIFFERS = 3  # exit code of a child in which a pass changed what a program computes


def names(options: argparse.Namespace) -> list[str]:
    """The programs: paths, `steps KIND SEED`, `sources SEED`."""
    from tests.py.fuzz.kinds import KINDS

    found = sorted(glob.glob(options.files)) if options.files else []
    if options.steps:
        found += [f"steps {seed} {kind}" for seed in range(*options.steps) for kind in KINDS]
    if options.sources:
        found += [f"sources {seed}" for seed in range(*options.sources)]
    return found


def module_of(name: str) -> Any:
    """The program as a module, and where its batch is."""
    import jax

    from shardc.ir.context import make_context, parse
    from tests.py.fuzz.generate import random_source
    from tests.py.fuzz.kinds import step_of

    kind, _, rest = name.partition(" ")
    if kind == "steps":
        seed, _, which = rest.partition(" ")
        with jax.enable_x64(True):
            step = step_of(which, int(seed))
            lowered = jax.jit(step.function, donate_argnums=0, keep_unused=True).lower(*step.args)
        first = len(jax.tree.leaves(step.args[0]))
        return parse(lowered.as_text(debug_info=True)), ((first, first + 1), (0, 0))
    if kind == "sources":
        with jax.enable_x64(True):
            source = random_source(Random(int(rest)), 3 + int(rest) % 7)
            lowered = jax.jit(source.function(), keep_unused=True).lower(*source.values())
        return parse(lowered.as_text(debug_info=True)), ((), ())
    from shardc.importer.parse_module import parse_module

    return parse_module(Path(name).read_bytes(), name, make_context()), ((), ())


def run(programs: list[str], options: argparse.Namespace) -> int:
    """Checks programs in this process; how many passes changed what one computes."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    from shardc.check.child import run_here
    from shardc.errors import ShardcError
    from tests.py.fuzz.every_pass import Refused, check_every_pass

    wrong = 0
    for name in programs:
        print(f"program {name}", file=sys.stderr, flush=True)
        start_s = time.monotonic()
        line: dict[str, Any] = {"program": Path(name).name}
        passes: collections.Counter[str] = collections.Counter()
        lacking: collections.Counter[str] = collections.Counter()
        problems, skipped, refused = [], [], {}
        reached: set[str] = set()
        try:
            module, batch = module_of(name)
            inputs = [("ordinary", 0), ("extremes", 1)][: options.inputs]
            for check in check_every_pass(
                module, run_here, batch=batch, inputs=inputs, compared=options.passes
            ):
                passes[check.outcome] += 1
                lacking.update(check.lacking)
                problems += [f"{check.name}: {text}" for text in check.differences]
                skipped += [f"{check.name}: {text[:200]}" for text in check.not_compared]
                refused |= {check.name: check.why[:200]} if isinstance(check, Refused) else {}
                if options.verbose:
                    print(f"  {time.monotonic() - start_s:6.1f} s  {check}", flush=True)
                reached.add(check.name)
                if reached.issuperset(options.passes or [""]):
                    break  # of the passes that follow none is compared
        except NotImplementedError as error:
            line["no derivative"] = str(error)
        except ShardcError as error:
            line["refused"] = f"{error.code}: {error.message}"
        except Exception as error:  # noqa: BLE001 - told as a result; the other programs still run
            problems.append(f"{type(error).__name__}: {error}")
        line |= {"passes": dict(passes), "lacking": dict(lacking), "skipped": skipped}
        line |= {"refusals": refused} if refused else {}
        line |= {"problems": problems, "seconds": round(time.monotonic() - start_s, 1)}
        wrong += len(problems)
        print(json.dumps(line), flush=True)
        if options.results:
            with Path(options.results).open("a") as file:
                file.write(json.dumps(line) + "\n")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", help="a pattern of StableHLO files")
    parser.add_argument("--steps", type=int, nargs=2, metavar=("FIRST", "END"))
    parser.add_argument("--sources", type=int, nargs=2, metavar=("FIRST", "END"))
    parser.add_argument("--inputs", type=int, default=2, help="how many inputs each runs on")
    parser.add_argument("--passes", nargs="*", default=[], help="compare these passes alone")
    parser.add_argument("--chunk", type=int, default=20, help="programs per process")
    parser.add_argument("--results", help="JSON-lines file to append to")
    parser.add_argument("--verbose", action="store_true", help="print what became of each pass")
    parser.add_argument("--only", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only is not None:
        return DIFFERS if run(options.only, options) > 0 else 0
    failed, left = False, names(options)
    while left:
        chunk, left = left[: options.chunk], left[options.chunk :]
        command = [sys.executable, __file__, "--inputs", str(options.inputs)]
        command += ["--results", options.results] if options.results else []
        command += ["--verbose"] * options.verbose
        command += ["--passes", *options.passes] if options.passes else []
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        child = subprocess.run(
            [*command, "--only", *chunk], env=env, stderr=subprocess.PIPE, text=True, check=False
        )
        failed = failed or child.returncode != 0
        if child.returncode not in (0, DIFFERS):  # the interpreter or XLA has ended the process
            told = [text for text in child.stderr.splitlines() if text.startswith("program ")]
            last = told[-1].removeprefix("program ") if told else chunk[0]
            print(
                f"{last} CRASHED (exit code {child.returncode}): {child.stderr[-300:]}", flush=True
            )
            left = chunk[chunk.index(last) + 1 :] + left
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
