"""Write the shardings of a hand-written plan on arguments and ops of stage functions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec
from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import ArgumentRow, argument_rows
from shardc.errors import InputError, PlanError
from shardc.importer.requested_shardings import matches
from shardc.ir.attributes import ASKED, STAGE, VALUE, arg_attrs, get_int, set_arg_attrs
from shardc.ir.pass_manager import Pass, in_text
from shardc.ir.shardings import meshes
from shardc.ir.tensor_types import shape_of
from shardc.ir.user_shardings import (
    UserSharding,
    parse_user_sharding,
    read_user_sharding,
    uneven_dim,
    user_sharding_attr,
)
from shardc.ir.walk import CONTROL_FLOW, body, functions, names_of, planned_ops
from shardc.plan.layout import Mesh
from shardc.plan.stages_spec import StageSpec
from shardc.plan.value_id import is_argument, value_id


def _read_stages(text: str) -> tuple[StageSpec, ...]:
    try:
        return msgspec.json.decode(text, type=tuple[StageSpec, ...])
    except msgspec.MsgspecError as error:
        raise InputError(
            f"the stages are not those of a hand-written plan: {error}",
            help='write [{"shardings": {"params.*": "-,x"}}, ...], one for each stage',
            code="SHARDC-206",
        ) from error


@dataclass(frozen=True)
class AskShardings(Pass):
    """Adds `shardc.asked` to arguments and ops of stage functions that match a stage's pattern.

    Requires declared meshes; shardc-plan-shardings then gives these values no other sharding. A
    pattern for arguments matches names as in `shardc plan --sharding`; a pattern for ops matches
    the op's name, its JAX path or its source position. The first matching pattern counts. A second
    run changes nothing.

    Options:
        stages: one `shardc.plan.stages_spec.StageSpec` per stage; in text as JSON.
    """

    name = "shardc-ask-shardings"

    stages: tuple[StageSpec, ...] = field(default=(), metadata=in_text(_read_stages))

    def apply(self, module: ir.Operation) -> None:
        stages = self.stages
        placed, rows = meshes(module), argument_rows(module)
        fitted: set[str] = set()
        for function in functions(module):
            number = get_int(function, STAGE) or 0
            if number >= len(stages):
                continue
            asker = _Asker(stages[number], number, placed[f"stage{number}"], fitted)
            attrs = arg_attrs(function)
            for each, value in zip(attrs, body(function).arguments, strict=True):
                row = _row_of(each, rows)
                if row is not None:
                    asked = asker.of_argument(row.name, value, row.batch_dim)
                    if asked is not None:
                        _check_user(row.name, asked, row.asked)
                        each[ASKED] = user_sharding_attr(asked, f"stage{number}")
            set_arg_attrs(function, attrs)
            for op in _ops(function):
                asked = asker.of_op(op)
                if asked is not None:
                    op.attributes[ASKED] = user_sharding_attr(asked, f"stage{number}")
        for pattern, of_ops in _patterns(stages):
            if pattern not in fitted:
                raise _unused(module, stages, pattern, of_ops)


def _row_of(attrs: Mapping[str, ir.Attribute], rows: Sequence[ArgumentRow]) -> ArgumentRow | None:
    """The argument of the program that is passed here; None: another value is."""
    text = str(ir.StringAttr(attrs[VALUE]).value)
    return rows[value_id(text).number] if is_argument(text) else None


def _ops(function: ir.Operation) -> list[ir.Operation]:
    """Those whose results a pattern may match."""
    planned = planned_ops(function)
    return [op for op in planned if op.name not in CONTROL_FLOW and len(op.results) == 1]


class _Asker:
    """Matches the patterns of one stage; `fitted` collects the patterns that match a value."""

    def __init__(self, stage: StageSpec, number: int, mesh: Mesh, fitted: set[str]) -> None:
        self.stage, self.number, self.mesh, self.fitted = stage, number, mesh, fitted

    def of_argument(self, name: str, value: ir.Value, batch_dim: int | None) -> UserSharding | None:
        for pattern, words in self.stage.shardings.items():
            if matches(pattern, name):
                self.fitted.add(pattern)
                shape = shape_of(value)
                if batch_dim is None:
                    return self._asked(words, shape, f"argument '{name}'")
                own = (*shape[:batch_dim], *shape[batch_dim + 1 :])
                return self._asked(words, own, f"argument '{name}'").with_dim(batch_dim)
        return None

    def of_op(self, op: ir.Operation) -> UserSharding | None:
        names = names_of(op) if self.stage.values else ()
        for pattern, words in self.stage.values.items():
            if any(fits_op(pattern, name) for name in names):
                self.fitted.add(pattern)
                return self._asked(words, shape_of(op.results[0]), f"'{op.name}' at {names[-1]}")
        return None

    def _asked(self, words: str, shape: tuple[int, ...], what: str) -> UserSharding:
        asked = parse_user_sharding(words, len(shape))
        if asked is None:
            raise PlanError(
                f"{what} has {len(shape)} dims, and stage {self.number} wants it as '{words}'",
                help="give at most one word per dim",
                code="SHARDC-203",
            )
        for axis in (axis for dim in asked.dims for axis in dim):
            if axis not in dict(self.mesh.axes):
                raise PlanError(
                    f"stage {self.number} wants {what} split over '{axis}', and its mesh has"
                    f" {', '.join(name for name, _ in self.mesh.axes)}",
                    help='name the axes of the mesh, as in "mesh": {"data": 2, "model": 4}',
                    code="SHARDC-110",
                )
        dim = uneven_dim(asked, self.mesh, shape)
        if dim is not None:
            count = self.mesh.num_shards(asked.dims[dim])
            raise PlanError(
                f"{what} of shape {shape} is to be split as '{words}' in stage {self.number}, and"
                f" {shape[dim]} does not divide into {count} parts",
                help=f"shard another dim, or make its size a multiple of {count}",
                code="SHARDC-203",
            )
        return asked


def fits_op(pattern: str, name: str) -> bool:
    """Whether a pattern (`*` also matches slashes) matches a name of an op or a path suffix."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}")


