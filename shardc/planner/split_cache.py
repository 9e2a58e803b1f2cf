"""A program cut into microbatches, and at its loops over layers, in the ways the planner asks."""

import math
from collections.abc import Sequence
from functools import cached_property

import msgspec

from shardc.analysis.batch.refusal import MicrobatchRefusal
from shardc.analysis.program.arguments import first_batch
from shardc.analysis.stages.stage_cuts import Origin
from shardc.compiler import even_loop_cuts, find, find_batch, try_split
from shardc.ir.context import Module
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, main_function
from shardc.plan.shape import PipelineShape


class Splits:
    """Makes each cut of a program once; arguments as of `shardc.compiler.split`."""

    def __init__(
        self, module: Module, batch_args: Sequence[int] | None, batch_dims: Sequence[int] = ()
    ) -> None:
        self._module, self._batch = module, (tuple(batch_args or ()), tuple(batch_dims))
        self._made: dict[tuple[int, tuple[int, ...]], Module] = {}
        # By loop cuts: what refuses every number of microbatches.
        self._refused: dict[tuple[int, ...], MicrobatchRefusal] = {}

    @cached_property
    def _marked(self) -> Module:
        """The program with its batches, which are the same for every number of microbatches."""
        return find_batch(self._module, *self._batch)

    @property
    def examples(self) -> dict[int, int]:
        """The user's arguments that hold the batch -> the dim along which its examples lie."""
        with self._marked.context:
            return first_batch(main_function(self._marked.operation))

    @property
    def batch_rows(self) -> int:
        """What the batch divides into, before anything is cut; 1 where there is no batch."""
        with self._marked.context:
            arguments = body(main_function(self._marked.operation)).arguments
            return math.gcd(*(shape_of(arguments[a])[d] for a, d in self.examples.items())) or 1

    @property
    def counts(self) -> set[int]:
        """The numbers of microbatches into which the program has been cut."""
        return {count for count, _ in self._made}

    def whole(self, count: int) -> Module:
        """`count` microbatches, no loop cut; raises MicrobatchError as `shardc.compiler.split`."""
        return self.cut_at(count, ())

    def cut_at(self, count: int, loop_cuts: tuple[int, ...]) -> Module:
        """`count` microbatches, loops cut there; raises as `whole`."""
        found = self.try_at(count, loop_cuts)
        if isinstance(found, MicrobatchRefusal):
            raise found.error()
        return found

    def refusal(self, count: int) -> MicrobatchRefusal | None:
        """Why the program cannot be cut into `count` microbatches, if it cannot."""
        found = self.try_at(count, ())
        return found if isinstance(found, MicrobatchRefusal) else None

    def in_even_parts(self, count: int, pieces: int) -> tuple[Module, tuple[int, ...]]:
        """`count` microbatches, loops over layers cut into about `pieces` parts of even work, and
        where that is; no loop cut where the batch can then not be cut."""
        loop_cuts = even_loop_cuts(self._module, pieces)
        found = self.try_at(count, loop_cuts)
        if isinstance(found, MicrobatchRefusal):
            return self.whole(count), ()
        return found, loop_cuts

    def shape_at(self, shape: PipelineShape, origins: Sequence[Origin]) -> PipelineShape | None:
        """The shape whose stages but the first begin where `origins` say; None if it is not there,
        or the batch cannot be cut then.

        Loops are cut where a stage begins and nowhere else.
        """
        needed = tuple(sorted(first for _, first in origins if first > 0))
        found = self.try_at(shape.num_microbatches, needed)
        cuts = None if isinstance(found, MicrobatchRefusal) else find(found, origins)
        if cuts is None:
            return None
        return msgspec.structs.replace(shape, cuts=cuts, loop_cuts=needed)

    def of(self, shape: PipelineShape) -> Module:
        """The module in which the cuts of `shape` are positions."""
        return self.cut_at(shape.num_microbatches, shape.loop_cuts)

    def try_at(self, count: int, loop_cuts: tuple[int, ...]) -> Module | MicrobatchRefusal:
        """`count` microbatches, loops cut there, or why that cannot be."""
        key = (count, loop_cuts)
        if key in self._made:
            return self._made[key]
        if count > 1 and loop_cuts in self._refused:
            return self._refused[loop_cuts]
        found = try_split(self._marked, count, *self._batch, loop_cuts)
        if not isinstance(found, MicrobatchRefusal):
            self._made[key] = found
        elif not found.others:
            self._refused[loop_cuts] = found
        return found
