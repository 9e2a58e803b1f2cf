"""The table of arguments and results that shardc-outline-stages writes, read back."""

from collections.abc import Iterable
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.cost.arrivals import Arrival
from shardc.ir.attributes import (
    ARGUMENTS,
    ASSUMED,
    NUM_MICROBATCHES,
    NUM_REPLICAS,
    NUM_STAGES,
    RESULT_SHARDINGS,
    RESULTS,
    VALUE,
    data_of,
    get_int,
    result_attrs,
)
from shardc.ir.user_shardings import CONSTRAINT, UserSharding, read_user_sharding
from shardc.ir.walk import functions, symbol, terminator, walk, where
from shardc.plan.value_id import argument_id, is_computed, value_id
from shardc.schedule.work import Work


def result_values(module: ir.Operation) -> list[str]:
    """Value id of each result of the user's function."""
    return [str(ir.StringAttr(v).value) for v in ir.ArrayAttr(module.attributes[RESULTS])]


def assumptions(module: ir.Operation) -> list[tuple[str, ...]]:
    """For each of the last results, which say whether the step's premises hold: the meaning of a
    true element."""
    if ASSUMED not in module.attributes:
        return []
    rows = map(ir.ArrayAttr, ir.ArrayAttr(module.attributes[ASSUMED]))
    return [tuple(str(ir.StringAttr(text).value) for text in row) for row in rows]


def free_number(own: Iterable[ir.Operation]) -> int:
    """The first number that no id of a value that the functions `own` return has."""
    ids = (str(ir.StringAttr(a[VALUE]).value) for f in own for a in result_attrs(f) if VALUE in a)
    return 1 + max((value_id(each).number for each in ids), default=-1)


