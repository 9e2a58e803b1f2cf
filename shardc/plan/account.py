"""What a plan does, as it was known when it was made: who lies where, what axes do, when it runs.

Recorded with the plan, so that a plan file alone can be explained.
"""

from enum import StrEnum

import msgspec

from shardc.plan.alternatives import Alternative
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import TensorSharding


class Role(StrEnum):
    """What splitting an op over an axis of devices means."""

    DATA = "data"  # examples of the batch
    COLUMNS = "columns"  # what a matrix of parameters makes: each device some of the features
    ROWS = "rows"  # what a matrix of parameters sums over
    FEATURES = "features"  # heads, features of activations and of gradients
    EXPERT = "expert"  # matrices of parameters that are multiplied piece by piece
    SEQUENCE = "sequence"  # other dims of activations: tokens, places
    WHOLE = "whole"  # not split: every device along the axis does all of it


TENSOR = (Role.COLUMNS, Role.ROWS, Role.FEATURES)


class ArgumentKind(StrEnum):
    """What an argument is for; the words of `Memory`."""

    PARAMETERS = "parameters"
    OPTIMIZER = "optimizer_state"
    INPUTS = "inputs"


class PlacedArgument(msgspec.Struct, frozen=True):
    """Where an argument of the step lies.

    Attributes:
        shape: as the user knows it.
        stage: its owner.
        num_bytes: on one device.
    """

    name: str
    kind: ArgumentKind
    stage: int
    shape: tuple[int, ...]
    dtype: str
    lies: TensorSharding
    num_bytes: int


class AxisUse(msgspec.Struct, frozen=True):
    """What one axis of a stage's mesh does.

    Attributes:
        flops: role -> share of the FLOPs of matrix products and convolutions.
        num_bytes: role -> share of the bytes that other ops of forward and backward make.
        state: `parameters`, `optimizer_state` and `gradients` -> share of their bytes that the
            axis splits.
    """

    stage: int
    axis: str
    size: int
    flops: dict[Role, float] = {}
    num_bytes: dict[Role, float] = {}
    state: dict[str, float] = {}


class Part(msgspec.Struct, frozen=True):
    """Ops of one kind of function that belong together.

    Attributes:
        kind: of function: forward, backward, ...
        path: from the model down to it, by JAX's names, or the names of the parameters that it
            multiplies by; () where the program has neither.
        num_flops: of a step, over all devices.
        seconds: of a step, on one device, without what is sent.
        lies: how the result of its largest product lies, in words; "" where there is none.
        place: of it in the source.
    """

    stage: int
    kind: FunctionKind
    path: tuple[str, ...]
    num_ops: int
    num_flops: int
    seconds: float
    lies: str = ""
    place: str = ""


class Product(msgspec.Struct, frozen=True, array_like=True):
    """A product of activations and parameters in the forward pass, in the order of the program.

    Attributes:
        weight: its shape.
        lies: how the parameters lie at it.
        result: how its result lies.
        name: the parameters; "" where they have no name.
    """

    stage: int
    weight: tuple[int, ...]
    lies: str
    result: str
    name: str = ""


class Timed(msgspec.Struct, frozen=True, array_like=True):
    """An action of the schedule, when it is predicted to run, and on which device group."""

    action: str
    group: int
    start_s: float
    end_s: float


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """What one action sends to another device group; `target` is the first that needs it there."""

    source: str
    target: str
    num_bytes: int


class Worst(msgspec.Struct, frozen=True):
    """When a device of a stage holds the most.

    Attributes:
        kind: of function that runs then.
        path, place: of the op, as in `Part`.
    """

    stage: int
    kind: FunctionKind
    path: tuple[str, ...]
    place: str


class Account(msgspec.Struct, frozen=True):
    """What is recorded of a plan.

    Attributes:
        limit_bytes: what a device may hold: of islands, one of that which is fullest.
        parts: in program order.
        judged: pipelines that were judged beside it, the fastest first.
    """

    limit_bytes: int
    arguments: tuple[PlacedArgument, ...] = ()
    axes: tuple[AxisUse, ...] = ()
    worst: tuple[Worst, ...] = ()
    parts: tuple[Part, ...] = ()
    products: tuple[Product, ...] = ()
    timeline: tuple[Timed, ...] = ()
    sent: tuple[Sent, ...] = ()
    judged: tuple[Alternative, ...] = ()
