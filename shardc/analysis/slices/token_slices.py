"""Proves that token slices can run one after the other, and says what each computes of every value.

Each dim of tokens is cut: a slice has its own rows, and of keys and values also those of all
earlier slices. States propagate forward through the functions of a microbatch in the order in which
these run; see docs/proofs.md, "Token slices".
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from jax.extend.mlir import ir

from shardc.analysis.loops.token_loop import token_loop
from shardc.analysis.slices.factors import (
    FactorRoles,
    adds_up,
    alone,
    on_rows,
    passes,
    with_roles,
)
from shardc.analysis.slices.held_parts import SUM, TOTAL, WHOLE, Kind, Role, Roles, State, so_far
from shardc.analysis.slices.op_rows import LooksAhead, OpRows
from shardc.analysis.slices.orientation import queries_and_keys
from shardc.analysis.slices.recipes import whole
from shardc.analysis.slices.squares.above_diagonal import Low, Square
from shardc.analysis.slices.squares.moved_dims import Dims
from shardc.analysis.slices.squares.premises import Premise
from shardc.analysis.slices.squares.regions import Region
from shardc.analysis.slices.stage_values import StageValues
from shardc.ir.clone import captures
from shardc.ir.constants import is_zero
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import CONTROL_FLOW, defining_op, ops
from shardc.plan.function_kind import FunctionKind
from shardc.plan.value_id import is_accumulator
from shardc.rules.allowed_factors import BARRIER
from shardc.rules.op_rule import OpRule
from shardc.rules.partial_sums import keeps_partial
from shardc.rules.reducers import is_bitwise, reducer
from shardc.rules.running_sums import Running, running

INF = float("inf")
# The numbers that do not change a reduction.
_NEUTRAL = {"add": 0.0, "or": 0.0, "and": 1.0, "multiply": 1.0, "maximum": -INF, "minimum": INF}
# Of a recurrence that was written out, these read and write one token.
_BY_NUMBER = {"stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"}


def _own(value: ir.Value, dim: int) -> Roles:
    return tuple(Role.OWN if d == dim else None for d in range(len(shape_of(value))))


class States:
    """What a slice has of every value.

    Args:
        seeds: values of forward functions computed only from arguments, and their dim of the
            tokens.
    """

    def __init__(self, values: StageValues, seeds: Mapping[ir.Value, int]) -> None:
        self.values, self._seeds = values, seeds
        self.states: dict[ir.Value, State] = {}
        self.rows: dict[ir.Operation, OpRows] = {}
        self.premises: set[Premise] = set()
        self._square = Square(values.origins, self._at_hand)
        self._kind = FunctionKind.FORWARD

    def run(self) -> LooksAhead | None:
        """Propagates through all functions; returns the op at which that fails, if any."""
        for function in self.values.functions:
            for argument, name in self.values.arguments(function):
                source = self.values.sources.get(argument)
                known = WHOLE if source is None else self.states[source]
                self.states[argument] = TOTAL if is_accumulator(name) else known
            self._kind = self.values.kind(function)
            backward = self._kind is not FunctionKind.FORWARD
            for op in ops(function):
                refused = self._step(op, backward)
                if refused is not None:
                    return refused
            for value, name in self.values.results(function):
                kind = self.states[value].kind
                if kind is Kind.SUM or (kind is Kind.TOTAL) is not is_accumulator(name):
                    maker = defining_op(value)
                    assert maker is not None, "arguments are whole, cut or totals"
                    return LooksAhead(maker, "is a sum over all tokens that is used")
        return None

    def natural(self, value: ir.Value) -> Roles:
        """The rows of a value that a slice computes."""
        return self.states[value].roles or whole(value)

    def _at_hand(self, value: ir.Value) -> bool:
        """Whether each element of a value is in some slice."""
        state = self.states.get(value)
        known = state is not None and state.kind in (Kind.WHOLE, Kind.CUT)
        return known and state is not None and Role.PAST not in state.roles

    def _relies_on(self, ask: Callable[[], bool]) -> bool:
        """The answer; the premises of a yes join `premises`."""
        answer, premises = self._square.resting_on(ask)
        if answer:
            self.premises |= premises
        return answer

    def _is_zero_above(self, value: ir.Value, roles: Roles) -> bool:
        """Whether a square is zero where a key comes after its query."""
        query, key = _dims(roles)
        square = query is not None and key is not None
        return square and self._square.fact(value, (query, key), Region.ABOVE) == 0.0

    def _vanishes(self, op: ir.Operation, rows: Sequence[Roles]) -> bool:
        """Whether an op multiplies everything that a slice leaves out by zero, or adds only zeros
        from it."""

        def by(position: int) -> bool:
            others = [p for p in range(len(rows)) if p != position]
            return self._is_zero_above(op.operands[position], rows[position]) and all(
                self._square.is_finite(op.operands[p], _dims(rows[p])) for p in others
            )

        return any(self._relies_on(functools.partial(by, p)) for p in range(len(rows)))

    def _step(self, op: ir.Operation, backward: bool) -> LooksAhead | None:
        given = [self.states[value] for value in op.operands]
        inside = (
            [self.states.get(value, WHOLE) for value in captures(op)] if len(op.regions) else []
        )
        kinds = {state.kind for state in (*given, *inside)}
        if Kind.TOTAL in kinds:
            return self._total(op, given)
        if op.name == BARRIER:
            self.rows[op] = OpRows(
                tuple(s.roles or whole(v) for s, v in zip(given, op.operands, strict=True))
            )
            self.states.update(zip(op.results, given, strict=True))
            return None
        if Kind.SUM in kinds:
            return self._linear(op, given)
        rule = self.values.rules.get(op)
        if Kind.CUT in kinds:
            if inside or op.name in CONTROL_FLOW:
                return self._loop(op, given, backward)
            return self._cut(op, rule, given, backward)
        self.states.update(dict.fromkeys(op.results, WHOLE))
        seed = self._seeds.get(op.results[0]) if len(op.results) == 1 else None
        if seed is not None:
            rank = len(shape_of(op.results[0]))
            roles = tuple(Role.OWN if dim == seed else None for dim in range(rank))
            operands = on_rows(op, rule, 0, roles)
            if operands is not None:
                self.rows[op] = OpRows(operands)
                self.states[op.results[0]] = State(Kind.CUT, roles)
        return None

    def _total(self, op: ir.Operation, given: Sequence[State]) -> LooksAhead | None:
        """An addition to an accumulator, or a write into one."""
        totals = [p for p, state in enumerate(given) if state.kind is Kind.TOTAL]
        adds = op.name == "stablehlo.add" and len(totals) == 1
        writes = op.name == "stablehlo.dynamic_update_slice" and totals == [0]
        if not adds and not writes:
            return LooksAhead(op, "uses a sum over the microbatches before it is whole")
        position = 1 - totals[0] if adds else 1
        added, state = op.operands[position], given[position]
        if state.kind is Kind.SUM and not adds:
            return LooksAhead(op, "keeps a sum over all tokens for each microbatch")
        zero = functools.partial(self._is_zero_above, added, state.roles)
        if Role.PAST in state.roles and not self._relies_on(zero):
            return LooksAhead(op, "keeps what tokens have of those after them")
        self.states[op.results[0]] = TOTAL
        return None

    def _linear(self, op: ir.Operation, given: Sequence[State]) -> LooksAhead | None:
        partial = {p for p, state in enumerate(given) if state.kind is Kind.SUM}
        others = [state for state in given if state.kind is Kind.CUT]
        zero = {p for p, value in enumerate(op.operands) if is_zero(value)}
        if others or not keeps_partial(op, partial, zero):
            return LooksAhead(op, "needs the sum over all tokens, those to come among them")
        self.states.update(dict.fromkeys(op.results, SUM))
        return None

    def _cut(
        self, op: ir.Operation, rule: OpRule | None, given: Sequence[State], backward: bool
    ) -> LooksAhead | None:
        along = running(op)
        if along is not None and given[0].dim(Role.OWN) == along.dim and not given[1].roles:
            return self._carried(op, along, given[0], backward)
        if rule is None or len(rule.operands) != len(op.operands):
            return LooksAhead(op, "has no rule that says which rows need which")
        factors: dict[int, set[Role]] = {}
        for state, mapping in zip(given, rule.operands, strict=True):
            for dim, role in enumerate(state.roles):
                if role is None:
                    continue
                factor = alone(rule, mapping, dim)
                if factor is None:
                    return LooksAhead(op, "merges the tokens with another dim")
                factors.setdefault(factor, set()).add(role)
        wanted = self._roles(op, rule, factors)
        if wanted is None:
            return LooksAhead(op, "lets every token meet every other in an unknown order")
        return self._made(op, rule, wanted, backward)

    def _carried(
        self, op: ir.Operation, along: Running, given: State, backward: bool
    ) -> LooksAhead | None:
        """A running sum in the order in which the slices run, or one that a backward pass
        recomputes from all rows so far; `needed_rows` refuses it if these are not available."""
        if Role.PAST in given.roles or (along.reverse and not backward):
            return LooksAhead(op, "takes in tokens that come later")
        rerun = backward and not along.reverse
        rows = so_far(given.roles) if rerun else given.roles
        self.rows[op] = OpRows((rows, ()), carried=along, rerun=rerun)
        self.states[op.results[0]] = given
        return None

    def _loop(self, op: ir.Operation, given: Sequence[State], backward: bool) -> LooksAhead | None:
        """A loop that visits the tokens in the order in which the slices run."""
        loop = token_loop(op) if op.name == "stablehlo.while" else None
        if loop is None:
            return LooksAhead(op, "goes through all tokens in a loop or branch")
        if loop.rows.forwards is backward:
            later = "recomputes a loop over all tokens" if backward else "begins at the last token"
            return LooksAhead(op, later)
        if loop.carried and self._kind is FunctionKind.WEIGHT:
            return LooksAhead(op, "needs the slices in an order that weight gradients do not keep")
        cut = {}
        for value in captures(op):
            state = self.states.get(value, WHOLE)
            if state.kind is Kind.CUT:
                dim = loop.cut.get(value)
                if dim is None or state.roles != _own(value, dim):
                    return LooksAhead(op, "reads more in an iteration than the row of its token")
                cut[value] = dim
        results = []
        for p, (state, result) in enumerate(zip(given, op.results, strict=True)):
            dim = loop.rows.writes.get(p)
            roles = whole(result) if dim is None else _own(result, dim)
            if state.kind is Kind.CUT and state.roles != roles:
                return LooksAhead(op, "begins with all tokens")
            last = p in loop.carried or p in loop.rows.counted.counters
            if last and list(result.uses):
                return LooksAhead(op, "gives what it has come to after the last token")
            self.states[result] = SUM if p in loop.rows.sums else State(Kind.CUT, roles)
            if last:
                self.states[result] = WHOLE
            results.append(roles)
        self.rows[op] = OpRows(tuple(results), loop=replace(loop, cut=cut))
        return None

    def _roles(
        self, op: ir.Operation, rule: OpRule, factors: Mapping[int, set[Role]]
    ) -> FactorRoles | None:
        """The rows of each factor that the op needs; None if unknown."""
        wanted = {f: Role.PAST if Role.PAST in roles else Role.OWN for f, roles in factors.items()}
        if len(wanted) == 2 and Role.PAST not in wanted.values():
            first, second = wanted
            if queries_and_keys(op, rule, (first, second), self.states, self.values.rules):
                wanted[second] = Role.PAST
            else:
                wanted[first] = Role.PAST
        fits = sorted(role.value for role in wanted.values()) in (["own"], ["own", "past"])
        return wanted if fits else None

    def _made(
        self, op: ir.Operation, rule: OpRule, wanted: FactorRoles, backward: bool
    ) -> LooksAhead | None:
        """The states of the results of an op whose factors have roles."""
        operands = [with_roles(mapping, wanted) for mapping in rule.operands]
        results = [with_roles(mapping, wanted) for mapping in rule.results]
        if None in operands or None in results:
            return LooksAhead(op, "merges the tokens with another dim")
        rows = tuple(roles for roles in operands if roles is not None)
        reduced: set[Role] = set()
        for factor, role in wanted.items():
            present = [any(factor in factors for factors in mapping) for mapping in rule.results]
            if any(present):
                if not passes(op, rule, factor):
                    single = op.name in _BY_NUMBER
                    why = (
                        "takes tokens by their number" if single else "makes each token of several"
                    )
                    return LooksAhead(op, why)
                continue
            if role is Role.PAST and not self._unnoticed(op, rule, rows):
                return LooksAhead(op, "takes in tokens that come later")
            if role is Role.OWN and not adds_up(op, rule, factor):
                return LooksAhead(op, "needs all tokens at once")
            reduced.add(role)
        roles = results[0]
        assert roles is not None
        if reduced and len(op.results) > 1:
            return LooksAhead(op, "needs all tokens at once")
        if Role.OWN in reduced and Role.PAST in roles:
            if not backward or not self._vanishes(op, rows):
                return LooksAhead(op, "adds up for each token what later ones give it")
            dim = roles.index(Role.PAST)
            self.rows[op] = OpRows(rows, dim)
            done = tuple(Role.OWN if d == dim else None for d in range(len(roles)))
            self.states[op.results[0]] = State(Kind.CUT, done)
            return None
        self.rows[op] = OpRows(rows)
        for value, each in zip(op.results, results, strict=True):
            assert each is not None
            cut = State(Kind.CUT, each) if any(each) else WHOLE
            self.states[value] = SUM if Role.OWN in reduced else cut
        return None

    def _unnoticed(self, op: ir.Operation, rule: OpRule, rows: Sequence[Roles]) -> bool:
        """Whether an op that reduces keys has the same result without those after the query."""
        if op.name == "stablehlo.dot_general":
            return self._vanishes(op, rows)
        if op.name != "stablehlo.reduce" or len(op.operands) != 2:
            return False
        name, state = reducer(op), State(Kind.CUT, rows[0])
        query, key = state.dim(Role.OWN), state.dim(Role.PAST)
        if name not in _NEUTRAL or is_bitwise(op) or query is None or key is None:
            return False
        least = _NEUTRAL[name]

        def unnoticed() -> bool:
            found = self._square.fact(op.operands[0], (query, key), Region.ABOVE)
            return found == least or (name == "maximum" and isinstance(found, Low))

        return self._relies_on(unnoticed)


def _dims(roles: Roles) -> Dims:
    """The dims of queries and keys."""
    state = State(Kind.CUT, roles)
    return state.dim(Role.OWN), state.dim(Role.PAST)
