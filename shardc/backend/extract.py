"""Extraction of stage programs from the lowered module: bytecode and specs for the runtime."""

import msgspec
from jax.extend.mlir import ir

from shardc.analysis.program.stage_table import assumptions
from shardc.ir.attributes import (
    ARGUMENTS,
    GLOBAL_TYPE,
    PER_MICROBATCH,
    RESULT_PIECES,
    RESULT_STAGES,
    RESULT_TYPES,
    RESULTS,
    ROUND,
    SHARDING,
    STAGE,
    VALUE,
    arg_attrs,
    function_kind,
    get_int,
    result_attrs,
)
from shardc.ir.copy import bare_bytecode
from shardc.ir.pass_manager import cached
from shardc.ir.shardings import from_attr
from shardc.ir.tensor_types import dtype_name
from shardc.ir.walk import body, functions, symbol
from shardc.plan.executable import ArgumentSpec, ResultSpec, StageProgram, ValueSpec
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import TensorSharding
from shardc.plan.program_graph import ProgramValues
from shardc.plan.value_id import is_accumulator, is_argument, is_computed, value_id
from shardc.rules.libraries import called_computations


def _dtype(type: ir.Type) -> str:
    return dtype_name(ir.RankedTensorType(type).element_type)


def stage_programs(module: ir.Operation, *, local: bool) -> tuple[StageProgram, ...]:
    """One StageProgram per function, in the order of stages and phases.

    A program donates accumulators, and arguments that the caller donates if it is their last user;
    an update also what other programs computed for it, as the gradients of a single microbatch.
    """
    specs = {symbol(f): _specs(f) for f in functions(module)}
    programs = []
    for function in functions(module):
        name = symbol(function)
        args, results = specs[name]
        programs.append(
            StageProgram(
                name=name,
                stage=get_int(function, STAGE) or 0,
                kind=function_kind(function) or FunctionKind.UPDATE,
                round=get_int(function, ROUND) or 0,
                module=_alone(module, function),
                args=args,
                results=results,
                local=local,
            )
        )
    programs.sort(key=lambda p: (p.stage, p.kind.order, p.round))
    return _with_donation(tuple(programs), module)


@cached
def function_values(module: ir.Operation) -> tuple[ProgramValues, ...]:
    """The kind, arguments and results of every stage function."""
    return tuple(
        ProgramValues(
            get_int(f, STAGE) or 0,
            function_kind(f) or FunctionKind.UPDATE,
            get_int(f, ROUND) or 0,
            *_specs(f),
        )
        for f in functions(module)
    )


def _specs(function: ir.Operation) -> tuple[tuple[ValueSpec, ...], tuple[ValueSpec, ...]]:
    function_type = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    arg_types = [value.type for value in body(function).arguments]

    def spec(attrs: dict[str, ir.Attribute], type: ir.Type) -> ValueSpec:
        if GLOBAL_TYPE in attrs:
            type = ir.TypeAttr(attrs[GLOBAL_TYPE]).value
        shape = tuple(ir.RankedTensorType(type).shape)
        sharding = (
            from_attr(attrs[SHARDING])
            if SHARDING in attrs
            else TensorSharding.replicated(len(shape))
        )
        return ValueSpec(
            value=ir.StringAttr(attrs[VALUE]).value,
            shape=shape,
            dtype=_dtype(type),
            sharding=sharding,
            per_microbatch=PER_MICROBATCH in attrs,
        )

    return (
        tuple(spec(a, t) for a, t in zip(arg_attrs(function), arg_types, strict=True)),
        tuple(
            spec(a, t) for a, t in zip(result_attrs(function), function_type.results, strict=True)
        ),
    )


