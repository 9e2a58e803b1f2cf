"""The splits of a program into microbatches and at its loops over layers, cached."""

import math
from collections.abc import Sequence
from functools import cached_property

import msgspec

from shardc.analysis.batch.batch_split import batch_analysis
from shardc.analysis.batch.microbatch_refusal import MicrobatchRefusal
from shardc.analysis.program.arguments import first_batch, first_batch_parts
from shardc.analysis.residency.recomputed import computes_twice
from shardc.analysis.stages.layer_positions import layer_positions
from shardc.analysis.stages.stage_cuts import Origin
from shardc.analysis.stages.stage_refusal import StageRefusal
from shardc.cutting import find, find_batch, try_split, with_stages
from shardc.ir.attributes import CASTS
from shardc.ir.context import Module
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import run_passes
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, main_function
from shardc.passes.join_pieces import JoinPieces, has_joined
from shardc.plan.shape import PipelineShape, Reuse
from shardc.planner.budget import BUDGET
from shardc.planner.layer_samples import even_loop_cuts

ONCE = Reuse(cast_once=True)

type EvenStages = tuple[tuple[int, ...], tuple[int, ...]]
"""The cuts of the loops over layers, and the positions of the stages after the first."""


class Splits:
    """Makes each split of a program once; arguments as in `shardc.cutting.split`.

    Args:
        pipelines: whether several stages are possible. The splits are then those for several, and
            `of` a shape with one stage makes another where these differ.
        reuse: what is computed once for all microbatches.
    """

    def __init__(
        self,
        module: Module,
        batch_args: Sequence[int] | None,
        batch_dims: Sequence[int] = (),
        *,
        pipelines: bool = True,
        reuse: Reuse = ONCE,
    ) -> None:
        self._original, self._stages, self.reuse = module, 1 + pipelines, reuse
        self._batch = tuple(batch_args or ()), tuple(batch_dims)
        self._made: dict[tuple[int, tuple[int, ...]], Module] = {}
        # By number of microbatches, loop cuts and cuts.
        self._staged: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Module] = {}
        # By loop cuts: a refusal of every number of microbatches.
        self._refused: dict[tuple[int, ...], MicrobatchRefusal] = {}
        # By numbers of microbatches and stages.
        self._even: dict[tuple[int, int], EvenStages | StageRefusal] = {}

    @cached_property
    def module(self) -> Module:
        """The program that is split: `find_batch` of the original."""
        return find_batch(self._original, *self._batch, self._stages, self.reuse.cast_once)

    @cached_property
    def cast_once(self) -> bool:
        """Whether there are casts of parameters that are made once per step."""
        with self.module.context:
            return CASTS in self.module.operation.attributes

    @cached_property
    def casting_again(self) -> "Splits":
        """The splits in which each microbatch casts parameters again."""
        return self.with_reuse(msgspec.structs.replace(self.reuse, cast_once=False))

    def with_reuse(self, reuse: Reuse) -> "Splits":
        """The splits of the same program with other values computed once."""
        return Splits(self._original, *self._batch, pipelines=self._stages > 1, reuse=reuse)

    @cached_property
    def compute_twice(self) -> bool:
        """Whether the program computes forward values again that may be kept instead."""
        with self.module.context:
            return computes_twice(main_function(self.module.operation))

    @cached_property
    def _alone(self) -> "Splits":
        """The splits for one stage."""
        if not has_joined(self.module.operation):
            return self
        return Splits(self._original, *self._batch, pipelines=False, reuse=self.reuse)

    @property
    def examples(self) -> dict[int, int]:
        """The user's arguments that hold the batch -> the dim of the examples."""
        with self.module.context:
            return first_batch(main_function(self.module.operation))

    @property
    def rows(self) -> int:
        """Examples of the batch; 1 without one."""
        with self.module.context:
            arguments = body(main_function(self.module.operation)).arguments
            dims = [shape_of(arguments[a])[d] for a, d in self.examples.items()]
        return math.gcd(*dims) or 1

    @property
    def batch_parts(self) -> int:
        """A number that every possible number of microbatches divides; 1 without a batch.

        Less than the number of rows if a loop takes the batch in pieces that cannot be joined; the
        number of rows if the step cannot be split as written, because loop fission may make it
        possible.
        """
        rows = self.rows
        with self.module.context:
            parts = first_batch_parts(main_function(self.module.operation)) or rows
        return parts if parts == rows else max(parts, self._joined_parts)

    @cached_property
    def _joined_parts(self) -> int:
        """`batch_parts` once all pieces are joined; 1 if there are none."""
        joined = copy_module(self.module)
        run_passes(joined, [JoinPieces()])
        with joined.context:
            return batch_analysis(joined.operation).parts if has_joined(joined.operation) else 1

    @property
    def counts(self) -> set[int]:
        """The numbers of microbatches for which a split exists."""
        return {count for count, _ in self._made}

    def whole(self, count: int) -> Module:
        """`count` microbatches, no loop cut; raises MicrobatchError, as `shardc.cutting.split`."""
        return self.cut_at(count, ())

    def cut_at(self, count: int, loop_cuts: tuple[int, ...]) -> Module:
        """`count` microbatches, loops cut at `loop_cuts`; raises like `whole`."""
        found = self.try_at(count, loop_cuts)
        if isinstance(found, MicrobatchRefusal):
            raise found.error()
        return found

    def refusal(self, count: int) -> MicrobatchRefusal | None:
        """Why the program cannot be split into `count` microbatches, if it cannot."""
        found = self.try_at(count, ())
        return found if isinstance(found, MicrobatchRefusal) else None

    def in_even_parts(self, count: int, pieces: int) -> tuple[Module, tuple[int, ...]]:
        """`count` microbatches, with loops over layers cut into about `pieces` parts of even work,
        and the cuts; no loop is cut if the batch could not be split then."""
        loop_cuts = even_loop_cuts(self.module, pieces)
        found = self.try_at(count, loop_cuts)
        if isinstance(found, MicrobatchRefusal):
            return self.whole(count), ()
        return found, loop_cuts

    def even_stages(self, count: int, stages: int) -> EvenStages | StageRefusal:
        """Stages of even work in `count` microbatches, or why there are fewer.

        Loops get as many parts as their share of the work asks for, and more where that leaves too
        few layers: a small loop beside a large vocabulary.
        """
        if (count, stages) not in self._even:
            self._even[count, stages] = self._find_even_stages(count, stages)
        return self._even[count, stages]

    def _find_even_stages(self, count: int, stages: int) -> EvenStages | StageRefusal:
        refusal, tried = None, []
        for finer in range(BUDGET.most_finer):
            module, loop_cuts = self.in_even_parts(count, stages << finer)
            if loop_cuts in tried:
                continue
            tried.append(loop_cuts)
            with module.context:
                positions = layer_positions(module.operation, exactly=stages)
            if not isinstance(positions, StageRefusal):
                return loop_cuts, tuple(positions[1:])
            if refusal is None or positions.most > refusal.most:
                refusal = positions
        assert refusal is not None
        return refusal

    def shape_at(self, shape: PipelineShape, origins: Sequence[Origin]) -> PipelineShape | None:
        """The shape whose stages, except the first, begin at `origins`; None if one does not exist,
        or the batch cannot be split then.

        Loops are cut only where a stage begins.
        """
        needed = tuple(sorted(first for _, first in origins if first > 0))
        found = self.try_at(shape.num_microbatches, needed)
        cuts = None if isinstance(found, MicrobatchRefusal) else find(found, origins)
        if cuts is None:
            return None
        return msgspec.structs.replace(shape, cuts=cuts, loop_cuts=needed)

    def of(self, shape: PipelineShape) -> Module:
        """The module in which the cuts of `shape` are positions."""
        splits = self if shape.num_stages > 1 else self._alone
        return splits.cut_at(shape.num_microbatches, shape.loop_cuts if splits is self else ())

    def staged(self, shape: PipelineShape) -> Module:
        """The module of `of`, with the stages of `shape`; the last are cached for schedules and
        rules that recompute more."""
        key = shape.num_microbatches, shape.loop_cuts, shape.cuts
        if key not in self._staged:
            found = with_stages(self.of(shape), shape.cuts)
            if len(self._staged) == BUDGET.most_staged:
                del self._staged[next(iter(self._staged))]
            self._staged[key] = found
        return self._staged[key]

    def try_at(self, count: int, loop_cuts: tuple[int, ...]) -> Module | MicrobatchRefusal:
        """`count` microbatches with loops cut at `loop_cuts`, or the refusal."""
        key = (count, loop_cuts)
        if key in self._made:
            return self._made[key]
        if count > 1 and loop_cuts in self._refused:
            return self._refused[loop_cuts]
        found = try_split(self.module, count, *self._batch, loop_cuts, self.reuse)
        if not isinstance(found, MicrobatchRefusal):
            self._made[key] = found
        elif not found.others:
            self._refused[loop_cuts] = found
        return found
