"""The input of the runtime: the programs of all stages, their values and their order."""

import math
from collections.abc import Iterable
from typing import Protocol

import msgspec

from shardc.cluster.devices import bits_of
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.value_id import is_argument
from shardc.schedule.tasks import GATHER, REDUCE


class ValueSpec(msgspec.Struct, frozen=True):
    """One argument or result of a stage program.

    Attributes:
        value: id that connects programs: "arg3" (argument 3 of the user's function),
            "v17" (a value), "acc5" (an accumulator), "index" (the microbatch's index).
        shape: global shape (over all devices of the stage's mesh).
        dtype: NumPy/ml_dtypes name such as "float32", "bfloat16", "int32", "bool".
        sharding: of the global value on the stage's mesh.
        per_microbatch: one value per microbatch instead of one per step.
    """

    value: str
    shape: tuple[int, ...]
    dtype: str
    sharding: TensorSharding
    per_microbatch: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes of the global value, rounded up."""
        return math.prod(self.shape) * max(bits_of(self.dtype) // 8, 1)


class StageProgram(msgspec.Struct, frozen=True):
    """One function of one stage, ready for the backend.

    Attributes:
        name: symbol of the function in `module`, such as "stage0_forward".
        round: of an update: rounds run in order; stages exchange values between them.
        module: MLIR bytecode or text, including large constants; `local` says whether it is
            a per-device program. `shardc.backend.program_text` prints it.
        donated: positions of `args` whose buffers the program may reuse.
    """

    name: str
    stage: int
    kind: FunctionKind
    round: int
    module: bytes
    args: tuple[ValueSpec, ...]
    results: tuple[ValueSpec, ...]
    donated: tuple[int, ...] = ()
    local: bool = True

    @property
    def consumes_arguments(self) -> bool:
        """Whether it reuses the buffer of an argument that the user has donated."""
        return any(is_argument(self.args[position].value) for position in self.donated)


class ArgumentSpec(msgspec.Struct, frozen=True):
    """One flat argument of the user's function.

    Attributes:
        name: the user's name for it, such as "state['w']".
        stage: owner stage, which sends copies to other users each step (-1: unused).
        batch_dim: None, or the dim d that is split: programs see [.., M, B / M, ..] there.
        aliased_result: flat result that may reuse its buffer, or None.
        piece: None, or (argument, dim): not a user argument, but rows along `dim` of a stacked
            one, after the rows that the programs know by that argument's number.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    stage: int
    batch_dim: int | None = None
    donated: bool = False
    aliased_result: int | None = None
    piece: tuple[int, int] | None = None


class ResultSpec(msgspec.Struct, frozen=True):
    """One flat result of the user's function.

    Attributes:
        value: id of its value (may be "arg3": returned unchanged).
        batch_dim: None, or d if the program returns [.., M, B / M, ..], to be merged again.
        piece: as in ArgumentSpec.
        assumed: of a result that the user does not get: what it means that its elements are true.
            These are the last ones; the step takes for granted that they are false.
    """

    value: str
    shape: tuple[int, ...]
    dtype: str
    stage: int
    batch_dim: int | None = None
    piece: tuple[int, int] | None = None
    assumed: tuple[str, ...] = ()


class Executable(msgspec.Struct, frozen=True):
    """Everything the runtime needs to run one step, without compiler or planner.

    Attributes:
        meshes: one per stage; with two copies of S stages, S + s is the second copy of stage s.
        num_replicas: copies of each stage.
        actions: per lane, the printed actions of the schedule, e.g. ("0F0", "0F1", "0B0", ...). A
            lane belongs to one device group; all actions of a stage are in one lane.
        early_updates: an update is dispatched in its place in its lane, before the other lanes have
            ended; False: behind all actions that are none.
    """

    meshes: tuple[Mesh, ...]
    programs: tuple[StageProgram, ...]
    arguments: tuple[ArgumentSpec, ...]
    results: tuple[ResultSpec, ...]
    num_microbatches: int
    actions: tuple[tuple[str, ...], ...]
    num_replicas: int = 1
    early_updates: bool = False

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline, each counted once."""
        return len(self.meshes) // self.num_replicas

    def of_stage(self, stage: int | None) -> list[StageProgram]:
        """The programs of a stage, or of all stages for None."""
        return [program for program in self.programs if stage in (None, program.stage)]


class _Program(Protocol):
    @property
    def kind(self) -> FunctionKind: ...
    @property
    def args(self) -> tuple[ValueSpec, ...]: ...
    @property
    def results(self) -> tuple[ValueSpec, ...]: ...


def moved_values(programs: Iterable[_Program]) -> dict[str, str]:
    """The values that a step has once per move: value id -> G, if each G of its stage makes it
    anew; R, if it starts from zero behind each R, which takes it."""
    found: dict[str, str] = {}
    for program in programs:
        made = {spec.value for spec in program.results}
        if program.kind is FunctionKind.GATHER:
            found |= dict.fromkeys(made, GATHER)
        elif program.kind is FunctionKind.REDUCE:
            found |= {spec.value: REDUCE for spec in program.args if spec.value not in made}
    return found
