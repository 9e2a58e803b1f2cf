"""`shardc doctor`: what works on this machine, and how to fix the rest."""

import importlib.metadata
import platform as machine
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from shardc.cli.output import format_option, print_json
from shardc.cli.run_devices import platform_option, start_devices
from shardc.version import VERSION

PACKAGES = ("jax", "jaxlib", "numpy", "ortools", "msgspec", "rich", "bokeh", "jinja2", "perfetto")
FAILED = 1
LINK_S = 20.0  # after that the probe of the link tries no large values; it takes a second or two


@click.command()
@click.option(
    "--straggler",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Name the slow process of a job that ran in shardc.rank_times(FOLDER).",
)
@platform_option
@format_option
@click.pass_context
def command(
    context: click.Context, straggler: Path | None, platform: str, output_format: str
) -> None:
    """Show versions, devices and the link between two of them, and check what works; paste the text
    into an issue.

    Exits with 1 if anything does not work, or a process is slow. `shardc calibrate` measures all
    links.
    """
    if straggler is not None:
        context.exit(_stragglers(straggler, output_format))
    facts: dict[str, Any] = {
        "shardc": VERSION,
        "python": sys.version.split()[0],
        "machine": f"{machine.system()} {machine.machine()}",
        **{name: _version(name) for name in PACKAGES},
    }
    checks = _checks(platform, facts)
    if output_format == "json":
        print_json({"facts": facts, "checks": checks})
    else:
        for name, value in facts.items():
            click.echo(f"{name:10} {value or 'missing: pip install ' + name}")
        for check in checks:
            words = "works" if check["works"] else f"fails: {check['error']}\n    {check['help']}"
            click.echo(f"{check['name']}: {words}")
    if not all(check["works"] for check in checks) or None in facts.values():
        context.exit(FAILED)


def _stragglers(folder: Path, output_format: str) -> int:
    """Prints how slow each process of a job is relative to the others; returns the exit code."""
    from shardc.report.stragglers import read_times, slowness

    times = read_times(folder)
    slow = slowness(times)
    rows = [
        {
            "rank": own.rank,
            "host": own.host,
            "times_slower": slow[own.rank].programs,
            "times_slower_alone": slow[own.rank].alone,
            "is_slow": slow[own.rank].is_slow,
            "programs": len(own.actions),
            "steps": own.num_steps,
        }
        for own in times
    ]
    if output_format == "json":
        print_json({"ranks": rows})
    else:
        for row in rows:
            click.echo(
                f"rank {row['rank']} on {row['host']}: {row['times_slower']:.2f} times as slow as"
                f" the others, {row['times_slower_alone']:.2f} times alone"
                f"{', a straggler' if row['is_slow'] else ''} ({row['programs']}"
                f" programs, {row['steps']} steps)"
            )
    return FAILED if any(row["is_slow"] for row in rows) else 0


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _checks(platform: str, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The checks and their results, in order; adds facts about the devices to `facts`."""
    own: list[Any] = []

    def devices() -> None:
        own.extend(start_devices(2, platform))
        facts["devices"] = ", ".join(f"{each.device_kind} {each.id}" for each in own)

    tries: list[tuple[str, Callable[[], None], str]] = [
        ("two devices", devices, "use --platform cpu, or make sure that JAX finds the GPUs"),
        ("a collective of two devices", lambda: _collective(own), "set NCCL_DEBUG=INFO and retry"),
        ("a transfer", lambda: _transfer(own), "try --platform cpu"),
        ("the link", lambda: facts.update(link=_link(own)), "run shardc calibrate"),
        ("donation", lambda: _donation(own), "update jaxlib; without it steps hold state twice"),
        ("the parser's child process", _parser, "make sure this Python may start processes"),
    ]
    return [_tried(*each) for each in tries]


def _tried(name: str, check: Callable[[], None], help: str) -> dict[str, Any]:
    try:
        check()
    except Exception as error:  # noqa: BLE001 - the doctor reports any failure
        said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return {"name": name, "works": False, "error": said, "help": help}
    return {"name": name, "works": True, "error": "", "help": ""}


def _need(works: bool, words: str) -> None:
    if not works:
        raise RuntimeError(words)


def _collective(devices: list[Any]) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(devices), ("x",))
    split = jax.device_put(np.arange(4.0), NamedSharding(mesh, PartitionSpec("x")))
    total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))(split)
    _need(float(total) == 6.0, f"the sum of 0 to 3 over two devices is {float(total)}")


def _transfer(devices: list[Any]) -> None:
    import jax
    import numpy as np

    there = jax.device_put(jax.device_put(np.arange(3), devices[0]), devices[1])
    _need(np.array_equal(np.asarray(there), np.arange(3)), "numbers changed in transit")


def _link(devices: list[Any]) -> str:
    """Latency and bandwidth of the link between two devices, as measured in a second or two."""
    from shardc.calibrate.link_probes import PAIR_BYTES, probe_pair
    from shardc.plan.notes import size
    from shardc.report.summary import seconds

    found = probe_pair(devices, LINK_S)
    small, large = PAIR_BYTES
    if not found:
        return "not measured: the machine is too busy"
    words = []
    for kind, name in (("all_reduce", "all-reduce"), ("transfer", "transfer")):
        took = found[kind]
        rate = f"{size(int(large / took[large]))}/s at {size(large)}" if large in took else "slow"
        words.append(f"{name} of {size(small)} in {seconds(took[small])}, {rate}")
    return "; ".join(words)


def _donation(devices: list[Any]) -> None:
    import jax
    import numpy as np

    given = jax.device_put(np.ones(8), devices[0])
    jax.jit(lambda x: x + 1, donate_argnums=0)(given).block_until_ready()
    _need(given.is_deleted(), "a donated array still exists")


def _parser() -> None:
    import tempfile
    from pathlib import Path

    from shardc.importer.from_file import import_file

    text = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.mlir"
        path.write_text(text)
        import_file(str(path))
