"""`shardc calibrate`: measures the available devices and writes a cluster file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from shardc.cli.output import format_option, print_json
from shardc.cli.run_devices import platform_option, start_devices
from shardc.errors import ClusterError

if TYPE_CHECKING:
    import jax

    from shardc.calibrate.measured_cluster import Calibration

WORST = 8  # residuals shown in the text


@click.command()
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The file.")
@click.option("--devices", type=click.IntRange(1), help="How many; by default all.")
@platform_option
@click.option("--name", default="calibrated", show_default=True, help="Name of the cluster.")
@click.option("--quick", is_flag=True, help="Fewer sizes: about 20 seconds instead of 2 minutes.")
@format_option
def command(
    output: str,
    devices: int | None,
    platform: str,
    name: str,
    quick: bool,
    output_format: str,
) -> None:
    """Measure the devices of this machine and write them as a cluster for --cluster FILE.

    Measures products over sizes and dtypes, memory-bound kernels, kernel launches, calls,
    collectives over groups and sizes, transfers and copies to the host; all devices work at once.
    Then fits the constants of the cost model. A busy machine is measured twice, and the
    printed errors are wider. In a job of several processes (srun, mpirun, shardc launch) all run
    this command; it measures the links between hosts, too, and rank 0 writes the file.
    """
    import msgspec

    from shardc.api.action_time import action_seconds
    from shardc.calibrate.measured_cluster import calibrate

    found, is_first = _devices(devices, platform)
    as_json = output_format == "json"

    def say(line: str) -> None:
        if is_first and not as_json:
            click.echo(line, err=True)

    made = calibrate(found, quick=quick, say=say, action_s=action_seconds)
    cluster = msgspec.structs.replace(made.cluster, name=name)
    if not is_first:
        return
    cluster.save(output)
    if as_json:
        print_json(summary(made, output))
    else:
        click.echo(text(made, output))


def _devices(count: int | None, platform: str) -> "tuple[Sequence[jax.Device], bool]":
    """The devices to measure, and whether this process speaks for its job.

    Raises:
        ClusterError: SHARDC-101, there are fewer, or `count` does not count those of a job.
    """
    from shardc.runtime.processes.coordination import is_announced

    if not is_announced():
        return start_devices(count or _count(platform), platform), True
    import jax

    from shardc.api.asked_devices import resolve_devices
    from shardc.runtime.processes.joining import initialize

    initialize()
    _, found = resolve_devices(None, None)
    if count not in (None, len(found)):
        raise ClusterError(
            f"--devices {count}: the processes of this job have {len(found)} devices together",
            help="leave --devices out, and start the job with as many devices as to be measured",
            code="SHARDC-101",
        )
    return found, jax.process_index() == 0


def _count(platform: str) -> int:
    """All GPUs, or one virtual CPU device per core."""
    if platform == "cpu":
        import os

        return len(os.sched_getaffinity(0))
    import jax

    return len(jax.devices("gpu"))


def summary(made: "Calibration", output: str) -> dict[str, Any]:
    """The JSON of the command; times in seconds, errors and residuals as shares."""
    return {
        "file": output,
        "busy": made.busy,
        "load_per_core": made.load,
        "rounds": made.rounds,
        "rounds_apart": made.apart,
        "mean_residual": made.mean_residual,
        "errors": made.errors,
        "samples": [
            {
                "kind": each.sample.kind,
                "dtype": each.sample.dtype,
                "sizes": list(each.sample.sizes),
                "measured_s": each.sample.seconds,
                "predicted_s": each.predicted_s,
                "spread": each.sample.spread,
            }
            for each in made.residuals
        ],
    }


def text(made: "Calibration", output: str) -> str:
    """The text of the command: the constants with their errors, and the largest residuals."""
    rounds = f", rounds by {made.apart:.0%}" if made.rounds > 1 else ""
    lines = [
        f"{output}: {len(made.samples)} measurements in {made.rounds} rounds, load"
        f" {made.load:.1f} per core, repeats differ by {made.busy:.0%}{rounds};"
        f" the model is off by {made.mean_residual:.0%} on average",
    ]
    for name, error in made.errors.items():
        lines.append(f"  {name:16} {f'+- {error:.0%}' if error < 1 else 'poorly determined'}")
    lines.append("furthest off:")
    worst = sorted(made.residuals, key=lambda each: -abs(each.relative))[:WORST]
    for each in worst:
        sample = each.sample
        sizes = " x ".join(map(str, sample.sizes))
        lines.append(
            f"  {sample.kind} {sample.dtype} {sizes}: {1e6 * sample.seconds:.1f} us,"
            f" model {each.relative:+.0%}"
        )
    return "\n".join(lines)
