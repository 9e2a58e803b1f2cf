"""Whether the process can take more compiled programs.

XLA's CPU compiler maps about ten regions of memory per program, and Linux ends a mapping call of a
process that has `vm.max_map_count` of them (65,530 by default); LLVM answers that by ending the
process. So programs are refused before that, with a way out.
"""

import gc
from pathlib import Path

from shardc.errors import InputError

MAPS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
MAPS_PER_PROGRAM = 16  # measured: 10 and more; compiling takes some for a while
SPARE_MAPS = 1024  # for what else is mapped: threads, buffers, programs that JAX itself compiles


def check_room_for(num_programs: int) -> None:
    """Refuses to compile so many programs where the process would run out of memory maps.

    Programs that nobody holds any more are let go first. Where the system tells no limit (it is
    not Linux), nothing is checked.

    Raises:
        InputError: SHARDC-265.
    """
    if not LIMIT.exists():
        return
    limit, needed = int(LIMIT.read_text()), MAPS_PER_PROGRAM * num_programs + SPARE_MAPS
    if _num_maps() + needed <= limit:
        return
    gc.collect()
    held = _num_maps()
    if held + needed > limit:
        raise InputError(
            f"this process has {held:,} of {limit:,} memory maps, and {num_programs} more programs"
            f" need about {needed:,} with what goes with them",
            help="let go of compiled programs (f.clear_cache(), jax.clear_caches()), or raise the"
            " limit: sysctl vm.max_map_count",
            code="SHARDC-265",
        )


def _num_maps() -> int:
    with MAPS.open("rb") as file:
        return sum(1 for _ in file)
