"""A random strategy for every op of a program: none of them may change what it computes."""

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.sharding_rules import main_rules
from shardc.analysis.strategies import op_strategies, value_shardings
from shardc.ir.attributes import (
    REDUCE_AXES,
    SHARDING,
    arg_attrs,
    result_attrs,
    set_arg_attrs,
    set_result_attrs,
    str_array,
)
from shardc.ir.shardings import add_mesh, set_operand_shardings, set_result_shardings, to_attr
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, main_function, ops, terminator
from shardc.plan import Mesh


def plan_at_random(module: ir.Module, mesh: Mesh, seed: int) -> None:
    """Annotates @main in place: each op, argument and result lies in some way it may lie in."""
    random = np.random.default_rng(seed)
    main = main_function(module.operation)
    rules = main_rules(module.operation)
    sums: dict[ir.Value, set[str]] = {}  # axes over which a value is a partial sum
    with module.context, ir.Location.unknown():
        add_mesh(module.operation, "mesh", mesh)
        for op, rule in zip(ops(main), rules, strict=True):
            incoming = [sums.get(operand, set()) for operand in op.operands]
            options = [
                strategy
                for strategy in op_strategies(op, rule, mesh, tuple(map(bool, incoming)))
                if all(
                    set(w.unreduced) <= s for w, s in zip(strategy.operands, incoming, strict=True)
                )
            ]
            chosen = options[random.integers(len(options))]
            for result, sharding in zip(op.results, chosen.results, strict=True):
                sums[result] = set(sharding.unreduced)
            set_operand_shardings(op, chosen.operands, "mesh")
            set_result_shardings(op, chosen.results, "mesh")
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
