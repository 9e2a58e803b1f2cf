"""A program that returns its only argument in several shardings at once."""

from collections.abc import Sequence

import numpy as np
from jax.extend.mlir import ir

from shardc.ir.attributes import SHARDING, set_arg_attrs, set_result_attrs
from shardc.ir.context import parse
from shardc.ir.shardings import add_mesh, to_attr
from shardc.ir.walk import main_function
from shardc.plan.layout import Mesh, TensorSharding
from tests.py.passes.one_op import localized

VALUE = np.arange(64, dtype=np.float32).reshape(8, 8) + 1


def resharding(
    source: TensorSharding, targets: Sequence[TensorSharding], mesh: Mesh, element: str = "f32"
) -> ir.Module:
    """The localised program that takes an [8, 8] value in `source` and returns it in `targets`."""
    types = ", ".join([f"tensor<8x8x{element}>"] * len(targets))
    results = ", ".join(["%a"] * len(targets))
    module = parse(
        f"func.func @main(%a: tensor<8x8x{element}>) -> ({types}) {{ return {results} : {types} }}"
    )
    main = main_function(module.operation)
    with module.context, ir.Location.unknown():
        add_mesh(module.operation, "mesh", mesh)
        set_arg_attrs(main, [{SHARDING: to_attr(source, "mesh")}])
        set_result_attrs(main, [{SHARDING: to_attr(t, "mesh")} for t in targets])
    return localized(module)
