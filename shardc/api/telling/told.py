"""What a plan reports in Python, like the commands."""

from shardc.plan.decisions import Plan
from shardc.plan.predicted import Memory
from shardc.report.model import Finding, Reading
from shardc.report.page.page import Report
from shardc.report.reading import read_plan


class Told:
    """The common part of `Planned` and `Compiled`.

    Attributes:
        plan: the decisions.
    """

    plan: Plan

    def reading(self) -> Reading:
        """The full description of the plan, as data; `msgspec.to_builtins` makes it JSON."""
        return read_plan(self.plan)

    def report(self) -> Report:
        """A self-contained HTML page about the plan: `.save(path)`, or displayed inline in
        a notebook."""
        return Report((("plan", self.plan),))

    def warnings(self) -> tuple[Finding, ...]:
        """The avoidable costs that `explain` warns of; `Planned.lint` lists all."""
        return self.reading().warnings

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()


class Predicts(Told):
    """The predictions of `Planned`, for which `Compiled` asks XLA."""

    def cost_analysis(self) -> dict[str, dict[str, float]]:
        """The predicted cost of each stage: `flops` of a step over all its devices, `seconds`
        of one microbatch, forward and backward."""
        return {
            f"stage{n}": {"flops": float(stage.num_flops), "seconds": stage.time_s}
            for n, stage in enumerate(self.plan.stages)
        }

    def memory_analysis(self) -> dict[str, Memory]:
        """The predicted peak bytes on each device of a stage, by purpose."""
        return {f"stage{n}": stage.memory for n, stage in enumerate(self.plan.stages)}
