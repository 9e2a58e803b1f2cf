"""Writes docs/errors.md from shardc/errors.py and from the places that raise the errors.

python tools/make_error_docs.py            write the page
python tools/make_error_docs.py --check    exit 1 if the page is not what would be written
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from shardc import errors

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "errors.md"
HEAD = """\
# Errors

Every error that a user can cause has a stable code and says what is wrong, in the user's own names
and numbers, where, and what to do:

    error[SHARDC-142]: the batch dim of argument 'x', size 30, does not divide into 8 microbatches
      --> train.py:41
    help: use microbatches=6 or 10, or pad the batch to 32

In Python they are `shardc.ShardcError`; `code`, `message`, `where` and `help` are its attributes.
The command prints them on standard error and exits with 2 (bad input or usage), 3 (no feasible
plan) or 4 (a bug in shardc).

If a program does not allow the requested stages or microbatches (SHARDC-140, 141
without named batch arguments, 160 and 161), only single passes fail: `shardc.jit` and the
command plan what the program allows, and say so in a `shardc.RequestWarning` and in the plan's
notes.

`tools/make_error_docs.py` generates this page from the source; names and numbers are filled in for
the text in braces.
"""


class Raised(NamedTuple):
    """One place that raises an error: its text, its advice, its class and its code."""

    message: str
    help: str
    kind: str
    code: str


def text(node: ast.expr | None) -> str:
    """A string expression for reading: what is computed becomes a name in braces, or {...}."""
    match node:
        case ast.Constant(value=str(found)):
            return found
        case ast.JoinedStr(values=values):
            return "".join(text(value) for value in values)
        case ast.FormattedValue(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return f"{{{name}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text(left) + text(right)
        case ast.IfExp(body=body):
            return text(body)
        case None:
            return ""
        case _:
            return "{...}"


def raised() -> Iterator[Raised]:
    """Every construction of an error in the source, in order of files and lines."""
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.ShardcError)
    }
    for path in sorted((ROOT / "shardc").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            named = {keyword.arg: keyword.value for keyword in node.keywords}
            kind = kinds.get(node.func.id) if isinstance(node.func, ast.Name) else None
            if kind is None and "code" not in named:  # with a code: an __init__ of a subclass
                continue
            code = text(named["code"]) if "code" in named else ""
            name = ""
            if kind is not None:
                code, name = code or kind.code, kind.__name__
            yield Raised(text(node.args[0]), text(named.get("help")), name, code)


def page() -> str:
    """The text of docs/errors.md."""
    places: dict[str, list[Raised]] = {code: [] for code in errors.CODES}
    for each in raised():
        if each.code in places and each not in places[each.code]:
            places[each.code].append(each)
    parts = [HEAD]
    for code, meaning in errors.CODES.items():
        found = places[code]
        kinds = {each.kind for each in found if each.kind}
        exits = {getattr(errors, kind).exit_code for kind in kinds} or {4}
        parts.append(f"\n## {code}: {meaning} (exit code {'/'.join(map(str, sorted(exits)))})\n")
        for each in found:
            lines = [each.message, f"**What to do:** {each.help}."]
            known = [
                line
                for line, said in zip(lines, (each.message, each.help), strict=True)
                if said.strip("{.}: ")
            ]
            if known:
                parts.append("\n- " + "\n  ".join(known) + "\n")
    return "".join(parts)


def main() -> None:
    wanted = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != wanted:
            sys.exit(f"{PAGE.name} is out of date: run tools/make_error_docs.py")
        return
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
