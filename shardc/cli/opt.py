"""shardc-opt: runs passes on MLIR text, for tests and for inspection."""

import argparse
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from shardc.check.child import Child
from shardc.check.each_pass import EachPass
from shardc.check.values import Kind
from shardc.errors import BugError, InputError, ShardcError
from shardc.importer.from_file import parse_in_child, read_bytes, refused
from shardc.importer.parse_module import ParseError, is_text, parse_module
from shardc.importer.pass_list import parse_passes
from shardc.ir.bugs import bug_of
from shardc.ir.context import Module, make_context, parse
from shardc.ir.pass_manager import Pass, run_passes
from shardc.passes.pipeline import PASSES

_SEPARATOR = re.compile(r"^\s*// -----.*$", re.MULTILINE)
_EXPECTED = re.compile(r"//\s*expected-error\s*(?:@(\S+))?\s*\{\{(.*?)\}\}")


@dataclass(frozen=True)
class _Options:
    passes: tuple[Pass, ...]
    locations: bool
    verify_each: int = 0


def split_input(text: str) -> list[str]:
    """The parts between `// -----` lines, each padded so that its lines keep their numbers."""
    parts = []
    start = 0
    for match in [*_SEPARATOR.finditer(text), None]:
        end = match.start() if match else len(text)
        parts.append("\n" * text.count("\n", 0, start) + text[start:end])
        start = match.end() if match else end
    return parts


def transform(data: bytes, name: str, options: _Options) -> str:
    """The module's text after the passes. Parses text here, bytecode first in a child process."""
    try:
        module = (
            parse_module(data, name, make_context())
            if is_text(data)
            else parse(parse_in_child(data, name))
        )
    except ParseError as error:
        raise refused(name, str(error), error.line) from error
    if options.verify_each:
        _check_each(module, options)
    else:
        run_passes(module, options.passes)
    return str(module.operation.get_asm(enable_debug_info=options.locations)).rstrip() + "\n"


def _check_each(module: Module, options: _Options) -> None:
    """Runs the passes, reports on each to standard error, and refuses differences.

    Raises:
        ShardcError: SHARDC-901, a pass changed what the module computes.
    """
    inputs: list[tuple[Kind, int]] = [
        (kind, seed) for seed in range(options.verify_each) for kind in ("ordinary", "extremes")
    ]
    found = []
    with Child() as child:
        for check in EachPass(child.evaluate, inputs).run(module, options.passes):
            print(check, file=sys.stderr, flush=True)
            found.append(check)
    wrong = [check.name for check in found if check.differences]
    if wrong:
        raise ShardcError(
            f"{', '.join(wrong)} changed what the module computes",
            code="SHARDC-901",
            help="this is a bug in shardc; please report it with the module",
        )


@dataclass(frozen=True)
class Expected:
    """One `expected-error` comment: the error's line (None: any) and a part of its message."""

    line: int | None
    text: str


def expected_errors(text: str) -> list[Expected]:
    """The comments `// expected-error@+1 {{text}}`; also @-2, @above, @below, @unknown, none."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for place, message in _EXPECTED.findall(line):
            offset = {"": 0, "above": -1, "below": 1}.get(place)
            if place == "unknown":
                found.append(Expected(None, message))
            else:
                found.append(Expected(number + (int(place) if offset is None else offset), message))
    return found


def mismatches(text: str, name: str, error: ShardcError | None) -> list[str]:
    """The differences between the errors expected in `text` and the actual one."""
    expected = expected_errors(text)
    problems = []
    met: Expected | None = None
    if error is not None:
        place = re.search(r":(\d+)", str(error.where).removeprefix(name))
        line = int(place[1]) if place else None
        full = f"error[{error.code}]: {error.message}"
        met = next((e for e in expected if e.text in full and e.line in (None, line)), None)
        if met is None:
            problems.append(f"unexpected error:\n{error}")
    for each in expected:
        if each is not met:
            place_text = "" if each.line is None else f":{each.line}"
            problems.append(f'{name}{place_text}: expected error "{each.text}" was not produced')
    return problems


def _verify(data: bytes, name: str, options: _Options) -> int:
    error = None
    try:
        transform(data, name, options)
    except ShardcError as raised:
        error = raised
    problems = mismatches(data.decode(errors="replace"), name, error)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    listing = "\n".join(
        f"  {name:32} {(each.__doc__ or '').strip().splitlines()[0]}"
        for name, each in sorted(PASSES.items())
    )
    parser = argparse.ArgumentParser(
        prog="shardc-opt",
        description=__doc__,
        epilog=f"passes (MLIR's own passes are available by name, too):\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="MLIR text or bytecode; - reads standard input")
    parser.add_argument(
        "--passes", default="", help="passes to run in order, such as 'a,b{option=value sizes=1;2}'"
    )
    parser.add_argument(
        "--verify-diagnostics",
        action="store_true",
        help="check errors against comments // expected-error@+1 {{text}} instead of printing",
    )
    parser.add_argument(
        "--split-input-file",
        action="store_true",
        help="treat the parts between // ----- lines as separate files",
    )
    parser.add_argument(
        "--verify-each",
        type=int,
        nargs="?",
        const=1,
        default=0,
        metavar="SEEDS",
        help="run the module before and after each pass on random inputs (N ordinary ones and N"
        " with extreme values; 1 by default) and compare",
    )
    parser.add_argument("--locations", action="store_true", help="print source locations too")
    return parser.parse_args(argv)


def _run(arguments: argparse.Namespace) -> int:
    options = _Options(
        parse_passes(arguments.passes, PASSES), arguments.locations, arguments.verify_each
    )
    data = read_bytes(arguments.file)
    name = "<stdin>" if arguments.file == "-" else arguments.file
    parts = [data]
    if arguments.split_input_file:
        if not is_text(data):
            raise InputError(
                f"'{name}' is not text, so it has no parts", help="drop --split-input-file"
            )
        parts = [part.encode() for part in split_input(data.decode(errors="replace"))]
    status = 0
    for number, part in enumerate(parts):
        if arguments.verify_diagnostics:
            status = _verify(part, name, options) or status
            continue
        if number > 0:
            print("// -----")
        try:
            print(transform(part, name, options), end="", flush=True)
        except ShardcError as error:
            print(error, file=sys.stderr)
            status = status or error.exit_code
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 diagnostics differ, 2 bad input or usage, 4 a bug in shardc."""
    arguments = _arguments(argv)
    try:
        return _run(arguments)
    except ShardcError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - last resort: exit code 4, with traceback
        traceback.print_exc()
        print(bug_of(error, "running the command", None), file=sys.stderr)
        return BugError.exit_code


if __name__ == "__main__":
    sys.exit(main())
