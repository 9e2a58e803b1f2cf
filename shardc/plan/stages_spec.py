"""A hand-written plan: stages, meshes and shardings by pattern; shardc plans the rest."""

import math
import re
from pathlib import Path
from typing import Literal

import msgspec

from shardc.errors import InputError, writing
from shardc.files import BAD_DATA, read_data, write_whole
from shardc.plan.layout import ranges

Recompute = Literal["none", "selective", "user", "full"]
Patterns = dict[str, str]  # pattern -> one word per dim, in the form of `shardc plan --sharding`


class StageSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stage.

    Attributes:
        layers: how many it has, or which: "0-11,14". None: layers are divided by their work.
        mesh: sizes of its axes, (4, 2) with the axes x and y, or named; None: as `StagesSpec.mesh`.
        devices: device ids, row-major over the axes; None: the next free ones.
        shardings: pattern of arguments -> sharding.
        values: pattern of ops -> sharding of their results.
        recompute: which forward values the backward pass computes again: "user": those that the
            program says; "none": none that take longer to compute than to keep; "selective": those
            that take little time for their bytes; "full": all but those between segments.
    """

    layers: int | str | None = None
    mesh: tuple[int, ...] | dict[str, int] | None = None
    devices: tuple[int, ...] | None = None
    shardings: Patterns = {}
    values: Patterns = {}
    recompute: Recompute = "user"

    def __post_init__(self) -> None:
        _check(self)

    @property
    def axes(self) -> tuple[tuple[str, int], ...] | None:
        """(name, size) of the mesh; a mesh of one device has one axis."""
        if self.mesh is None:
            return None
        if isinstance(self.mesh, dict):
            return tuple(self.mesh.items())
        return tuple(zip("xyzw", self.mesh, strict=False))


class StagesSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pipeline as a person writes it. The first matching pattern wins, and the patterns of a
    stage come before those of all stages.

    Attributes:
        version: of this format.
        stages: at least one.
        microbatches: parts of the batch.
        schedule: name of its family.
        chunks: stages per device group: stages i, i + p, i + 2p ... share their devices.
        gather: axis of the mesh over which the parameters of a stage lie sharded (FSDP) and are
            gathered by actions of their own (G); "": none are.
        mesh, shardings, values: of every stage, as in `StageSpec`.
        name: shown in tables.
    """

    version: Literal[1]
    stages: tuple[StageSpec, ...]
    microbatches: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    mesh: tuple[int, ...] | dict[str, int] | None = None
    shardings: Patterns = {}
    values: Patterns = {}
    gather: str = ""
    name: str = "by hand"

    def __post_init__(self) -> None:
        _check(self)
        if not self.stages:
            raise _wrong("stages is empty", 'give at least one stage, such as {"layers": 4}')
        if self.microbatches < 1 or self.chunks < 1:
            raise _wrong(
                f"microbatches is {self.microbatches} and chunks is {self.chunks}",
                "give 1 or more of each",
            )
        for number, stage in enumerate(self.stages):
            mesh = self.mesh if stage.mesh is None else stage.mesh
            if mesh is None:
                continue
            sizes = tuple(mesh.values()) if isinstance(mesh, dict) else mesh
            if not 1 <= len(sizes) <= 4 or min(sizes) < 1:
                raise _wrong(
                    f"the mesh {list(sizes)} of stage {number} is not a mesh",
                    "give 1 to 4 positive sizes",
                )
            if stage.devices is not None and len(stage.devices) != math.prod(sizes):
                raise _wrong(
                    f"stage {number} has {len(stage.devices)} devices and a mesh of"
                    f" {'x'.join(map(str, sizes))}",
                    f"give it {math.prod(sizes)} devices, or leave devices out",
                    "SHARDC-207",
                )

    def of_stage(self, number: int) -> StageSpec:
        """A stage with the settings of all stages merged in; its own patterns come first."""
        own = self.stages[number]
        return StageSpec(
            own.layers,
            self.mesh if own.mesh is None else own.mesh,
            own.devices,
            {
                **own.shardings,
                **{p: w for p, w in self.shardings.items() if p not in own.shardings},
            },
            {**own.values, **{p: w for p, w in self.values.items() if p not in own.values}},
        )

    @staticmethod
    def load(path: "str | Path") -> "StagesSpec":
        """Reads a file; InputError (SHARDC-206) if it does not describe a hand-written plan."""
        try:
            return msgspec.json.decode(read_data(path), type=StagesSpec)
        except BAD_DATA as error:
            raise InputError(
                f"'{path}' is not a hand-written plan: {error}",
                where=str(path),
                help='write {"version": 1, "microbatches": 8, "stages": [{"layers": 12, "mesh":'
                " [4, 2]}, ...]}; docs/hand_plans.md lists all fields",
                code="SHARDC-206",
            ) from error
        except InputError as error:
            error.where = str(path)
            raise

    def save(self, path: "str | Path") -> None:
        """Writes what `load` reads; InputError (SHARDC-180) if that fails."""
        with writing("the hand-written plan", path):
            write_whole(path, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def first_layers(spec: StagesSpec) -> tuple[int, tuple[int, ...]] | None:
    """The total number of layers, and the first one of each stage; None if the spec names none.

    Raises:
        InputError: SHARDC-208, layers are missing, repeated or out of order, or only some stages
            name their layers.
    """
    given = [stage.layers for stage in spec.stages]
    if all(each is None for each in given):
        return None
    if any(each is None for each in given):
        raise _layers(f"stage {given.index(None)} does not give its layers, others do")
    if all(isinstance(each, int) for each in given):
        counts = [each for each in given if isinstance(each, int)]
        if min(counts) < 1:
            raise _layers(f"stage {counts.index(min(counts))} has {min(counts)} layers")
        return sum(counts), tuple(sum(counts[:n]) for n in range(len(counts)))
    firsts, end = [], 0
    for number, each in enumerate(given):
        numbers = [*range(end, end + each)] if isinstance(each, int) else _numbers(str(each))
        twice = sorted(n for n in set(numbers) if n < end or numbers.count(n) > 1)
        if twice:
            raise _layers(f"stage {number} repeats layers {ranges(tuple(twice))}")
        missing = sorted({*range(end, max(numbers) + 1)} - {*numbers})
        if missing:
            raise _layers(
                f"stage {number} has layers {ranges(tuple(sorted(numbers)))}, but no stage before"
                f" it has layers {ranges(tuple(missing))}"
            )
        firsts.append(end)
        end = max(numbers) + 1
    return end, tuple(firsts)


def _numbers(text: str) -> list[int]:
    """`0-3,7` as numbers."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise _layers(f"'{text}' does not name layers")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def _check(spec: StageSpec | StagesSpec) -> None:
    """Checks the types of a spec that was made in Python, as the decoder does for a file; and that
    no sharding names an axis twice (InputError, SHARDC-203)."""
    for field in msgspec.structs.fields(type(spec)):
        value = getattr(spec, field.name)
        try:
            msgspec.convert(msgspec.to_builtins(value), field.type)
        except (msgspec.ValidationError, TypeError) as error:
            raise _wrong(
                f"{field.name}={value!r} is not valid: {error}",
                "docs/hand_plans.md lists all fields",
            ) from error
    for pattern, words in (*spec.shardings.items(), *spec.values.items()):
        axes = [axis for axis in re.split(r"[\s,*?]+", words) if axis not in ("", "-")]
        twice = [axis for axis in axes if axes.count(axis) > 1]
        if twice:
            raise _wrong(
                f"the pattern '{pattern}' wants '{words}', which names the axis '{twice[0]}' twice",
                "split one dim of a value over each axis",
                "SHARDC-203",
            )


def _wrong(message: str, help: str, code: str = "SHARDC-206") -> InputError:
    return InputError(f"in a hand-written plan, {message}", help=help, code=code)


def _layers(message: str) -> InputError:
    return _wrong(
        message,
        'give every layer to one stage, in order: counts ("layers": 12) or numbers ("layers":'
        ' "0-11"); `shardc plan` prints how many there are',
        "SHARDC-208",
    )
