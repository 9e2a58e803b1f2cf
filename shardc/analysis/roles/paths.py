"""Path of an op in the model: JAX's scope names, or the names of parameters."""

import re

from jax.extend.mlir import ir

from shardc.ir.walk import location_names
from shardc.plan.layout import keys_of

_WRAPPED = re.compile(r"^(?:\w+)\((.*)\)$")
_STRUCTURE = frozenset(
    "while body cond branch closed_call checkpoint remat scan custom_jvp_call custom_vjp_call"
    " shard_map pjit rematted_computation core_call cond_body".split()
)
_UNNAMED = re.compile(r"argument \d+")


def scope_of(op: ir.Operation) -> tuple[str, ...]:
    """The user's scopes of an op, outermost first; () if it has none.

    JAX writes `jit(step)/transpose(jvp(layer_3))/mlp/dot_general`; transformations, the function
    itself and the op at the end are stripped.
    """
    for text in location_names(op.location):
        found = _scopes(text)
        if found:
            return found
    return ()


def _scopes(text: str) -> tuple[str, ...]:
    parts, depth, word = [], 0, ""
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "/" and not depth:
            parts.append(word)
            word = ""
        else:
            word += letter
    found: list[str] = []
    for part in parts[1:]:  # without the function itself, and without the op
        inner = part
        wrapped = False
        while (match := _WRAPPED.match(inner)) is not None:
            inner, wrapped = match[1], True
            if part.startswith(("jit(", "pjit(")):
                inner = ""
        if wrapped and "/" in inner:
            found += [each for each in inner.split("/") if each and each not in _STRUCTURE]
        elif inner and inner not in _STRUCTURE and not inner.startswith("branch_"):
            found.append(inner)
    return tuple(found)


def path_of_name(name: str) -> tuple[str, ...]:
    """`state['params']['blocks'][3]['up'], rows 2:4` as a path, without the argument's own name
    and without the rows; () for an argument that is not a tree, or has no name."""
    if _UNNAMED.match(name):
        return ()
    return tuple(keys_of(name)[1:])
