"""Random plans of a random step, run form by form in StableHLO's interpreter.

A plan is checked at its end, on the programs of the devices; where these differ from the step, the
forms on the way are run too, and the first that differs is named.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
from jax.extend.mlir import ir

from shardc import cutting
from shardc.check.differences import by_roundings, differing, narrowest_float
from shardc.check.forms.engines import Engine, Run, interpreter, lacks, xla
from shardc.check.forms.evaluate import evaluate
from shardc.check.forms.on_devices import ReplicasDiffer
from shardc.check.values import Kind, with_special_values
from shardc.errors import MicrobatchError, StageError
from shardc.ir.context import parse
from shardc.ir.copy import copy_module
from shardc.ir.pass_manager import Pass, run_passes
from shardc.ir.walk import main_function
from shardc.passes import plan_shardings
from shardc.passes.accumulate_in_loops import AccumulateInLoops
from shardc.passes.assign_meshes import AssignMeshes
from shardc.passes.keep_forward_values import KeepForwardValues
from shardc.passes.outline_stages import OutlineStages
from shardc.passes.pipeline import LOCAL_LOWERING, NORMALIZE
from shardc.passes.plan_residency import PlanResidency
from shardc.passes.plan_shardings import PlanShardings
from shardc.passes.plan_stages import PlanStages
from shardc.passes.replicate_stages import ReplicateStages
from shardc.passes.share_reshards import ShareReshards
from shardc.passes.slice_tokens import SliceTokens
from shardc.passes.split_backward import SplitBackward
from shardc.passes.split_backward_loops import SplitBackwardLoops
from shardc.passes.unroll_layers import UnrollLayers
from shardc.plan.layout import Mesh
from shardc.plan.shape import Reuse
from shardc.planner.layer_samples import even_loop_cuts
from tests.py.fuzz.kinds import KINDS, step_of
from tests.py.fuzz.layers import Step
from tests.py.fuzz.random_solver import random_solver
from tests.py.table import CLUSTER

Arrays = list[np.ndarray]
NAME = "main"


class Plan(NamedTuple):
    """A shape of a pipeline, and the seed of its shardings.

    Attributes:
        held: microbatches that a stage holds at once, which then makes values again; 0: keeps all.
        split_backward: whether weight gradients are functions of their own.
        copies: whether two copies of each stage share the microbatches.
        slices: token slices of each microbatch.
        keep: price of keeping what checkpoints compute again; 0: they do.
    """

    stages: int
    microbatches: int
    mesh: tuple[int, ...]
    cut_loops: bool
    seed: int
    held: int = 0
    split_backward: bool = False
    copies: bool = False
    slices: int = 1
    keep: float = 0.0


class Result(NamedTuple):
    """What came of a plan.

    Attributes:
        outcome: "held"; "differs"; "roundings decide"; "refused SHARDC-nnn"; "failed", with an
            exception that has no code; "not run", for want of an engine.
        ran: the plan as it could be had: fewer microbatches or stages after a refusal.
        detail: where and how it differs, or what failed.
        lacking: what the interpreter lacks; XLA ran it, or, if `skipped`, nothing did.
        skipped: the devices' programs were not run, but the stages before they are localised.
    """

    plan: Plan
    outcome: str
    ran: Plan
    detail: str = ""
    lacking: tuple[str, ...] = ()
    skipped: bool = False


def random_plan(random: Random, sliced: bool = False) -> Plan:
    """Up to four stages and microbatches, meshes of two or four devices.

    Args:
        sliced: whether most plans of several stages have token slices.
    """
    mesh = random.choice([(2,), (2,), (2, 2)])
    shapes = [(1, 2), (1, 4), (2, 1), (2, 2), (2, 2), (2, 4), (1, 1), (3, 2), (4, 4)]
    stages, microbatches = random.choice(shapes)
    mesh = (2,) if stages > 2 else mesh
    cut_loops, seed = random.random() < 0.5, random.randrange(1 << 16)
    held = random.choice([0, 0, 1, 2])
    split_backward, copies = random.random() < 0.4, stages < 3 and random.random() < 0.2
    keep = random.choice([0.0, 0.0, 1e-3, 0.1])
    plan = Plan(stages, microbatches, mesh, cut_loops, seed, held, split_backward, copies)
    plan = plan._replace(keep=keep)
    if not sliced or stages == 1 or random.random() < 0.2:
        return plan
    return plan._replace(copies=False, slices=random.choice([2, 3]))


class Engines:
    """The interpreter; XLA for what it lacks, but for programs of several devices if `frugal`."""

    def __init__(self, frugal: bool) -> None:
        self.frugal = frugal
        self.lacking: dict[str, None] = {}

    def __call__(self, module: ir.Operation, function: ir.Operation, num_devices: int) -> Run:
        missing = lacks(module, function, num_devices)
        self.lacking.update(dict.fromkeys(missing))
        if missing and self.frugal and num_devices > 1:
            raise _NotInterpreted
        return (xla if missing else interpreter)(module, function, num_devices)


class _NotInterpreted(Exception):
    pass


class Checked:
    """A step, normalised and run once on one device."""

    def __init__(self, step: Step, kind: Kind = "ordinary", seed: int = 0) -> None:
        with jax.enable_x64(True):
            jitted = jax.jit(step.function, donate_argnums=0, keep_unused=True)
            self.imported = parse(jitted.lower(*step.args).as_text(debug_info=True))
        numbers = np.random.default_rng(seed)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(step.args)]
        self.args = [with_special_values(leaf, kind, numbers) for leaf in leaves]
        self._splits: dict[Any, ir.Module | MicrobatchError] = {}
        self.num_state = len(jax.tree.leaves(step.args[0]))
        self.width = narrowest_float(self.imported.operation)
        self.prepared = copy_module(self.imported)
        run_passes(self.prepared, NORMALIZE)
        whole = self.imported.operation
        engine: Engine = xla if lacks(whole, main_function(whole)) else interpreter
        self.reference = self.imported, engine
        self.want = self._run(*self.reference, self.args)
        self._normalised = self.difference(self.prepared, engine)
        if engine is xla:  # where finite terms overflow, the order of additions decides
            self.reference = self.prepared, Engines(frugal=False)
            self.want = self._run(*self.reference, self.args)

    def normalised_differs(self) -> str:
        """What the passes before any plan change, by one engine on both sides; "" where nothing."""
        return self._normalised

    def check(self, plan: Plan, frugal: bool = True) -> Result:
        """Makes the plan's programs and runs them."""
        ran, module = plan, None
        while module is None:
            try:
                module = self._split(ran)
                form = self._outlined(module, ran)
            except (MicrobatchError, StageError) as refusal:
                refused = f"refused {refusal.code}"
                module = None
                if isinstance(refusal, MicrobatchError) and ran.microbatches > 1:
                    ran = ran._replace(microbatches=1, copies=False)
                elif ran.slices > 1:
                    ran = ran._replace(slices=1)
                elif ran.copies:
                    ran = ran._replace(copies=False)
                elif ran.split_backward:
                    ran = ran._replace(split_backward=False)
                elif ran.stages > 1:
                    ran = ran._replace(stages=ran.stages // 2)
                else:
                    return Result(plan, refused, ran, str(refusal))
        engines = Engines(frugal)
        local = copy_module(form)
        run_passes(local, LOCAL_LOWERING)
        skipped = False
        try:
            problem = self.difference(local, engines)
        except _NotInterpreted:
            skipped = True
            problem = self.difference(form, engines)
        if not problem:
            return Result(plan, "held", ran, "", tuple(engines.lacking), skipped)
        if problem == ROUNDINGS:
            return Result(plan, ROUNDINGS, ran)
        where = self._first_difference(module, form)
        return Result(plan, "differs", ran, f"{where}: {problem}", tuple(engines.lacking), skipped)

    def stages(self, plan: Plan) -> ir.Module:
        """The functions of the plan's stages, which must be possible, before they are localised."""
        return self._outlined(self._split(plan), plan)

    def _split(self, plan: Plan) -> ir.Module:
        """The split module that several plans begin with; a refusal is remembered, too."""
        cuts = even_loop_cuts(self.prepared, plan.stages) if plan.cut_loops else ()
        key = plan.microbatches, cuts
        if key not in self._splits:
            batch = (self.num_state, self.num_state + 1), (0, 0)
            try:
                self._splits[key] = cutting.split(
                    self.prepared,
                    plan.microbatches,
                    *(batch if key[0] > 1 else (None, ())),
                    cuts,
                    reuse=Reuse(cast_once=True),
                )
            except MicrobatchError as refusal:
                self._splits[key] = refusal
        found = self._splits[key]
        if isinstance(found, MicrobatchError):
            raise found
        return found

    def _outlined(self, split: ir.Module, plan: Plan) -> ir.Module:
        module = copy_module(split)
        count = int(np.prod(plan.mesh))
        axes = tuple(zip("xy", plan.mesh, strict=False))
        groups = [Mesh(axes, tuple(range(count * s, count * (s + 1)))) for s in range(plan.stages)]
        placed = [*groups, *reversed(groups)] if plan.copies else groups
        held = (plan.held,) * plan.stages if plan.held else ()
        sliced = plan.slices > 1
        outline = OutlineStages(accumulate=sliced)
        passes: list[Pass] = [PlanStages(plan.stages)]
        passes += [KeepForwardValues((plan.keep,) * plan.stages), PlanResidency(held), outline]
        passes += [UnrollLayers()] * sliced
        if plan.split_backward:
            passes += [SplitBackwardLoops(CLUSTER), SplitBackward(CLUSTER)]
        passes += [ReplicateStages()] if plan.copies else []
        passes += [SliceTokens(plan.slices)] * sliced
        passes += [AccumulateInLoops(), ShareReshards()]
        run_passes(module, [*passes, AssignMeshes(tuple(placed))])
        with mock.patch.object(plan_shardings, "solve_once", random_solver(plan.seed)):
            run_passes(module, [PlanShardings(cluster=CLUSTER)])
        return module

    def _run(self, module: ir.Module, engines: Engine, args: Arrays) -> Arrays:
        with jax.enable_x64(True):
            return evaluate(module, {NAME: args}, engines)[NAME]

    def difference(self, module: ir.Module, engines: Engine) -> str:
        """How a form of the step differs from it; "" where it does not."""
        try:
            got = self._run(module, engines, self.args)
        except ReplicasDiffer as error:
            return str(error)
        found = differing(self.want, got, self.width)

        def again(args: Arrays) -> Arrays:
            return self._run(*self.reference, args)

        real = by_roundings(again, self.args, self.want, found, self.width)
        if found and not real:
            return ROUNDINGS
        return "; ".join(f"result {i}: {text}" for i, text in real.items())

    def _first_difference(self, split: ir.Module, outlined: ir.Module) -> str:
        engines = Engines(frugal=False)
        forms = {"normalised": self.prepared, "split": split, "outlined": outlined}
        for name, module in forms.items():
            if self.difference(module, engines) not in ("", ROUNDINGS):
                return f"first when {name}"
        return "first when localised"


ROUNDINGS = "roundings decide"


def check_plans(
    checked: Checked, random: Random, count: int, frugal: bool = True, sliced: bool = False
) -> Iterator[Result]:
    """`count` random plans of a step, each run; what fails is told as a result."""
    for _ in range(count):
        plan = random_plan(random, sliced)
        try:
            yield checked.check(plan, frugal)
        except Exception as error:  # noqa: BLE001 - every failure is a result
            yield Result(plan, "failed", plan, _told(error))


def check_seed(
    kind: str, seed: int, count: int, values: Kind = "ordinary"
) -> Iterator[dict[str, Any]]:
    """Plans of the step that a seed gives, each as a line of a results file."""
    line: dict[str, Any] = {"kind": kind, "seed": seed, "values": values}
    with jax.enable_x64(True):
        step = step_of(kind, seed)
    try:
        with jax.enable_x64(True):
            jax.eval_shape(step.function, *step.args)
    except NotImplementedError:
        yield line | {"outcome": "JAX has no derivative"}
        return
    try:
        checked = Checked(step, values, seed)
        problem = checked.normalised_differs()
    except Exception as error:  # noqa: BLE001 - every failure is a result
        yield line | {"outcome": "failed", "detail": _told(error), "step": step.text}
        return
    if problem not in ("", ROUNDINGS):
        detail = f"first when normalised: {problem}"
        yield line | {"outcome": "differs", "detail": detail, "step": step.text}
    # What slices take for granted does not hold of infinities.
    sliced = bool(KINDS[kind].tokens[0]) and values == "ordinary"
    for result in check_plans(checked, Random(seed), count, sliced=sliced):
        more: dict[str, Any] = {"outcome": result.outcome, "plan": list(result.ran)}
        if result.ran != result.plan:
            more["asked"] = [*result.plan[:2], result.plan.slices]
        if result.detail:
            more |= {"detail": result.detail, "step": step.text}
        if result.lacking:
            more["lacking"] = list(result.lacking)
        if result.skipped:
            more["skipped"] = True
        yield line | more


def _told(error: Any) -> str:
    places = []
    trace = error.__traceback__
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{type(error).__name__}: {error} at {' < '.join(reversed(places[-4:]))}"
