"""Leave one flat function: every call is replaced by the ops that it runs."""

from collections import Counter
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.errors import ImportFileError
from shardc.ir.attributes import str_attr
from shardc.ir.pass_manager import Pass, run_registered
from shardc.ir.walk import body, functions, main_function, symbol, terminator, walk, where

_CALLEE = {"func.call": "callee", "stablehlo.composite": "decomposition"}


def called(op: ir.Operation) -> str | None:
    """Symbol of the function that `op` runs, None if it runs none."""
    field = _CALLEE.get(op.name)
    return str(ir.FlatSymbolRefAttr(op.attributes[field]).value) if field else None


def _name(location: ir.Location) -> str:
    return str(location.name_str) if isinstance(location, ir.NameLoc) else ""


def _place(location: ir.Location) -> ir.Location:
    return location.child_loc if isinstance(location, ir.NameLoc) else location


def called_from(callee: ir.Location, caller: ir.Location) -> ir.Location:
    """The location of an op after inlining: both positions, and the path of names into the call.

    A call at `"jit(step)/jit(relu)"` of an op at `"max"` gives `"jit(step)/jit(relu)/max"`, so
    that `transpose(jvp(...))` of the caller is seen on the callee's ops.
    """
    known = [p for p in map(_place, (callee, caller)) if not isinstance(p, ir.UnknownLoc)]
    place = ir.Location.callsite(known[0], known[1:]) if len(known) == 2 else None
    place = place or (known[0] if known else ir.Location.unknown())
    path = "/".join(filter(None, (_name(caller), _name(callee))))
    return ir.Location.name(path, place) if path else place


class _Inliner:
    def __init__(self, module: ir.Operation) -> None:
        self.end = ir.InsertionPoint(module.regions[0].blocks[0])
        self.functions = {symbol(function): function for function in functions(module)}
        self.num_calls = Counter(filter(None, map(called, walk(module))))
        self.flat: set[str] = set()
        self.open: list[str] = []

    def flatten(self, name: str) -> None:
        """Inlines all calls in function `name`, callees first, so each body is moved once flat."""
        if name in self.flat:
            return
        self.open.append(name)
        for op in list(walk(self.functions[name])):
            callee = called(op)
            if callee is not None:
                self.check(op, callee)
                self.flatten(callee)
                self.inline(op, callee)
        self.flat.add(self.open.pop())

    def check(self, call: ir.Operation, name: str) -> None:
        problem = None
        if name in self.open:
            problem = "which calls itself"
        elif name not in self.functions or len(self.functions[name].regions[0].blocks) == 0:
            problem = "which has no body"
        elif len(self.functions[name].regions[0].blocks) > 1:
            problem = "which has branches"
        if problem:
            raise ImportFileError(
                f"a call of '@{name}', {problem}, cannot be inlined",
                where=where(call),
                code="SHARDC-122",
                help="write it with stablehlo.while, stablehlo.if or stablehlo.case",
            )

    def inline(self, call: ir.Operation, name: str) -> None:
        self.num_calls[name] -= 1
        last = self.num_calls[name] == 0
        callee = self.functions[name]
        callee = callee if last else callee.clone(ip=self.end).operation
        for argument, operand in zip(body(callee).arguments, call.operands, strict=True):
            argument.replace_all_uses_with(operand)
        returned = terminator(callee)
        for op in list(body(callee).operations)[:-1]:
            op.operation.move_before(call)
            for each in (op.operation, *walk(op.operation)):
                each.location = called_from(each.location, call.location)
        for result, value in zip(call.results, returned.operands, strict=True):
            result.replace_all_uses_with(value)
        call.erase()
        if last:
            del self.functions[name]
        callee.erase()


@dataclass(frozen=True)
class InlineCalls(Pass):
    """Inlines every `func.call` and `stablehlo.composite`, also inside regions, into `@main`.

    Afterwards the module's only function is `@main` (the public function, whatever its name was;
    functions that a custom call refers to stay too). Each op's location is the way to it through
    the calls. A second run changes nothing. Recursive functions are refused (SHARDC-122).
    """

    name = "shardc-inline-calls"

    def apply(self, module: ir.Operation) -> None:
        main = main_function(module)
        if len(main.regions[0].blocks) != 1:
            raise ImportFileError(
                f"'@{symbol(main)}' has {len(main.regions[0].blocks)} blocks instead of one",
                where=where(main),
                code="SHARDC-122",
                help="write it with stablehlo.while, stablehlo.if or stablehlo.case",
            )
        _Inliner(module).flatten(symbol(main))
        for function in functions(module):
            if symbol(function) != symbol(main):
                function.attributes["sym_visibility"] = str_attr("private")
        run_registered(module, "symbol-dce")
        main.attributes["sym_name"] = str_attr("main")
