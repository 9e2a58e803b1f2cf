"""Which arguments of a call are static, by the rules of `jax.jit`."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CallArguments:
    """A call's arguments, separated into dynamic and static ones.

    Attributes:
        args, kwargs: the dynamic ones; a program takes the pytree `(args, kwargs)`.
        static: position or keyword -> static value; with hashable values it serves as a key.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    static: tuple[tuple[int | str, Any], ...]


def static_parameters(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of the static parameters; one is inferred from the other, as in JAX."""
    numbers = (static_argnums,) if isinstance(static_argnums, int) else static_argnums or ()
    names = (static_argnames,) if isinstance(static_argnames, str) else static_argnames or ()
    numbers, names = tuple(numbers), tuple(names)
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (ValueError, TypeError):  # a builtin without a signature
        return numbers, names
    positional = [
        p.name if p.kind is p.POSITIONAL_OR_KEYWORD else ""
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if static_argnames is None:
        inside = [n for n in numbers if -len(positional) <= n < len(positional)]
        names = tuple(positional[n] for n in inside if positional[n])
    elif static_argnums is None:
        numbers = tuple(i for i, name in enumerate(positional) if name in names)
    return numbers, names


def split_static(
    fun: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
) -> CallArguments:
    """Separates the static arguments of a call of `fun`."""
    numbers, names = static_parameters(fun, static_argnums, static_argnames)
    positions = {n % len(args) for n in numbers if -len(args) <= n < len(args)}
    static: list[tuple[int | str, Any]] = [(n, args[n]) for n in sorted(positions)]
    static += [(name, kwargs[name]) for name in sorted(kwargs) if name in names]
    return CallArguments(
        tuple(arg for i, arg in enumerate(args) if i not in positions),
        {name: value for name, value in kwargs.items() if name not in names},
        tuple(static),
    )
