"""The names of the attributes that hold the compiler's state, and typed access to them."""

import functools
from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec
from jax.extend.mlir import ir

from shardc.plan.function_kind import FunctionKind, Phase

NUM_MICROBATCHES = "shardc.num_microbatches"  # module: int
SWEEPS = "shardc.sweeps"  # module: why its microbatches need several sweeps
KEPT_BETWEEN = "shardc.kept_between"  # module: data, what sweeps keep for later ones
NUM_STAGES = "shardc.num_stages"  # module: int, copies included
NUM_REPLICAS = "shardc.num_replicas"  # module: int, copies of each stage; absent: 1
NUM_SLICES = "shardc.num_slices"  # module: int, token slices of each microbatch; absent: 1
CLUSTER = "shardc.cluster"  # module: data, the Cluster that the plan is for
STAGE_REPORTS = "shardc.stage_reports"  # module: data, a StageReport per stage
LOOKUPS = "shardc.lookups"  # module: number of one-hot products replaced by lookups
JOINED = "shardc.joined"  # module: number of loops whose pieces of the batch were joined
CASTS = "shardc.casts"  # module: number of casts of parameters that are marked
FISSIONS = "shardc.fissions"  # module: number of loops that fission has split
ROW_CONFLICTS = "shardc.row_conflicts"  # module: stacks with rows along two dims
HOST_CALLS = "shardc.host_calls"  # module: [array<i64: number of a callback, results it takes>]
SILENT_CALLS = "shardc.silent_calls"  # module: source positions of dropped callbacks
PLACEMENTS = "shardc.placements"  # module: source positions of values put into other memories
NAME = "shardc.name"  # argument: the user's name for it
UNNAMED = "shardc.unnamed"  # argument: unit; its name is generated, as the file has none
ARRIVAL = "shardc.arrival"  # argument: data, the Arrival: where it is when the step is called
BATCH_AXIS = "shardc.batch_axis"  # argument: [number of its batch, dim, parts it has]
BATCH_DIM = "shardc.batch_dim"  # argument, accumulate: int
ORIGIN = "shardc.origin"  # op of main: its position before loops were cut, its first iteration
PIECE = "shardc.piece"  # argument, result: [number of the one whose rows it continues, the dim]
PHASE = "shardc.phase"  # op: its Phase
STAGE = "shardc.stage"  # op, function, argument, result: int
CAST_ONCE = "shardc.once"  # cast of a parameter: unit; made before the microbatches
RECOMPUTED = "shardc.recomputed"  # forward op of the body: unit; the backward function runs it, too
KEPT = "shardc.kept"  # module: data, the ValuePlans of each stage
DIRECTION = "shardc.direction"  # op of the body: the FunctionKind that it belongs to
KIND = "shardc.kind"  # accumulate: "sum" | "concat"; function: its FunctionKind
ROUND = "shardc.round"  # function: int
VALUE = "shardc.value"  # function argument and result: id of the value
GATHERED = "shardc.gathered"  # gather and reduce function: the mesh axis that they gather
PER_MICROBATCH = "shardc.per_microbatch"  # function argument and result: unit
IN_SHARDINGS = "shardc.in_shardings"  # op: the shardings that it requires of its operands
REDUCE_AXES = "shardc.reduce_axes"  # reduce op: axes over which it all-reduces its own result
ASKED = (
    "shardc.asked"  # argument and op of a stage function: its required sharding, or its result's
)
ASKED_BY = "shardc.asked_by"  # argument: the pattern or jit argument that its sharding comes from
STATE_RESULT = "shardc.state_result"  # argument: the result that is its next value
MESH_DEVICES = "shardc.mesh_devices"  # module: mesh name -> device ids, row-major
GLOBAL_TYPE = "shardc.global_type"  # argument, result of a local program: type over the mesh
SHARDING = "sdy.sharding"  # op, argument, result: Shardy's own

# Of the step, once it is cut into stage functions: see `shardc.analysis.program.stage_table`.
ARGUMENTS = "shardc.arguments"  # module: one dict per argument of the user's function
RESULTS = "shardc.results"  # module: value id of each result
RESULT_TYPES = "shardc.result_types"  # module: type of each result
RESULT_SHARDINGS = "shardc.result_shardings"  # module: what the user asks of each result, or unit
RESULT_STAGES = "shardc.result_stages"  # module: stage that returns it
RESULT_PIECES = "shardc.result_pieces"  # module: [result, dim] whose rows it goes on with, or []
ASSUMED = "shardc.assumed"  # module: of each of the last results what its true elements mean

# Of functions that stay calls: see `shardc.ir.calls`.
STAYS = "shardc.stays"  # function: unit; it stays a function
PART_OF = "shardc.part_of"  # function: the one it is a specialisation of
FACTORS = "shardc.factors"  # function, call: the factors of its arguments, then of its results
FACTOR_SIZES = "shardc.factor_sizes"  # function, call: how finely each factor can be cut
SUMMED = "shardc.summed"  # function, call: the factors over which each result is summed up
COST = "shardc.cost"  # function, call: its CallCost
CALLED_FACTORS = "shardc.called_factors"  # op inside: the factors of each result

ACCUMULATE = "shardc.accumulate"  # custom call: sum or concatenation over the microbatches
MICROBATCH_INDEX = "shardc.microbatch_index"  # custom call: the index of the current microbatch


