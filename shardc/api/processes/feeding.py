"""How each process of a job passes its rows of the batch."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from shardc.api.asked_devices import given_devices

AXIS = "shardc_rows"


def batch_sharding(devices: Sequence[jax.Device] | None = None) -> NamedSharding:
    """Rows over all devices of the job: `jax.make_array_from_process_local_data(this, rows)`.

    It describes where rows come from and requests nothing: the step moves them to the stages
    that read them.

    Args:
        devices: of the step; None: all of the job. Their number must divide the rows.
    Raises:
        InputError: SHARDC-180, `devices` holds something else.
    """
    every = given_devices(devices) or jax.devices()
    own = np.array(sorted(every, key=lambda device: (device.process_index, device.id)))
    return NamedSharding(Mesh(own, (AXIS,), axis_types=(AxisType.Auto,)), PartitionSpec(AXIS))


def is_fed(leaf: Any) -> bool:
    """Whether an array has the sharding of `batch_sharding`."""
    sharding = getattr(leaf, "sharding", None)
    return isinstance(sharding, NamedSharding) and sharding.mesh.axis_names == (AXIS,)
