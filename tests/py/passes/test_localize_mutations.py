"""The comparisons of the other tests are sharp: without one collective they fail."""

import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import main_function, ops
from shardc.plan.layout import TensorSharding
from tests.py.passes.on_devices import run_local
from tests.py.passes.one_op import MESH
from tests.py.passes.reshard_programs import VALUE, resharding

WHOLE = TensorSharding(((), ()))
ROWS = TensorSharding((("x",), ()))
COLUMNS = TensorSharding(((), ("x",)))
SUM = TensorSharding(((), ()), ("x",))

# op that communicates (or picks this device's part) -> a reshard that needs just this op
RESHARDS = {
    "stablehlo.all_gather": (ROWS, WHOLE),
    "stablehlo.all_reduce": (SUM, WHOLE),
    "stablehlo.all_to_all": (ROWS, COLUMNS),
    "stablehlo.dynamic_slice": (WHOLE, ROWS),
    "stablehlo.reduce_scatter": (SUM, ROWS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RESHARDS)
def test_a_dropped_collective_is_seen(name: str) -> None:
    source, target = RESHARDS[name]
    module = resharding(source, [target], MESH)
    assert is_right(module)
    (collective,) = [op for op in ops(main_function(module.operation)) if op.name == name]
    drop(collective)
    assert not is_right(module)


def is_right(module: ir.Module) -> bool:
    """Whether the devices together hold the value, and replicas agree."""
    try:
        (got,) = run_local(module, MESH, [VALUE])
    except AssertionError:  # "disagrees with a replica"
        return False
    return np.array_equal(got, VALUE)


def drop(op: ir.Operation) -> None:
    """Replaces a collective by what one device can do alone: repeat its part, take the first."""
    value = op.operands[0]
    with op.context, ir.InsertionPoint(op), op.location:
        for dim, size in enumerate(shape_of(op.results[0])):
            if shape_of(value)[dim] < size:
                copies = [value] * (size // shape_of(value)[dim])
                value = stablehlo.ConcatenateOp(copies, dim).result
            limits = list(shape_of(value))
            limits[dim] = size
            ones, zeros = [1] * len(limits), [0] * len(limits)
            value = stablehlo.SliceOp(value, zeros, limits, ones).result
    op.results[0].replace_all_uses_with(value)
    op.erase()
