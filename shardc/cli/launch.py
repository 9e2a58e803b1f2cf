"""`shardc launch`: runs several processes of one script on this machine, for testing."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import click

from shardc.cli.output import format_option, print_json
from shardc.runtime.processes import xla_threads
from shardc.runtime.processes.roll_call import FOLDER_VARIABLE
from shardc.runtime.processes.waiting import LIMIT_VARIABLE

POLL_S = 0.05
STANDARD_ERROR = 2
SILENCE = 0.75  # of the limit: survivors name the silent rank before they are killed


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-n", "--processes", type=click.IntRange(1, 64), required=True, metavar="N")
@click.option(
    "--devices-per-process",
    type=click.IntRange(1, 64),
    default=1,
    metavar="K",
    help="Virtual CPU devices, or GPUs, of each process; 1 by default.",
)
@click.option(
    "--limit",
    type=click.FloatRange(1),
    default=60.0,
    metavar="SECONDS",
    help="Seconds that processes may outlive a failed one; a process may be silent for 3/4 of it.",
)
@format_option
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1)
@click.pass_context
def command(
    ctx: click.Context,
    processes: int,
    devices_per_process: int,
    limit: float,
    output_format: str,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT in N processes, in which jax.distributed.initialize() finds the others.

    They get the environment of a SLURM step on one host. If one fails, processes that remain after
    the limit are killed, stopped ones included, and the exit code is 1.
    """
    as_json = output_format == "json"
    start_s = time.monotonic()
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="shardc-launch-") as folder:
        own = {LIMIT_VARIABLE: str(SILENCE * limit), FOLDER_VARIABLE: folder}
        children = [
            subprocess.Popen(
                [sys.executable, script, *arguments],
                env={
                    **os.environ,
                    **environment(rank, processes, devices_per_process, port),
                    **own,
                },
                stdout=STANDARD_ERROR if as_json else None,
            )
            for rank in range(processes)
        ]
        codes = _wait(children, limit)
    if as_json:
        print_json({"exit_codes": codes, "seconds": time.monotonic() - start_s})
    ctx.exit(int(any(codes)))


def environment(rank: int, processes: int, devices: int, port: int) -> dict[str, str]:
    """Tells JAX about the other processes: SLURM's variables, and its own."""
    return {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": str(processes),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_LOCAL_DEVICE_IDS": ",".join(str(rank * devices + i) for i in range(devices)),
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
        **xla_threads.variables(devices),
    }


def _wait(children: list[subprocess.Popen[bytes]], limit_s: float) -> list[int]:
    """Exit codes; once a child fails, or the user interrupts, the others get `limit_s` to end.

    The same holds once a child is stopped, since it may stop before the others know about it.
    """
    end_s: float | None = None
    running = True
    while running:
        try:
            running = None in [child.poll() for child in children]
            failed = any(child.returncode for child in children)
            stopped = [rank for rank, child in enumerate(children) if _is_stopped(child)]
            if (failed or stopped) and end_s is None:
                # Asked again: a rank that fails because of another one ends after it.
                codes = [child.poll() for child in children]
                said = [f"rank {rank}: {code}" for rank, code in enumerate(codes) if code]
                said += [f"rank {r} is stopped" for r in stopped]
                click.echo(f"shardc launch: a process failed ({', '.join(said)})", err=True)
                end_s = time.monotonic() + limit_s
            if end_s is not None and time.monotonic() > end_s:
                for rank, child in enumerate(children):
                    if child.poll() is None:
                        click.echo(f"shardc launch: rank {rank} did not end: killed", err=True)
                        child.kill()
                for child in children:
                    child.wait()
            if running:
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            for child in children:
                if child.poll() is None:
                    child.send_signal(signal.SIGINT)
            end_s = end_s or time.monotonic() + limit_s
    return [child.returncode for child in children]


def _is_stopped(child: subprocess.Popen[bytes]) -> bool:
    """Whether a child is stopped, as by SIGSTOP; its exit code stays for `poll`."""
    if child.poll() is not None:
        return False
    found = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    return found is not None and found.si_code == os.CLD_STOPPED


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
