"""What the commands switch on for their own process is switched back."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def restored_x64() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)
