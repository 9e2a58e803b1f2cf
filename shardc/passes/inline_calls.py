"""Inline calls, leaving one flat function."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.calls.call_graph import CallGraph, refused
from shardc.analysis.calls.repeated_functions import repeated_functions
from shardc.ir.attributes import str_attr
from shardc.ir.calls import called, calls_in
from shardc.ir.pass_manager import Pass, run_registered
from shardc.ir.walk import all_functions, body, main_function, symbol, terminator, walk
from shardc.rewrite.calls.call_results import drop_results


def _name(location: ir.Location) -> str:
    return str(location.name_str) if isinstance(location, ir.NameLoc) else ""


def _place(location: ir.Location) -> ir.Location:
    return location.child_loc if isinstance(location, ir.NameLoc) else location


def called_from(callee: ir.Location, caller: ir.Location) -> ir.Location:
    """The location of an op after inlining: both positions, and the path of names into the call.

    A call at `"jit(step)/jit(relu)"` of an op at `"max"` gives `"jit(step)/jit(relu)/max"`, so
    that the callee's ops show `transpose(jvp(...))` of the caller.
    """
    known = [p for p in map(_place, (callee, caller)) if not isinstance(p, ir.UnknownLoc)]
    place = known[0] if known else ir.Location.unknown()
    if len(known) == 2:
        place = ir.Location.callsite(known[0], [known[1]])
    path = "/".join(filter(None, (_name(caller), _name(callee))))
    return ir.Location.name(path, place) if path else place


class _Inliner:
    def __init__(self, module: ir.Operation, graph: CallGraph) -> None:
        self.end = ir.InsertionPoint(module.regions[0].blocks[0])
        self.functions = graph.functions

    def inline(self, call: ir.Operation, name: str) -> None:
        """Moves the ops of a copy of the flat function `name` before `call`."""
        callee = self.functions[name].clone(ip=self.end).operation
        for argument, operand in zip(body(callee).arguments, call.operands, strict=True):
            argument.replace_all_uses_with(operand)
        returned = terminator(callee)
        for op in list(body(callee).operations)[:-1]:
            op.operation.move_before(call)
            for each in (op.operation, *walk(op.operation)):
                each.location = called_from(each.location, call.location)
        for result, value in zip(call.results, returned.operands, strict=True):
            result.replace_all_uses_with(value)
        call.erase()
        callee.erase()


def _kept_calls(module: ir.Operation) -> dict[str, list[ir.Operation]]:
    found: dict[str, list[ir.Operation]] = {}
    for call in calls_in(module):
        found.setdefault(called(call) or "", []).append(call)
    return found


@dataclass(frozen=True)
class InlineCalls(Pass):
    """Inlines every `func.call` and `stablehlo.composite`, also inside regions, into `@main`.

    If this yields more than `most_ops` ops, the functions with the most copies stay functions, each
    flat and without redundant results; later passes treat a call of one as an op. Otherwise the
    module's only function is `@main` (the public function, whatever its original name; functions
    that a custom call refers to also stay). Each op's location contains its call path. A second run
    changes nothing. Recursive functions are refused (SHARDC-122).

    Attributes:
        most_ops: limit for all functions together.
    """

    name = "shardc-inline-calls"
    most_ops: int = 100_000

    def apply(self, module: ir.Operation) -> None:
        main = main_function(module)
        if len(main.regions[0].blocks) != 1:
            raise refused(main, f"'@{symbol(main)}' has branches, and cannot be cut into stages")
        graph = CallGraph(module, symbol(main))
        kept = repeated_functions(graph, self.most_ops)
        inliner = _Inliner(module, graph)
        for name in graph.order:
            for call, callee in graph.calls[name]:
                if callee not in kept:
                    inliner.inline(call, callee)
        calls = _kept_calls(module) if kept else {}
        for name in reversed(graph.order):  # callers first: they may then use fewer results
            if name in calls:
                drop_results(graph.functions[name], calls[name])
        for function in all_functions(module):
            if symbol(function) != symbol(main):
                function.attributes["sym_visibility"] = str_attr("private")
        run_registered(module, "symbol-dce")
        main.attributes["sym_name"] = str_attr("main")
