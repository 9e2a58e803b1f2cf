"""A program cut into microbatches, and at its loops over layers, in the ways the planner asks."""

from collections.abc import Sequence

import msgspec

from shardc.analysis.stages.stage_cuts import Origin
from shardc.compiler import Shape, even_loop_cuts, find, split
from shardc.errors import MicrobatchError
from shardc.ir.context import Module


class Splits:
    """Makes each cut of a program once; arguments as of `shardc.compiler.split`."""

    def __init__(
        self, module: Module, batch_args: Sequence[int] | None, batch_dims: Sequence[int] = ()
    ) -> None:
        self._module, self._batch_args, self._batch_dims = module, batch_args, batch_dims
        self._made: dict[tuple[int, tuple[int, ...]], Module] = {}
        self._refused: dict[tuple[int, ...], MicrobatchError] = {}  # for loop cuts, whatever number

    @property
    def counts(self) -> set[int]:
        """The numbers of microbatches into which the program has been cut."""
        return {count for count, _ in self._made}

    def whole(self, count: int) -> Module:
        """`count` microbatches, no loop cut; raises MicrobatchError as `shardc.compiler.split`."""
        return self._get(count, ())

    def cut_at(self, count: int, loop_cuts: tuple[int, ...]) -> Module:
        """`count` microbatches, loops cut there."""
        return self._get(count, loop_cuts)

    def in_even_parts(self, count: int, pieces: int) -> tuple[Module, tuple[int, ...]]:
        """`count` microbatches, loops over layers cut into about `pieces` parts of even work, and
        where that is; no loop cut where the batch can then not be cut."""
        loop_cuts = even_loop_cuts(self._module, pieces)
        try:
            return self._get(count, loop_cuts), loop_cuts
        except MicrobatchError:
            return self._get(count, ()), ()

    def shape_at(self, shape: Shape, origins: Sequence[Origin]) -> Shape | None:
        """The shape whose stages but the first begin where `origins` say; None if it is not there.

        Loops are cut where a stage begins and nowhere else.
        """
        needed = tuple(sorted(first for _, first in origins if first > 0))
        cuts = find(self._get(shape.num_microbatches, needed), origins)
        if cuts is None:
            return None
        return msgspec.structs.replace(shape, cuts=cuts, loop_cuts=needed)

    def of(self, shape: Shape) -> Module:
        """The module in which the cuts of `shape` are positions."""
        return self._get(shape.num_microbatches, shape.loop_cuts)

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
