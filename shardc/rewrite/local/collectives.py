"""StableHLO collectives between the devices of a mesh, and a device's place in it.

Devices are numbered by their position in the mesh, row-major over its axes; that number is
`stablehlo.partition_id` when the program runs on the mesh's devices in that order.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardc.ir.constants import zeros
from shardc.ir.tensor_types import shape_of
from shardc.plan.layout import Mesh

DEVICE_TO_DEVICE = 1  # type of a channel, as XLA counts


def replica_groups(mesh: Mesh, axes: Sequence[str]) -> np.ndarray:
    """One row per group of devices that differ only along `axes`; rows run major to minor."""
    names = [name for name, _ in mesh.axes]
    grid = np.arange(math.prod(mesh.shape)).reshape(mesh.shape)
    others = [name for name in names if name not in axes]
    order = [names.index(name) for name in (*others, *axes)]
    return grid.transpose(order).reshape(-1, mesh.num_shards(tuple(axes)))


class DeviceProgram:
    """Emits, at the current insertion point, the collectives of one device of a mesh.

    Every collective gets a channel of its own. The device's coordinates are computed once, where
    they are first needed, so a program must be emitted front to back.

    Attributes:
        control_flow: the outermost loop or branch that is being filled, before which coordinates
            are computed; None outside of any.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.control_flow: ir.Operation | None = None
        self.channels = 0
        self.indices: dict[tuple[str, ...], ir.Value] = {}

    def all_gather(self, value: ir.Value, axes: tuple[str, ...], dim: int) -> ir.Value:
        """The parts of the devices along `axes`, concatenated in `dim`."""
        shape = list(shape_of(value))
        shape[dim] *= self.mesh.num_shards(axes)
        groups, channel = self._communication(axes)
        return stablehlo.AllGatherOp(
            [_type(value, shape)],
            [value],
            all_gather_dim=dim,
            replica_groups=groups,
            channel_handle=channel,
            use_global_device_ids=True,
        ).results[0]

    def all_reduce(self, value: ir.Value, axes: tuple[str, ...], reducer: str = "add") -> ir.Value:
        """The values of the devices along `axes`, combined by the StableHLO op `reducer`."""
        groups, channel = self._communication(axes)
        op = stablehlo.AllReduceOp(
            [value.type],
            [value],
            replica_groups=groups,
            channel_handle=channel,
            use_global_device_ids=True,
        )
        _fill_reducer(op.operation, reducer)
        return op.results[0]

    def reduce_scatter(self, value: ir.Value, axes: tuple[str, ...], dim: int) -> ir.Value:
        """This device's part in `dim` of the sum over the devices along `axes`."""
        shape = list(shape_of(value))
        shape[dim] //= self.mesh.num_shards(axes)
        groups, channel = self._communication(axes)
        op = stablehlo.ReduceScatterOp(
            _type(value, shape),
            value,
            scatter_dimension=dim,
            replica_groups=groups,
            channel_handle=channel,
            use_global_device_ids=True,
        )
        _fill_reducer(op.operation, "add")
        return op.operation.results[0]

    def all_to_all(
        self, value: ir.Value, axes: tuple[str, ...], src_dim: int, dst_dim: int
    ) -> ir.Value:
        """This device's part in `dst_dim` of the value gathered in `src_dim`."""
        groups, channel = self._communication(axes)
        count = self.mesh.num_shards(axes)
        return stablehlo.AllToAllOp(
            [value],
            split_dimension=dst_dim,
            concat_dimension=src_dim,
            split_count=count,
            replica_groups=groups,
            channel_handle=channel,
        ).results[0]

    def part(self, value: ir.Value, axes: tuple[str, ...], dim: int) -> ir.Value:
        """This device's part in `dim` of a value replicated along `axes`; no communication."""
        shape = list(shape_of(value))
        shape[dim] //= self.mesh.num_shards(axes)
        zero = _scalar(0)
        starts = [zero] * len(shape)
        starts[dim] = self.start(axes, shape[dim])
        return stablehlo.DynamicSliceOp(value, starts, slice_sizes=shape).result

    def once(self, value: ir.Value, axes: tuple[str, ...]) -> ir.Value:
        """`value` on the first of the devices along `axes`, zeros on the others: a partial sum."""
        first = stablehlo.CompareOp(
            self.index(axes), _scalar(0), stablehlo.ComparisonDirectionAttr.get("EQ")
        ).result
        return stablehlo.SelectOp(first, value, zeros(value.type)).result

    def start(self, axes: tuple[str, ...], size: int) -> ir.Value:
        """Start (tensor<i32>) of this device's part of `size` in a dim that `axes` split."""
        return stablehlo.MulOp(self.index(axes), _scalar(size)).result

    def index(self, axes: tuple[str, ...]) -> ir.Value:
        """Index (tensor<i32>) of this device among those that differ from it only along `axes`."""
        if axes not in self.indices:
            outside = self.control_flow
            with ir.InsertionPoint(outside) if outside is not None else nullcontext():
                self.indices[axes] = self._index(axes)
        return self.indices[axes]

    def _index(self, axes: tuple[str, ...]) -> ir.Value:
        if not axes:
            return _scalar(0)
        if len(axes) == 1:
            return self._coordinate(axes[0])
        major = stablehlo.MulOp(self.index(axes[:-1]), _scalar(self.mesh.size(axes[-1])))
        return stablehlo.AddOp(major.result, self.index(axes[-1:])).result

    def _coordinate(self, axis: str) -> ir.Value:
        names = [name for name, _ in self.mesh.axes]
        size, stride = self.mesh.size(axis), math.prod(self.mesh.shape[names.index(axis) + 1 :])
        position: ir.Value = stablehlo.PartitionIdOp().result
        unsigned = position.type  # of which XLA computes quotients by a shift, without a sign
        if stride > 1:
            position = stablehlo.DivOp(position, _scalar(stride, unsigned)).result
        if stride * size < math.prod(self.mesh.shape):
            position = stablehlo.RemOp(position, _scalar(size, unsigned)).result
        return stablehlo.ConvertOp(_scalar_type(), position).result

    def _communication(self, axes: tuple[str, ...]) -> tuple[ir.Attribute, ir.Attribute]:
        self.channels += 1
        groups = np.ascontiguousarray(replica_groups(self.mesh, axes), np.int64)
        channel = stablehlo.ChannelHandle.get(self.channels, DEVICE_TO_DEVICE)
        return ir.DenseIntElementsAttr.get(groups), channel


def _fill_reducer(op: ir.Operation, reducer: str) -> None:
    scalar = ir.RankedTensorType.get([], op.results[0].type.element_type)
    location = op.location
    block = op.regions[0].blocks.append(scalar, scalar, arg_locs=[location, location])
    with ir.InsertionPoint(block):
        combined = ir.Operation.create(
            f"stablehlo.{reducer}", results=[scalar], operands=list(block.arguments)
        )
        stablehlo.ReturnOp(combined.results)


def _type(value: ir.Value, shape: Sequence[int]) -> ir.Type:
    return ir.RankedTensorType.get(shape, value.type.element_type)


def _scalar_type() -> ir.Type:
    return ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))


def _scalar(number: int, type_: ir.Type | None = None) -> ir.Value:
    value = np.array(number, np.int32 if type_ is None else np.uint32)
    attribute = ir.DenseIntElementsAttr.get(value, type=type_ or _scalar_type())
    return stablehlo.ConstantOp(attribute).result
