"""The stages of `shardc.jit` one by one: Lowered -> Planned -> Compiled."""

import functools
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import jax

from shardc import compiler
from shardc.analysis.program.stage_table import maker_of
from shardc.api.asked_devices import check_devices
from shardc.api.compiled import Compiled
from shardc.api.planning.find import find_beside, plan_as_given
from shardc.api.processes.agreed import agreed_plan, check_built_for_several, check_programs
from shardc.api.recompile_for_memory import compile_as_planned
from shardc.api.request import check_pattern, check_plan_fits, check_stage, given_compiler_options
from shardc.api.signature import Signature
from shardc.api.state.abstract import PlacedSignature, Places, places_of
from shardc.api.telling.host_time import host_note
from shardc.api.telling.told import Predicts
from shardc.api.telling.warned import (
    warn_of_held_updates,
    warn_of_placements,
    warn_of_silent_calls,
    warn_of_unmet,
)
from shardc.backend.stage_text import program_text
from shardc.cluster import Cluster
from shardc.importer.program import Imported
from shardc.ir.bugs import bugs_while
from shardc.ir.copy import copy_module, module_digest
from shardc.ir.effects import hoisted_calls, placements, silent_calls
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.executable import Executable
from shardc.plan.stages_spec import StagesSpec
from shardc.planner.allowed_request import print_request, step_flops
from shardc.planner.sharding_conflicts import asked_prices
from shardc.progress import shown_progress
from shardc.report.compare import Ranked
from shardc.report.counterfactuals import explained_choices
from shardc.report.findings.lint import lint
from shardc.report.model import Finding
from shardc.report.reading import judged, read_plan
from shardc.report.summary import explain
from shardc.report.words import in_words
from shardc.runtime.context_mesh import no_context_mesh
from shardc.runtime.processes.job import is_several

if TYPE_CHECKING:
    from shardc.ir.context import Module


class Lowered(Signature):
    """A traced function as one StableHLO module, not yet planned.

    Attributes:
        imported: the module with its arguments and results.
        cluster: the cluster to plan for; it may have more devices than available.
        devices: the devices to run on.
        options: the request to the planner.
        given_plan: a plan given instead of a search, or None.
        in_tree, out_tree, args_info, out_info: as in `Signature`.
        program: equal for functions lowered to the same module, before placements and requested
            shardings were written into it.
    """

    def __init__(
        self,
        imported: Imported,
        cluster: Cluster,
        devices: Sequence[jax.Device],
        options: PlanOptions,
        plan: Plan | StagesSpec | None = None,
        compiler_options: dict[str, Any] | None = None,
        program: Hashable = None,
        beside: bool = False,
    ) -> None:
        super().__init__(imported)
        self.imported = imported
        self.cluster = cluster
        self.options = options
        self.devices = self._devices = tuple(devices)
        self.given_plan = plan
        self._compiler_options = compiler_options
        self._beside = beside
        self.program = program

    def __repr__(self) -> str:
        asked = {name: getattr(self.options, name) for name in ("stages", "microbatches", "mesh")}
        return (
            f"<shardc.Lowered {self._signature()}; not planned, for '{self.cluster.name}' of"
            f" {self.cluster.num_devices} devices with"
            f" {', '.join(f'{name}={value}' for name, value in asked.items())}>"
        )

    def as_text(self, *, debug_info: bool = False) -> str:
        """The StableHLO module as JAX lowered it."""
        module = self.imported.module.operation
        return str(module.get_asm(enable_debug_info=debug_info))

    def cost_analysis(self) -> dict[str, float]:
        """`flops`: the floating-point operations of one call."""
        prepared = copy_module(self.imported.module)
        compiler.prepare(prepared)
        return {"flops": float(step_flops(prepared, 1))}

    def plan(self, *, beside: bool | None = None) -> "Planned":
        """Chooses microbatches, stages, meshes and shardings, or takes the given plan.

        Warns (RequestWarning) if the program cannot be cut as requested. Needs none of the
        cluster's devices.

        Args:
            beside: instead of that of `shardc.jit`.
        Raises:
            ShardcError: the planner refuses; SHARDC-200 a given plan is for another program.
        """
        with bugs_while("preparing the program", self.imported.module):
            prepared = copy_module(self.imported.module)
            compiler.prepare(prepared)
        made: list[Module] = []
        find = functools.partial(
            plan_as_given,
            prepared,
            self.cluster,
            self.options,
            self.given_plan,
            beside=self._beside if beside is None else beside,
            take=made.append,
        )
        plan = agreed_plan(find, self, module_digest(prepared)) if is_several() else find()
        check_plan_fits(plan, None, len(self.imported.arguments))
        with prepared.context:
            silent, placed = silent_calls(prepared.operation), placements(prepared.operation)
        warn_of_silent_calls(silent)
        warn_of_placements(placed)
        if self.given_plan is None:
            warn_of_unmet(plan)
        return Planned(
            self.imported,
            prepared,
            plan,
            self._devices,
            self.options,
            plan.cluster or self.cluster,
            self._compiler_options,
            self.program,
            *made,
        )

    def compile(self, compiler_options: dict[str, Any] | None = None) -> Compiled:
        """Plans and compiles.

        Args:
            compiler_options: for XLA, instead of those of `shardc.jit`.
        Raises:
            ClusterError: SHARDC-101, the cluster has more devices than available; nothing was
                planned.
        """
        own = given_compiler_options(compiler_options)
        if self.given_plan is None:
            check_devices(self.cluster, self._devices)
        return self.plan().compile(own)


