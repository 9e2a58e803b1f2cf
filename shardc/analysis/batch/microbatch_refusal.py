"""Why a step cannot be split into a number of microbatches: a fact that planners read."""

from dataclasses import dataclass
from enum import Enum

from jax.extend.mlir import ir

from shardc.analysis.program.arguments import argument_names
from shardc.errors import MicrobatchError
from shardc.ir.attributes import NUM_MICROBATCHES, SHARDING, arg_attrs, get_int
from shardc.ir.shardings import meshes
from shardc.ir.tensor_types import shape_of
from shardc.ir.user_shardings import CONSTRAINT, USER_MESH, read_user_sharding, uneven_dim
from shardc.ir.walk import body, main_function, walk, where_step


class RefusalReason(Enum):
    """Why microbatches are refused, by error code."""

    WHOLE_BATCH = "SHARDC-140"  # an op needs the whole batch at once
    NO_BATCH = "SHARDC-141"  # no argument holds a batch, or the named ones hold none
    INDIVISIBLE = "SHARDC-142"  # the number of microbatches does not divide a size


@dataclass(frozen=True)
class MicrobatchRefusal:
    """The refusal of a number of microbatches.

    Attributes:
        message, where, help: of the error.
        others: numbers of microbatches above 1 that divide the batch; () if there are none.
    """

    hindrance: RefusalReason
    message: str
    where: str | None = None
    help: str | None = None
    others: tuple[int, ...] = ()

    def error(self) -> MicrobatchError:
        """The error for a user who requires this number of microbatches."""
        code = self.hindrance.value
        return MicrobatchError(self.message, where=self.where, help=self.help, code=code)


def uneven_parts(split_module: ir.Operation, others: tuple[int, ...]) -> MicrobatchRefusal | None:
    """The refusal of microbatches that are too small for a user sharding to divide evenly.

    Args:
        others: numbers of microbatches above 1 that divide the batch.
    """
    placed = meshes(split_module)
    if USER_MESH not in placed:
        return None
    function, count = main_function(split_module), get_int(split_module, NUM_MICROBATCHES)
    names, attrs = argument_names(function), arg_attrs(function)
    asked = [
        (read_user_sharding(attrs[n][SHARDING]), value, f"argument '{names[n]}'", function)
        for n, value in enumerate(body(function).arguments)
        if SHARDING in attrs[n]
    ] + [
        (read_user_sharding(op.attributes["sharding"]), op.results[0], "a value", op)
        for op in walk(function)
        if op.name == CONSTRAINT
    ]
    for each, value, what, op in asked:
        dim = uneven_dim(each, placed[USER_MESH], shape_of(value))
        if dim is not None:
            axes, rows = each.dims[dim], shape_of(value)[dim]
            return MicrobatchRefusal(
                RefusalReason.INDIVISIBLE,
                f"{count} microbatches leave {rows} rows of {what}, which is to be split"
                f" over {' and '.join(axes)}, {placed[USER_MESH].num_shards(axes)} devices",
                where=where_step(op),
                help="use fewer microbatches or a larger batch, or do not ask for that sharding",
                others=others,
            )
    return None
