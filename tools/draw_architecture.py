"""Draws the rooms of shardc/ and the imports between them into docs/architecture.md.

python tools/draw_architecture.py            write the picture
python tools/draw_architecture.py --check    exit 1 if it is not what would be written

The layers are those of the import contracts in pyproject.toml; the arrows are the imports that the
source has today. An arrow that follows from others (a room imports b, b imports c, so a above c) is
left out.
"""

import ast
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "shardc"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- picture: tools/draw_architecture.py -->", "<!-- end of picture -->"


def layers() -> list[list[str]]:
    """The rooms from top to bottom, as the first import contract has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = project["tool"]["importlinter"]["contracts"][0]
    return [[room.strip() for room in layer.split("|")] for layer in contract["layers"]]


def room_of(path: Path) -> str:
    """The room that a file of the package belongs to; a file at its root is a room of its own."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported_rooms() -> dict[str, set[str]]:
    """For each room the rooms that its files import, itself left out."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        room = room_of(path)
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                parts = name.split(".")
                if parts[0] == "shardc" and len(parts) > 1 and parts[1] != room:
                    found[room].add(parts[1])
    return found


def without_implied(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The edges that no path of other edges implies (a transitive reduction)."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(edges.get(start, ()))
        while waiting:
            room = waiting.pop()
            if room not in seen:
                seen.add(room)
                waiting.extend(edges.get(room, ()))
        return seen

    return {
        room: {to for to in targets if not any(to in reachable(via) for via in targets - {to})}
        for room, targets in edges.items()
    }


def summary(room: str) -> str:
    """First line of the docstring of a room."""
    path = PACKAGE / room / "__init__.py"
    text = (path if path.exists() else PACKAGE / f"{room}.py").read_text()
    return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]


def picture() -> str:
    """A Mermaid flowchart, and a table of the rooms with what each is for."""
    rows = layers()
    rooms = [room for row in rows for room in row]
    edges = without_implied(imported_rooms())
    lines = ["```mermaid", "flowchart TD"]
    for number, row in enumerate(rows):
        if len(row) > 1:
            lines.append(f"  subgraph layer{number}[ ]")
            lines += [f"    {room}" for room in row]
            lines.append("  end")
    for room in rooms:
        lines += [f"  {room} --> {to}" for to in rooms if to in edges.get(room, ())]
    lines += ["```", "", "| room | what it is for |", "|---|---|"]
    lines += [f"| `{room}` | {summary(room)} |" for room in rooms]
    return "\n".join(lines)


def main() -> int:
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    drawn = f"{head}{BEGIN}\n{picture()}\n{END}{tail}"
    if "--check" in sys.argv:
        return int(drawn != text)
    PAGE.write_text(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
