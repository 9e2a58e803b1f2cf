"""Reads compiled HLO and per-device StableHLO: FLOPs of the dots, bytes of the collectives."""

import math
import re
from collections import Counter
from collections.abc import Callable

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.program.counted_loop import trip_count
from shardc.ir.constants import splat_text
from shardc.ir.context import make_context
from shardc.ir.tensor_types import dtype_of, num_elements
from shardc.ir.walk import defining_op, walk

KINDS = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter", "collective_permute")
FILLED = {
    f"stablehlo.{n}" for n in "add multiply compare divide select negate broadcast_in_dim".split()
}
Groups = tuple[tuple[int, ...], ...]


class Collectives(Counter[tuple[str, Groups]]):
    """(kind, replica groups) -> bytes."""


_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*?)\)(.*)$")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_CALLEES = re.compile(
    r"(?:body|condition|calls|to_apply|branch_computations)=\{?((?:%[\w.-]+(?:, )?)+)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_GROUPS = re.compile(r"replica_groups=\{(\{[\d,]+\}(?:,\{[\d,]+\})*)\}")
_IOTA_GROUPS = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")


def dot_flops(hlo: str) -> int:
    """FLOPs (a multiply-add is 2) of all dots of a compiled module, those inside fusions too."""
    total = 0
    shapes: dict[str, list[int]] = {}
    for line in hlo.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            shapes = {}  # a new computation
        found = _INSTRUCTION.match(line)
        if found is None:
            continue
        name, result, kind, operands, attributes = found.groups()
        arrays = _arrays(result)
        if arrays:
            shapes[name] = arrays[0][1]
        if kind == "dot":
            contracted = _CONTRACTED.search(attributes)
            lhs = shapes[re.findall(r"%([\w.-]+)", operands)[0]]
            dims = _numbers(contracted.group(1)) if contracted else []
            total += 2 * math.prod(arrays[0][1]) * math.prod(lhs[dim] for dim in dims)
    return total


def hlo_collectives(hlo: str) -> Collectives:
    """(kind, replica groups) -> bytes of the results on one device.

    The members of a tuple-combined collective count one by one, so combining changes nothing. Those
    in a loop count once per iteration, where XLA knows how many there are.
    """
    sent: dict[str, Collectives] = {}  # per computation
    called: dict[str, list[tuple[str, int]]] = {}  # its callees, and how often
    name = entry = ""
    for line in hlo.splitlines():
        opened = _COMPUTATION.match(line)
        if opened:
            name = opened.group(2)
            entry = name if opened.group(1) else entry
            sent[name], called[name] = Collectives(), []
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        _, result, kind, _, attributes = match.groups()
        trips = _TRIPS.search(attributes)
        for callees in _CALLEES.findall(attributes):
            times = int(trips.group(1)) if trips else 1
            called[name] += [(each, times) for each in re.findall(r"[\w.-]+", callees)]
        kind = kind.removesuffix("-start").replace("-", "_")
        if kind in KINDS:
            num_bytes = sum(
                math.prod(shape) * wire_itemsize(dtype) for dtype, shape in _arrays(result)
            )
            sent[name][kind, _groups(attributes)] += num_bytes

    def total(name: str) -> Collectives:
        found = Collectives(sent[name])
        for callee, times in called[name]:
            for key, num_bytes in total(callee).items():
                found[key] += times * num_bytes
        return found

    return total(entry)


def mlir_collectives(text: str) -> Collectives:
    """The same of a per-device StableHLO program."""
    return _collectives_of(text, lambda op: op.name.removeprefix("stablehlo.") in KINDS)


def known_everywhere(text: str) -> Collectives:
    """The all-gathers of `mlir_collectives` that XLA drops: of values that are one constant."""
    return _collectives_of(
        text, lambda op: op.name == "stablehlo.all_gather" and _is_filled(op.operands[0])
    )


def _collectives_of(text: str, wanted: Callable[[ir.Operation], bool]) -> Collectives:
    found = Collectives()
    with make_context():
        module = ir.Module.parse(text)
        for op in filter(wanted, walk(module.operation)):
            kind = op.name.removeprefix("stablehlo.")
            groups = np.array(ir.DenseIntElementsAttr(op.attributes["replica_groups"]))
            for result in op.results:
                num_bytes = num_elements(result) * wire_itemsize(dtype_of(result))
                found[kind, tuple(map(tuple, groups.tolist()))] += num_bytes * _times(op)
    return found


def _times(op: ir.Operation) -> int:
    """How often `op` runs when its function runs once: iterations of the loops around it."""
    times, parent = 1, op.parent
    while parent is not None:
        if parent.name == "stablehlo.while":
            times *= trip_count(parent.operation) or 1
        parent = parent.operation.parent
    return times


def _is_filled(value: ir.Value[ir.Type]) -> bool:
    """Whether all elements are computed from one constant each."""
    op = defining_op(value)
    if op is None:
        return False
    if op.name == "stablehlo.constant":
        return splat_text(op) is not None
    if op.name == "stablehlo.dynamic_slice":
        return _is_filled(op.operands[0])
    if op.name == "stablehlo.scatter":  # of updates that fill it
        fills = num_elements(op.operands[2]) == num_elements(op.results[0])
        return fills and all(map(_is_filled, op.operands))
    return op.name in FILLED and all(map(_is_filled, op.operands))


def _arrays(text: str) -> list[tuple[str, list[int]]]:
    return [(dtype, _numbers(dims)) for dtype, dims in _ARRAY.findall(text)]


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def wire_itemsize(dtype: str) -> int:
    """Bytes of one element on the wire; CPU devices send bfloat16 and float16 as float32."""
    if dtype in ("bf16", "bfloat16", "f16", "float16"):
        return 4
    bits = re.search(r"\d+", dtype)
    return max(int(bits.group()) // 8, 1) if bits else 1


def _groups(attributes: str) -> Groups:
    listed = _GROUPS.search(attributes)
    if listed:
        return tuple(tuple(_numbers(row)) for row in re.findall(r"\{([\d,]+)\}", listed.group(1)))
    iota = _IOTA_GROUPS.search(attributes)
    assert iota, attributes
    shape, dims, order = (_numbers(each or "") for each in iota.groups())
    numbers = np.arange(math.prod(dims)).reshape(dims)
    if order:
        numbers = numbers.transpose(order)
    return tuple(map(tuple, numbers.reshape(shape).tolist()))