def _alone(module: ir.Operation, function: ir.Operation) -> bytes:
    """A module with this function, its mesh, and the functions that its custom calls refer to."""
    named = called_computations(module, function)
    with module.context, function.location:
        alone = ir.Module.create()
        with ir.InsertionPoint(alone.body):
            for op in module.regions[0].blocks[0].operations:
                mesh = op.operation.name == "sdy.mesh"
                wanted = f"stage{get_int(function, STAGE) or 0}"
                if mesh and ir.StringAttr(op.operation.attributes["sym_name"]).value == wanted:
                    op.operation.clone()
            for each in (function, *named):
                each.clone()
        return bare_bytecode(alone.operation)


def _with_donation(
    programs: tuple[StageProgram, ...], module: ir.Operation
) -> tuple[StageProgram, ...]:
    arguments = argument_specs(module)
    returned = {result.value for result in result_specs(module)}
    last_user: dict[tuple[int, str], str] = {}
    for program in programs:
        for spec in program.args:
            last_user[program.stage, spec.value] = program.name
    mended = []
    for program in programs:
        produced = {spec.value for spec in program.results}
        donated = []
        for position, spec in enumerate(program.args):
            last = last_user[program.stage, spec.value] == program.name
            used_up = program.kind is FunctionKind.UPDATE and last and spec.value not in returned
            if is_accumulator(spec.value):
                used_up |= spec.value in produced  # it adds to it in place
            elif is_argument(spec.value):
                argument = arguments[value_id(spec.value).number]
                used_up &= argument.donated and argument.stage == program.stage
            elif not is_computed(spec.value):
                used_up = False
            if used_up:
                donated.append(position)
        mended.append(msgspec.structs.replace(program, donated=tuple(donated)))
    return tuple(mended)


def argument_specs(module: ir.Operation) -> tuple[ArgumentSpec, ...]:
    """The user's flat arguments, from the table that shardc-outline-stages wrote."""
    found = []
    for entry in ir.ArrayAttr(module.attributes[ARGUMENTS]):
        row = ir.DictAttr(entry)
        type = ir.TypeAttr(row["type"]).value
        shape = list(ir.RankedTensorType(type).shape)
        dim = ir.IntegerAttr(row["batch_dim"]).value if "batch_dim" in row else None
        if dim is not None:
            shape[dim : dim + 2] = [shape[dim] * shape[dim + 1]]
        found.append(
            ArgumentSpec(
                name=ir.StringAttr(row["name"]).value,
                shape=tuple(shape),
                dtype=_dtype(type),
                stage=ir.IntegerAttr(row["stage"]).value,
                batch_dim=dim,
                donated=bool(ir.BoolAttr(row["donated"]).value),
                aliased_result=ir.IntegerAttr(row["result"]).value if "result" in row else None,
                piece=_piece(row["piece"]) if "piece" in row else None,
            )
        )
    return tuple(found)


def result_specs(module: ir.Operation) -> tuple[ResultSpec, ...]:
    """The user's flat results."""
    types = [ir.TypeAttr(t).value for t in ir.ArrayAttr(module.attributes[RESULT_TYPES])]
    values = [ir.StringAttr(v).value for v in ir.ArrayAttr(module.attributes[RESULTS])]
    stages = [ir.IntegerAttr(s).value for s in ir.ArrayAttr(module.attributes[RESULT_STAGES])]
    pieces: list[tuple[int, int] | None] = [None] * len(values)
    if RESULT_PIECES in module.attributes:
        pieces = [_piece(p) for p in ir.ArrayAttr(module.attributes[RESULT_PIECES])]
    checks = assumptions(module)
    assumed = [()] * (len(values) - len(checks)) + checks
    return tuple(
        ResultSpec(
            value, tuple(ir.RankedTensorType(t).shape), _dtype(t), stage, piece=piece, assumed=said
        )
        for value, t, stage, piece, said in zip(values, types, stages, pieces, assumed, strict=True)
    )


def _piece(attribute: ir.Attribute) -> tuple[int, int] | None:
    numbers = list(ir.DenseI64ArrayAttr(attribute))
    return (numbers[0], numbers[1]) if numbers else None
