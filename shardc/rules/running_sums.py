"""Running sums: prefix sums (or suffix sums) along one dim."""

from dataclasses import dataclass

import numpy as np
from jax.extend.mlir import ir

from shardc.ir.tensor_types import shape_of
from shardc.rules.reducers import splits_into_partial_results


@dataclass(frozen=True)
class Running:
    """The dim along which an op adds up, and whether it begins at the last row."""

    dim: int
    reverse: bool


def running(op: ir.Operation) -> Running | None:
    """The running sum that an op computes (`jnp.cumsum`, or with another reducer whose partial
    results can be combined); None if it is not one."""
    if op.name != "stablehlo.reduce_window" or len(op.operands) != 2:
        return None
    shape = shape_of(op.operands[0])
    window = _numbers(op, "window_dimensions", [1] * len(shape))
    wide = [dim for dim, size in enumerate(window) if size != 1]
    plain = all(
        set(_numbers(op, name, [1])) == {1}
        for name in ("window_strides", "base_dilations", "window_dilations")
    )
    if len(wide) != 1 or not plain or not splits_into_partial_results(op):
        return None
    dim = wide[0]
    if window[dim] != shape[dim] or "padding" not in op.attributes:
        return None
    padding = np.asarray(ir.DenseElementsAttr(op.attributes["padding"])).ravel().tolist()
    for reverse in (False, True):
        edges = [0] * len(padding)
        edges[2 * dim + reverse] = shape[dim] - 1
        if padding == edges:
            return Running(dim, reverse)
    return None


def _numbers(op: ir.Operation, name: str, absent: list[int]) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else absent
