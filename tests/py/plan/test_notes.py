"""Notes are codes and data; the words for people are made of them in one place."""

import msgspec
import pytest

from shardc.plan.notes import Note, NoteCode

SAMPLES = {
    NoteCode.INTERRUPTED: ({}, "planning was interrupted"),
    NoteCode.NOT_ALL_PRICED: ({}, "not every promising shape was priced"),
    NoteCode.FEWER: (
        {"what": "microbatches", "count": 1, "reason": "no batch", "asked": 4},
        "1 microbatch instead of 4: no batch",
    ),
    NoteCode.BY_HAND: ({"name": "mine.toml"}, "given by hand: mine.toml"),
    NoteCode.IDLE: ({"count": 4, "num_devices": 8}, "4 of 8 devices stay idle"),
    NoteCode.LEFT_OUT: (
        {"shape": "2 stages on 4", "message": "a bug", "help": "report it"},
        "2 stages on 4 left out: a bug; report it",
    ),
    NoteCode.SEVERAL_RUNS: ({"why": "they run twice"}, "they run twice"),
    NoteCode.KEPT_BETWEEN: (
        {"count": 7, "num_bytes": 3 << 29},
        "from one run through the microbatches, later ones take 7 values (1.5 GiB",
    ),
    NoteCode.CALLS: ({"count": 6, "functions": 2}, "each of 6 calls"),
    NoteCode.LOOKUPS: ({"count": 3}, "3 products with one-hot matrices"),
    NoteCode.CASTS: ({"count": 2}, "2 casts of parameters to narrower types: once per step"),
    NoteCode.FISSIONS: ({"count": 1}, "1 loop over layers became two"),
    NoteCode.ROW_CONFLICTS: ({"count": 2}, "2 stacks of layers"),
    NoteCode.RECOMPUTED: (
        {"stages": "0, 2"},
        "the backward passes of stages 0, 2 recompute forward values",
    ),
    NoteCode.KEPT: (
        {"stages": "0, 1", "kept_bytes": 3 << 30, "num_bytes": 4 << 30},
        "stages 0, 1 keep 3 GiB of the 4 GiB of each microbatch",
    ),
    NoteCode.OFFLOADING: (
        {
            "step_s": 51.2,
            "instead_s": 55.5,
            "shape": "8 x (8)",
            "count": 128,
            "num_bytes": 3 << 29,
            "bytes_per_s": 12e9,
        },
        "might take 51.2 s per step instead of 55.5 s (both estimated from layers): 8 x (8), 128"
        " microbatches, up to 1.5 GiB of each from a device and back at 12 GB/s",
    ),
    NoteCode.FOLDED: ({"count": 9, "cost": 0.02}, "costs at most 2.00% (proven)"),
    NoteCode.DEFAULT_RATE: (
        {"device": "mine", "dtypes": "bf16"},
        "flops_per_s of device 'mine' does not list bf16",
    ),
    NoteCode.REPLICATED: (
        {
            "op": "stablehlo.sort",
            "why": "rule",
            "count": 2,
            "seconds": 0.5,
            "time_share": 0.25,
            "flops_share": 0.0,
        },
        "for want of a sharding rule: stablehlo.sort (2 times), 500 ms per step (25.0%)",
    ),
}


@pytest.mark.parametrize("code", NoteCode)
def test_every_code_has_its_words_before_and_behind_json(code: NoteCode) -> None:
    data, words = SAMPLES[code]
    note = Note(code, data)
    assert words in str(note)
    again = msgspec.json.decode(msgspec.json.encode(note), type=Note)
    assert again == note and str(again) == str(note)


def test_notes_on_one_stage_say_stage() -> None:
    note = Note(NoteCode.KEPT, {"stages": "0", "kept_bytes": 886 << 10, "num_bytes": 886 << 10})
    assert "stage 0 keeps 886 KiB of the 886 KiB" in str(note)
    note = Note(NoteCode.RECOMPUTED, {"stages": "2"})
    assert "the backward pass of stage 2 recomputes forward values" in str(note)


@pytest.mark.parametrize(("count", "planned"), [(1, "1 stage"), (2, "2 stages")])
def test_what_nobody_asked_for_is_only_said(count: int, planned: str) -> None:
    note = Note(NoteCode.FEWER, {"what": "stages", "count": count, "reason": "few layers"})
    assert str(note) == f"{planned}: few layers"
