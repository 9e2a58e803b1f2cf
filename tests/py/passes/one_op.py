"""Programs around one op: which ways it may be split, and the module annotated with one of them."""

import itertools

import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.shardings.sharding_checks import disagreement
from shardc.analysis.shardings.strategies import Strategy, splitting, value_shardings
from shardc.ir.attributes import REDUCE_AXES, SHARDING, set_arg_attrs, set_result_attrs, str_array
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.shardings import (
    add_mesh,
    attrs_on,
    set_operand_shardings,
    set_result_shardings,
    to_attr,
)
from shardc.ir.tensor_types import dtype_of, shape_of
from shardc.ir.walk import body, main_function, ops, terminator
from shardc.passes.pipeline import LOCAL_LOWERING
from shardc.plan.layout import Mesh, TensorSharding
from shardc.rules.op_rule import OpRule
from shardc.rules.program_rules import main_rules

MESH = Mesh((("x", 2), ("y", 2)), (0, 1, 2, 3))
TARGET = "target"  # unit attribute: this is the op under test


def target_of(module: ir.Module) -> tuple[ir.Operation, OpRule | None]:
    """The op that is marked `{target}` and its sharding rule."""
    rules, _ = main_rules(module.operation)
    all_ops = ops(main_function(module.operation))
    return next(
        (op, rule) for op, rule in zip(all_ops, rules, strict=True) if TARGET in op.attributes
    )


def strategies(op: ir.Operation, rule: OpRule | None, mesh: Mesh = MESH) -> list[Strategy]:
    """Every strategy of the planner, those for arguments that are partial sums included."""
    arguments = tuple(isinstance(v.owner, ir.Block) for v in op.operands)
    found = dict.fromkeys(splitting(op, rule, (False,) * len(op.operands)).on(mesh))
    return list(found | dict.fromkeys(splitting(op, rule, arguments).on(mesh)))


def accepted(op: ir.Operation, rule: OpRule | None, mesh: Mesh) -> list[Strategy]:
    """Every way to lay out operands and results that the lowering does not refuse."""
    found = []
    ways = [value_shardings(shape_of(v), mesh.axes, True) for v in (*op.operands, *op.results)]
    constants = [i for i, v in enumerate(op.operands) if not isinstance(v.owner, ir.Block)]
    for shardings in itertools.product(*ways):
        operands = shardings[: len(op.operands)]
        results = shardings[len(op.operands) :]
        if any(operands[i].unreduced for i in constants):
            continue  # what is not an argument here is whole, and cannot become a partial sum
        for axes in [(), *((name,) for name, _ in mesh.axes)]:
            if disagreement(op, rule, mesh, operands, results, axes) is None:
                found.append(Strategy(operands, results, axes, 1))
    return found


def annotated(text: str, strategy: Strategy, mesh: Mesh = MESH) -> ir.Module:
    """The program with `strategy` on its target; every other op works on whole values.

    Arguments lie as the target wants them and all results are whole, so partial sums are
    reduced and parts gathered behind the target.
    """
    module = parse(text)
    main = main_function(module.operation)
    with module.context, ir.Location.unknown():
        add_mesh(module.operation, "mesh", mesh)
        wanted: dict[ir.Value, TensorSharding] = {}
        for op in ops(main):
            if TARGET in op.attributes:
                operands, results = strategy.operands, strategy.results
                wanted.update(zip(op.operands, operands, strict=True))
                if strategy.reduce_axes:
                    op.attributes[REDUCE_AXES] = str_array(strategy.reduce_axes)
            else:
                operands = tuple(whole(value) for value in op.operands)
                results = tuple(whole(value) for value in op.results)
            set_operand_shardings(op, operands, attrs_on("mesh"))
            set_result_shardings(op, results, attrs_on("mesh"))
        set_arg_attrs(
            main,
            [{SHARDING: to_attr(wanted.get(v, whole(v)), "mesh")} for v in body(main).arguments],
        )
        set_result_attrs(
            main, [{SHARDING: to_attr(whole(v), "mesh")} for v in terminator(main).operands]
        )
    return module


def whole(value: ir.Value) -> TensorSharding:
    """Every device has all of it."""
    return TensorSharding.replicated(len(shape_of(value)))


def localized(module: ir.Module) -> ir.Module:
    """From planned shardings to the program of one device."""
    run_passes(module, LOCAL_LOWERING)
    return module


def arguments(module: ir.Module) -> list[np.ndarray]:
    """Seeded small numbers, whole and never zero, so that sums of floats are exact."""
    random = np.random.default_rng(0)
    found = []
    for value in body(main_function(module.operation)).arguments:
        shape, dtype = shape_of(value), dtype_of(value)
        if dtype.startswith(("int", "uint")):
            low = 0 if dtype.startswith("u") else -1
            found.append(random.integers(low, 10, shape).astype(dtype))
        elif dtype == "bool":
            found.append(random.integers(0, 2, shape).astype(dtype))
        else:
            signs = random.choice([-1, 1], shape)
            found.append((signs * random.integers(1, 5, shape)).astype(dtype))
    return found
