"""Which functions of a large module stay calls, so that repeated code is analysed once."""

from jax.extend.mlir import ir

from shardc.analysis.calls.call_graph import CallGraph, refused
from shardc.analysis.program.flops import is_heavy
from shardc.analysis.program.op_classes import COLLECTIVES, POSITIONS
from shardc.ir.attributes import SHARDING, STAYS, call_target
from shardc.ir.calls import CALL
from shardc.ir.effects import has_side_effect, is_host_call
from shardc.ir.walk import walk
from shardc.rules.libraries import names_functions

_DIALECTS = ("stablehlo.", "chlo.", "func.")
MOST_OPS = 5_000_000  # refused above


def repeated_functions(graph: CallGraph, most_ops: int) -> set[str]:
    """The functions to keep as calls so that the module has at most `most_ops` ops, or as few as
    possible; they are marked, and later calls read the marks.

    Greedy: repeatedly takes the function whose copies have the most ops together, usually a small
    one with many callers. Functions with matrix products come last: a call can be split only along
    factors that its whole body can be split along. A function can stay if it runs only ops without
    side effects (no callbacks, collectives or shardings) and no composite calls it.

    Raises:
        ImportFileError: SHARDC-122, over five million ops remain.
    """
    kept = {name for name in graph.order if STAYS in graph.functions[name].attributes}
    candidates, heavy = _candidates(graph), _heavy(graph)
    while True:
        sizes, copies = graph.sizes(kept), graph.copies(kept)
        total = sizes[graph.order[-1]] + sum(sizes[name] for name in kept)
        if total <= most_ops:
            break
        gains = {name: (copies[name] - 1) * (sizes[name] - 1) for name in candidates - kept}
        gains = {name: gain for name, gain in gains.items() if gain > 0}
        if not gains:
            break
        kept.add(max(sorted(gains), key=lambda name: (name not in heavy, gains[name])))
    if total > MOST_OPS:
        largest = max(graph.order[:-1], key=lambda name: copies[name] * sizes[name])
        raise refused(
            graph.functions[graph.order[-1]],
            f"inlining all calls gives {total} ops, most of them of '@{largest}', which cannot"
            " stay a function because it does more than compute its results",
        )
    for name in kept:
        graph.functions[name].attributes[STAYS] = ir.UnitAttr.get()
    return kept


def _candidates(graph: CallGraph) -> set[str]:
    """Functions that a device can call on its part of the operands."""
    found: set[str] = set()
    for name in graph.order[:-1]:  # callees first
        inner = {callee for _, callee in graph.calls[name]}
        if inner <= found and _only_computes(graph.functions[name]):
            found.add(name)
    calls = [(call, callee) for each in graph.calls.values() for call, callee in each]
    return found - {callee for call, callee in calls if call.name != CALL or len(call.results) == 0}


def _heavy(graph: CallGraph) -> set[str]:
    found: set[str] = set()
    for name in graph.order:
        inner = {callee for _, callee in graph.calls[name]}
        if inner & found or is_heavy(graph.functions[name]):
            found.add(name)
    return found


def _only_computes(function: ir.Operation) -> bool:
    return all(
        op.name.startswith(_DIALECTS)
        and op.name not in COLLECTIVES | POSITIONS
        and not is_host_call(op)
        and not names_functions(op)
        and call_target(op) != "Sharding"
        and SHARDING not in op.attributes
        and not has_side_effect(op)
        for op in walk(function)
    )
