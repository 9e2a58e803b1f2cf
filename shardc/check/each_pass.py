"""Runs passes one by one, and the module before and after each on random inputs.

A module that a pass did not change is not run again. The report names everything that was not
compared, and everything that XLA ran because the StableHLO interpreter could not.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from jax.extend.mlir import ir

from shardc.check.child import Array, Outcome
from shardc.check.differences import by_roundings, differing, narrowest_float
from shardc.check.forms.evaluate import signatures, step_types
from shardc.check.values import Kind, random_values
from shardc.ir.attributes import HOST_CALLS
from shardc.ir.copy import copy_module, module_digest
from shardc.ir.pass_manager import Pass, run_passes

Inputs = dict[str, list[Array]]


@dataclass(frozen=True)
class PassCheck:
    """The result of checking one pass.

    Attributes:
        name: of the pass.
        compared: number of inputs compared; 0 if nothing changed or nothing could run.
        unchanged: the pass did not change the module.
        differences: how results differ, in words; empty if they agree.
        lacking: what the interpreter lacks, so that XLA ran it.
        not_compared: why some inputs were not compared.
        by_roundings: number of results whose differences input rounding explains.
    """

    name: str
    compared: int = 0
    unchanged: bool = False
    differences: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    by_roundings: int = 0

    @property
    def outcome(self) -> str:
        """One of "unchanged", "differs", "agrees", "not compared"."""
        if self.unchanged or self.differences:
            return "unchanged" if self.unchanged else "differs"
        return "agrees" if self.compared else "not compared"

    def __str__(self) -> str:
        if self.unchanged:
            return f"{self.name}: changes nothing"
        notes = [f"by XLA: the interpreter lacks {', '.join(self.lacking)}"] if self.lacking else []
        notes += [f"not compared: {reason}" for reason in self.not_compared]
        if self.by_roundings:
            notes.append(f"{self.by_roundings} results are decided by rounding")
        word = "DIFFERS" if self.differences else self.outcome
        on = f" on {self.compared} inputs" if self.compared else ""
        lines = [f"{self.name}: {word}{on}" + (f" ({'; '.join(notes)})" if notes else "")]
        return "\n".join([*lines, *(f"  {text}" for text in self.differences)])


@dataclass
class EachPass:
    """Applies passes to a module and checks each.

    Args:
        evaluate: runs a module on inputs by name: `Child.evaluate`, or `run_here`.
        inputs: the (kind, seed) pairs of its inputs, as in `random_values`.
    """

    evaluate: Callable[[ir.Module, Inputs], Outcome]
    inputs: Sequence[tuple[Kind, int]] = (("ordinary", 0), ("extremes", 1))
    _known: tuple[str, list[Outcome]] | None = field(default=None, repr=False)

    def run(self, module: ir.Module, passes: Sequence[Pass]) -> Iterator[PassCheck]:
        """Applies each pass in place and yields its check.

        Raises:
            ShardcError: a pass refuses the module.
        """
        with module.context:
            values = [random_values(module.operation, *each) for each in self.inputs]
        for each in passes:
            before, digest = copy_module(module), module_digest(module)
            run_passes(module, [each])
            if module_digest(module) == digest:
                yield PassCheck(each.name, unchanged=True)
            else:
                yield self._compare(each, before, module, values)

    def _compare(
        self, applied: Pass, before: ir.Module, after: ir.Module, values: Sequence[Inputs]
    ) -> PassCheck:
        with before.context:
            width = min(narrowest_float(m.operation) for m in (before, after))
            types = [
                {n: step_types(s) for n, s in signatures(m.operation).items()}
                for m in (before, after)
            ]
            hoisted = HOST_CALLS in after.operation.attributes
        compared = roundings = 0
        differences: list[str] = []
        lacking: dict[str, None] = {}
        skipped: dict[str, None] = {}
        old = self._outcomes(before, values)
        new = [self.evaluate(after, each) for each in values]
        self._known = module_digest(after), new
        for given, want, got in zip(values, old, new, strict=True):
            lacking.update(dict.fromkeys((*want.lacking, *got.lacking)))
            if want.problem or got.problem:
                if got.wrong and not want.wrong:
                    differences.append(got.problem)
                else:
                    skipped[want.problem or got.problem] = None
                continue
            names = [each for each in want.results if each in got.results]
            if not names:
                skipped["no function of its name is left"] = None
                continue
            compared += 1
            for function in names:
                expected, have = want.results[function], got.results[function]
                if hoisted:  # the operands of host calls became results
                    have = have[: len(expected)]
                same = types[0][function] == types[1][function] and not applied.changes_types
                found = differing(expected, have, width, same_types=same)

                def run(args: list[Array], function: str = function) -> list[Array]:
                    return self.evaluate(before, {function: args}).results[function]

                real = by_roundings(run, given[function], expected, found, width)
                roundings += len(found) - len(real)
                differences += [f"@{function}, result {i}: {text}" for i, text in real.items()]
        return PassCheck(
            applied.name,
            compared,
            False,
            tuple(differences),
            tuple(lacking),
            tuple(skipped),
            roundings,
        )

    def _outcomes(self, module: ir.Module, values: Sequence[Inputs]) -> list[Outcome]:
        if self._known is not None and self._known[0] == module_digest(module):
            return self._known[1]
        return [self.evaluate(module, each) for each in values]
