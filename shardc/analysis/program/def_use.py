"""Def-use chains of a function as plain lists of numbers."""

from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.ir.attributes import (
    ACCUMULATE,
    BATCH_DIM,
    MICROBATCH_INDEX,
    arg_attrs,
    call_target,
    phase_of,
)
from shardc.ir.clone import inputs
from shardc.ir.walk import body, ops, terminator
from shardc.plan.function_kind import Phase


@dataclass(frozen=True)
class Dataflow:
    """Def-use chains of the top-level ops of one function; ops are named by position.

    Attributes:
        ops: the ops in program order, terminator excluded.
        inputs: for each op, its operands and captures.
        op_inputs: for each op, positions of the ops whose results it uses (captures included).
        arg_inputs: for each op, the function arguments it uses.
        users: for each op, positions of the ops that use its results.
        users_by_result: for ops with several results, such as loops: the users of each result.
        arg_users: for each argument, positions of the ops that use it.
        returned: for each result of the function, ("op", i) or ("arg", n).
    """

    ops: list[ir.Operation]
    inputs: list[list[ir.Value]]
    op_inputs: list[list[int]]
    arg_inputs: list[list[int]]
    users: list[list[int]]
    users_by_result: dict[int, list[list[int]]]
    arg_users: list[list[int]]
    returned: list[tuple[str, int]]

    def ancestors(self, roots: list[int], within: set[int] | None = None) -> set[int]:
        """`roots` and every op they depend on (only through ops of `within`, if given)."""
        return self._closure(roots, self.op_inputs, within)

    def descendants(self, roots: list[int], within: set[int] | None = None) -> set[int]:
        """`roots` and every op that depends on them (only through ops of `within`, if given)."""
        return self._closure(roots, self.users, within)

    @staticmethod
    def _closure(roots: list[int], edges: list[list[int]], within: set[int] | None) -> set[int]:
        found = {r for r in roots if within is None or r in within}
        stack = list(found)
        while stack:
            for other in edges[stack.pop()]:
                if other not in found and (within is None or other in within):
                    found.add(other)
                    stack.append(other)
        return found


def dataflow(function: ir.Operation) -> Dataflow:
    """Builds the chains; linear in the size of the function."""
    arguments: dict[ir.Value, int] = {value: n for n, value in enumerate(body(function).arguments)}
    all_ops = ops(function)
    home: dict[ir.Value, int] = {result: i for i, op in enumerate(all_ops) for result in op.results}
    op_inputs: list[list[int]] = []
    arg_inputs: list[list[int]] = []
    users: list[list[int]] = [[] for _ in all_ops]
    by_result: dict[int, list[list[int]]] = {
        i: [[] for _ in op.results] for i, op in enumerate(all_ops) if len(op.results) > 1
    }
    arg_users: list[list[int]] = [[] for _ in arguments]
    all_inputs = [inputs(op) for op in all_ops]
    for i, used in enumerate(all_inputs):
        op_inputs.append(list(dict.fromkeys(home[v] for v in used if v in home)))
        arg_inputs.append(list(dict.fromkeys(arguments[v] for v in used if v in arguments)))
        for j in op_inputs[-1]:
            users[j].append(i)
        for value in used:
            if home.get(value) in by_result:
                by_result[home[value]][ir.OpResult(value).result_number].append(i)
        for n in arg_inputs[-1]:
            arg_users[n].append(i)
    returned = [
        ("op", home[v]) if v in home else ("arg", arguments[v])
        for v in terminator(function).operands
    ]
    return Dataflow(
        all_ops, all_inputs, op_inputs, arg_inputs, users, by_result, arg_users, returned
    )


@dataclass(frozen=True)
class StepFacts:
    """The attributes of the microbatch split on @main.

    Attributes:
        phase: of each op.
        varying: ops of the body that depend on the microbatch.
        accumulates: positions of the `shardc.accumulate` calls, as ordered keys.
        batch_args: arguments that are cut into microbatches.
    """

    phase: list[Phase]
    varying: set[int]
    accumulates: dict[int, None]
    batch_args: set[int]


def step_facts(function: ir.Operation, flow: Dataflow) -> StepFacts:
    """Reads phases, batch arguments and accumulations off a split @main."""
    phase = [phase_of(op) or Phase.BODY for op in flow.ops]
    batch_args = {n for n, attrs in enumerate(arg_attrs(function)) if BATCH_DIM in attrs}
    targets = [call_target(op) for op in flow.ops]
    body_ops = {i for i, p in enumerate(phase) if p is Phase.BODY}
    seeds = [
        i
        for i in body_ops
        if targets[i] == MICROBATCH_INDEX or batch_args.intersection(flow.arg_inputs[i])
    ]
    accumulates = {i: None for i, target in enumerate(targets) if target == ACCUMULATE}
    return StepFacts(phase, flow.descendants(seeds, body_ops), accumulates, batch_args)
