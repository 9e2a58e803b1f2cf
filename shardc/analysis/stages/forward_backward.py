"""Which ops of the microbatch body are forward, and which backward.

The results that are not state, the loss and the metrics, depend on forward ops only. JAX's
`transpose(jvp(...))` locations are used only if there is no such result, or if none of them needs
a product, as a count of tokens does. What is left is a backward pass if it has products: a decoding
step also returns caches, which its results need not depend on.
"""

from shardc.analysis.program.def_use import Dataflow, StepFacts
from shardc.analysis.program.flops import is_heavy
from shardc.ir.tensor_types import num_elements
from shardc.plan.function_kind import Phase


def forward_ops(flow: Dataflow, facts: StepFacts, state_results: set[int]) -> set[int] | None:
    """Positions of the forward ops, accumulations included; None if they cannot be determined.

    Without a backward pass in JAX's locations all are: in a decoding or search step.

    Args:
        state_results: results of the function that become arguments of the next call.
    """
    body = {i for i, phase in enumerate(facts.phase) if phase is Phase.BODY}
    state_roots = {
        index
        for r, (kind, index) in enumerate(flow.returned)
        if kind == "op" and r in state_results
    }
    if not state_roots:
        return body
    feeds_state = flow.ancestors(sorted(state_roots))
    roots = [i for i in facts.accumulates if i not in feeds_state]
    if not roots:
        roots = _least_scalar(flow, facts, body)
    if not roots:
        return _by_location(flow, body)
    found = flow.ancestors(roots, body)
    if not _has_products(flow, found) and _has_products(flow, body):
        return _by_location(flow, body) or found
    return found if _has_products(flow, body - found) else body


def _has_products(flow: Dataflow, ops: set[int]) -> bool:
    return any(is_heavy(flow.ops[i]) for i in ops)


def _least_scalar(flow: Dataflow, facts: StepFacts, body: set[int]) -> list[int]:
    """The scalar accumulation that depends on the fewest ops: the loss, if state holds it."""
    scalars = [i for i in facts.accumulates if num_elements(flow.ops[i].results[0]) == 1]
    sizes = {i: len(flow.ancestors([i], body)) for i in scalars}
    return [min(scalars, key=lambda i: sizes[i])] if scalars else []


def _by_location(flow: Dataflow, body: set[int]) -> set[int] | None:
    places = {i: str(flow.ops[i].location) for i in body}
    backward = [i for i in body if "transpose(" in places[i]]
    if not backward:
        return body if any("jit(" in place for place in places.values()) else None
    return body - flow.descendants(backward, body)
