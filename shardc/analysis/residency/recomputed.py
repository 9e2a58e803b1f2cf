"""Which ops of a stage's backward pass compute forward values again, and what these are.

`jax.checkpoint` leaves copies of forward ops in the backward pass: behind barriers, and in the body
of the backward loop of scanned layers. Copies have the number of their original (`ValueNumbering`):
the same ops, with the same attributes, of the same values. Nothing depends on how JAX writes them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jax.extend.mlir import ir

from shardc.analysis.loops.row_loop import RowLoop, row_read
from shardc.analysis.loops.value_numbering import ValueNumbering, is_identity
from shardc.analysis.program.def_use import dataflow, step_facts
from shardc.analysis.program.op_classes import PRODUCTS
from shardc.ir.attributes import (
    DIRECTION,
    MICROBATCH_INDEX,
    ORIGIN,
    PHASE,
    SHARDING,
    STAGE,
    call_target,
    get_int,
    get_str,
)
from shardc.ir.clone import inputs
from shardc.ir.tensor_types import num_bytes
from shardc.ir.walk import CONTROL_FLOW, defining_op, ops, ops_of
from shardc.plan.function_kind import FunctionKind, Phase
from shardc.rules.allowed_factors import BARRIER


@dataclass(frozen=True)
class Original:
    """A forward value that a backward pass computes again.

    Attributes:
        value: the forward value.
        name: identifies it in every cut of the program: the position of its op in the prepared
            @main, `12`; for a value of a loop's body also which of its kind the op is there,
            `12.tanh1`; `:1` if it is not the first result; `#2` where the stage computes it again
            a second time. "" if nothing identifies it.
        num_bytes: in all iterations of a loop.
    """

    value: ir.Value
    name: str
    num_bytes: int


@dataclass(frozen=True)
class Recomputation:
    """What one block of a stage's backward pass computes again.

    Attributes:
        block: the ops of the backward pass in it, in order.
        again: those of them that compute forward values.
        originals: result of one of `again` -> the forward value, if it differs from microbatch to
            microbatch; what does not, such as cast parameters, is not worth keeping for each.
        loop: the loop whose body the block is; None: @main.
        sources: the forward loops that compute the originals.
    """

    stage: int
    block: list[ir.Operation]
    again: list[ir.Operation]
    originals: Mapping[ir.Value, Original]
    loop: RowLoop | None = None
    sources: Mapping[ir.Operation, RowLoop] = field(default_factory=dict)


def recomputations(main: ir.Operation) -> list[Recomputation]:
    """What the backward passes of a staged @main compute again, per stage and block."""
    return _Finder(main).run()


class _Finder:
    def __init__(self, main: ir.Operation) -> None:
        self.ops = ops(main)
        self.copies = ValueNumbering(main)
        self.varying = _varying(main)
        self.forward: dict[int, dict[int, Original]] = {}  # stage -> number -> in @main
        self.in_loops: dict[int, dict[int, tuple[RowLoop, Original]]] = {}
        self.names: set[tuple[int, str]] = set()
        self.times: Counter[tuple[int, str]] = Counter()  # stage, name -> copies so far

    def run(self) -> list[Recomputation]:
        backward: dict[int, list[ir.Operation]] = {}
        for op in self.ops:
            if get_str(op, PHASE) != Phase.BODY:
                continue
            stage = get_int(op, STAGE) or 0
            if get_str(op, DIRECTION) == FunctionKind.FORWARD:
                self._enter_forward(op, stage)
            else:
                backward.setdefault(stage, []).append(op)
        found = []
        for stage, own in sorted(backward.items()):
            found.append(self._in_main(stage, own))
            for op in own:
                loop = self.copies.loops.get(op)
                if loop is not None and SHARDING not in op.attributes:
                    found.append(self._in_loop(stage, loop))
        return [each for each in found if each.originals]

    def _enter_forward(self, op: ir.Operation, stage: int) -> None:
        number, known = self.copies.number, self.forward.setdefault(stage, {})
        origin = _origin(op)
        if (stage, origin) in self.names:  # another part of an op that was cut
            origin = ""
        self.names.add((stage, origin))
        for value in op.results:
            name = _named(origin, value)
            known.setdefault(number[value], Original(value, name, num_bytes(value)))
        loop = self.copies.loops.get(op)
        if loop is None or SHARDING in op.attributes:
            return
        inside = self.in_loops.setdefault(stage, {})
        kinds: Counter[str] = Counter()
        for each in ops_of(loop.body)[:-1]:
            kind = each.name.removeprefix("stablehlo.")
            kinds[kind] += 1
            for value in each.results:
                name = _named(f"{origin}.{kind}{kinds[kind]}" if origin else "", value)
                size = num_bytes(value) * loop.counted.trips
                inside.setdefault(number[value], (loop, Original(value, name, size)))

    def _in_main(self, stage: int, block: list[ir.Operation]) -> Recomputation:
        known = self.forward.get(stage, {})
        again: list[ir.Operation] = []
        originals: dict[ir.Value, Original] = {}
        for op in block:
            found = [known.get(self.copies.number[value]) for value in op.results]
            if is_identity(op) or not found or not all(map(self._is_before, found, op.results)):
                continue
            again.append(op)
            if self.varying.issuperset(op.results):
                for value, original in zip(op.results, found, strict=True):
                    assert original is not None, "all results are forward values"
                    originals[value] = self._once_more(stage, original)
        return Recomputation(stage, block, again, originals)

    def _in_loop(self, stage: int, loop: RowLoop) -> Recomputation:
        known, number = self.in_loops.get(stage, {}), self.copies.number
        varying = self._varying_in(loop)
        block = ops_of(loop.body)[:-1]
        again: list[ir.Operation] = []
        originals: dict[ir.Value, Original] = {}
        sources: dict[ir.Operation, RowLoop] = {}
        for op in block:
            found = [known.get(number[value]) for value in op.results]
            if is_identity(op) or not found:
                continue
            there = [
                source
                for source in found
                if source is not None
                and source[0].counted.trips == loop.counted.trips
                and self._is_before(source[1], loop.loop.results[0])
            ]
            if len(there) < len(found):
                continue
            again.append(op)
            if varying.issuperset(op.results):
                for value, (source, original) in zip(op.results, there, strict=True):
                    originals[value] = self._once_more(stage, original)
                    sources[source.loop] = source
        return Recomputation(stage, block, again, originals, loop, sources)

    def _once_more(self, stage: int, original: Original) -> Original:
        """The forward value of one more copy, with a name of its own."""
        self.times[stage, original.name] += 1
        times = self.times[stage, original.name]
        if times == 1 or not original.name:
            return original
        return replace(original, name=f"{original.name}#{times}")

    def _is_before(self, original: Original | None, value: ir.Value) -> bool:
        order = self.copies.order
        return original is not None and order[original.value] < order[value]

    def _varying_in(self, loop: RowLoop) -> set[ir.Value]:
        """The values of a loop's body that differ from microbatch to microbatch; of a row, if its
        stack does."""
        arguments = list(loop.body.arguments)
        found: set[ir.Value] = {
            a for p, a in enumerate(arguments) if p not in loop.counted.counters
        }
        for op in ops_of(loop.body):
            is_row = len(op.results) == 1 and op.results[0] in loop.reads
            used = [row_read(op.results[0]).operands[0]] if is_row else inputs(op)
            found.update(_following(op, [v for v in used if v in found or v in self.varying]))
        return found


def _varying(main: ir.Operation) -> set[ir.Value]:
    """The values of a split @main that differ from microbatch to microbatch."""
    flow = dataflow(main)
    facts = step_facts(main, flow)
    found: set[ir.Value] = set()
    for i, op in enumerate(flow.ops):
        if i in facts.varying:
            varying = [value for value in flow.inputs[i] if value in found]
            seed = call_target(op) == MICROBATCH_INDEX or facts.batch_args & set(flow.arg_inputs[i])
            found.update(op.results if seed else _following(op, varying))
    return found


def _following(op: ir.Operation, varying: Sequence[ir.Value]) -> list[ir.Value]:
    """The results of an op that vary if these of its inputs do."""
    if not varying:
        return []
    if is_identity(op):
        return [r for v, r in zip(op.operands, op.results, strict=True) if v in varying]
    return list(op.results)


def _origin(op: ir.Operation) -> str:
    """The position of an op before loops were cut; "" for one that the cutting made."""
    if ORIGIN not in op.attributes:
        return ""
    return str(next(iter(ir.DenseI64ArrayAttr(op.attributes[ORIGIN]))))


def _named(origin: str, value: ir.Value) -> str:
    result = ir.OpResult(value).result_number
    return f"{origin}:{result}" if origin and result else origin


def computes_twice(main: ir.Operation) -> bool:
    """Whether a program computes some matrix product or convolution a second time.

    Without barriers and loops it does not: equal ops are one.
    """
    own = ops(main)
    loops = sum(op.name in CONTROL_FLOW for op in own)
    if loops < 2 and not any(op.name == BARRIER for op in own):
        return False
    copies = ValueNumbering(main).copies.values()
    makers = (list(map(defining_op, each)) for each in copies if len(each) > 1)
    return any(sum(op is not None and op.name in PRODUCTS for op in each) > 1 for each in makers)
