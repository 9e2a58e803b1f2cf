"""A random strategy for every op of a program: none of them may change what it computes."""

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.shardings.strategies import (
    identity_strategies,
    result_strategies,
    splitting,
    value_shardings,
    whole_strategy,
)
from shardc.ir.attributes import (
    REDUCE_AXES,
    SHARDING,
    arg_attrs,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
    str_array,
)
from shardc.ir.shardings import (
    add_mesh,
    attrs_on,
    set_operand_shardings,
    set_result_shardings,
    to_attr,
)
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import CONTROL_FLOW, body, main_function, planned_ops, terminator
from shardc.plan.layout import Mesh
from shardc.rules.program_rules import rules_of


def plan_at_random(module: ir.Module, mesh: Mesh, seed: int) -> None:
    """Annotates @main in place: each op, argument and result lies in some way it may lie in."""
    random = np.random.default_rng(seed)
    main = main_function(module.operation)
    rules = rules_of(module.operation)["main"]
    sums: dict[ir.Value, set[str]] = {}  # axes over which a value is a partial sum
    with module.context, ir.Location.unknown():
        add_mesh(module.operation, "mesh", mesh)
        for op, rule in zip(planned_ops(main), rules, strict=True):
            if op.name in CONTROL_FLOW:
                plan_control_flow_at_random(op, mesh, random)
                continue
            incoming = [sums.get(operand, set()) for operand in op.operands]
            options = [
                strategy
                for strategy in splitting(
                    op, None if in_condition(op) else rule, tuple(map(bool, incoming))
                ).on(mesh)
                if all(
                    set(w.unreduced) <= s for w, s in zip(strategy.operands, incoming, strict=True)
                )
            ]
            chosen = options[random.integers(len(options))]
            for result, sharding in zip(op.results, chosen.results, strict=True):
                sums[result] = set(sharding.unreduced)
            set_operand_shardings(op, chosen.operands, attrs_on("mesh"))
            set_result_shardings(op, chosen.results, attrs_on("mesh"))
            if chosen.reduce_axes:
                op.attributes[REDUCE_AXES] = str_array(chosen.reduce_axes)

        def marked(
            attrs: list[dict[str, ir.Attribute]], values: list[ir.Value]
        ) -> list[dict[str, ir.Attribute]]:
            found = []
            for each, value in zip(attrs, values, strict=True):
                options = value_shardings(shape_of(value), mesh.axes)
                chosen = options[random.integers(len(options))]
                found.append({**each, SHARDING: to_attr(chosen, "mesh")})
            return found

        set_arg_attrs(main, marked(arg_attrs(main), list(body(main).arguments)))
        set_result_attrs(main, marked(result_attrs(main), list(terminator(main).operands)))


def plan_control_flow_at_random(op: ir.Operation, mesh: Mesh, random: np.random.Generator) -> None:
    """Annotates a loop, whose condition reads whole values, or a branch."""
    if op.name == "stablehlo.while":
        read = [next(iter(v.uses), None) is not None for v in op.regions[0].blocks[0].arguments]
        options = [
            whole_strategy(value) if whole else identity_strategies(value, mesh, False)
            for value, whole in zip(op.operands, read, strict=True)
        ]
    else:
        choice = whole_strategy(op.operands[0], result=False)
        options = [choice, *(result_strategies(value, mesh) for value in op.results)]
    chosen = [each[random.integers(len(each))] for each in options]
    set_operand_shardings(op, [s for each in chosen for s in each.operands], attrs_on("mesh"))
    set_result_shardings(op, [s for each in chosen for s in each.results], attrs_on("mesh"))


def in_condition(op: ir.Operation) -> bool:
    """Whether `op` decides if a loop goes on."""
    loop = op.parent
    return loop.name == "stablehlo.while" and loop.regions[0].blocks[0] == op.block
