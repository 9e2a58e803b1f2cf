"""Shapes and shardings of the state of a plan: what a checkpoint is restored into."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from shardc.analysis.program.arguments import state_arguments
from shardc.api.signature import Signature
from shardc.backend.programs import placed_programs
from shardc.errors import InputError
from shardc.importer.program import Argument, Result
from shardc.ir.walk import main_function
from shardc.plan.executable import Executable
from shardc.runtime.context_mesh import no_context_mesh
from shardc.runtime.tape.places import places_of_arguments

Places = Sequence[Sharding | None]


class PlacedSignature(Signature, ABC):
    """A signature of which it is known where each argument lies."""

    @abstractmethod
    def _argument_places(self) -> Places:
        """By flat argument where it is used without a copy; None where no program reads it."""

    def abstract_state(self, argnums: int | Sequence[int] | None = None) -> Any:
        """Shapes, dtypes and shardings of the state, as `jax.ShapeDtypeStruct`s.

        An array that lies so is used where it is. Libraries that save and restore arrays restore
        into it, whatever plan the arrays were saved under.

        Args:
            argnums: positions of arguments, static ones not counted. None: the arguments that are
                state: of those that are donated, and without donation of all, those that the
                results have again.
        Returns:
            A pytree like the argument; a tuple of such, those passed by keyword behind the others,
            where there are several.
        Raises:
            InputError: SHARDC-180, no argument is state, or `argnums` names none.
            ClusterError: SHARDC-101, the plan uses more devices than there are.
        """
        infos = jax.tree.leaves(self.args_info)
        places = self._argument_places()
        # A leaf that no program reads is returned as it came: it may lie anywhere.
        meshes = [place.mesh for place in places if isinstance(place, NamedSharding)]
        spare = NamedSharding(meshes[0], PartitionSpec()) if meshes else None
        leaves: list[Any] = []
        for argument, info, place in zip(self._imported.arguments, infos, places, strict=True):
            lies = place_of_value(argument, spare if place is None else place)
            struct: Any = jax.ShapeDtypeStruct
            leaves.append(
                struct(info.shape, info.dtype, sharding=lies, weak_type=argument.weak_type)
            )
        args, kwargs = jax.tree.unflatten(self.in_tree, leaves)
        every = [*args, *(kwargs[name] for name in sorted(kwargs))]
        if argnums is None:
            chosen = self._state_positions(every)
        else:
            asked = (argnums,) if isinstance(argnums, int) else tuple(argnums)
            chosen = [n + len(args) if n < 0 else n for n in asked]
            if not chosen or not all(0 <= n < len(args) for n in chosen):
                raise InputError(
                    f"argnums={argnums} names an argument that is not there: {len(args)} are passed"
                    " by position",
                    help="count from 0, without static arguments",
                )
        if not chosen:
            raise InputError(
                "no argument of the function comes again in its results: none is state",
                help="say which are, as in abstract_state(argnums=0)",
            )
        return every[chosen[0]] if len(chosen) == 1 else tuple(every[n] for n in chosen)

    def _state_positions(self, arguments: Sequence[Any]) -> list[int]:
        module = self._imported.module
        with module.context:
            state = state_arguments(main_function(module.operation))
        found, start = [], 0
        for n, argument in enumerate(arguments):
            end = start + len(jax.tree.leaves(argument))
            if any(start <= flat < end for flat in state):
                found.append(n)
            start = end
        return found


def places_of(executable: Executable, devices: Sequence[jax.Device]) -> Places:
    """Where an executable that is not compiled has its arguments."""
    with no_context_mesh():
        return places_of_arguments(executable, placed_programs(executable, devices))


def place_of_value(value: Argument | Result, place: Sharding | None) -> Sharding | None:
    """Where a value of the user's lies, whose numbers (of a key) lie at `place` on the device."""
    if isinstance(place, NamedSharding) and value.key_impl is not None:
        place = NamedSharding(place.mesh, PartitionSpec(*place.spec[: len(value.shape) - 1]))
    if place is not None and value.memory_kind is not None:
        return place.with_memory_kind(value.memory_kind)
    return place
