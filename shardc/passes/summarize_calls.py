"""Summarize the functions that are still called, once for all their calls."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.calls.call_cost import call_cost
from shardc.analysis.calls.call_factors import find_factors
from shardc.analysis.calls.call_graph import CallGraph
from shardc.ir.calls import CallFacts, write_facts
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import main_function, symbol


@dataclass(frozen=True)
class SummarizeCalls(Pass):
    """Writes the factors and the cost of each function that @main calls on it and on its calls.

    A factor is a dim of arguments and results along which the function treats all parts alike; see
    `shardc.ir.calls` for the attributes. They give a call a sharding rule and a cost, like any
    other op. A second run changes nothing.
    """

    name = "shardc-summarize-calls"
    never_refuses = "a function that cannot work on parts has no factors"

    def apply(self, module: ir.Operation) -> None:
        graph = CallGraph(module, symbol(main_function(module)))
        done: dict[str, CallFacts] = {}
        for name in graph.order:  # callees first
            function = graph.functions[name]
            for call, callee in graph.calls[name]:
                write_facts(call, done[callee])
            if name != graph.order[-1]:
                done[name] = CallFacts(*find_factors(function), call_cost(function))
                write_facts(function, done[name])
