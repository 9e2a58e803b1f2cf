"""What a plan tells of itself in Python, as the commands do."""

from shardc.plan.decisions import Plan
from shardc.plan.predicted import Memory
from shardc.report.model import Finding, Reading
from shardc.report.page.page import Report
from shardc.report.reading import read_plan


class Told:
    """What `Planned` and `Compiled` share.

    Attributes:
        plan: the decisions.
    """

    plan: Plan

    def reading(self) -> Reading:
        """All that there is to say of the plan, as data; `msgspec.to_builtins` makes JSON of it."""
        return read_plan(self.plan)

    def report(self) -> Report:
        """An HTML page about the plan that needs no network: `.save(path)`, or shown by itself in
        a notebook."""
        return Report((("plan", self.plan),))

    def warnings(self) -> tuple[Finding, ...]:
        """What costs more than it might, each with its price."""
        return self.reading().warnings

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()


class Predicts(Told):
    """What `Planned` has where `Compiled` asks XLA."""

    def cost_analysis(self) -> dict[str, dict[str, float]]:
        """What each stage is predicted to take: `flops` of a step over all its devices, `seconds`
        of one microbatch, forward and backward."""
        return {
            f"stage{n}": {"flops": float(stage.num_flops), "seconds": stage.time_s}
            for n, stage in enumerate(self.plan.stages)
        }

    def memory_analysis(self) -> dict[str, Memory]:
        """The bytes that each device of a stage is predicted to hold when there are most."""
        return {f"stage{n}": stage.memory for n, stage in enumerate(self.plan.stages)}
