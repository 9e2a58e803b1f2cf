"""How long `shardc plan` takes from a file to its answer, everything left open.

    python benchmarks/planning_speed.py                     each case beside its bar
    python benchmarks/planning_speed.py --only gpt4,gpt39b
    python benchmarks/planning_speed.py --curves            growth with devices, layers and batch

Steps (forward, backward, adamw) are traced with abstract values and written as StableHLO text,
which is not counted; then `shardc plan` runs as a process of its own. `seconds` is by the clock,
`of CPU` of this process and its children. `unit` is what five million additions of Python take
beside it: about 0.25 s on a core that has nothing else to do.

Models: GPT-3 (Brown et al., 2020, table 2.1), the GPT of 39B parameters in Alpa's paper (Zheng et
al., OSDI 2022, table 5), the one of 1T parameters in Megatron-LM's (Narayanan et al., SC 2021,
table 1).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import gpt_model
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
from gpt_model import Sizes

from shardc.cluster import Cluster

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A model, a batch, a cluster of some nodes, and the seconds that planning may take."""

    name: str
    sizes: Sizes
    batch: int
    cluster: str
    nodes: int
    scanned: bool = True
    bar_s: float | None = None

    @property
    def title(self) -> str:
        how = "scanned" if self.scanned else "unrolled"
        return f"{self.name}: {self.sizes.layers} {how} layers, batch {self.batch}"


GPT3 = Sizes(51200, 2048, 12288, 96, 49152, 96)
SMALL = Sizes(51200, 1024, 2048, 16, 8192, 24)
CASES = (
    Case("gpt4", Sizes(), 16, "h100-64", 1, False, 5.0),
    Case("gpt24", SMALL, 64, "h100-64", 8, False, 20.0),
    Case("gpt39b", Sizes(51200, 1024, 8192, 64, 32768, 48), 1024, "alpa", 8, True, 30.0),
    Case("gpt175b", GPT3, 1536, "h100-64", 128, True, 30.0),
    Case("gpt175b-unrolled", GPT3, 1536, "h100-64", 128, False, 90.0),
    Case("gpt1t", Sizes(51200, 2048, 25600, 160, 102400, 128), 3072, "a100-64", 384, True, 120.0),
)
CURVES = (
    *(Case(f"{8 * n} devices", SMALL, 512, "h100-64", n) for n in (1, 4, 16, 64)),
    *(
        Case(f"{n} layers", replace(SMALL, layers=n), 512, "h100-64", 8, scanned)
        for scanned in (True, False)
        for n in (6, 12, 24, 48)
    ),
    *(Case(f"batch {n}", SMALL, n, "h100-64", 8) for n in (64, 512, 4096)),
)


def step_text(case: Case) -> str:
    """StableHLO of one training step; nothing is allocated. Layers are checkpointed if scanned,
    and compute in the half precision that the devices are fast at."""
    optimizer, sizes = optax.adamw(1e-3), case.sizes
    known = Cluster.load(case.cluster).device.flops_per_s
    half = jnp.bfloat16 if "bfloat16" in known else jnp.float16  # V100s have no cores for bfloat16

    def params() -> Row:
        if not case.scanned:
            return gpt_model.init(jax.random.key(0), sizes)
        one = gpt_model.init(jax.random.key(0), replace(sizes, layers=1))
        stacked = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (sizes.layers, *leaf.shape)), one["blocks"][0]
        )
        return {**one, "blocks": stacked}

    def loss_fn(params: Row, batch: Row) -> jax.Array:
        block = jax.checkpoint(gpt_model.block)
        low = jax.tree.map(lambda leaf: leaf.astype(half), params)
        x = gpt_model.embed(low, batch["tokens"])
        x, _ = jax.lax.scan(lambda x, each: (block(each, x), None), x, low["blocks"])
        logits = gpt_model.unembed(low, x).astype(jnp.float32)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
        return jnp.mean(losses)

    def state() -> Row:
        return {"params": params(), "optimizer": optimizer.init(params())}

    of = (optimizer, loss_fn) if case.scanned else (optimizer,)
    tokens = jax.ShapeDtypeStruct((case.batch, sizes.length), np.int32)
    step = jax.jit(gpt_model.make_train_step(*of), donate_argnums=0)
    return step.lower(jax.eval_shape(state), {"tokens": tokens, "targets": tokens}).as_text()


def cluster_of(case: Case) -> Cluster:
    """The built-in cluster with as many nodes as the case has."""
    cluster = Cluster.load(case.cluster)
    node, network = cluster.levels
    levels = (
        (node,) if case.nodes == 1 else (node, msgspec.structs.replace(network, size=case.nodes))
    )
    return msgspec.structs.replace(
        cluster, name=f"{case.cluster[:4]} x {case.nodes}", levels=levels
    )


def unit_s() -> float:
    """Seconds of the processor that five million additions take now."""
    start_s, total = time.process_time(), 0
    for number in range(5_000_000):
        total += number
    return time.process_time() - start_s


def plan(case: Case, folder: Path) -> Row:
    """What `shardc plan` of a case takes and says."""
    step, cluster = folder / "step.mlir", folder / "cluster.json"
    step.write_text(step_text(case))
    cluster_of(case).save(cluster)
    command = [sys.executable, "-c", "from shardc.cli import main; raise SystemExit(main())"]
    command += ["plan", str(step), "--cluster", str(cluster), "--no-cache", "--format", "json"]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    before_s, start_s = unit_s(), time.perf_counter()
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output, env={**os.environ, "PYTHONPATH": paths})
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start_s
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        answer = json.load(output) if child.returncode == 0 else {}
    return {
        "case": case.name,
        "devices": cluster_of(case).num_devices,
        "bar_s": case.bar_s,
        "seconds": round(seconds, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "unit_s": round((before_s + unit_s()) / 2, 2),
        "peak_gib": round(usage.ru_maxrss / (1 << 20), 2),
        "exit_code": child.returncode,
        "stages": answer.get("num_stages"),
        "microbatches": answer.get("num_microbatches"),
        "schedule": answer.get("schedule"),
        "step_s": answer.get("predicted_step_time_s"),
    }


def line(case: Case, row: Row) -> str:
    bar = "" if row["bar_s"] is None else f" (bar {row['bar_s']:g})"
    found = f"exit code {row['exit_code']}"
    if row["exit_code"] == 0:
        found = (
            f"{row['stages']} stages, {row['microbatches']} microbatches, {row['schedule']}:"
            f" {1e3 * row['step_s']:.4g} ms"
        )
    return (
        f"{case.title}, {row['devices']} devices: {row['seconds']} s{bar}, {row['cpu_s']} s of CPU,"
        f" unit {row['unit_s']} s, {row['peak_gib']} GiB; {found}"
    )


def chosen(options: argparse.Namespace) -> Iterator[Case]:
    wanted = options.only.split(",") if options.only else None
    for case in CURVES if options.curves else CASES:
        if wanted is None or case.name in wanted:
            yield case


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="names of cases")
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("-o", "--output", type=Path, help="write the rows here as JSON, too")
    options = parser.parse_args()
    rows = []
    for case in chosen(options):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(plan(case, Path(folder)))
        print(line(case, rows[-1]), flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
