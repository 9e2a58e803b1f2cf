"""Which arguments of a step are state, and which are marked as holding the batch."""

import re

from jax.extend.mlir import ir

from shardc.ir.attributes import (
    BATCH_AXIS,
    BATCH_DIM,
    NAME,
    PIECE,
    STATE_RESULT,
    UNNAMED,
    arg_attrs,
    result_attrs,
)
from shardc.ir.walk import body, main_function, terminator

ALIASING = "tf.aliasing_output"
DONOR = "jax.buffer_donor"


def state_aliases(function: ir.Operation) -> dict[int, int]:
    """Argument -> result that is its next state, as written by the microbatch split or by JAX."""
    found = {}
    for n, attrs in enumerate(arg_attrs(function)):
        for name in (STATE_RESULT, ALIASING):
            if name in attrs:
                found[n] = int(ir.IntegerAttr(attrs[name]).value)
                break
    return found


def donated_args(function: ir.Operation) -> set[int]:
    """Arguments that the caller donates."""
    return {n for n, attrs in enumerate(arg_attrs(function)) if ALIASING in attrs or DONOR in attrs}


def argument_names(function: ir.Operation) -> list[str]:
    """The user's name of every argument."""
    return [
        str(ir.StringAttr(attrs[NAME]).value) if NAME in attrs else f"argument {n}"
        for n, attrs in enumerate(arg_attrs(function))
    ]


def state_arguments(function: ir.Operation) -> dict[int, int]:
    """Argument -> the result that is its next value.

    With donation, the state is the donated arguments that match a result's type. Without donation,
    it is the arguments whose structure reappears in the results: all leaves of an argument under
    one prefix of the results or, in files without names, in order by type. Attributes that a pass
    has written (`shardc.state_result`) take precedence.
    """
    if any(STATE_RESULT in attrs for attrs in arg_attrs(function)):
        return state_aliases(function)
    arguments = [str(a.type) for a in body(function).arguments]
    results = [str(v.type) for v in terminator(function).operands]
    donated = donated_args(function)
    if donated:
        found = state_aliases(function)
        free = [r for r in range(len(results)) if r not in found.values()]
        for a in sorted(donated - found.keys()):
            match = next((r for r in free if results[r] == arguments[a]), None)
            if match is not None:
                found[a] = match
                free.remove(match)
        return found
    paths = _result_paths(function)
    if paths and all(NAME in attrs and UNNAMED not in attrs for attrs in arg_attrs(function)):
        return _by_structure(argument_names(function), arguments, paths, results)
    return _by_order(arguments, results)


def _result_paths(function: ir.Operation) -> list[str]:
    """JAX's paths of the results, such as `[0]['w']`; empty if the file does not have them all."""
    infos = [a["jax.result_info"] for a in result_attrs(function) if "jax.result_info" in a]
    if len(infos) < len(result_attrs(function)):
        return []
    return [re.sub(r"^result", "", str(ir.StringAttr(info).value)) for info in infos]


def _by_structure(
    names: list[str], arguments: list[str], paths: list[str], results: list[str]
) -> dict[int, int]:
    roots: dict[str, dict[str, int]] = {}
    for a, name in enumerate(names):
        root = re.split(r"[\[.]", name, maxsplit=1)[0]
        roots.setdefault(root, {})[name[len(root) :]] = a
    number = {path: r for r, path in enumerate(paths)}
    found: dict[int, int] = {}
    for leaves in roots.values():
        first = next(iter(leaves))
        for path in paths:
            if not path.endswith(first):
                continue
            prefix = path[: len(path) - len(first)]
            match = {a: number.get(prefix + suffix, -1) for suffix, a in leaves.items()}
            if all(
                r >= 0 and r not in found.values() and results[r] == arguments[a]
                for a, r in match.items()
            ):
                found.update(match)
                break
    return found


def _by_order(arguments: list[str], results: list[str]) -> dict[int, int]:
    found: dict[int, int] = {}
    following = 0
    for r, type_ in enumerate(results):
        match = next((a for a in range(following, len(arguments)) if arguments[a] == type_), None)
        if match is not None:
            found[match] = r
            following = match + 1
    return found


def cut_dims(split_module: ir.Operation) -> dict[int, int]:
    """The user's flat batch arguments of a split module -> the dim that microbatches cut.

    An argument that loop cutting has split into pieces counts if any piece is cut.
    """
    found: dict[int, int] = {}
    for first, dim in _cuts(split_module):
        if dim is not None:
            found.setdefault(first, dim)
    return found


def first_batch(marked: ir.Operation) -> dict[int, int]:
    """The arguments of a @main that hold its first batch -> their batch dim.

    Args:
        marked: @main with the marks of `shardc-find-batch`.
    """
    return {n: dim for n, (batch, dim, _) in _batch_marks(marked).items() if batch == 0}


def first_batch_parts(marked: ir.Operation) -> int:
    """What every possible number of microbatches divides, as marked; 0 if that is not known."""
    return max(
        (parts for batch, _, parts in _batch_marks(marked).values() if batch == 0), default=0
    )


def _batch_marks(marked: ir.Operation) -> dict[int, tuple[int, int, int]]:
    """Argument -> its batch, the dim of it, and the parts that batch has."""
    found = {}
    for n, attrs in enumerate(arg_attrs(marked)):
        if BATCH_AXIS in attrs:
            batch, dim, parts = ir.DenseI64ArrayAttr(attrs[BATCH_AXIS])
            found[n] = int(batch), int(dim), int(parts)
    return found


def _cuts(split_module: ir.Operation) -> list[tuple[int, int | None]]:
    """For each argument the user's argument that it is a piece of, and the dim that is cut."""
    return [
        (
            ir.DenseI64ArrayAttr(attrs[PIECE])[0] if PIECE in attrs else n,
            int(ir.IntegerAttr(attrs[BATCH_DIM]).value) if BATCH_DIM in attrs else None,
        )
        for n, attrs in enumerate(arg_attrs(main_function(split_module)))
    ]
