"""The ops that slice a batch into microbatches and combine their results."""

from collections.abc import Mapping, Sequence

from jax.extend.mlir import ir

from shardc.ir.attributes import (
    ACCUMULATE,
    BATCH_DIM,
    KIND,
    MICROBATCH_INDEX,
    PHASE,
    int_attr,
    str_attr,
)
from shardc.ir.constants import splat
from shardc.ir.tensor_types import shape_of
from shardc.plan.function_kind import Phase
from shardc.rewrite.local.local_ops import make_local


def with_shape(value: ir.Value, shape: Sequence[int]) -> ir.Type:
    """The type of `value` with other dims."""
    return ir.RankedTensorType.get(list(shape), ir.ShapedType(value.type).element_type)


def create(
    name: str,
    types: Sequence[ir.Type],
    operands: Sequence[ir.Value],
    attributes: Mapping[str, ir.Attribute] | None = None,
) -> ir.Operation:
    """A new op at the current insertion point."""
    return ir.Operation.create(
        name, results=list(types), operands=list(operands), attributes=dict(attributes or {})
    )


class MicrobatchOps:
    """Builds these ops, each at the insertion point of its phase and marked with the phase.

    Args:
        count: number of microbatches.
        points: where ops go in each phase; "index" is where the body begins: the
            microbatch's index is made there, once.
    """

    def __init__(self, count: int, points: Mapping[str, ir.InsertionPoint]) -> None:
        self.count = count
        self._points = points
        self._scalars: tuple[ir.Value, ir.Value] | None = None

    @property
    def index(self) -> ir.Value:
        """The number of the microbatch, tensor<i32>."""
        return self._index_and_zero()[0]

    def inside(self, point: ir.InsertionPoint) -> "MicrobatchOps":
        """A builder whose body ops go to `point`, inside a loop."""
        other = MicrobatchOps(self.count, {**self._points, Phase.BODY: point})
        other._scalars = self._index_and_zero()
        return other

    def split_shape(self, shape: Sequence[int], dim: int) -> list[int]:
        """[.., M, size / M, ..]: the shape of a split batch argument."""
        return [*shape[:dim], self.count, shape[dim] // self.count, *shape[dim + 1 :]]

    def reshape(self, value: ir.Value, shape: Sequence[int], phase: str) -> ir.Value:
        """`value` in another shape; itself if it has that shape already."""
        if list(shape_of(value)) == list(shape):
            return value
        return self._make("stablehlo.reshape", with_shape(value, shape), [value], phase)

    def merge(self, argument: ir.Value, shape: Sequence[int], phase: str) -> ir.Value:
        """A batch argument in the user's shape (its own type is changed to the split one later)."""
        return self._make("stablehlo.reshape", with_shape(argument, shape), [argument], phase)

    def read(self, argument: ir.Value, dim: int) -> ir.Value:
        """The microbatch's part of a batch argument."""
        split = self.split_shape(shape_of(argument), dim)
        return self._entry(argument, split, dim, self._without(split, dim))

    def slice(
        self, whole: ir.Value, dim: int, outer: int, gathered: ir.Value | None = None
    ) -> ir.Value:
        """The microbatch's part of a whole value: of dim `dim` viewed as [outer, M, rest].

        Args:
            gathered: the value that `whole` is a reshape of, if the view may be made of it.
        """
        if self.count == 1:
            return whole
        shape = shape_of(whole)
        if (fresh := self._fresh_part(whole, dim)) is not None:
            return fresh
        rest = shape[dim] // outer // self.count
        split = [*shape[:dim], outer, self.count, rest, *shape[dim + 1 :]]
        seen = self.reshape(whole if gathered is None else gathered, split, Phase.BODY)
        part = [*shape[:dim], outer * rest, *shape[dim + 1 :]]
        return self._entry(seen, split, dim + 1, part)

    def _fresh_part(self, whole: ir.Value, dim: int) -> ir.Value | None:
        """A rematerialized part if all parts are equal: of a splat, or along a broadcast dim."""
        owner = whole.owner
        if isinstance(owner, ir.Block) or PHASE in owner.operation.attributes:
            return None  # only inside loops: elsewhere the phase plan rematerializes
        op = owner.operation
        shape = list(shape_of(whole))
        shape[dim] //= self.count
        if op.name == "stablehlo.broadcast_in_dim":
            kept = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
            if dim in kept and shape_of(op.operands[0])[kept.index(dim)] != 1:
                return None
        elif op.name != "stablehlo.constant" or splat(whole) is None:
            return None
        with self._points[Phase.BODY]:
            return make_local(op, list(op.operands), [with_shape(whole, shape)]).results[0]

    def sum(self, value: ir.Value) -> ir.Value:
        """The sum of `value` over the microbatches."""
        return self._accumulate(value, value.type, "sum")

    def concat(self, part: ir.Value, dim: int, outer: int) -> ir.Value:
        """The whole value, concatenated from all microbatches' parts: the inverse of `slice`."""
        shape = list(shape_of(part))
        before, size, behind = shape[:dim], shape[dim], shape[dim + 1 :]
        gathered_type = with_shape(part, [*before, self.count, size, *behind])
        gathered = self._accumulate(part, gathered_type, "concat", {BATCH_DIM: int_attr(dim)})
        if outer > 1:
            split = [*before, self.count, outer, size // outer, *behind]
            order = list(range(len(split)))
            order[dim], order[dim + 1] = dim + 1, dim
            gathered = self._make(
                "stablehlo.transpose",
                with_shape(part, [split[d] for d in order]),
                [self.reshape(gathered, split, Phase.AFTER)],
                Phase.AFTER,
                {"permutation": ir.DenseI64ArrayAttr.get(order)},
            )
        return self.reshape(gathered, [*before, self.count * size, *behind], Phase.AFTER)

    def _entry(
        self, split: ir.Value, shape: Sequence[int], dim: int, part: Sequence[int]
    ) -> ir.Value:
        """Entry `index` of dim `dim` of `split`, which has this shape, in shape `part`."""
        index, zero = self._index_and_zero()
        sizes = [1 if d == dim else size for d, size in enumerate(shape)]
        taken = self._make(
            "stablehlo.dynamic_slice",
            with_shape(split, sizes),
            [split, *(index if d == dim else zero for d in range(len(shape)))],
            Phase.BODY,
            {"slice_sizes": ir.DenseI64ArrayAttr.get(sizes)},
        )
        return self.reshape(taken, part, Phase.BODY)

    @staticmethod
    def _without(shape: Sequence[int], dim: int) -> list[int]:
        return [size for d, size in enumerate(shape) if d != dim]

    def _accumulate(
        self,
        value: ir.Value,
        type_: ir.Type,
        kind: str,
        attributes: Mapping[str, ir.Attribute] | None = None,
    ) -> ir.Value:
        named = {"call_target_name": str_attr(ACCUMULATE), KIND: str_attr(kind)}
        attributes = {**named, **(attributes or {})}
        return self._make("stablehlo.custom_call", type_, [value], Phase.BODY, attributes)

    def _index_and_zero(self) -> tuple[ir.Value, ir.Value]:
        if self._scalars is None:
            number = ir.IntegerType.get_signless(32)
            scalar = ir.RankedTensorType.get([], number)
            zero = ir.DenseElementsAttr.get_splat(scalar, ir.IntegerAttr.get(number, 0))
            target = {"call_target_name": str_attr(MICROBATCH_INDEX)}
            with ir.Location.unknown():
                self._scalars = (
                    self._make("stablehlo.custom_call", scalar, [], "index", target),
                    self._make("stablehlo.constant", scalar, [], "index", {"value": zero}),
                )
        return self._scalars

    def _make(
        self,
        name: str,
        type_: ir.Type,
        operands: Sequence[ir.Value],
        phase: str,
        attributes: Mapping[str, ir.Attribute] | None = None,
    ) -> ir.Value:
        marked = {**(attributes or {}), PHASE: str_attr(Phase.BODY if phase == "index" else phase)}
        with self._points[phase]:
            return create(name, [type_], operands, marked).results[0]
