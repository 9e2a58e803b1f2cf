"""Write the shardings of a saved plan into the module."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import (
    NamedUserSharding,
    argument_rows,
    named_user_shardings,
)
from shardc.cluster import Cluster
from shardc.errors import PlanError
from shardc.ir.attributes import (
    CLUSTER,
    STAGE,
    VALUE,
    arg_attrs,
    data_attr,
    get_int,
    result_attrs,
)
from shardc.ir.pass_manager import Pass, in_text
from shardc.ir.shardings import meshes
from shardc.ir.tensor_types import shape_of
from shardc.ir.user_shardings import (
    CONSTRAINT,
    UserSharding,
    print_user_sharding,
    read_user_sharding,
)
from shardc.ir.walk import body, functions, planned_ops, symbol, terminator, where
from shardc.plan.decisions import FunctionSharding
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.value_id import argument_id
from shardc.rewrite.local.planned_shardings import write_shardings


def _read_shardings(text: str) -> dict[str, FunctionSharding]:
    try:
        return msgspec.json.decode(text, type=dict[str, FunctionSharding])
    except msgspec.MsgspecError as error:
        raise PlanError(
            f"the shardings are not those of a plan: {error}", help="plan again"
        ) from error


@dataclass(frozen=True)
class ApplyShardings(Pass):
    """Writes the same attributes as shardc-plan-shardings, from earlier decisions.

    Plan files are edited by hand: a sharding that does not fit the value or the mesh is refused,
    and so is one that is not what the user requests of the value.

    Options:
        shardings: `Plan.shardings`: function name -> its FunctionSharding; in text as JSON.
        cluster: the one whose links priced the plan's reshards; in text as JSON.
    """

    name = "shardc-apply-shardings"

    shardings: Mapping[str, FunctionSharding] | None = field(
        default=None, metadata=in_text(_read_shardings)
    )
    cluster: Cluster | None = field(default=None, metadata=in_text(Cluster.parse))

    def apply(self, module: ir.Operation) -> None:
        planned = self.shardings or {}
        if self.cluster is not None:
            module.attributes[CLUSTER] = data_attr(self.cluster)
        known, asked = meshes(module), named_user_shardings(module)
        counting = {argument_id(n): row.batch_dim for n, row in enumerate(argument_rows(module))}
        for function in functions(module):
            name = symbol(function)
            if name not in planned:
                raise PlanError(
                    f"the plan has no shardings for @{name}",
                    help="plan again: this plan was made for another version of the program",
                )
            write_shardings(function, planned[name])
            _check_fit(function, planned[name], known[f"stage{get_int(function, STAGE) or 0}"])
            _check_requests(function, planned[name], asked, counting)


def _check_fit(function: ir.Operation, planned: FunctionSharding, mesh: Mesh) -> None:
    """Raises PlanError (SHARDC-200) if a sharding cannot be one of its value on the mesh."""
    place = f"@{symbol(function)}"
    _check_values(body(function).arguments, planned.arguments, mesh, f"argument {{}} of {place}")
    _check_values(terminator(function).operands, planned.results, mesh, f"result {{}} of {place}")
    for op, chosen in zip(planned_ops(function), planned.ops, strict=True):
        name = f"'{op.name}' in {place}"
        _check_values(op.operands, chosen.operands, mesh, f"operand {{}} of {name}")
        _check_values(op.results, chosen.results, mesh, f"result {{}} of {name}")
        _check_axes(chosen.reduce_axes, mesh, name)


def _check_requests(
    function: ir.Operation,
    planned: FunctionSharding,
    asked: Mapping[str, NamedUserSharding],
    counting: Mapping[str, int | None],
) -> None:
    """Raises PlanError (SHARDC-204) if a value would lie otherwise than the user requests.

    Args:
        counting: value id of an argument -> the dim that counts its microbatches.
    """
    for attrs, shardings in (
        (arg_attrs(function), planned.arguments),
        (result_attrs(function), planned.results),
    ):
        for each, lies in zip(attrs, shardings, strict=True):
            if VALUE in each and (name := str(ir.StringAttr(each[VALUE]).value)) in asked:
                _check_request(asked[name].asked, lies, asked[name].name, None, counting.get(name))
    for op, chosen in zip(planned_ops(function), planned.ops, strict=True):
        if op.name == CONSTRAINT:
            wish = read_user_sharding(op.attributes["sharding"])
            _check_request(wish, chosen.results[0], "a constraint", where(op))


def _check_request(
    wish: UserSharding,
    lies: TensorSharding,
    whose: str,
    place: str | None,
    counting: int | None = None,
) -> None:
    if not (wish.asks_nothing or wish.allows(lies)):
        own = [n for n in range(len(lies.dims)) if n != counting]
        has = UserSharding(tuple(lies.dims[n] for n in own), (False,) * len(own))
        wants = UserSharding(tuple(wish.dims[n] for n in own), tuple(wish.is_open[n] for n in own))
        sums = f" unreduced over {', '.join(lies.unreduced)}" if lies.unreduced else ""
        raise PlanError(
            f"{whose} requests the sharding {print_user_sharding(wants)}, and the plan was made"
            f" with {print_user_sharding(has)}{sums}",
            where=place,
            help="leave out the request, or plan again with it",
            code="SHARDC-204",
        )


def _check_values(
    values: Sequence[ir.Value], shardings: Sequence[TensorSharding], mesh: Mesh, what: str
) -> None:
    for n, (value, sharding) in enumerate(zip(values, shardings, strict=True)):
        _check_axes((*sharding.axes, *sharding.unreduced), mesh, what.format(n))
        shape = shape_of(value)
        if len(sharding.dims) != len(shape):
            raise _unfit(
                f"the plan has {len(sharding.dims)} dims for {what.format(n)}, which has"
                f" {len(shape)}"
            )
        for size, axes in zip(shape, sharding.dims, strict=True):
            if size % mesh.num_shards(axes):
                raise _unfit(
                    f"a dim of {size} of {what.format(n)} does not divide into"
                    f" {mesh.num_shards(axes)} shards ({', '.join(axes)})"
                )


def _check_axes(axes: Sequence[str], mesh: Mesh, what: str) -> None:
    for n, axis in enumerate(axes):
        if axis not in dict(mesh.axes):
            raise _unfit(f"the plan uses the axis '{axis}' for {what}, and its mesh has none")
        if axis in axes[:n]:
            raise _unfit(f"the plan uses the axis '{axis}' twice for {what}")


def _unfit(message: str) -> PlanError:
    return PlanError(message, help="plan again, or correct the plan file")
