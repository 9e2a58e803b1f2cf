"""The account of a plan, recorded when it is made: layouts, the role of each axis, predicted times.

It is saved with the plan, so that a plan file can be explained without its program.
"""

from enum import StrEnum

import msgspec

from shardc.plan.alternatives import Alternative
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import TensorSharding


class Role(StrEnum):
    """What it means to split an op over an axis of devices."""

    DATA = "data"  # examples of the batch
    COLUMNS = "columns"  # free dim of a parameter matrix: each device has some of the features
    ROWS = "rows"  # contracted dim of a parameter matrix
    FEATURES = "features"  # heads, features of activations and of gradients
    EXPERT = "expert"  # batch dims of a product that parameters have, too
    SEQUENCE = "sequence"  # other dims of activations: tokens, positions
    WHOLE = "whole"  # not split: every device along the axis computes all of it


TENSOR = (Role.COLUMNS, Role.ROWS, Role.FEATURES)


class ArgumentKind(StrEnum):
    """The purpose of an argument; same terms as `Memory`."""

    PARAMETERS = "parameters"
    OPTIMIZER = "optimizer_state"
    INPUTS = "inputs"


class PlacedArgument(msgspec.Struct, frozen=True):
    """The placement of an argument of the step.

    Attributes:
        shape: the global shape.
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
    """The role of one axis of a stage's mesh.

    Attributes:
        flops: role -> share of the FLOPs of matrix products and convolutions.
        num_bytes: role -> share of the bytes written by the other forward and backward ops.
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
    """A group of ops of one kind of stage function.

    Attributes:
        kind: of the function: forward, backward, ...
        path: from the model's root: JAX's scopes, or in a program whose scopes do not tell its
            layers apart, the names of parameters; () if the program has neither.
        num_flops: per step, over all devices.
        seconds: per step, on one device, without communication.
        lies: layout of the result of its largest product, in words; "" if it has no product.
        place: its source position.
        weight: the user's name of the parameter that its products take, or whose gradient they
            compute; "" for other ops.
    """

    stage: int
    kind: FunctionKind
    path: tuple[str, ...]
    num_ops: int
    num_flops: int
    seconds: float
    lies: str = ""
    place: str = ""
    weight: str = ""


class Product(msgspec.Struct, frozen=True, array_like=True):
    """A product of activations and parameters in the forward pass, in program order.

    Attributes:
        weight: shape of the parameters.
        lies: layout of the parameters in this product.
        result: layout of the result.
        name: of the parameters; "" if they have none.
    """

    stage: int
    weight: tuple[int, ...]
    lies: str
    result: str
    name: str = ""


class Timed(msgspec.Struct, frozen=True, array_like=True):
    """An action of the schedule, its predicted times and its device group."""

    action: str
    group: int
    start_s: float
    end_s: float


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """A send to another device group; `target` is the first action there that needs the value."""

    source: str
    target: str
    num_bytes: int


class Worst(msgspec.Struct, frozen=True):
    """The point in a step at which a device of a stage holds the most.

    Attributes:
        kind: of the running function.
        path, place: of the op, as in `Part`.
    """

    stage: int
    kind: FunctionKind
    path: tuple[str, ...]
    place: str


class Alive(msgspec.Struct, frozen=True, array_like=True):
    """Values of one kind on a device of a stage at the peak of a step.

    Attributes:
        kind: a field of `shardc.plan.predicted.Memory`.
        name: of arguments, or the path of the part of the model that makes them, its numbers as
            `0-3`; "" without one.
        what: op, shape and type of what is no argument.
        num_bytes: of all of them.
    """

    stage: int
    kind: str
    name: str
    what: str
    count: int
    num_bytes: int


class Account(msgspec.Struct, frozen=True):
    """Everything recorded about a plan.

    Attributes:
        limit_bytes: memory limit of a device; on islands, of the fullest one.
        parts: in program order.
        alive: at each stage's peak, largest first.
        judged: the pipelines considered besides this one, fastest first.
        has_usual: whether these contain the plans that a person would write by hand.
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
    alive: tuple[Alive, ...] = ()
    has_usual: bool = False
