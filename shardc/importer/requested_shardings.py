"""User shardings from outside the program: by patterns, by the placement of arrays, or by a plan.

They are written into the module, as JAX writes `in_shardings`. `shardc-adopt-shardings` brings all
of them onto one mesh; the sharding problem then offers the solver only what `UserSharding.only`
leaves (shardc/ir/user_shardings.py).
"""

import math
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import jax
from jax.extend.mlir import ir
from jax.sharding import NamedSharding, PartitionSpec

from shardc.cost.arrivals import Arrival
from shardc.errors import InputError, PlanError
from shardc.importer.program import Imported
from shardc.ir.attributes import (
    ARRIVAL,
    ASKED_BY,
    SHARDING,
    arg_attrs,
    data_attr,
    set_arg_attrs,
    str_attr,
)
from shardc.ir.context import Module
from shardc.ir.shardings import add_mesh, meshes
from shardc.ir.tensor_types import shape_of
from shardc.ir.user_shardings import (
    UserSharding,
    parse_user_sharding,
    print_user_sharding,
    read_user_sharding,
    user_sharding_attr,
)
from shardc.ir.walk import body, main_function
from shardc.plan.decisions import Plan, RequestedSharding
from shardc.plan.layout import OWN_AXIS, Mesh

MESH = "asked"  # symbol of the mesh that these shardings refer to

Axes = tuple[tuple[str, int], ...]
Spec = PartitionSpec | NamedSharding


