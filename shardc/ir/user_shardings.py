"""User shardings, as written in a module: constraints that a planner must satisfy."""

import msgspec
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardc.errors import PlanError
from shardc.plan.layout import Mesh, TensorSharding

USER_MESH = "user"  # symbol of the one mesh that all such shardings refer to
CONSTRAINT = "sdy.sharding_constraint"


class UserSharding(msgspec.Struct, frozen=True):
    """What a user sharding requires of a value.

    Attributes:
        dims: for each dim the axes that must split it, major to minor.
        is_open: for each dim whether further axes may split it (`PartitionSpec.UNCONSTRAINED`).
        replicated: axes that must split no dim.
    """

    dims: tuple[tuple[str, ...], ...]
    is_open: tuple[bool, ...]
    replicated: tuple[str, ...] = ()

    @property
    def asks_nothing(self) -> bool:
        """Whether it allows every sharding of the value, partial sums included."""
        return bool(self.dims) and all(self.is_open) and not (any(self.dims) or self.replicated)

    @property
    def least(self) -> TensorSharding:
        """The sharding with the required axes only."""
        return TensorSharding(self.dims)

    def allows(self, lies: TensorSharding) -> bool:
        """Whether a value with the sharding `lies` satisfies it; partial sums never do."""
        if lies.unreduced or set(lies.axes).intersection(self.replicated):
            return False
        return len(lies.dims) == len(self.dims) and all(
            has[: len(axes)] == axes if is_open else has == axes
            for axes, is_open, has in zip(self.dims, self.is_open, lies.dims, strict=True)
        )

    def only(self, options: tuple[TensorSharding, ...]) -> tuple[TensorSharding, ...]:
        """`least`, whether among `options` or not, then the other `options` that satisfy it."""
        return tuple(dict.fromkeys([self.least, *filter(self.allows, options)]))

    def with_dim(self, position: int) -> "UserSharding":
        """The user sharding of the value with an additional, whole dim at `position`."""

        def insert[T](values: tuple[T, ...], new: T) -> tuple[T, ...]:
            return (*values[:position], new, *values[position:])

        return UserSharding(insert(self.dims, ()), insert(self.is_open, False), self.replicated)


def read_user_sharding(attribute: ir.Attribute, place: str | None = None) -> UserSharding:
    """Reads a user's `#sdy.sharding`, which is at `place` in the source.

    Raises:
        PlanError: SHARDC-202, a part of an axis, or a partial sum.
    """
    sharding = sdy.TensorShardingAttr(attribute)
    if len(sharding.unreduced_axes) > 0:
        raise _not_read(attribute, place, "asks for partial sums")

    def name(axis: ir.Attribute) -> str:
        ref = sdy.AxisRefAttr(axis)
        if ref.sub_axis_info is not None:
            raise _not_read(attribute, place, "uses a part of an axis")
        return str(ref.name)

    dims = [sdy.DimensionShardingAttr(dim) for dim in sharding.dimension_shardings]
    return UserSharding(
        tuple(tuple(name(axis) for axis in dim.axes) for dim in dims),
        tuple(not dim.is_closed for dim in dims),
        tuple(name(axis) for axis in sharding.replicated_axes),
    )


def user_sharding_attr(asked: UserSharding, mesh: str = USER_MESH) -> ir.Attribute:
    """`#sdy.sharding<@mesh, ...>` in the current context, the inverse of `read_user_sharding`."""
    dims = [
        sdy.DimensionShardingAttr.get([sdy.AxisRefAttr.get(a) for a in axes], is_closed=not is_open)
        for axes, is_open in zip(asked.dims, asked.is_open, strict=True)
    ]
    replicated = [sdy.AxisRefAttr.get(axis) for axis in asked.replicated]
    return sdy.TensorShardingAttr.get(mesh, dims, replicated_axes=replicated)


def print_user_sharding(asked: UserSharding) -> str:
    """For people: `[data, -, model?]`; a question mark where further axes may split the dim."""
    dims = (
        ("*".join(axes) or ("" if is_open else "-")) + ("?" if is_open else "")
        for axes, is_open in zip(asked.dims, asked.is_open, strict=True)
    )
    return f"[{', '.join(dims)}]"


def parse_user_sharding(words: str, rank: int) -> UserSharding | None:
    """Parses `-,x*y,?` for a value of `rank` dims: per dim axes joined by `*`, `-` for a whole dim,
    `?` (alone or as a suffix) if further axes may split it. None if it names too many dims.

    Omitted dims are whole; `-` for dims beyond `rank` is ignored.
    """
    given = [word.strip() for word in words.split(",")]
    while len(given) > rank and given[-1] in ("-", ""):
        given.pop()
    if len(given) > rank:
        return None
    given += ["-"] * (rank - len(given))
    names = [word.removesuffix("?") for word in given]
    return UserSharding(
        tuple(() if name in ("-", "") else tuple(name.split("*")) for name in names),
        tuple(word.endswith("?") for word in given),
    )


def uneven_dim(asked: UserSharding, mesh: Mesh, shape: tuple[int, ...]) -> int | None:
    """The first dim of `shape` that its axes do not divide; None if all are divided evenly."""
    counts = [mesh.num_shards(axes) for axes in asked.dims]
    uneven = [d for d, (n, count) in enumerate(zip(shape, counts, strict=True)) if n % count]
    return uneven[0] if uneven else None


def _not_read(attribute: ir.Attribute, place: str | None, what: str) -> PlanError:
    return PlanError(
        f"the sharding {attribute} {what}",
        where=place,
        help="name whole mesh axes for dims of the value",
        code="SHARDC-202",
    )
