"""Every error a user can meet, each with a stable code, a place and a remedy."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

CODES: dict[str, str] = {
    "SHARDC-100": "a cluster description is malformed",
    "SHARDC-101": "a mesh does not fit the cluster or the devices",
    "SHARDC-102": "a mesh has an axis that divides no dim of the program",
    "SHARDC-103": "a device failed during a measurement",
    "SHARDC-110": "a mesh has no axis of that name",
    "SHARDC-120": "a file is not a StableHLO module that can be parsed",
    "SHARDC-121": "a module has no public function to run",
    "SHARDC-122": "a call in the module cannot be inlined",
    "SHARDC-123": "the program calls the host",
    "SHARDC-124": "a type of the module is dynamic, quantised or unknown to JAX",
    "SHARDC-125": "a file holds the program of one device of several",
    "SHARDC-126": "the program is not a function of its arguments",
    "SHARDC-140": "microbatching would change what the program computes",
    "SHARDC-141": "no batch argument can be found",
    "SHARDC-142": "a batch dim does not divide into the microbatches",
    "SHARDC-160": "more stages are requested than the program has layers",
    "SHARDC-161": "stages are requested, but forward and backward pass cannot be told apart",
    "SHARDC-162": "the submesh sizes cannot fill the devices with that many stages",
    "SHARDC-163": "no weight gradient of a program can be computed separately",
    "SHARDC-164": "two copies of each stage share a single microbatch",
    "SHARDC-165": "a program cannot be cut into token slices",
    "SHARDC-180": "an argument of shardc.jit or of a command is invalid",
    "SHARDC-181": "there is no pass of that name or with that option",
    "SHARDC-182": "a pass of MLIR refused the module",
    "SHARDC-183": "a plan is given together with options that it decides",
    "SHARDC-185": "arguments of shardc.jit that contradict each other",
    "SHARDC-186": "batch_argnums or --batch-args do not name a batch argument",
    "SHARDC-187": "an input file does not have the arguments of the program",
    "SHARDC-188": "a plan is requested before there is one",
    "SHARDC-200": "a plan does not belong to the program",
    "SHARDC-201": "an op and its planned shardings disagree",
    "SHARDC-202": "a sharding annotation is in a form that shardc does not read",
    "SHARDC-203": "a requested sharding does not fit its value",
    "SHARDC-204": "requested shardings contradict each other",
    "SHARDC-205": "in_shardings or out_shardings request more than a placement of shards",
    "SHARDC-206": "a hand-written plan is malformed",
    "SHARDC-207": "a mesh of a hand-written plan does not fit its devices",
    "SHARDC-208": "the layers of a hand-written plan are repeated, missing or not the program's",
    "SHARDC-209": "a pattern of a hand-written plan matches nothing, or others come first",
    "SHARDC-210": "a value cannot be resharded as a plan says",
    "SHARDC-220": "no plan fits the memory limit",
    "SHARDC-221": "every choice of strategies is forbidden",
    "SHARDC-222": "no choice of strategies was found in time",
    "SHARDC-240": "there is no schedule of that name",
    "SHARDC-241": "a schedule cannot be read, or contains what is not an action",
    "SHARDC-242": "a schedule does not support the number of stages, microbatches or chunks",
    "SHARDC-243": "a schedule lacks an action or runs one twice",
    "SHARDC-244": "the actions of a schedule wait for each other",
    "SHARDC-245": "a schedule holds more activations than a device may",
    "SHARDC-246": "a schedule frees a buffer too early, twice or never",
    "SHARDC-247": "a schedule sends a value nobody receives, or reads one it did not receive",
    "SHARDC-248": "a schedule uses parameters or activations where they are not, or moves nothing",
    "SHARDC-249": "a schedule has moves that the plan cannot execute",
    "SHARDC-260": "the programs of a step do not fit together",
    "SHARDC-261": "a program has 64-bit values and jax_enable_x64 is off",
    "SHARDC-262": "an argument is gone",
    "SHARDC-263": "an argument is not of the type that the step was compiled for",
    "SHARDC-264": "a donated array is passed twice in one call",
    "SHARDC-265": "the process cannot hold more compiled programs",
    "SHARDC-266": "a step reads a value that does not exist",
    "SHARDC-270": "the first step differs from a single-device run",
    "SHARDC-271": "what token slices take for granted does not hold in a step",
    "SHARDC-280": "the processes of a job do not have the same program or plan",
    "SHARDC-281": "another process of the job is missing, stuck or gone",
    "SHARDC-282": "the processes of a job pass different arguments to one step",
    "SHARDC-283": "a feature does not support several processes yet",
    "SHARDC-284": "a process of the job cannot save its part of the state",
    "SHARDC-901": "a pass changed what the module computes",
    "SHARDC-999": "a bug in shardc",
}


class ShardcError(Exception):
    """What is wrong, where, and what to do about it.

    Args:
        message: one sentence in the user's own names and numbers.
        where: source position such as `train.py:41 (step)` or `file.mlir:9`; anything with `str()`.
        help: what to do, one sentence without a full stop.
        code: a key of `CODES`; each subclass has its own default.
    """

    code = "SHARDC-999"
    exit_code = 4

    def __init__(
        self,
        message: str,
        *,
        where: object = None,
        help: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.help = help
        if code is not None:
            self.code = code
        assert self.code in CODES, f"{self.code} is not in CODES"

    def __str__(self) -> str:
        lines = [f"error[{self.code}]: {self.message}"]
        if self.where is not None:
            lines.append(f"  --> {self.where}")
        if self.help is not None:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)


class InputError(ShardcError):
    """The user's program, file, option or data is at fault; exit code 2."""

    code = "SHARDC-180"
    exit_code = 2


@contextlib.contextmanager
def writing(what: str, path: str | Path) -> Iterator[None]:
    """Turns an OSError of writing `what` to `path` into an InputError (SHARDC-180)."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{what} cannot be written: {error.strerror or error}",
            where=str(path),
            help="give another path",
        ) from error


class ClusterError(InputError):
    """A cluster description or a mesh is at fault."""

    code = "SHARDC-100"


class ImportFileError(InputError):
    """A file cannot be read as a StableHLO module."""

    code = "SHARDC-120"


class MicrobatchError(InputError):
    """The step cannot be split into the requested microbatches."""

    code = "SHARDC-140"


class StageError(InputError):
    """The program cannot be cut into the requested stages."""

    code = "SHARDC-160"


class RequestWarning(UserWarning):
    """A request cannot be met; shardc does less instead, with the same numbers."""


class PlanError(InputError):
    """A plan is malformed or does not belong to the program."""

    code = "SHARDC-200"


class ScheduleError(InputError):
    """A schedule is unknown, malformed or unsafe."""

    code = "SHARDC-240"


class CheckError(ShardcError):
    """What a plan computes is not what one device computes; exit code 1."""

    code = "SHARDC-270"
    exit_code = 1


class InfeasibleError(ShardcError):
    """No plan satisfies the constraints; exit code 3."""

    code = "SHARDC-220"
    exit_code = 3


class BugError(ShardcError):
    """shardc itself failed; exit code 4.

    Attributes:
        reproducer: path of a file to attach to a report, where there is a module to put into it.
    """

    reproducer: str | None = None
