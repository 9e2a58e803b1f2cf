"""The model as a tree of layers, with the cost of each part."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardc.plan.account import Part
from shardc.plan.layout import ranges

_NUMBERED = re.compile(r"^(.*?)(\d+)$")


@dataclass
class Node:
    """A part of the model.

    Attributes:
        product_flops: of its products alone.
        seconds: per step on one device, of the whole subtree, by kind of function.
        lies: layout of the results of its largest products, by kind of function.
        weights: the parameters of its own products, and their shapes.
    """

    name: str
    num_flops: int = 0
    product_flops: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    lies: dict[str, str] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)
    children: list["Node"] = field(default_factory=list)

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


def tree_of(parts: Sequence[Part], shapes: Mapping[str, tuple[int, ...]] | None = None) -> Node:
    """The tree of all parts; siblings `0` to `3` with equal products are one node, `0-3`.

    Args:
        shapes: of the parameters by name.
    """
    shapes = shapes or {}
    root = Node("model")
    for part in parts:
        node = root
        _add(node, part)
        path = (f"stage {part.stage}", *(part.path or ("elsewhere",)))
        for name in path:
            child = next((each for each in node.children if each.name == name), None)
            if child is None:
                child = Node(name)
                node.children.append(child)
            node = child
            _add(node, part)
        if part.weight:
            node.weights[part.weight] = shapes.get(part.weight, ())
        if part.lies:
            node.lies[part.kind] = part.lies
        if part.place and part.place not in node.places:
            node.places.append(part.place)
    for stage in root.children:  # do not fold stages into each other
        _fold(stage)
    return root


def _add(node: Node, part: Part) -> None:
    node.num_flops += part.num_flops
    node.product_flops += part.num_flops if part.lies else 0
    node.seconds[part.kind] = node.seconds.get(part.kind, 0.0) + part.seconds


def _fold(node: Node) -> None:
    for child in node.children:
        _fold(child)
    runs: dict[object, list[Node]] = {}
    for child in node.children:
        match = _NUMBERED.match(child.name)
        key: object = (match[1], _shape(child)) if match else (child.name, id(child))
        runs.setdefault(key, []).append(child)
    node.children = [_together(own) for own in runs.values()]


def _shape(node: Node) -> object:
    """What equal parts have in common: products, layouts, and children."""
    below = tuple((each.name, _shape(each)) for each in node.children)
    lies, shapes = tuple(sorted(node.lies.items())), tuple(node.weights.values())
    return node.product_flops, lies, shapes, below


def _together(own: Sequence[Node]) -> Node:
    first = own[0]
    if len(own) == 1:
        return first
    matches = [_NUMBERED.match(each.name) for each in own]
    numbers = ranges(tuple(int(match[2]) for match in matches if match))
    match = _NUMBERED.match(first.name)
    assert match is not None, "only numbered parts are folded"
    return _sum(f"{match[1]}{numbers} ({len(own)} equal)", own)


def _sum(name: str, own: Sequence[Node]) -> Node:
    """What nodes of one shape cost together, and each of their parts."""
    kinds = dict.fromkeys(kind for each in own for kind in each.seconds)
    return Node(
        name,
        sum(each.num_flops for each in own),
        sum(each.product_flops for each in own),
        {kind: sum(each.seconds.get(kind, 0.0) for each in own) for kind in kinds},
        own[0].lies,
        list(dict.fromkeys(place for each in own for place in each.places)),
        {weight: shape for each in own for weight, shape in each.weights.items()},
        [
            _sum(alike[0].name, alike)
            for alike in zip(*(each.children for each in own), strict=True)
        ],
    )