def int_attr(value: int) -> ir.Attribute:
    """`value : i64` in the current context."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def str_attr(value: str) -> ir.Attribute:
    """`"value"` in the current context."""
    return ir.StringAttr.get(value)


def data_attr(value: object) -> ir.Attribute:
    """Plan data in the current context, which `data_of` reads back.

    A struct is a dictionary of the fields that differ from their defaults, or an array if it is
    declared as one; tuples are arrays, integers i64, floats f64, and None is a unit.
    """
    match value:
        case str():
            return str_attr(value)
        case bool():
            return ir.BoolAttr.get(value)
        case int():
            wide = value.bit_length() > 63  # FLOPs of the largest steps
            return ir.IntegerAttr.get(ir.IntegerType.get_signless(128 if wide else 64), value)
        case float():
            return ir.FloatAttr.get_f64(value)
        case tuple() | list():
            return ir.ArrayAttr.get([data_attr(own) for own in value])
        case msgspec.Struct():
            changed = {name: getattr(value, name) for name in value.__struct_fields__}
            if value.__struct_config__.array_like:
                return data_attr(tuple(changed.values()))
            known = _defaults(type(value))
            kept = {name: own for name, own in changed.items() if own != known.get(name, _NONE)}
            return ir.DictAttr.get({name: data_attr(own) for name, own in kept.items()})
        case dict():
            return ir.DictAttr.get({_key(name): data_attr(own) for name, own in value.items()})
        case None:
            return ir.UnitAttr.get()
    assert isinstance(value, Enum), f"{value!r} is not plan data"
    return data_attr(value.value)


_NONE = object()  # differs from every value


def _key(name: object) -> str:
    return str(name.value if isinstance(name, Enum) else name)


@functools.cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The default of each field of a struct that has one."""
    found = {}
    for field in msgspec.structs.fields(kind):
        if field.default_factory is not msgspec.NODEFAULT:
            found[field.name] = field.default_factory()
        elif field.default is not msgspec.NODEFAULT:
            found[field.name] = field.default
    return found


def data_of[Data](attribute: ir.Attribute, kind: type[Data]) -> Data:
    """The plan data that `data_attr` wrote into an attribute; dicts are in order of their keys."""
    return msgspec.convert(_plain(attribute), kind, str_keys=True)


def _plain(attribute: ir.Attribute) -> Any:
    match attribute:
        case ir.IntegerAttr() | ir.FloatAttr() | ir.StringAttr() | ir.BoolAttr():
            return attribute.value
        case ir.DictAttr():
            return {name: _plain(own) for name, own in named_attributes(attribute).items()}
        case ir.UnitAttr():
            return None
    return [_plain(own) for own in ir.ArrayAttr(attribute)]


def str_array(values: Iterable[str]) -> ir.Attribute:
    """`["a", "b"]` in the current context."""
    return ir.ArrayAttr.get([ir.StringAttr.get(value) for value in values])


def get_int(op: ir.Operation, name: str) -> int | None:
    """Integer attribute `name` of `op`, or None."""
    attributes = op.attributes
    return int(ir.IntegerAttr(attributes[name]).value) if name in attributes else None


def get_str(op: ir.Operation, name: str) -> str | None:
    """String attribute `name` of `op`, or None."""
    attributes = op.attributes
    return str(ir.StringAttr(attributes[name]).value) if name in attributes else None


def function_kind(function: ir.Operation) -> FunctionKind | None:
    """The kind of a stage function; None for a function of a module without stages."""
    text = get_str(function, KIND)
    return None if text is None else FunctionKind(text)


def phase_of(op: ir.Operation) -> Phase | None:
    """The phase of an op of a split @main; None without one."""
    text = get_str(op, PHASE)
    return None if text is None else Phase(text)


def call_target(op: ir.Operation) -> str | None:
    """Target name of a stablehlo.custom_call, None for every other op."""
    return get_str(op, "call_target_name") if op.name == "stablehlo.custom_call" else None


def named_attributes(attribute: ir.Attribute) -> dict[str, ir.Attribute]:
    """The entries of a dictionary attribute."""
    entries = ir.DictAttr(attribute)
    named = (entries[i] for i in range(len(entries)))
    return {each.name: each.attr for each in named}


def _dicts(function: ir.Operation, field: str, count: int) -> list[dict[str, ir.Attribute]]:
    if field not in function.attributes:
        return [{} for _ in range(count)]
    return [named_attributes(entry) for entry in ir.ArrayAttr(function.attributes[field])]


def arg_attrs(function: ir.Operation) -> list[dict[str, ir.Attribute]]:
    """One dict of attributes per argument of a func.func (copies: write with `set_arg_attrs`)."""
    return _dicts(function, "arg_attrs", len(function.regions[0].blocks[0].arguments))


def result_attrs(function: ir.Operation) -> list[dict[str, ir.Attribute]]:
    """One dict of attributes per result of a func.func (copies)."""
    function_type = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    return _dicts(function, "res_attrs", len(function_type.results))


def set_arg_attrs(function: ir.Operation, attrs: list[dict[str, ir.Attribute]]) -> None:
    """Replaces the attributes of every argument."""
    function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(d) for d in attrs])


def set_result_attrs(function: ir.Operation, attrs: list[dict[str, ir.Attribute]]) -> None:
    """Replaces the attributes of every result."""
    function.attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(d) for d in attrs])


def is_local(function: ir.Operation) -> bool:
    """Whether a function is already a per-device program (shardc-localize has run)."""
    return any(GLOBAL_TYPE in attrs for attrs in arg_attrs(function) + result_attrs(function))
