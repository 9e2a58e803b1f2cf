"""Moves a live state from one plan to another."""

from collections.abc import Sequence
from typing import Any, Protocol

import jax
from jax.sharding import NamedSharding

from shardc.errors import InputError
from shardc.runtime.context_mesh import no_context_mesh
from shardc.runtime.messages.array_moves import Mover


class HasState(Protocol):
    """A `Planned`, a `Compiled`, or a function of `shardc.jit` that was called."""

    def abstract_state(self, argnums: int | Sequence[int] | None = None) -> Any: ...


def reallocate(state: Any, plan_a: Any, plan_b: Any, *, donate: bool = False) -> Any:
    """The same state, placed for another plan: from training to generation, and back.

    Each device receives the bytes that it lacks, once, by collective permutes between the devices
    of both plans. Leaves move one at a time, so with `donate` only one leaf exists twice. In a job
    of several processes all of them call this with the same state.

    Args:
        state: a pytree of arrays, in any layout.
        plan_a: the plan of the state, which gives its types: a `Planned`, a `Compiled`, a
            `shardc.jit` function that was called, or a result of `abstract_state`. None: unknown.
        plan_b: the target, likewise. For a function that only reads the state, give
            `abstract_state(argnums=0)`.
        donate: free the old buffers of leaves that move; leaves that share one array still share
            one. Leaves that stay are returned as they are, also without `donate`.
    Raises:
        InputError: SHARDC-263, structure, shapes or dtypes of the state are not those of a plan;
            188, a function was not called yet.
    """
    if plan_a is not None:
        _check(state, _layout_of(plan_a), "plan_a")
    wanted = _layout_of(plan_b)
    _check(state, wanted, "plan_b")
    mover = Mover()
    leaves, tree = jax.tree.flatten(state)
    first: dict[int, jax.Array] = {}  # the new array for one whose buffers may be gone
    moved = []
    with no_context_mesh():
        for leaf, target in zip(leaves, jax.tree.leaves(wanted), strict=True):
            if donate and id(leaf) in first:
                moved.append(mover.bring(first[id(leaf)], _place(target)))
            else:
                moved.append(mover.bring(leaf, _place(target), donate=donate))
                first[id(leaf)] = moved[-1]
    return jax.tree.unflatten(tree, moved)


def _place(target: jax.ShapeDtypeStruct) -> NamedSharding:
    place = target.sharding
    assert isinstance(place, NamedSharding), "a plan places arrays on meshes"
    return place


def _layout_of(plan: HasState | Any) -> Any:
    return plan.abstract_state() if hasattr(plan, "abstract_state") else plan


def _check(state: Any, layout: Any, which: str) -> None:
    have: Any = jax.tree.structure(state)
    want: Any = jax.tree.structure(layout)
    if have != want:
        raise InputError(
            f"the state is {have}, and that of {which} is {want}",
            help="give a Planned, a Compiled, or abstract_state(argnums=...) of the argument that"
            " the state is",
            code="SHARDC-263",
        )
    for (path, leaf), target in zip(
        jax.tree.leaves_with_path(state), jax.tree.leaves(layout), strict=True
    ):
        shape, dtype = jax.numpy.shape(leaf), jax.numpy.result_type(leaf)
        if (shape, dtype) != (target.shape, target.dtype):
            raise InputError(
                f"state{jax.tree_util.keystr(path)} is {dtype}{list(shape)}, and in {which}"
                f" {target.dtype}{list(target.shape)}",
                help="the plans must be for the same model",
                code="SHARDC-263",
            )
