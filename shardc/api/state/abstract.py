"""Shapes and shardings of a plan's state: the target of restoring a checkpoint."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from shardc.analysis.program.arguments import state_arguments
from shardc.api.batch_positions import given_argnums
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
    """A signature with a known placement for each argument."""

    @abstractmethod
    def _argument_places(self) -> Places:
        """By flat argument, the placement used without a copy; None if no program reads it."""

    def abstract_state(self, argnums: int | Sequence[int] | None = None) -> Any:
        """Shapes, dtypes and shardings of the state, as `jax.ShapeDtypeStruct`s.

        An array with this sharding is used without a copy. Checkpoint libraries restore into
        it, whatever plan the arrays were saved under.

        Args:
            argnums: positions of arguments, static ones not counted. None: the arguments that are
                state: those that reappear in the results, among the donated ones if any are
                donated.
        Returns:
            A pytree like the argument; if there are several, a tuple of these, with keyword
            arguments last.
        Raises:
            InputError: SHARDC-180, no argument is state, or `argnums` names none; 186, it does not
                hold numbers.
            ClusterError: SHARDC-101, the plan uses more devices than available.
        """
        infos = jax.tree.leaves(self.args_info)
        places = self._argument_places()
        # A leaf that no program reads is returned unchanged: any placement will do.
        meshes = [place.mesh for place in places if isinstance(place, NamedSharding)]
        spare = NamedSharding(meshes[0], PartitionSpec()) if meshes else None
        leaves: list[Any] = []
        for argument, info, place in zip(self._imported.arguments, infos, places, strict=True):
            sharding = place_of_value(argument, spare if place is None else place)
            struct: Any = jax.ShapeDtypeStruct
            leaves.append(
                struct(info.shape, info.dtype, sharding=sharding, weak_type=argument.weak_type)
            )
        args, kwargs = jax.tree.unflatten(self.in_tree, leaves)
        every = [*args, *(kwargs[name] for name in sorted(kwargs))]
        if argnums is None:
            chosen = self._state_positions(every)
        else:
            asked = given_argnums(argnums, "argnums")
            chosen = [n + len(args) if n < 0 else n for n in asked]
            if not chosen or not all(0 <= n < len(args) for n in chosen):
                raise InputError(
                    f"argnums={argnums} names a missing argument: {len(args)} are passed"
                    " by position",
                    help="count from 0, without static arguments",
                )
        if not chosen:
            raise InputError(
                "no argument of the function reappears in its results, so there is no state",
                help="name the state, as in abstract_state(argnums=0)",
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
    """The argument placements of an executable that is not compiled."""
    with no_context_mesh():
        return places_of_arguments(executable, placed_programs(executable, devices))


def place_of_value(value: Argument | Result, place: Sharding | None) -> Sharding | None:
    """The placement of a user value whose numbers (of a key) are placed at `place`."""
    if isinstance(place, NamedSharding) and value.key_impl is not None:
        place = NamedSharding(place.mesh, PartitionSpec(*place.spec[: len(value.shape) - 1]))
    if place is not None and value.memory_kind is not None:
        return place.with_memory_kind(value.memory_kind)
    return place
