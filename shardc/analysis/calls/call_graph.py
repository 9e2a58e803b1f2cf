"""The call graph of a module: callers, call counts, and sizes after inlining."""

from collections import Counter
from collections.abc import Collection, Iterator

from jax.extend.mlir import ir

from shardc.errors import ImportFileError
from shardc.ir.calls import called, functions_by_name
from shardc.ir.walk import walk, where


def refused(op: ir.Operation, message: str) -> ImportFileError:
    """SHARDC-122 at the position of `op`."""
    return ImportFileError(
        message,
        where=where(op),
        code="SHARDC-122",
        help="write it with stablehlo.while, stablehlo.if or stablehlo.case",
    )


class CallGraph:
    """The functions reachable from one function.

    Args:
        root: symbol of the function.
    Attributes:
        functions: all functions of the module.
        calls: for each reachable function its calls, each with the callee.
        order: the reachable functions, callees before callers; the last one is the root.
    Raises:
        ImportFileError: SHARDC-122, a function calls itself, has no body or has branches.
    """

    def __init__(self, module: ir.Operation, root: str) -> None:
        self.functions = functions_by_name(module)
        self._num_calls: dict[str, Counter[str]] = {}
        self.calls: dict[str, list[tuple[ir.Operation, str]]] = {}
        self._num_own: dict[str, int] = {}
        order: dict[str, None] = {}
        path = {root: self._find_calls(root)}
        while path:
            name, pending = next(reversed(path.items()))
            call, callee = next(pending, (None, ""))
            if call is None:
                order[name] = None
                del path[name]
            elif callee in path:
                raise refused(call, f"a call of '@{callee}', which calls itself, cannot be inlined")
            elif callee not in order:
                path[callee] = self._find_calls(callee)
        self.order = list(order)

    def _find_calls(self, name: str) -> Iterator[tuple[ir.Operation, str]]:
        """Records the calls in function `name`, each with its callee."""
        self.calls[name], self._num_own[name] = [], 0
        for op in walk(self.functions[name]):
            self._num_own[name] += 1
            callee = called(op)
            if callee is None:
                continue
            blocks = self.functions[callee].regions[0].blocks if callee in self.functions else ()
            if len(blocks) != 1:
                reason = "has branches" if len(blocks) > 1 else "has no body"
                raise refused(op, f"a call of '@{callee}', which {reason}, cannot be inlined")
            self.calls[name].append((op, callee))
        self._num_calls[name] = Counter(callee for _, callee in self.calls[name])
        return iter(self.calls[name])

    def sizes(self, kept: Collection[str]) -> dict[str, int]:
        """Number of ops of each function after inlining all calls except those of `kept`."""
        found: dict[str, int] = {}
        for name in self.order:
            found[name] = self._num_own[name]
            for callee, count in self._num_calls[name].items():
                found[name] += count * found[callee] if callee not in kept else 0
        return found

    def copies(self, kept: Collection[str]) -> dict[str, int]:
        """Number of copies of each function after inlining; a kept one has one copy."""
        found = dict.fromkeys(self.order, 0)
        found[self.order[-1]] = 1
        for name in reversed(self.order):
            if name in kept:
                found[name] = 1
            for callee, count in self._num_calls[name].items():
                found[callee] += count * found[name]
        return found
