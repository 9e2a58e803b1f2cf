"""Every test sees 8 virtual CPU devices; this runs before the first backend starts."""

import os
import shutil
import signal
import tempfile

# Eight devices share few cores here: a device that waits for a collective is slow, not stuck. And
# programs of tests take longer to compile than to run: without LLVM's optimisations half as long.
# XLA's own passes all run.
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_parallel_codegen_split_count=1",  # small programs are one piece
        "--xla_cpu_collective_call_warn_stuck_timeout_seconds=120",
        "--xla_cpu_collective_call_terminate_timeout_seconds=600",
    ]
).strip()

# Plans that tests make are kept for this run only, and never among the user's own.
os.environ["SHARDC_CACHE_DIR"] = tempfile.mkdtemp(prefix="shardc-tests-")

import gc
from collections.abc import Iterator

# What a plan would be made without, and say so, is an error here.
os.environ["SHARDC_RERAISE"] = "1"

import hypothesis
import jax
import pytest

from shardc.backend.room_for_programs import MAPS, num_maps
from shardc.ir.pass_manager import watching
from shardc.specs.forms import verify_after

PLANS = os.environ["SHARDC_CACHE_DIR"]
MANY_MAPS = 8_000

# A busy machine is no failure: examples take as long as they take.
# The suite says the same of a commit on every machine; `pytest --hypothesis-profile=random` draws
# new examples.
hypothesis.settings.register_profile("shardc", deadline=None, derandomize=True)
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.load_profile("shardc")

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

# A shell ignores Ctrl-C in what it starts in the background; the tests send it to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    """Removes the plans of this process."""
    shutil.rmtree(PLANS, ignore_errors=True)


@pytest.fixture(autouse=True, scope="session")
def modules_are_not_collected() -> None:
    """What is imported by now stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(autouse=True, scope="session")
def forms_hold_behind_passes() -> Iterator[None]:
    """Whatever a test compiles, each pass leaves the form that it promises."""
    with watching(lambda each, module: verify_after(each.name, module.operation)):
        yield


@pytest.fixture(autouse=True)
def numbers_have_32_bits() -> Iterator[None]:
    """What commands switch on for their own process is switched off behind each test."""
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(autouse=True, scope="module")
def programs_are_let_go() -> Iterator[None]:
    """A compiled program holds about ten memory maps, of which a process may have 65,530."""
    yield
    if not MAPS.exists() or num_maps() > MANY_MAPS:
        jax.clear_caches()
        gc.collect()
