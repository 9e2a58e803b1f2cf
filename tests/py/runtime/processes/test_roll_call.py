"""Who is said to be missing before `jax.distributed.initialize()` has come through."""

import socket
import subprocess
import sys

import pytest

from shardc.errors import ClusterError
from shardc.runtime.processes.roll_call import FOLDER_VARIABLE, missing
from shardc.runtime.processes.waiting import LIMIT_VARIABLE, limit_s


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_a_limit_that_is_no_time_is_refused(monkeypatch, text):
    monkeypatch.setenv(LIMIT_VARIABLE, text)
    with pytest.raises(ClusterError, match=LIMIT_VARIABLE):
        limit_s()


def test_processes_of_one_launch_know_who_has_signed(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    for rank in (0, 1, 3):
        (tmp_path / str(rank)).touch()
    assert missing(1, 4, "nowhere:1").startswith("rank 2 is missing: ")


def test_without_signatures_rank_0_is_missing_if_nobody_listens_at_its_address(monkeypatch):
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        said = missing(1, 4, address)
        assert said.startswith("one or more of ranks 2, 3 are missing: ")
        assert missing(0, 2, address).startswith("rank 1 is missing: ")
        assert missing(1, 2, address).startswith("rank 0 is missing: ")
    assert missing(1, 4, address).startswith("rank 0 is missing: ")


@pytest.mark.slow
def test_a_process_that_waits_alone_in_initialize_ends_within_the_limit():
    """By hand, without a launcher: JAX itself would wait for five minutes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = f"import shardc, jax; jax.distributed.initialize('127.0.0.1:{port}', 2, 0)"
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={LIMIT_VARIABLE: "0.5"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "shardc: rank 0 ends: rank 1 is missing: jax.distributed.initialize()" in done.stderr


@pytest.mark.slow
def test_the_thread_ends_once_jax_has_devices_of_one_process() -> None:
    program = (
        "import threading, shardc, jax\n"
        "watch = [t for t in threading.enumerate() if t.name == 'shardc-start']\n"
        "assert len(watch) == 1\n"
        "jax.devices()\n"
        "watch[0].join(30)\n"
        "assert not watch[0].is_alive()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
