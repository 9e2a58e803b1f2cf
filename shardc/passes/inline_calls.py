"""Leave one flat function: every call is replaced by the ops that it runs."""

from collections.abc import Iterator
from dataclasses import dataclass

from jax.extend.mlir import ir

from shardc.errors import ImportFileError
from shardc.ir.attributes import str_attr
from shardc.ir.pass_manager import Pass, run_registered
from shardc.ir.walk import all_functions, body, main_function, symbol, terminator, walk, where

_MOST_OPS = 5_000_000
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
    place = known[0] if known else ir.Location.unknown()
    if len(known) == 2:
        place = ir.Location.callsite(known[0], [known[1]])
    path = "/".join(filter(None, (_name(caller), _name(callee))))
    return ir.Location.name(path, place) if path else place


def refused(op: ir.Operation, message: str) -> ImportFileError:
    """SHARDC-122 at the position of `op`."""
    return ImportFileError(
        message,
        where=where(op),
        code="SHARDC-122",
        help="write it with stablehlo.while, stablehlo.if or stablehlo.case",
    )


class _Inliner:
    def __init__(self, module: ir.Operation) -> None:
        self.end = ir.InsertionPoint(module.regions[0].blocks[0])
        self.functions = {symbol(function): function for function in all_functions(module)}
        self.calls: dict[str, list[tuple[ir.Operation, str]]] = {}

    def find_calls(self, name: str) -> Iterator[tuple[ir.Operation, str]]:
        """Notes the calls in function `name`, each with the function it runs."""
        self.calls[name] = []
        for op in walk(self.functions[name]):
            callee = called(op)
            if callee is None:
                continue
            blocks = self.functions[callee].regions[0].blocks if callee in self.functions else ()
            if len(blocks) != 1:
                reason = "has branches" if len(blocks) > 1 else "has no body"
                raise refused(op, f"a call of '@{callee}', which {reason}, cannot be inlined")
            self.calls[name].append((op, callee))
        return iter(self.calls[name])

    def callees_first(self, root: str) -> list[str]:
        """What `root` runs, directly or not, each function after all that it runs itself."""
        order: dict[str, None] = {}
        num_ops: dict[str, int] = {}
        path: dict[str, Iterator[tuple[ir.Operation, str]]] = {root: self.find_calls(root)}
        while path:
            name, pending = next(reversed(path.items()))
            call, callee = next(pending, (None, ""))
            if call is None:
                own = sum(1 for _ in walk(self.functions[name]))
                num_ops[name] = own + sum(num_ops[inner] for _, inner in self.calls[name])
                if num_ops[name] > _MOST_OPS:
                    message = f"inlining all calls of '@{name}' gives {num_ops[name]} ops"
                    raise refused(self.functions[name], message)
                order[name] = None
                del path[name]
            elif callee in path:
                raise refused(call, f"a call of '@{callee}', which calls itself, cannot be inlined")
            elif callee not in order:
                path[callee] = self.find_calls(callee)
        return list(order)

    def inline(self, call: ir.Operation, name: str) -> None:
        """Moves the ops of a copy of function `name`, which is flat, to before `call`."""
        callee = self.functions[name].clone(ip=self.end).operation
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
            raise refused(main, f"'@{symbol(main)}' has branches, and cannot be cut into stages")
        inliner = _Inliner(module)
        for name in inliner.callees_first(symbol(main)):
            for call, callee in inliner.calls[name]:
                inliner.inline(call, callee)
        for function in all_functions(module):
            if symbol(function) != symbol(main):
                function.attributes["sym_visibility"] = str_attr("private")
        run_registered(module, "symbol-dce")
        main.attributes["sym_name"] = str_attr("main")
