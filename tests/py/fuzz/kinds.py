"""The kinds of random steps: which layers each is made of, and on how many rows."""

from random import Random

from tests.py.fuzz import index_layers, loop_layers, wrapped_layers
from tests.py.fuzz.layers import Maker, Step, random_step

# Kind -> (its layers, rows of the batch to choose from). Narrow types end before 16, 128 and 256.
KINDS: dict[str, tuple[tuple[Maker, ...], tuple[int, ...]]] = {
    "narrow": (
        (index_layers.pick, index_layers.pick, index_layers.place, index_layers.segments),
        (8, 32, 160, 320, 320),
    ),
    "float iotas": ((index_layers.float_positions, index_layers.look_up), (8, 32, 320, 320)),
    "duplicates": ((index_layers.duplicates,), (8, 16)),
    "row loops": ((loop_layers.over_rows, loop_layers.updated_by_rows), (8, 32, 160)),
    "carried": ((loop_layers.carried_per_row,), (8, 16)),
    "three loops": ((loop_layers.three_loops, loop_layers.tree_search), (8,)),
    "mixed types": ((wrapped_layers.mixed_types,), (8, 16)),
    "checkpoints": ((wrapped_layers.checkpointed,), (8,)),
    "shard_map": ((wrapped_layers.mapped_over_one_device,), (8,)),
    "own rules": ((wrapped_layers.own_rules,), (8, 16)),
}


def step_of(kind: str, seed: int) -> Step:
    """The step of a kind that a seed gives; needs JAX's x64 mode."""
    random = Random(f"{kind} {seed}")
    makers, rows = KINDS[kind]
    dtype = random.choice(["float64", "float64", "float64", "float32"])
    return random_step(random, makers, random.choice(rows), dtype)
