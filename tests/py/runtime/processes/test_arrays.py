"""Arrays of which a process holds pieces: moved to another memory by each process alone."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardc.runtime.processes.arrays import in_memory


def test_an_array_changes_its_memory_and_nothing_else():
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
    values = np.arange(24.0).reshape(4, 6)
    array = jax.device_put(values, NamedSharding(mesh, PartitionSpec("x")))
    on_host = in_memory(array, "pinned_host")
    assert on_host.sharding == array.sharding.with_memory_kind("pinned_host")
    back = in_memory(on_host, "device")
    assert back.sharding == array.sharding
    np.testing.assert_array_equal(back, values)
    assert in_memory(array, "device") is array
