"""Whether the process has room for more compiled programs.

XLA's CPU compiler maps about ten regions of memory per program. Linux refuses to map more than
`vm.max_map_count` regions per process (65,530 by default), and LLVM then aborts the process. So
shardc refuses programs before that, with a way out.
"""

import gc
from pathlib import Path

from shardc.errors import InputError

MAPS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
MAPS_PER_PROGRAM = 16  # measured: 10 and more; compilation temporarily takes some
SPARE_MAPS = 1024  # for threads, buffers, and programs that JAX itself compiles


def check_room_for(num_programs: int) -> None:
    """Refuses to compile `num_programs` programs if the process would run out of memory maps.

    Unreferenced programs are released first. Without a known limit (not on Linux), nothing is
    checked.

    Raises:
        InputError: SHARDC-265.
    """
    if not LIMIT.exists():
        return
    limit, needed = int(LIMIT.read_text()), MAPS_PER_PROGRAM * num_programs + SPARE_MAPS
    if num_maps() + needed <= limit:
        return
    gc.collect()
    held = num_maps()
    if held + needed > limit:
        raise InputError(
            f"this process has {held:,} of {limit:,} memory maps, and {num_programs} more programs"
            f" need about {needed:,} with what goes with them",
            help="let go of compiled programs (f.clear_cache(), jax.clear_caches()), or raise the"
            " limit: sysctl vm.max_map_count",
            code="SHARDC-265",
        )


def num_maps() -> int:
    """Memory maps of this process, on Linux."""
    with MAPS.open("rb") as file:
        return sum(1 for _ in file)