class Planned(PlacedSignature, Predicts):
    """A program and its plan.

    Attributes:
        plan: the decisions; `plan.save(path)` saves them.
        in_tree, out_tree, args_info, out_info: as in `Signature`.
    """

    def __init__(
        self,
        imported: Imported,
        prepared: "Module",
        plan: Plan,
        devices: Sequence[jax.Device],
        options: PlanOptions,
        cluster: Cluster,
        compiler_options: dict[str, Any] | None = None,
        program: Hashable = None,
        sharded: "Module | None" = None,
    ) -> None:
        super().__init__(imported)
        self.plan, self.program = plan, program
        self._sharded = sharded  # the planner's own module, until it is lowered; else None
        self._prepared, self._devices = prepared, tuple(devices)
        self._options, self._cluster = options, cluster
        self._compiler_options = compiler_options

    def __repr__(self) -> str:
        return f"<shardc.Planned {self._signature()}; {self.plan}>"

    @functools.cached_property
    def executable(self) -> Executable:
        """The stage programs and the order in which they run."""
        plan = self.plan
        with self._bugs_while("lowering"):
            sharded = self._sharded or compiler.replay(self._prepared, plan)
            self._sharded = None
            options = self._options
            return compiler.lower(
                sharded, plan, lowering=options.lowering, early_updates=options.early_updates
            )

    def _argument_places(self) -> Places:
        check_plan_fits(self.plan, self._devices, len(self._imported.arguments))
        with self._bugs_while("placing the state"):
            return places_of(self.executable, self._devices)

    def explain(self, pattern: str | None = None) -> str:
        """The plan in words and as a table; with a pattern, an explanation of matching shardings.

        Args:
            pattern: of an argument's name (`params.*.kernel`), of an op's name or source position
                (`dot_general`, `train.py:41`), or of a part of the model (`blocks.3.*`).
        Raises:
            InputError: SHARDC-180, the pattern has no match.
        """
        check_pattern(pattern)
        with self._bugs_while("explaining a plan"):
            if pattern is None:
                words = in_words(read_plan(self.plan))
                host = host_note(self.plan, self.executable, self._devices)
                return f"{words}{explain(self.plan, self.executable)}{host}"
            return explained_choices(self._prepared, self.plan, self._cluster, pattern)

    def beside(self) -> Ranked:
        """This plan and the pipelines considered besides it, those that a person would write by
        hand among them (data parallel, ZeRO-1, FSDP, tensor parallel, several in stages), fastest
        first.

        They are planned on the first call and kept in `plan`; `explain` and `report` then show
        them. Ctrl-C keeps those planned so far.
        """
        self.plan = find_beside(self._prepared, self.plan, self._cluster, self._options)
        return Ranked(judged(self.plan))

    def lint(self) -> tuple[Finding, ...]:
        """All avoidable costs, most expensive first, as `shardc lint` lists them; `warnings()` has
        those of the plan that deserve a warning."""
        with self._bugs_while("looking for avoidable costs"):
            return lint(self._prepared, self.plan)

    def sharding_prices(self) -> dict[str, float]:
        """The cost of each requested sharding, in predicted seconds per step.

        Keyed by the request: a pattern, an argument or result, the source position of a
        constraint. The pipeline of the plan is solved again without each of them.
        """
        with self._bugs_while("pricing shardings"):
            return asked_prices(self._prepared, self.plan, self._cluster, self._options)

    def as_text(self, stage: int | None = None) -> str:
        """MLIR of the programs of `stage` (of all stages if None).

        Raises:
            InputError: SHARDC-180, there is no such stage.
        """
        check_stage(stage, self.executable)
        return "\n".join(
            f"// {program.name}\n{program_text(program)}"
            for program in self.executable.of_stage(stage)
        )

    def compile(self, compiler_options: dict[str, Any] | None = None) -> Compiled:
        """Compiles every stage program with XLA for its devices.

        Args:
            compiler_options: for XLA, instead of those of `shardc.jit`.
        Raises:
            ClusterError: SHARDC-101, the plan uses more devices than available.
        """
        check_plan_fits(self.plan, self._devices, len(self._imported.arguments))
        if is_several():
            check_built_for_several(self._imported, self._devices)
            check_programs(self.executable)
        warn_of_held_updates(self.executable)
        own = given_compiler_options(compiler_options)
        # XLA's errors about the user's compiler options are not bugs in shardc.
        but = (Exception,) if own or self._compiler_options else ()
        with shown_progress("compiling"), self._bugs_while("compiling", but), no_context_mesh():
            programs = compile_as_planned(
                self.executable,
                self.plan,
                self._devices,
                self._compiler_options if own is None else own,
                self._imported.host_calls,
                [
                    self._options.memory_limit_bytes
                    or self._cluster.home(stage.mesh.device_ids)[0].device.memory_bytes
                    for stage in self.plan.stages
                ],
            )
            with self._prepared.context:
                host_calls = hoisted_calls(self._prepared.operation)
            compiled = Compiled(
                self._imported,
                self.plan,
                self.executable,
                programs,
                host_calls,
                self.program,
                self.explain,
            )
            compiled.maker_of = self._maker_of
            return compiled

    def _maker_of(self, program: str, value: str) -> str | None:
        sharded = compiler.replay(self._prepared, self.plan)
        with sharded.context:
            return maker_of(sharded.operation, program, value)

    def _bugs_while(
        self, doing: str, but: tuple[type[Exception], ...] = ()
    ) -> AbstractContextManager[None]:
        request = print_request(self._cluster, self._options)
        return bugs_while(doing, self._prepared, request, but)
