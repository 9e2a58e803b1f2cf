"""What the shardings of a plan do, read off the annotated stage functions."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.analysis.program.counted_loop import trip_count
from shardc.analysis.program.flops import op_cost
from shardc.analysis.program.fusion import Traffic, fused_traffic
from shardc.analysis.program.op_classes import PRODUCTS, WITHOUT_COST
from shardc.analysis.program.op_work import op_works
from shardc.analysis.program.stage_table import argument_names, argument_rows
from shardc.analysis.roles.alive import AliveValues
from shardc.analysis.roles.axis_role import role_of
from shardc.analysis.roles.dims import Dims
from shardc.analysis.roles.parts import Parts, Place
from shardc.analysis.roles.placed_arguments import gradients, placed_arguments
from shardc.analysis.roles.taint import Taint
from shardc.analysis.roles.weights import Weights
from shardc.cost.model import CostModel
from shardc.cost.reshard import describe
from shardc.ir.attributes import NUM_MICROBATCHES, STAGE, function_kind, get_int
from shardc.ir.shardings import meshes, operand_shardings, result_shardings
from shardc.ir.tensor_types import num_bytes, shape_of
from shardc.ir.walk import CONTROL_FLOW, functions, planned_ops, symbol
from shardc.plan.account import (
    Alive,
    ArgumentKind,
    AxisUse,
    Part,
    PlacedArgument,
    Product,
    Role,
    Worst,
)
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh, TensorSharding
from shardc.plan.predicted import StageReport
from shardc.plan.value_id import argument_id, value_id
from shardc.rules.allowed_factors import unshared_factors
from shardc.rules.op_rule import OpRule
from shardc.rules.program_rules import rules_of
from shardc.solver.interrupt import poll_optional


@dataclass(frozen=True)
class Strategy:
    """The strategy of an op, read off its shardings."""

    operands: tuple[TensorSharding, ...]
    results: tuple[TensorSharding, ...]
    num_shards: int


@dataclass
class _Use:
    """Amounts by role of one axis."""

    flops: Counter[Role]
    num_bytes: Counter[Role]


@dataclass(frozen=True)
class Facts:
    """The result of `account_of`; its fields are those of `shardc.plan.account.Account`."""

    arguments: tuple[PlacedArgument, ...]
    axes: tuple[AxisUse, ...]
    worst: tuple[Worst, ...]
    parts: tuple[Part, ...]
    products: tuple[Product, ...]
    alive: tuple[Alive, ...]


def account_of(
    module: ir.Operation,
    model: CostModel,
    batch: Mapping[int, int],
    reports: Sequence[StageReport],
) -> Facts:
    """Roles of the axes, placement of the arguments, and cost by part of the model.

    Args:
        module: stage functions with the shardings of a plan.
        batch: user argument that holds the batch -> its batch dim.
        reports: of the stages.
    Raises:
        OutOfGraceError: planning was interrupted, and this takes too long.
    """
    return _Reader(module, model, batch, reports).read()


class _Reader:
    def __init__(
        self,
        module: ir.Operation,
        model: CostModel,
        batch: Mapping[int, int],
        reports: Sequence[StageReport],
    ) -> None:
        self.module, self.model = module, model
        self.peaks = dict(each.peak_at for each in reports)
        self.rules = rules_of(module)
        rows = argument_rows(module)  # of a batch argument, the dim before counts microbatches
        ids = {argument_id(a): d + (rows[a].batch_dim is not None) for a, d in batch.items()}
        self.taint = Taint(module, ids)
        self.dims = Dims(module, self.rules, self.taint, ids)
        self.names = argument_names(module)
        self.alive = AliveValues(module, [each.held for each in reports], self.names)
        self.weights = Weights(module, self.taint, self._name_of)
        self.meshes = meshes(module)
        self.count = get_int(module, NUM_MICROBATCHES) or 1
        self.uses: dict[tuple[int, str], _Use] = {}
        self.parts = Parts()
        self.products: list[Product] = []

    def read(self) -> Facts:
        """All of it."""
        for function in functions(self.module):
            self._read_function(function)
        arguments = placed_arguments(self.module, self.meshes)
        axes = tuple(
            AxisUse(
                stage,
                axis,
                size,
                _shares(use.flops),
                _shares(use.num_bytes),
                self._state(stage, axis, arguments),
            )
            for stage, mesh in self._stages()
            for axis, size in mesh.axes
            for use in [self.uses.get((stage, axis), _Use(Counter(), Counter()))]
        )
        worst, parts = self.parts.worst(), self.parts.named()
        alive = self.alive.groups(self.parts.path_of())
        return Facts(arguments, axes, worst, parts, tuple(self.products), alive)

    def _stages(self) -> Iterator[tuple[int, Mesh]]:
        for stage in range(len(self.meshes)):
            yield stage, self.meshes[f"stage{stage}"]

    def _read_function(self, function: ir.Operation) -> None:
        poll_optional()
        kind = function_kind(function) or FunctionKind.UPDATE
        stage = get_int(function, STAGE) or 0
        mesh = self.meshes[f"stage{stage}"]
        repeats = self.count if kind.per_microbatch else 1
        own, rules = planned_ops(function), self.rules[symbol(function)]
        trips: dict[ir.Operation, int] = {function: repeats}
        self.parts.enter()
        peak = self.peaks.get(symbol(function))
        for number, (op, traffic) in enumerate(zip(own, fused_traffic(function), strict=True)):
            poll_optional()
            place = self.parts.place(op, stage, kind, self.weights[op], self._read_by(op))
            self.alive.enter(symbol(function), number, place, op)
            if peak is not None and number == min(peak, len(own) - 1):
                self.parts.add_worst(place, op)
            assert op.parent is not None, "an op of a function has a parent"
            times = trips[op.parent.operation]
            if op.name in CONTROL_FLOW:
                count = trip_count(op) if op.name == "stablehlo.while" else 1
                trips[op] = times * (count or 1)
                continue
            strategy = _strategy(op, mesh, rules[number])
            if strategy is None:
                continue
            self._count_part(op, strategy, traffic, mesh, place, times)
            if kind is not FunctionKind.UPDATE:
                self._count_axes(op, strategy, mesh, stage, kind, times)
            if kind is FunctionKind.FORWARD:
                self._add_product(op, strategy, stage, self.weights[op])

    def _name_of(self, value: ir.Value) -> str:
        """The user's name of the only argument that a value is computed from; "" otherwise."""
        made_of = self.taint.of(value) or frozenset()
        if len(made_of) != 1:
            return ""
        number = value_id(next(iter(made_of))).number
        return self.names[number] if number < len(self.names) else ""

    def _read_by(self, op: ir.Operation) -> str:
        """The user's name of the parameter that an op on activations reads, such as a bias, or
        whose gradient it computes."""
        if own := self.weights[op]:
            return own
        if not op.results or self.taint.of(op.results[0]) is not None:
            return ""
        return next(filter(None, map(self._name_of, op.operands)), "")

    def _count_part(
        self, op: ir.Operation, strategy: Strategy, traffic: Traffic, mesh: Mesh, place: Place,
        times: int,
    ) -> None:  # fmt: skip
        if op.name in WITHOUT_COST and not traffic.num_bytes:
            return
        cost = op_cost(op)
        (work,) = op_works(op, cost, traffic, [strategy], mesh)
        took_s = self.model.on(mesh).op_s(work)
        lies = describe(strategy.results[0]) if op.name in PRODUCTS else ""
        self.parts.add(place, op, times, cost.flops, took_s, lies)

    def _count_axes(
        self,
        op: ir.Operation,
        strategy: Strategy,
        mesh: Mesh,
        stage: int,
        kind: FunctionKind,
        times: int,
    ) -> None:
        heavy = op.name in PRODUCTS
        if not heavy and (op.name in WITHOUT_COST or not op.results or _is_made_of_nothing(op)):
            return
        if not heavy and self.taint.of(op.results[0]) is not None:
            return  # computed from parameters alone
        amount = op_cost(op).flops if heavy else sum(map(num_bytes, op.results))
        for axis, _ in mesh.axes:
            role = role_of(op, strategy.operands, strategy.results, axis, self.dims, self.taint)
            use = self.uses.setdefault((stage, axis), _Use(Counter(), Counter()))
            if role in (Role.COLUMNS, Role.ROWS) and kind is not FunctionKind.FORWARD:
                role = Role.FEATURES
            (use.flops if heavy else use.num_bytes)[role] += amount * times

    def _add_product(self, op: ir.Operation, strategy: Strategy, stage: int, name: str) -> None:
        if op.name not in PRODUCTS or (position := self.taint.weight_of(op)) is None:
            return
        shape = shape_of(op.operands[position])
        lies = describe(strategy.operands[position])
        self.products.append(Product(stage, shape, lies, describe(strategy.results[0]), name))

    def _state(
        self, stage: int, axis: str, arguments: Sequence[PlacedArgument]
    ) -> dict[str, float]:
        """The share of parameters, optimizer state and gradients that an axis splits."""
        total: Counter[str] = Counter()
        split: Counter[str] = Counter()
        found = [
            (each.kind.value, math.prod(each.shape), each.lies)
            for each in arguments
            if each.stage == stage and each.kind is not ArgumentKind.INPUTS
        ]
        found += [("gradients", size, lies) for size, lies in gradients(self.module, stage)]
        for name, size, lies in found:
            total[name] += size
            split[name] += size if axis in lies.axes else 0
        return {name: split[name] / total[name] for name in total if total[name]}


def _strategy(op: ir.Operation, mesh: Mesh, rule: OpRule | None) -> Strategy | None:
    """The strategy of an op; axes that split what is looked up do not divide the work."""
    operands, results = operand_shardings(op), result_shardings(op)
    if operands is None or results is None:
        return None
    axes = {axis for each in (*operands, *results) for axis in each.axes}
    if rule is not None:
        unshared = unshared_factors(op, rule)
        taken = zip(operands, rule.operands, strict=False)  # captures have no factors
        for lies, dims in (*taken, *zip(results, rule.results, strict=True)):
            for own, factors in zip(lies.dims, dims, strict=True):
                if any(unshared[factor] for factor in factors):
                    axes.difference_update(own)
    return Strategy(tuple(operands), tuple(results), mesh.num_shards(tuple(axes)))


def _is_made_of_nothing(op: ir.Operation) -> bool:
    return not len(op.operands)


def _shares(amounts: Mapping[Role, int]) -> dict[Role, float]:
    total = sum(amounts.values())
    return {role: amount / total for role, amount in amounts.items() if amount} if total else {}
