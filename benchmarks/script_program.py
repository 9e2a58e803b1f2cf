"""Run one JAX script through `shardc.jit` beside `jax.jit` and print what `shardc run` would.

    python benchmarks/script_program.py SCRIPT.py [--stages 2] [--microbatches 2] [--steps 2]

The script has `build("tiny") -> (fn, example_args, donate_argnums)`, and is run by the interpreter
that has its packages. Both functions are called for some steps, each on the state that the one
before returned; results must have the same pytree, types and weak types, and numbers as
`shardc/check/numerics.py` says. Exit codes are those of the command: 0 holds, 1 fails, 2 or 3
refused.
"""

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import shardc
from shardc import compiler
from shardc.api.stages import Compiled
from shardc.check import verify

NEARBY_RUNS = 4


def repeat(step: Any, args: tuple[Any, ...], state: dict[int, int], steps: int) -> Any:
    """The result of the last step; `state` says which result takes an argument's place."""
    leaves, tree = jax.tree.flatten(args)
    leaves = [jax.numpy.copy(leaf) if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
    result: Any = None
    for _ in range(steps):
        result = step(*jax.tree.unflatten(tree, leaves))
        flat = jax.tree.leaves(result)
        for argument, position in state.items():
            leaves[argument] = flat[position]
    return result


def difference(got: Any, expected: Any) -> str:
    """How the kinds of two results differ; "" where they do not."""
    if jax.tree.structure(got) != jax.tree.structure(expected):
        return f"pytree {jax.tree.structure(got)}, expected {jax.tree.structure(expected)}"
    for (path, one), other in zip(
        jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(expected), strict=True
    ):
        types = [(leaf.dtype, leaf.shape, leaf.weak_type) for leaf in (one, other)]
        if types[0] != types[1]:
            return f"{jax.tree_util.keystr(path)}: {types[0]}, expected {types[1]}"
    return ""


def host(leaf: Any) -> np.ndarray:
    """The numbers of a leaf, those of a random key too."""
    is_key = isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def nearby(fn: Any, args: Any, state: dict[int, int], steps: int, names: list[str]) -> Any:
    """Results of `jax.jit` on inputs with other last bits: one device's own error."""
    leaves, tree = jax.tree.flatten(args)
    step = jax.jit(fn)
    for seed in range(NEARBY_RUNS):
        is_key = [jax.numpy.issubdtype(jax.typeof(x).dtype, jax.dtypes.prng_key) for x in leaves]
        other = [
            x if k else verify.moved([x], seed)[0] for x, k in zip(leaves, is_key, strict=True)
        ]
        result = repeat(step, jax.tree.unflatten(tree, other), state, steps)
        yield dict(zip(names, map(host, jax.tree.leaves(result)), strict=True))


def check(
    fn: Any, compiled: Compiled, lowered: Any, args: Any, got: Any, expected: Any, steps: int
) -> verify.Verdict:
    """The verdict of shardc.check.verify on results that `shardc.jit` and `jax.jit` gave."""
    imported, devices = lowered.imported, jax.devices()
    names = verify.result_names(imported)
    state = verify.state_of(compiled.executable)
    values = [host(leaf) for leaf in jax.tree.leaves(args)]
    others = list(nearby(fn, args, state, steps, names))
    with jax.enable_x64(True):
        prepared = verify.copy_module(imported.module)
        compiler.prepare(prepared)
        plan = compiled.plan
        wide = compiler.lower(verify.widened(compiler.replay(prepared, plan)), plan)
        wide_values = [verify.widen_array(value) for value in values]
        wide_got = verify.outputs(wide, wide_values, names, steps, devices)
        _, exact64, again64 = verify.references(imported, values, state, steps, devices[0])
    own = [dict(zip(names, map(host, jax.tree.leaves(t)), strict=True)) for t in (expected, got)]
    return verify.judge(own[0], exact64, again64, own[1], wide_got.values, others)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("script", type=Path)
    for name in ("stages", "microbatches"):
        parser.add_argument(
            f"--{name}", type=lambda s: s if s == "auto" else int(s), default="auto"
        )
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    sys.path.insert(0, str(options.script.resolve().parent))
    fn, args, donated = importlib.import_module(options.script.stem).build("tiny")
    step = shardc.jit(
        fn, donate_argnums=donated, stages=options.stages, microbatches=options.microbatches
    )
    try:
        lowered = step.lower(*args)
        planned = lowered.plan()
        start_s = time.perf_counter()
        compiled = planned.compile()
        compile_time_s = time.perf_counter() - start_s
        state = verify.state_of(compiled.executable)
        got = repeat(step, args, state, options.steps)
    except shardc.ShardcError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    expected = repeat(jax.jit(fn), args, state, options.steps)
    kind = difference(got, expected)
    verdict = check(fn, compiled, lowered, args, got, expected, options.steps)
    failures = [kind] if kind else []
    answer = verdict.to_dict()
    answer["failures"] = failures + answer["failures"]
    plan = compiled.plan
    answer |= {
        "num_stages": plan.num_stages,
        "num_microbatches": plan.num_microbatches,
        "stage_flops": [stage.num_flops for stage in plan.stages],
        "planning_time_s": plan.planning_time_s,
        "compile_time_s": compile_time_s,
        "notes": [str(note) for note in plan.notes],
        "passed": verdict.passed and not kind,
    }
    print(json.dumps(answer))
    return 0 if answer["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
