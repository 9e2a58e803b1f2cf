"""Parser for lists of passes: `a,b{option=value sizes=1;2}`."""

import dataclasses
import shlex
import types
import typing
from collections.abc import Mapping
from typing import Any

from jax.extend.mlir import ir, passmanager

from shardc.errors import InputError
from shardc.ir.context import make_context
from shardc.ir.pass_manager import Pass, options, run_registered
from shardc.ir.walk import readable_location

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


@dataclasses.dataclass(frozen=True)
class RegisteredPass(Pass):
    """A C++ pass of MLIR, StableHLO or Shardy by name, such as `canonicalize`.

    Attributes:
        pipeline: the text inside `builtin.module(...)`.
    """

    pipeline: str

    name = "registered"

    def __str__(self) -> str:
        return self.pipeline

    def apply(self, module: ir.Operation) -> None:
        try:
            run_registered(module, self.pipeline)
        except ir.MLIRError as error:
            first = error.error_diagnostics[0]
            raise InputError(
                f"the pass '{self.pipeline}' failed: {first.message}",
                where=readable_location(ir.Location.from_attr(first.location.attr)),
                code="SHARDC-182",
                help="the message is MLIR's own; look at the module before this pass",
            ) from error


def split_list(text: str) -> list[str]:
    """The entries separated by commas outside of brackets.

    Raises:
        InputError: SHARDC-181, a bracket has no partner.
    """
    entries = [""]
    depth = 0
    for character in text:
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(character, 0)
        if depth < 0:
            break
        if character == "," and depth == 0:
            entries.append("")
        else:
            entries[-1] += character
    if depth != 0:
        raise InputError(
            f"the brackets in '{text}' do not match",
            code="SHARDC-181",
            help="write --passes='a,b{option=value sizes=1;2}'",
        )
    return [entry.strip() for entry in entries if entry.strip()]


def _value(text: str, kind: Any) -> Any:
    """`text` as a field of type `kind`; ValueError if it does not parse."""
    if kind is bool:
        return _TRUTH[text] if text in _TRUTH else _no_value(text)
    if kind in (int, float, str):
        return kind(text)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if text == "none" and type(None) in parts:
            return None
        return _value(text, next(part for part in parts if part is not type(None)))
    if origin is tuple:
        return tuple(_value(part, parts[0]) for part in text.split(";") if part)
    return _no_value(text)


def _no_value(text: str) -> Any:
    raise ValueError(f"no value of that type: '{text}'")


def _options(entry: str, each: type[Pass], text: str) -> Pass:
    kinds = typing.get_type_hints(each)
    fields = {field.name: field for field in options(each)}
    known = ", ".join(name.replace("_", "-") for name in fields) or "none"
    values: dict[str, Any] = {}
    for word in shlex.split(text):
        option, _, value = word.partition("=")
        name = option.replace("-", "_")
        if name not in fields:
            raise InputError(
                f"the pass '{each.name}' has no option '{option}'",
                code="SHARDC-181",
                help=f"its options are: {known}",
            )
        try:
            read = fields[name].metadata.get("read")
            values[name] = _value(value, kinds[name]) if read is None else read(value)
        except ValueError as error:
            raise InputError(
                f"'{value}' is not a value of option '{option}' of the pass '{each.name}'",
                code="SHARDC-181",
                help=f"its type is {fields[name].type}; list items are separated by ';'",
            ) from error
    missing = [
        name.replace("_", "-")
        for name, field in fields.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(
            f"the pass '{each.name}' needs the option '{missing[0]}'",
            code="SHARDC-181",
            help=f"write {each.name}{{{missing[0]}=...}}",
        )
    return each(**values)


def _registered(entry: str) -> Pass:
    for pipeline in (entry, f"func.func({entry})"):
        try:
            with make_context():
                passmanager.PassManager.parse(f"builtin.module({pipeline})")
        except ValueError:
            continue
        return RegisteredPass(pipeline)
    raise InputError(
        f"there is no pass '{entry}'",
        code="SHARDC-181",
        help="`shardc-opt --help` lists the passes",
    )


def parse_passes(text: str, known: Mapping[str, type[Pass]]) -> tuple[Pass, ...]:
    """The passes that `text` names, in order: from `known`, or registered with MLIR.

    Options become fields by their type: `count=4`, `name=x`, `flag=true`, `sizes=1;2`, `n=none`;
    a `-` in an option is a `_` in the field, and quotes protect spaces. A field with
    `in_text` reads its text itself.

    Raises:
        InputError: SHARDC-181, no such pass or option, or a value of the wrong type.
        ShardcError: the text of a field with `in_text` is no such data.
    """
    found = []
    for entry in split_list(text):
        name, brace, options = entry.partition("{")
        if name.strip() in known:
            found.append(_options(entry, known[name.strip()], options[:-1] if brace else ""))
        else:
            found.append(_registered(entry))
    return tuple(found)