def _check_user(name: str, asked: UserSharding, user: ir.Attribute | None) -> None:
    """Refuses a sharding that contradicts one in the program itself."""
    if user is not None and read_user_sharding(user) != asked:
        raise PlanError(
            "the hand-written plan and the program request different shardings of argument"
            f" '{name}'",
            help="request one sharding of each argument",
            code="SHARDC-204",
        )


def _unused(
    module: ir.Operation, stages: Sequence[StageSpec], pattern: str, of_ops: bool
) -> InputError:
    """Why a pattern is the first match of no value."""
    kind = "op" if of_ops else "argument"
    matching = sorted(_matching(module, stages, pattern, of_ops))
    if matching:
        return InputError(
            f"the pattern '{pattern}' of a hand-written plan matches only {kind}s that earlier"
            " patterns match",
            help=f"put it before the one that matches {matching[0]}: the first matching pattern"
            " wins",
            code="SHARDC-209",
        )
    known = ", ".join(repr(row.name) for row in argument_rows(module)[:3])
    help = f"write a pattern such as 'params.*.kernel' for {known}"
    if of_ops:
        help = "name an op (dot_general), a path (*/mlp/add) or a place (train.py:41*)"
    return InputError(
        f"the pattern '{pattern}' of a hand-written plan matches no {kind}",
        help=help,
        code="SHARDC-209",
    )


def _matching(
    module: ir.Operation, stages: Sequence[StageSpec], pattern: str, of_ops: bool
) -> set[str]:
    """What a pattern matches in the stages that have it, whatever comes before it."""
    found: set[str] = set()
    rows = argument_rows(module)
    for function in functions(module):
        number = get_int(function, STAGE) or 0
        if number >= len(stages):
            continue
        if of_ops and pattern in stages[number].values:
            named = [(f"'{op.name}' at {names_of(op)[-1]}", names_of(op)) for op in _ops(function)]
            found |= {what for what, own in named if any(fits_op(pattern, n) for n in own)}
        elif not of_ops and pattern in stages[number].shardings:
            names = [row.name for each in arg_attrs(function) if (row := _row_of(each, rows))]
            found |= {f"'{name}'" for name in names if matches(pattern, name)}
    return found


def _patterns(stages: Sequence[StageSpec]) -> Iterator[tuple[str, bool]]:
    for stage in stages:
        yield from ((pattern, False) for pattern in stage.shardings)
        yield from ((pattern, True) for pattern in stage.values)
