"""Which rows of every value the functions of a slice need, and how they are obtained."""

from collections.abc import Iterator
from dataclasses import replace

from jax.extend.mlir import ir

from shardc.analysis.slices.factors import on_rows
from shardc.analysis.slices.held_parts import Kind, Role, Roles, so_far
from shardc.analysis.slices.op_rows import LooksAhead
from shardc.analysis.slices.recipes import (
    Added,
    Carry,
    Finish,
    FunctionSlices,
    Given,
    Iterate,
    Join,
    Make,
    Narrow,
    Recipe,
    Rerun,
    Same,
    Take,
    TokenSlices,
    whole,
)
from shardc.analysis.slices.squares.premises import merged
from shardc.analysis.slices.stage_values import StageValues
from shardc.analysis.slices.token_dims import token_dims
from shardc.analysis.slices.token_slices import States
from shardc.ir.clone import captures
from shardc.ir.walk import body, defining_op, ops
from shardc.plan.function_kind import FunctionKind
from shardc.plan.value_id import is_accumulator
from shardc.rules.allowed_factors import BARRIER


def token_slices(module: ir.Operation) -> TokenSlices | LooksAhead | None:
    """How the functions of a microbatch run slice by slice.

    Returns:
        The op that looks ahead along the first dim that may be the tokens, if no dim can be sliced;
        None if no value that stages exchange has such a dim.
    """
    values = StageValues(module)
    first: LooksAhead | None = None
    for dim in token_dims(values) if values.functions else ():
        states = States(values, dim.seeds)
        refused = states.run()
        found = refused or _slices(values, states, dim.size)
        if isinstance(found, TokenSlices):
            return found
        first = first or found
    return first


def hindrance(found: TokenSlices | LooksAhead | None, count: int) -> str:
    """Why sequences cannot be cut into `count` slices, given the result of `token_slices`; "" if
    they can."""
    if found is None:
        return (
            "the first stage hands nothing on that has a dim of tokens, so there is nothing to"
            " cut into slices"
        )
    if isinstance(found, LooksAhead):
        return f"the sequences cannot be cut into slices: '{found.op.name}' {found.why}"
    if count > found.length:
        return f"sequences of {found.length} tokens cannot be cut into {count} slices"
    return ""


def _slices(values: StageValues, states: States, length: int) -> TokenSlices | LooksAhead:
    found = {}
    premises = merged(
        replace(each, value=values.sources.get(each.value, each.value)) for each in states.premises
    )
    for function in values.functions:
        needed = _Needed(values, states, function)
        for value in (value for value in _in_order(function) if value in premises):
            needed.slices.checked[premises[value]] = states.natural(value)
        refused = needed.run()
        if refused is not None:
            return refused
        found[function] = needed.slices
    return TokenSlices(length, found)


def _in_order(function: ir.Operation) -> Iterator[ir.Value]:
    yield from body(function).arguments
    for op in ops(function):
        yield from op.results


