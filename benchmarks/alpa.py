"""Alpa's mixtures of experts and Wide-ResNets on V100s: its published plans, priced by shardc.

    python benchmarks/alpa.py [--only moe,wresnet] [--devices 8] [--format json]

Each row of `published/alpa_plans.json` is a run of Alpa's evaluation (OSDI 2022, figure 7) whose
plan is published: microbatches, and the layers and the mesh of each stage. It is written as a plan
by hand (docs/hand_plans.md), goes through the whole compiler and is priced as any plan is. What a
stage of Alpa's plan leaves open, shardc's planner chooses. Where Alpa forced the batch onto the
mesh ("batch"), parameters are whole; where it kept the batch off it ("channels"), the results of
blocks split another dim.

`seconds` is Alpa's measured latency where it is published, and otherwise the FLOPs of the step over
the published rate. Prints predicted over measured; and of the pairs of systems on the same model
and devices whose times differ by over 10 %, which are in order.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import jax
import msgspec
from alpa_models import Experts, WideResNet, experts_step, wide_resnet_step

import shardc
from shardc.cluster import Cluster
from shardc.errors import ShardcError
from shardc.plan.stages_spec import StageSpec

NO_LIMIT = 1 << 50  # bytes: it did run
APART = 1.1  # measured times of a pair that counts


class Stage(msgspec.Struct, forbid_unknown_fields=True):
    """One stage, or several alike.

    Attributes:
        layers: of the program, as docs/hand_plans.md counts them; None: there is one stage.
        mesh: sizes of its axes; the batch may be split along the first.
        fixed: what Alpa's plan fixed: "" (nothing), "batch", "experts" or "channels".
        times: such stages in a row.
    """

    mesh: list[int]
    layers: int | None = None
    fixed: str = ""
    times: int = 1


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """A measured run.

    Attributes:
        sizes: of the model, as the fields of `Experts` or `WideResNet`.
        seconds: a step.
    """

    model: str
    system: str
    devices: int
    sizes: dict[str, Any]
    microbatches: int
    stages: list[Stage]
    seconds: float


def rows() -> list[Row]:
    """The published ones."""
    text = (Path(__file__).parent / "published" / "alpa_plans.json").read_bytes()
    return msgspec.json.decode(text, type=list[Row])


def predicted_s(row: Row, cluster: Cluster) -> float:
    """Seconds of a step under the row's plan.

    Raises:
        ShardcError: it cannot be planned.
    """
    sizes = dict(row.sizes)
    if row.model == "moe":
        step, arguments = experts_step(Experts(**sizes))
    else:
        step, arguments = wide_resnet_step(WideResNet(**sizes | {"blocks": tuple(sizes["blocks"])}))
    alike = [stage for stage in row.stages for _ in range(stage.times)]
    batch = ("tokens", "targets") if row.model == "moe" else ("images", "labels")
    stages = []
    for number, stage in enumerate(alike):
        axes = dict(zip("xy", stage.mesh, strict=False))
        shardings, values = {}, {}
        if stage.fixed in ("batch", "experts"):
            every = "*".join(axis for axis, size in axes.items() if size > 1) or "-"
            last = "xy"[len(axes) - 1]
            if stage.fixed == "experts":
                shardings |= {f"*params.routed.{name}": f"-,{last}" for name in ("first", "second")}
            shardings["*params*"] = "-"
            read = (number == 0, number == len(alike) - 1)  # which of the batch the stage reads
            shardings |= {name: every for name, here in zip(batch, read, strict=True) if here}
        if stage.fixed == "channels":
            values = {"*block*/add": "-,?,?,?"}
        stages.append(StageSpec(stage.layers, axes, shardings=shardings, values=values))
    plan = shardc.StagesSpec(1, tuple(stages), microbatches=row.microbatches)
    lowered = shardc.jit(
        step,
        donate_argnums=0,
        cluster=cluster.with_devices(row.devices),
        memory_limit_bytes=NO_LIMIT,
        plan=plan,
    ).lower(*arguments)
    return lowered.plan().plan.predicted.step_time_s


def v100s(name: str) -> Cluster:
    """A cluster whose devices take 16-bit sums in any order, as the runs did."""
    cluster = Cluster.load(name)
    software = msgspec.structs.replace(cluster.device.software, half_sums=True)
    device = msgspec.structs.replace(cluster.device, software=software)
    return msgspec.structs.replace(cluster, device=device)


def in_order(found: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any], bool]]:
    """The pairs of systems whose measured times differ enough, the faster first; and whether it is
    predicted so."""
    pairs = []
    for one, other in itertools.combinations(found, 2):
        fast, slow = sorted((one, other), key=lambda row: row["measured_s"])
        same = (fast["model"], fast["devices"]) == (slow["model"], slow["devices"])
        if same and slow["measured_s"] > APART * fast["measured_s"]:
            pairs.append((fast, slow, bool(fast["predicted_s"] < slow["predicted_s"])))
    return pairs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="moe,wresnet")
    parser.add_argument("--devices", help="only rows on so many, such as 1,8")
    parser.add_argument("--systems", help="only rows of these, such as alpa,intra-op")
    parser.add_argument("--cluster", default="alpa-megatron")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    asked = parser.parse_args()
    cluster = v100s(asked.cluster)
    found = []
    for row in rows():
        if row.model not in asked.only.split(","):
            continue
        if asked.devices and str(row.devices) not in asked.devices.split(","):
            continue
        if asked.systems and row.system not in asked.systems.split(","):
            continue
        try:
            seconds = predicted_s(row, cluster)
        except ShardcError as error:
            print(f"{row.model} {row.system} {row.devices}: {error.message}", file=sys.stderr)
            continue
        found.append(
            {
                "model": row.model,
                "system": row.system,
                "devices": row.devices,
                "predicted_s": seconds,
                "measured_s": row.seconds,
                "relative_error": seconds / row.seconds - 1,
            }
        )
        if asked.format == "text":
            print(
                f"{row.model} {row.system}, {row.devices} devices: {seconds:.1f} s, measured"
                f" {row.seconds:.1f} s, {seconds / row.seconds - 1:+.1%}",
                flush=True,
            )
        jax.clear_caches()
    pairs = in_order(found)
    if asked.format == "json":
        print(json.dumps({"rows": found, "pairs": len(pairs), "right": sum(p[2] for p in pairs)}))
    else:
        for fast, slow, right in pairs:
            print(
                f"{fast['model']}, {fast['devices']} devices: {fast['system']} before"
                f" {slow['system']}: {'as predicted' if right else 'predicted otherwise'}"
            )
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
