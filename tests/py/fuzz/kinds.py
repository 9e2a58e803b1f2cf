"""The kinds of random steps: which layers each is made of, and on how many rows."""

from random import Random
from typing import NamedTuple

from tests.py.fuzz import index_layers, loop_layers, token_layers, wrapped_layers
from tests.py.fuzz.layers import Maker, Step, dense, random_step


class Kind(NamedTuple):
    """What steps of a kind are made of.

    Attributes:
        rows: of the batch, to choose from. Narrow types end before 16, 128 and 256.
        tokens: of each row, to choose from; 0: none.
        pieces: in which a step accumulates gradients, to choose from; 0: in one.
    """

    layers: tuple[Maker, ...]
    rows: tuple[int, ...]
    tokens: tuple[int, ...] = (0,)
    pieces: tuple[int, ...] = (0,)


KINDS: dict[str, Kind] = {
    "narrow": Kind(
        (index_layers.pick, index_layers.pick, index_layers.place, index_layers.segments),
        (8, 32, 160, 320, 320),
    ),
    "float iotas": Kind((index_layers.float_positions, index_layers.look_up), (8, 32, 320, 320)),
    "duplicates": Kind((index_layers.duplicates,), (8, 16)),
    "row loops": Kind((loop_layers.over_rows, loop_layers.updated_by_rows), (8, 32, 160)),
    "carried": Kind((loop_layers.carried_per_row,), (8, 16)),
    "three loops": Kind((loop_layers.three_loops, loop_layers.tree_search), (8,)),
    "mixed types": Kind((wrapped_layers.mixed_types,), (8, 16)),
    "cast layers": Kind((wrapped_layers.cast_layers,), (8, 16)),
    "checkpoints": Kind((wrapped_layers.checkpointed,), (8,)),
    "shard_map": Kind((wrapped_layers.mapped_over_one_device,), (8,)),
    "own rules": Kind((wrapped_layers.own_rules,), (8, 16)),
    "tokens": Kind(
        (
            *(token_layers.attention, token_layers.attention, token_layers.linear_attention),
            *(token_layers.running, token_layers.recurrence),
        ),
        (4, 8),
        (6, 8),
    ),
    "accumulated": Kind(
        (dense, wrapped_layers.mixed_types, wrapped_layers.checkpointed, wrapped_layers.own_rules),
        (8, 16),
        pieces=(2, 4),
    ),
}


def step_of(kind: str, seed: int) -> Step:
    """The step of a kind that a seed gives; needs JAX's x64 mode."""
    random = Random(f"{kind} {seed}")
    made_of = KINDS[kind]
    dtype = random.choice(["float64", "float64", "float64", "float32"])
    rows = random.choice(made_of.rows)
    tokens = random.choice(made_of.tokens) if any(made_of.tokens) else 0
    pieces = random.choice(made_of.pieces) if any(made_of.pieces) else 0
    return random_step(random, made_of.layers, rows, dtype, tokens, pieces)