def dotted(name: str) -> str:
    """`state['params']['layer'][0].kernel` as `state.params.layer.0.kernel`."""
    return re.sub(r"\[(?:'([^']*)'|\"([^\"]*)\"|([\w*?]+))\]", r".\1\2\3", name)


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern` (`*` and `?` also match dots) matches an argument's name or a suffix.

    A pattern may be written as shardc prints names: `params['layers'][0]*`.

    >>> matches("params.*.kernel", "state['params']['layers'][0]['kernel']")
    True
    """
    path = dotted(name)
    return name == pattern or any(
        fnmatchcase(path, each) or fnmatchcase(path, f"*.{each}")
        for each in {pattern, dotted(pattern)}
    )


def constrain_by_patterns(imported: Imported, shardings: Mapping[str, Spec], axes: Axes) -> None:
    """Writes `sdy.sharding` on every argument that a pattern matches.

    Args:
        shardings: pattern -> PartitionSpec, or a NamedSharding with its own mesh.
        axes: axes that a PartitionSpec may name; (): those of the program's own shardings, or of
            JAX's context mesh.
    Raises:
        InputError: SHARDC-180 a pattern fits no argument; 110 an axis is not known; 203 a spec has
            more dims than an argument, or names an axis twice; 204 two patterns, or a pattern and
            `in_shardings`, contradict each other.
    """
    wanted: dict[int, tuple[UserSharding, str]] = {}
    known = axes or _own_axes(imported)
    for pattern, spec in shardings.items():
        if isinstance(spec, NamedSharding):
            known = known or tuple(spec.mesh.shape.items())
            spec = spec.spec
        who = f"shardings['{pattern}']"
        _check_axes(spec, known, who)
        fits = [n for n, a in enumerate(imported.arguments) if matches(pattern, a.name)]
        if not fits:
            raise InputError(
                f"{who} fits no argument",
                help="write a pattern such as 'params.*.kernel' for what JAX calls"
                f" {', '.join(repr(a.name) for a in imported.arguments[:3])}",
            )
        for n in fits:
            argument = imported.arguments[n]
            asked = _asked(spec, len(argument.shape), f"argument '{argument.name}'")
            if n in wanted and wanted[n][0] != asked:
                raise _contradiction(argument.name, wanted[n], (asked, who))
            wanted[n] = asked, who
    _write(imported, wanted, known)


def constrain_to_placements(
    imported: Imported, leaves: Sequence[Any], mesh: Sequence[int] | None = None
) -> None:
    """Writes `sdy.sharding` on every argument whose array arrives sharded.

    Skips replicated arrays, arrays that a plan has placed (`write_arrivals`), and arguments that
    already have a sharding. Writes none if the arrays are on several meshes, or on another mesh
    than required: then the arrays are moved.

    Args:
        leaves: of the call, one per argument.
        mesh: axis sizes of the mesh that is required elsewhere.
    """
    split: dict[int, NamedSharding] = {}
    for n, (leaf, argument) in enumerate(zip(leaves, imported.arguments, strict=True)):
        lies = getattr(leaf, "sharding", None)
        if not isinstance(lies, NamedSharding) or argument.key_impl is not None:
            continue
        if OWN_AXIS in lies.mesh.axis_names:
            continue
        if len(lies.mesh.devices.flat) > 1 and not lies.is_fully_replicated:
            split[n] = lies
    if len({lies.mesh for lies in split.values()}) != 1:
        return
    sizes = next(iter(split.values())).mesh.shape
    axes = tuple((name, size) for name, size in sizes.items() if size > 1)
    own = _own_axes(imported)
    if (own and dict(own) != dict(axes)) or (
        mesh is not None and tuple(mesh) != tuple(size for _, size in axes)
    ):
        return
    with imported.module.context:
        asked = [SHARDING in attrs for attrs in arg_attrs(main_function(imported.module.operation))]
    wanted = {
        n: (
            _asked(lies.spec, len(imported.arguments[n].shape), ""),
            f"argument '{imported.arguments[n].name}'",
        )
        for n, lies in split.items()
        if not asked[n]
    }
    _write(imported, wanted, tuple(sizes.items()))


def requested_shardings(module: Module) -> tuple[RequestedSharding, ...]:
    """What this file has written into a module, for its plan."""
    with module.context:
        return tuple(
            RequestedSharding(
                n,
                print_user_sharding(read_user_sharding(attrs[SHARDING])).strip("[]"),
                str(ir.StringAttr(attrs[ASKED_BY]).value),
            )
            for n, attrs in enumerate(arg_attrs(main_function(module.operation)))
            if ASKED_BY in attrs
        )


def constrain_as_planned(imported: Imported, plan: Plan) -> None:
    """Writes `sdy.sharding` on every argument for which it was requested when the plan was made.

    Raises:
        InputError: SHARDC-204, this call requests another sharding of such an argument.
        PlanError: SHARDC-200, the program has no such argument.
    """
    wanted: dict[int, tuple[UserSharding, str]] = {}
    mesh = plan.stages[0].mesh
    for each in plan.requested:
        n = each.argument
        known = 0 <= n < len(imported.arguments)
        shape = imported.arguments[n].shape if known else ()
        asked = parse_user_sharding(each.words, len(shape)) if known else None
        used = [] if asked is None else [axis for axes in asked.dims for axis in axes]
        if asked is None or len(set(used)) < len(used) or not set(used) <= dict(mesh.axes).keys():
            raise PlanError(
                f"the plan was made with the sharding [{each.words}] of argument {n}"
                f" ({each.origin}), which this program or the plan's mesh does not have",
                help="plan again: this plan was made for another program",
            )
        wanted[n] = asked, each.origin
    _write(imported, wanted, mesh.axes, "the plan")


def write_arrivals(
    imported: Imported, leaves: Sequence[Any], devices: Sequence[jax.Device]
) -> None:
    """Writes `shardc.arrival` on every argument whose array was placed by a shardc plan.

    An arrival is not a constraint: the array may be moved, at a cost known to the planner.

    Args:
        leaves: of the call, one per argument.
        devices: the cluster's devices; arrays on other devices are skipped.
    """
    numbers = {device: n for n, device in enumerate(devices)}
    found: dict[int, Arrival] = {}
    for n, (leaf, argument) in enumerate(zip(leaves, imported.arguments, strict=True)):
        lies = getattr(leaf, "sharding", None)
        if not isinstance(lies, NamedSharding) or argument.key_impl is not None:
            continue
        mesh = lies.mesh
        own = OWN_AXIS in mesh.axis_names and isinstance(mesh, jax.sharding.Mesh)
        if not own or not all(device in numbers for device in mesh.devices.flat):
            continue
        ids = tuple(numbers[device] for device in mesh.devices.flat)
        at = _asked(lies.spec, len(argument.shape), "").least
        found[n] = Arrival(Mesh(tuple(mesh.shape.items()), ids), at, argument.shape)
    if not found:
        return
    main = main_function(imported.module.operation)
    with imported.module.context:
        attrs = arg_attrs(main)
        for n, arrival in found.items():
            attrs[n][ARRIVAL] = data_attr(arrival)
        set_arg_attrs(main, attrs)


def _asked(spec: PartitionSpec, rank: int, what: str) -> UserSharding:
    """The user sharding of `spec` for a value of `rank` dims; omitted dims are whole."""
    if len(spec) > rank:
        raise InputError(
            f"{what} has {rank} dims, and {spec} has {len(spec)}",
            help="give at most one entry per dim",
            code="SHARDC-203",
        )
    entries = [*spec, *(None for _ in range(rank - len(spec)))]
    return UserSharding(
        tuple(_names(entry) for entry in entries),
        tuple(entry is PartitionSpec.UNCONSTRAINED for entry in entries),
    )


def _names(entry: Any) -> tuple[str, ...]:
    if entry is None or entry is PartitionSpec.UNCONSTRAINED:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)


def _check_axes(spec: PartitionSpec, axes: Axes, who: str) -> None:
    names = [name for entry in spec for name in _names(entry)]
    for axis in names:
        if axis not in dict(axes):
            known = ", ".join(name for name, _ in axes) or "none"
            raise InputError(
                f"{who} names the axis '{axis}', and the mesh has {known}",
                help="name axes of that mesh, or give one: mesh={'data': 2, 'model': 4}",
                code="SHARDC-110",
            )
        if names.count(axis) > 1:
            raise InputError(
                f"{who} names the axis '{axis}' twice",
                help="split one dim of a value over each axis",
                code="SHARDC-203",
            )


def _own_axes(imported: Imported) -> Axes:
    """Axes of the mesh of the program's own shardings, or else of JAX's context mesh."""
    module = imported.module
    with module.context:
        for mesh in meshes(module.operation).values():
            if any(size > 1 for _, size in mesh.axes):
                return tuple(axis for axis in mesh.axes if axis[1] > 1)
    return tuple(jax.sharding.get_abstract_mesh().shape.items())


def _write(
    imported: Imported, wanted: dict[int, tuple[UserSharding, str]], axes: Axes, by: str = ""
) -> None:
    """Writes shardings and where they come from: from `by`, in an error, if that is given."""
    if not wanted:
        return
    module = imported.module
    main = main_function(module.operation)
    with module.context, ir.Location.unknown():
        attrs = arg_attrs(main)
        for n, (asked, who) in wanted.items():
            if SHARDING in attrs[n] and read_user_sharding(attrs[n][SHARDING]) != asked:
                other, its = read_user_sharding(attrs[n][SHARDING]), "in_shardings"
                if by and ASKED_BY in attrs[n]:
                    its = str(ir.StringAttr(attrs[n][ASKED_BY]).value)
                raise _contradiction(imported.arguments[n].name, (other, its), (asked, by or who))
            if shape_of(body(main).arguments[n]) == imported.arguments[n].shape:
                attrs[n][SHARDING] = user_sharding_attr(asked, MESH)
                attrs[n][ASKED_BY] = str_attr(who)
        if MESH not in meshes(module.operation):
            devices = tuple(range(math.prod(n for _, n in axes)))
            add_mesh(module.operation, MESH, Mesh(axes, devices))
        set_arg_attrs(main, attrs)


def _contradiction(
    name: str, one: tuple[UserSharding, str], other: tuple[UserSharding, str]
) -> InputError:
    return InputError(
        f"{one[1]} wants argument '{name}' as {print_user_sharding(one[0])}, and {other[1]} as"
        f" {print_user_sharding(other[0])}",
        help="ask for one sharding of each argument",
        code="SHARDC-204",
    )
