"""Write down what the functions that are still called do, once for all their calls."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.call_cost import call_cost
from shardc.analysis.call_factors import find_factors
from shardc.ir.calls import CallFacts, called, calls_in, functions_by_name, write_facts
from shardc.ir.pass_manager import Pass
from shardc.ir.walk import main_function


@dataclass(frozen=True)
class SumUpCalls(Pass):
    """Writes on each function that @main calls, and on the calls, factors and cost of it.

    A factor is a dim of arguments and results that the function works through part by part; see
    `shardc.ir.calls` for the attributes. With them a call has a sharding rule, and a price, like
    any other op. A second run changes nothing.
    """

    name = "shardc-sum-up-calls"
    never_refuses = "a function that cannot work on parts has no factors"

    def apply(self, module: ir.Operation) -> None:
        functions = functions_by_name(module)
        done: dict[str, CallFacts] = {}

        def sum_up(function: ir.Operation) -> None:
            """What `function` calls, callees first: inlining has refused recursion."""
            for call in calls_in(function):
                name = called(call) or ""
                if name not in done:
                    sum_up(functions[name])
                    factors = find_factors(functions[name])
                    done[name] = CallFacts(*factors, call_cost(functions[name]))
                    write_facts(functions[name], done[name])
                write_facts(call, done[name])

        sum_up(main_function(module))