def microbatches_of(module: ir.Operation, stage: int) -> range:
    """The microbatches that go through a stage, or through a copy of one."""
    replicas = get_int(module, NUM_REPLICAS) or 1
    step = Work(1, get_int(module, NUM_MICROBATCHES) or 1, replicas=replicas)
    if replicas == 1:
        return step.microbatches()
    return step.microbatches(stage * replicas // (get_int(module, NUM_STAGES) or replicas))


def next_states(module: ir.Operation) -> dict[str, str]:
    """Value id of a returned state -> value id of the argument that it replaces next step."""
    if ARGUMENTS not in module.attributes:
        return {}
    values = result_values(module)
    found = {}
    for n, entry in enumerate(ir.ArrayAttr(module.attributes[ARGUMENTS])):
        row = ir.DictAttr(entry)
        if "result" in row:
            value = values[ir.IntegerAttr(row["result"]).value]
            if is_computed(value):
                found[value] = argument_id(n)
    return found


def donated_arguments(module: ir.Operation) -> frozenset[str]:
    """Value ids of the donated arguments."""
    if ARGUMENTS not in module.attributes:
        return frozenset()
    rows = map(ir.DictAttr, ir.ArrayAttr(module.attributes[ARGUMENTS]))
    return frozenset(
        argument_id(n) for n, row in enumerate(rows) if ir.BoolAttr(row["donated"]).value
    )


def batch_arguments(module: ir.Operation) -> frozenset[str]:
    """Value ids of the arguments that hold the rows of all microbatches."""
    if ARGUMENTS not in module.attributes:
        return frozenset()
    rows = map(ir.DictAttr, ir.ArrayAttr(module.attributes[ARGUMENTS]))
    return frozenset(argument_id(n) for n, row in enumerate(rows) if "batch_dim" in row)


@dataclass(frozen=True)
class NamedUserSharding:
    """A user sharding of an argument or result of the step.

    Attributes:
        name: its origin, such as "argument 'state['w']'".
    """

    asked: UserSharding
    name: str


def named_user_shardings(module: ir.Operation) -> dict[str, NamedUserSharding]:
    """Value id of an argument or result -> the user's sharding of it."""
    if ARGUMENTS not in module.attributes:
        return {}
    found = {}
    if RESULT_SHARDINGS in module.attributes:
        wanted = ir.ArrayAttr(module.attributes[RESULT_SHARDINGS])
        for n, (value, attr) in enumerate(zip(result_values(module), wanted, strict=True)):
            if not isinstance(attr, ir.UnitAttr):
                found[value] = NamedUserSharding(read_user_sharding(attr), f"result {n}")
    for n, entry in enumerate(ir.ArrayAttr(module.attributes[ARGUMENTS])):
        row = ir.DictAttr(entry)
        if "sharding" in row:
            name = f"argument '{ir.StringAttr(row['name']).value}'"
            if "asked_by" in row:
                name = str(ir.StringAttr(row["asked_by"]).value)
            found[argument_id(n)] = NamedUserSharding(read_user_sharding(row["sharding"]), name)
    return found


def arrivals(module: ir.Operation) -> dict[str, Arrival]:
    """Value id -> where the argument is when the step is called, where that is known."""
    if ARGUMENTS not in module.attributes:
        return {}
    rows = map(ir.DictAttr, ir.ArrayAttr(module.attributes[ARGUMENTS]))
    return {
        argument_id(n): data_of(row["arrival"], Arrival)
        for n, row in enumerate(rows)
        if "arrival" in row
    }


@dataclass(frozen=True)
class ArgumentRow:
    """An argument of stage functions.

    Attributes:
        name: the user's name; of the whole stack if it holds some of its rows.
        batch_dim: the dim that counts the microbatches, for a batch argument.
        asked: the user sharding in the program itself.
    """

    name: str
    batch_dim: int | None
    asked: ir.Attribute | None


def argument_rows(module: ir.Operation) -> list[ArgumentRow]:
    """All arguments by their number."""
    if ARGUMENTS not in module.attributes:
        return []
    rows = [ir.DictAttr(row) for row in ir.ArrayAttr(module.attributes[ARGUMENTS])]
    first = [ir.DenseI64ArrayAttr(r["piece"])[0] if "piece" in r else n for n, r in enumerate(rows)]
    return [
        ArgumentRow(
            str(ir.StringAttr(rows[first[n]]["name"]).value),
            ir.IntegerAttr(row["batch_dim"]).value if "batch_dim" in row else None,
            row["sharding"] if "sharding" in row else None,  # noqa: SIM401 (DictAttr has no get)
        )
        for n, row in enumerate(rows)
    ]


def user_sharding_names(module: ir.Operation) -> list[str]:
    """Origins of the user shardings of stage functions: patterns, arguments, results, and the
    source positions of constraints."""
    names = [each.name for each in named_user_shardings(module).values()]
    for op in (op for f in functions(module) for op in walk(f) if op.name == CONSTRAINT):
        if not read_user_sharding(op.attributes["sharding"]).asks_nothing:
            names.append(where(op))
    return list(dict.fromkeys(names))


def argument_names(module: ir.Operation) -> list[str]:
    """The user's name of each argument of the step."""
    rows = map(ir.DictAttr, ir.ArrayAttr(module.attributes[ARGUMENTS]))
    return [str(ir.StringAttr(row["name"]).value) for row in rows]


def batch_dims(module: ir.Operation) -> dict[str, int]:
    """Value id of each batch argument -> the dim that counts the microbatches."""
    rows = enumerate(argument_rows(module))
    return {argument_id(n): row.batch_dim for n, row in rows if row.batch_dim is not None}


def maker_of(module: ir.Operation, program: str, value: str) -> str | None:
    """The op that makes a result of a stage function, with its place; None if it is an argument."""
    for function in (f for f in functions(module) if symbol(f) == program):
        ends = zip(terminator(function).operands, result_attrs(function), strict=True)
        for result, attrs in ends:
            if ir.StringAttr(attrs[VALUE]).value != value:
                continue
            made = result.owner
            while not isinstance(made, ir.Block) and made.operation.name in _HANDS_ON:
                result = made.operation.operands[0]
                made = result.owner
            return None if isinstance(made, ir.Block) else _placed(made.operation)
    return None


def _placed(op: ir.Operation) -> str:
    return f"'{op.name}' at {where(op)}"


# Ops that only forward their operand: a NaN in their result originates elsewhere.
_HANDS_ON = frozenset(("stablehlo.reshape", "stablehlo.convert", CONSTRAINT))
