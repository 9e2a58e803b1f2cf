"""A process near the kernel's limit of memory maps gets an error, and is not ended by LLVM."""

import gc
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.backend import room_for_programs
from shardc.backend.room_for_programs import check_room_for
from shardc.errors import InputError


def test_too_many_programs_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = tmp_path / "max_map_count"
    limit.write_text("3000\n")
    maps = tmp_path / "maps"
    maps.write_text("region\n" * 1926)
    monkeypatch.setattr(room_for_programs, "LIMIT", limit)
    monkeypatch.setattr(room_for_programs, "MAPS", maps)
    check_room_for(3)
    with pytest.raises(InputError, match="1,926 of 3,000 memory maps, and 4 more") as caught:
        check_room_for(4)
    assert caught.value.code == "SHARDC-265"


def test_without_a_limit_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(room_for_programs, "LIMIT", tmp_path / "nothing")
    check_room_for(10**9)


@pytest.mark.slow
def test_programs_of_a_function_that_is_gone_are_let_go() -> None:
    """JAX's caches keep a program whose lowering was made with keep_unused=True."""

    def num_programs() -> int:
        gc.collect()
        return len(jax.devices()[0].client.live_executables())

    def run() -> None:
        f = shardc.jit(lambda w, x: jnp.tanh(x @ w).sum(), stages=1, microbatches=2)
        f(np.ones((8, 8), np.float32), np.ones((4, 8), np.float32))

    run()  # what JAX itself keeps: programs of small functions of its own
    before = num_programs()
    run()
    assert num_programs() == before
