"""The ops after the microbatches, grouped by the parameter they update, and each group's stage."""

from shardc.analysis.program.def_use import Dataflow, StepFacts
from shardc.analysis.stages.cloned_ops import argument_size, gives_scalars, is_scalar_arithmetic
from shardc.plan.function_kind import Phase

Stages = tuple[int, int]  # first and last stage that uses a value


class UpdateGroups:
    """A group is a parameter with its moments, its gradient, and the ops between them.

    Ops are connected through tensors of more than one element; scalars (a step count, a global
    norm) connect nothing. A group is on the first stage whose body uses its parameter.

    Args:
        aliases: argument -> result of the function that is its next state.
    """

    def __init__(
        self, flow: Dataflow, facts: StepFacts, cloned: set[int], aliases: dict[int, int]
    ) -> None:
        self.flow, self.facts, self.cloned = flow, facts, cloned
        after = [i for i, p in enumerate(facts.phase) if p is Phase.AFTER and i not in cloned]
        self.scalars = [i for i in after if is_scalar_arithmetic(flow, i)]
        self.tensors = [i for i in after if not is_scalar_arithmetic(flow, i)]
        self._parent = list(range(len(flow.ops) + len(flow.arg_users)))  # ops, then arguments
        grouped = set(self.tensors)
        for i in self.tensors:
            for j in flow.op_inputs[i]:
                if j in grouped and not gives_scalars(flow, j):
                    self._join(i, j)
            for n in flow.arg_inputs[i]:
                if argument_size(flow, n) > 1:
                    self._join(i, self._argument(n))
        for arg, result in aliases.items():
            kind, index = flow.returned[result]
            if kind == "op" and index in grouped:
                self._join(self._argument(arg), index)

    def stage_of_accumulates(self, owned: dict[int, Stages]) -> dict[int, int]:
        """For each accumulation that updates an owned argument: the last stage using that."""
        owners = self._owners(owned)
        wanted: dict[int, int] = {}
        for i in self.tensors:
            root = self._find(i)
            if root in owners:
                for j in self.flow.op_inputs[i]:
                    if j in self.facts.accumulates:
                        wanted[j] = owners[root][1]
        return wanted

    def assign(self, stage: list[int], owned: dict[int, Stages]) -> dict[int, int]:
        """Writes the stages of the update ops into `stage`; owner of each argument in a group."""
        flow = self.flow
        chosen = {root: found[0] for root, found in self._owners(owned).items()}
        for i in self.tensors:
            sources = [stage[j] for j in flow.op_inputs[i] if j in self.facts.accumulates]
            if sources:
                chosen.setdefault(self._find(i), sources[0])
        for i in self.tensors:
            stage[i] = chosen.get(self._find(i), 0)
        last = max(stage, default=0)
        for i in self.scalars:
            sharing = {stage[j] for j in flow.op_inputs[i] if j not in self.cloned}
            # A value common to all stages, such as a global norm, is combined on one stage.
            stage[i] = last if len(sharing) > 1 else max(sharing, default=0)
        roots = {n: self._find(self._argument(n)) for n in range(len(flow.arg_users))}
        return {n: chosen[root] for n, root in roots.items() if root in chosen}

    def _argument(self, n: int) -> int:
        return len(self.flow.ops) + n

    def _find(self, x: int) -> int:
        while self._parent[x] != x:
            self._parent[x] = self._parent[self._parent[x]]
            x = self._parent[x]
        return x

    def _join(self, x: int, y: int) -> None:
        self._parent[self._find(x)] = self._find(y)

    def _owners(self, owned: dict[int, Stages]) -> dict[int, Stages]:
        """Group -> first and last stage that use its largest owned argument."""
        best: dict[int, tuple[int, Stages]] = {}
        for n, found in owned.items():
            root = self._find(self._argument(n))
            size = argument_size(self.flow, n)
            if root not in best or size > best[root][0]:
                best[root] = (size, found)
        return {root: found for root, (_, found) in best.items()}
