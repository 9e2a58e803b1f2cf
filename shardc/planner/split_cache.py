"""A program cut into microbatches, and at its loops over layers, in the ways the planner asks."""

from collections.abc import Sequence

import msgspec

from shardc.compiler import Shape, even_loop_cuts, find, recut, split
from shardc.errors import MicrobatchError
from shardc.ir.context import Module


class Splits:
    """Makes each cut of a program once.

    Attributes:
        loop_cuts: where loops over layers are cut while stages are looked for; a shape that has
            been chosen is cut only where its stages begin.
    """

    def __init__(
        self, module: Module, batch_args: Sequence[int] | None, batch_dims: Sequence[int] = ()
    ) -> None:
        self.loop_cuts: tuple[int, ...] = ()
        self._module, self._batch_args, self._batch_dims = module, batch_args, batch_dims
        self._made: dict[tuple[int, tuple[int, ...]], Module] = {}
        self._refused: dict[tuple[int, ...], MicrobatchError] = {}  # for loop cuts, whatever number

    @property
    def counts(self) -> set[int]:
        """The numbers of microbatches into which the program has been cut."""
        return {count for count, _ in self._made}

    def cut_loops(self, pieces: int, counts: Sequence[int] = ()) -> None:
        """Cuts loops over layers so that the program falls into about `pieces` even parts; nowhere,
        if it can then not be cut into each of `counts` microbatches."""
        self.loop_cuts = even_loop_cuts(self._module, pieces)
        try:
            for count in counts:
                self.in_layers(count)
        except MicrobatchError:
            self.loop_cuts = ()

    def whole(self, count: int) -> Module:
        """`count` microbatches, no loop cut; raises MicrobatchError as `shardc.compiler.split`."""
        return self._get(count, ())

    def in_layers(self, count: int) -> Module:
        """`count` microbatches, loops cut at `loop_cuts`."""
        return self._get(count, self.loop_cuts)

    def of(self, shape: Shape) -> Module:
        """The module in which the cuts of `shape` are positions."""
        return self._get(shape.num_microbatches, shape.loop_cuts)

    def recut(self, shape: Shape) -> Shape:
        """The same stages with no loop cut but where one begins, if they can be had so."""
        if not shape.loop_cuts:
            return shape
        origins, needed = recut(self.of(shape), shape.cuts)
        cuts = find(self._get(shape.num_microbatches, needed), origins)
        if cuts is None:
            return shape
        return msgspec.structs.replace(shape, cuts=cuts, loop_cuts=needed)

    def _get(self, count: int, loop_cuts: tuple[int, ...]) -> Module:
        key = (count, loop_cuts)
        if key in self._made:
            return self._made[key]
        if count > 1 and loop_cuts in self._refused:
            raise self._refused[loop_cuts]
        try:
            batch = self._batch_args, self._batch_dims
            self._made[key] = split(self._module, count, *batch, loop_cuts)
        except MicrobatchError as error:
            if not error.others:
                self._refused[loop_cuts] = error
            raise
        return self._made[key]
