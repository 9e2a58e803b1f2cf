"""The problems of a module's stages, built once for equal stages, of earlier modules too."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property

import msgspec
from jax.extend.mlir import ir

from shardc.analysis.program.equal_stages import stage_texts
from shardc.analysis.program.stage_table import (
    arrivals,
    donated_arguments,
    named_user_shardings,
    next_states,
)
from shardc.analysis.shardings.problem_graph import FunctionFacts, function_facts
from shardc.analysis.shardings.sharding_problem import (
    ProblemBuilder,
    function_args,
    function_results,
)
from shardc.analysis.shardings.stage_problem import StageProblem
from shardc.cluster import Cluster
from shardc.cost.links import axis_links
from shardc.ir.walk import symbol
from shardc.plan.layout import Mesh

MOST_KNOWN = 8

type Known = OrderedDict[tuple[object, ...], StageProblem]

_shared: ContextVar[Known | None] = ContextVar("known_problems", default=None)


@contextmanager
def remembered() -> Iterator[None]:
    """Inside, modules that are planned one after the other share problems; they take much memory,
    so none outlives this."""
    token = _shared.set(OrderedDict())
    try:
        yield
    finally:
        _shared.reset(token)


class StageProblems:
    """Builds the problems of a module's stages, those of equal stages on equal meshes once.

    Schedules share stages, so inside `remembered` those of earlier modules count.

    Args:
        count: number of stages.
        ignored, late_sums: as in `ProblemBuilder`.
    Attributes:
        known: the remembered problems.
    """

    def __init__(
        self,
        module: ir.Operation,
        count: int,
        cluster: Cluster,
        ignored: frozenset[str] = frozenset(),
        late_sums: Sequence[str] = (),
    ) -> None:
        self.module, self.cluster = module, cluster
        self.ignored, self.late_sums = ignored, tuple(late_sums)
        self.same, self.donated = next_states(module), donated_arguments(module)
        self.asked, self.arrivals = named_user_shardings(module), arrivals(module)
        shared = _shared.get()
        self.known: Known = OrderedDict() if shared is None else shared
        # What a user asks of one stage, or where its arguments are, is not seen in its text.
        self._texts: list[bytes] = []
        if count > 1 and not (self.asked or self.arrivals or ignored):
            texts = stage_texts(module, count, in_order=True)
            self._texts = [hashlib.blake2b(each.encode()).digest() for each in texts]

    @cached_property
    def _facts(self) -> dict[str, FunctionFacts]:
        return function_facts(self.module)

    def build(
        self,
        stage: int,
        functions: Sequence[ir.Operation],
        mesh: Mesh,
        num_microbatches: int,
        stashes: int,
        usage_limit: int,
    ) -> StageProblem:
        """The problem of a stage; arguments as in `ProblemBuilder`."""

        def built() -> StageProblem:
            return ProblemBuilder(
                functions,
                self._facts,
                mesh,
                self.cluster,
                num_microbatches,
                stashes,
                self.same,
                self.donated,
                self.asked,
                self.ignored,
                self.arrivals,
                self.late_sums,
            ).build(usage_limit)

        if not self._texts:
            return built()
        home, _ = self.cluster.home(mesh.device_ids)
        device = msgspec.json.encode(home.device)
        links = tuple(axis_links(self.cluster, mesh).items())
        runs = num_microbatches, stashes > 0
        key = self._texts[stage], mesh.axes, links, device, runs, self.late_sums
        if key not in self.known:
            self.known[key] = first = built()
            if len(self.known) > MOST_KNOWN:
                self.known.popitem(last=False)
            return first
        self.known.move_to_end(key)
        names = [(symbol(f), function_args(f), function_results(f)) for f in functions]
        found = self.known[key].of_equal(names, stashes)
        problem = replace(found.problem, usage_limit=usage_limit)
        return replace(found, problem=problem, state=frozenset(self.same.values()))
