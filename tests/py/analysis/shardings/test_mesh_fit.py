"""Whether the axes of a mesh can split anything."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from shardc.analysis.shardings.mesh_fit import check_mesh_divides
from shardc.errors import PlanError
from shardc.ir.context import parse


def summed_rows(w: Any, x: Any) -> Any:
    return lax.scan(lambda total, row: (total + jnp.sum(jnp.tanh(row @ w)), None), 0.0, x)[0]


def test_products_inside_a_loop_count_where_it_carries_a_number_only() -> None:
    module = parse(jax.jit(summed_rows).lower(np.eye(4), np.ones((8, 4))).as_text())
    check_mesh_divides(module, (2, 4))
    with pytest.raises(PlanError, match=r"SHARDC-102.*stablehlo.dot_general' on 4 and 4x4"):
        check_mesh_divides(module, (3,))