class _Needed:
    """The rows that one function needs, from its results back to its arguments."""

    def __init__(self, values: StageValues, states: States, function: ir.Operation) -> None:
        self._values, self._states, self._function = values, states, function
        self._forward = values.kind(function) is FunctionKind.FORWARD
        self._made_forward = {
            value
            for value, maker in values.makers.values()
            if values.kind(maker) is FunctionKind.FORWARD
        }
        self.slices = FunctionSlices()

    def run(self) -> LooksAhead | None:
        """Fills `slices`; returns the op for which that is impossible, if there is one."""
        found = self._give()
        for premise, roles in self.slices.checked.items():
            found = found or self._need(premise.value, roles)
        for op in reversed(ops(self._function)):
            for result in op.results:
                for roles, recipe in list(self.slices.recipes.get(result, {}).items()):
                    found = found or self._need_all(op, roles, recipe)
        return found

    def _give(self) -> LooksAhead | None:
        """The values that the function returns to others or adds to accumulators."""
        found = None
        for position, (value, name) in enumerate(self._values.results(self._function)):
            op = defining_op(value)
            if not is_accumulator(name):
                roles = self._states.states[value].roles or None
                self.slices.given.append(Given(position, value, roles))
                found = found or self._need(value, self._states.natural(value))
            elif op is not None:
                kinds = [self._states.states[each].kind for each in op.operands]
                operand = 1 if kinds[0] is Kind.TOTAL else 0
                added = op.operands[operand]
                every = kinds[operand] is not Kind.WHOLE
                roles = self._states.natural(added)
                self.slices.added.append(Added(position, op, operand, roles if every else None))
                for each in op.operands:
                    if self._states.states[each].kind is not Kind.TOTAL:
                        found = found or self._need(each, self._states.natural(each))
        return found

    def _need_all(self, op: ir.Operation, roles: Roles, recipe: Recipe) -> LooksAhead | None:
        """Requests the inputs of a recipe for these rows of an op's result."""
        needed: list[tuple[ir.Value, Roles]] = []
        if isinstance(recipe, Same):
            needed = [(op.operands[recipe.position], roles)]
        elif isinstance(recipe, Make | Finish | Carry | Rerun):
            inside = captures(op) if len(op.regions) else []
            needed = [*zip(op.operands, recipe.operands, strict=True)]
            needed += [(value, whole(value)) for value in inside]
        elif isinstance(recipe, Iterate):
            needed = [*zip(op.operands, recipe.operands, strict=True), *recipe.captured]
        for operand, rows in needed:
            refused = self._need(operand, rows)
            if refused is not None:
                return refused
        return None

    def _need(self, value: ir.Value, roles: Roles) -> LooksAhead | None:
        recipes = self.slices.recipes.setdefault(value, {})
        if roles in recipes:
            return None
        found = self._recipe(value, roles)
        if isinstance(found, LooksAhead):
            return found
        if isinstance(found, Narrow | Join):
            refused = self._need(value, found.source)
            if refused is not None:
                return refused
        recipes[roles] = found
        return None

    def _recipe(self, value: ir.Value, roles: Roles) -> Recipe | LooksAhead:
        natural, op = self._states.natural(value), defining_op(value)
        rows = None if op is None else self._states.rows.get(op)
        if rows is not None and rows.carried is not None and rows.rerun:
            every = so_far(natural)
            if roles in (natural, every):
                return Narrow(every) if roles != every else Rerun(rows.operands, rows.carried)
        if roles == natural:
            return Take() if op is None else self._own(op)
        if op is not None and op.name == BARRIER:
            return Same(ir.OpResult(value).result_number)
        operands = None
        if op is not None:
            result = ir.OpResult(value).result_number
            operands = on_rows(op, self._values.rules.get(op), result, roles)
        if self._states.states[value].kind is not Kind.CUT:
            return Narrow(natural) if operands is None else Make(operands, (roles,))
        if op is not None and op.name == "stablehlo.broadcast_in_dim" and operands is not None:
            return Make(operands, (roles,))
        widened = [d for d, r in enumerate(natural) if (r, roles[d]) == (Role.OWN, Role.PAST)]
        source = tuple(Role.PAST if d in widened else r for d, r in enumerate(natural))
        lost = any(role and not wanted for role, wanted in zip(natural, roles, strict=True))
        if not lost and source != roles:
            return Narrow(source)
        if not lost and widened and natural.count(None) == len(natural) - 1:
            maker = self._values.sources.get(value, value)
            if (op is not None and self._forward) or (op is None and maker in self._made_forward):
                if op is not None:
                    self.slices.joined[value] = None
                return Join(natural, widened[0])
            if operands is not None:
                return Make(operands, (roles,))
        user = next(iter(value.uses)).owner.operation
        return LooksAhead(user, "needs for each token what later ones give it")

    def _own(self, op: ir.Operation) -> Recipe:
        rows = self._states.rows.get(op)
        results = tuple(self._states.natural(result) for result in op.results)
        if rows is None:
            return Make(tuple(whole(operand) for operand in op.operands), results)
        if rows.loop is not None:
            cut = rows.loop.cut
            captured = tuple(
                (v, self._states.natural(v) if v in cut else whole(v)) for v in captures(op)
            )
            return Iterate(rows.loop, rows.operands, captured, results)
        if rows.carried is not None:
            return Carry(rows.operands, rows.carried)
        if rows.finished is None:
            return Make(rows.operands, results)
        return Finish(rows.operands, rows.finished)
