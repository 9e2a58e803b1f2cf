"""Seconds and bytes of each collective over one axis of a mesh.

Alpha-beta model with ring algorithms, as in Thakur, Rabenseifner, Gropp, "Optimization of
collective communication operations in MPICH", IJHPCA 19(1), 2005; where the cluster lists the
protocols of its links, the fastest of them (shardc/cost/protocols.py). `size` is the number of
devices along the axis; with size 1 everything is 0. `*_bytes` are the bytes that one device sends.
"""

import math
from collections.abc import Sequence
from itertools import permutations

from shardc.cost.links import Link
from shardc.plan.predicted import Collective


def all_gather_bytes(size: int, num_bytes: float) -> float:
    """Bytes one device sends; `num_bytes` of the gathered result on one device."""
    return (size - 1) / size * num_bytes


def reduce_scatter_bytes(size: int, num_bytes: float) -> float:
    """Bytes one device sends; `num_bytes` of the operand on one device."""
    return (size - 1) / size * num_bytes


def all_reduce_bytes(size: int, num_bytes: float) -> float:
    """Bytes one device sends; `num_bytes` of the operand on one device."""
    return 2 * (size - 1) / size * num_bytes


def all_to_all_bytes(size: int, num_bytes: float) -> float:
    """Bytes one device sends; `num_bytes` of the operand on one device."""
    return (size - 1) / size * num_bytes


def all_gather_s(size: int, link: Link, num_bytes: float) -> float:
    """Seconds of an all-gather.

    Of a ring: launch + (n - 1) * (latency + num_bytes / n / bandwidth).
    Source: Thakur et al., section 4.1 (ring).

    Args:
        num_bytes: bytes of the gathered result on one device, not of the shard.
    """
    if size == 1:
        return 0.0
    if link.gathers:
        return link.launch_s + min(fixed + num_bytes * byte_s for fixed, byte_s in link.gathers)
    per_message_s = num_bytes / size / link.bandwidth_bytes_per_s
    return link.launch_s + (size - 1) * (link.latency_s + per_message_s)


def reduce_scatter_s(size: int, link: Link, num_bytes: float) -> float:
    """Seconds of a reduce-scatter, which takes as long as an all-gather.

    The additions are not counted: memory is much faster than any link.
    Source: Thakur et al., section 4.2 (pairwise exchange, the same terms on a ring).

    Args:
        num_bytes: bytes of the operand on one device, not of the scattered result.
    """
    return all_gather_s(size, link, num_bytes)


def all_reduce_s(size: int, link: Link, num_bytes: float) -> float:
    """Seconds of an all-reduce; of a ring, those of a reduce-scatter and an all-gather.

    Source: Thakur et al., section 4.5 (Rabenseifner's algorithm, here with rings).

    Args:
        num_bytes: bytes of the operand on one device.
    """
    if size == 1:
        return 0.0
    if link.reduces:
        return link.launch_s + min(fixed + num_bytes * byte_s for fixed, byte_s in link.reduces)
    return 2 * all_gather_s(size, link, num_bytes) - link.launch_s


def all_to_all_s(size: int, link: Link, num_bytes: float) -> float:
    """Seconds of a pairwise all-to-all: launch + (n - 1) * (latency + num_bytes / n / bandwidth).

    Source: Thakur et al., section 4.3 (pairwise exchange for long messages), with the
    link's all-to-all bandwidth.

    Args:
        num_bytes: bytes of the operand on one device.
    """
    if size == 1:
        return 0.0
    per_message_s = num_bytes / size / link.all_to_all_bandwidth_bytes_per_s
    return link.launch_s + (size - 1) * (link.latency_s + per_message_s)


def transfer_s(link: Link, num_bytes: float) -> float:
    """Seconds of one message: latency + num_bytes / bandwidth.

    Between meshes `link` is `transfer_link(...)` and `num_bytes` counts the whole value;
    for a permute inside a mesh it counts one device. 0.0 for 0 bytes.
    """
    if num_bytes == 0:
        return 0.0
    return link.latency_s + num_bytes / link.bandwidth_bytes_per_s


def all_reduce_over_s(axes: Sequence[tuple[int, Link]], num_bytes: float) -> float:
    """Seconds of one all-reduce over several axes, in the best hierarchical order.

    Reduce-scatter over the axes one by one, each on the result of the previous one, then
    all-gather back: the slow axis carries the fewest bytes. It is launched once. One axis: equals
    `all_reduce_s`.
    Source: Jia et al., "Highly scalable deep learning training system", arXiv:1807.11205, 2018
    (hierarchical all-reduce).

    Args:
        axes: (size, link) of each axis.
        num_bytes: bytes of the operand on one device.
    """
    best = math.inf
    for order in permutations(axes):
        seconds, left = 0.0, num_bytes
        for size, link in order:
            seconds += all_reduce_s(size, link, left)
            left /= size
        best = min(best, seconds)
    launches = [link.launch_s for size, link in axes if size > 1]
    return best - sum(launches) + max(launches, default=0.0)


def collective_s(each: Collective, axes: Sequence[tuple[int, Link]]) -> float:
    """Seconds of one of the collectives counted in `each`, of their mean size.

    Over several axes: one after the other, for a gather starting with the last axis.

    Args:
        axes: (size, link) of each of its axes.
    """
    num_bytes = each.num_bytes / each.count  # of a result
    if each.kind == "all_reduce":
        return all_reduce_over_s(axes, num_bytes)
    seconds = 0.0
    for size, link in axes:
        if each.kind == "all_to_all":
            seconds += all_to_all_s(size, link, num_bytes)
        elif each.kind == "all_gather":
            seconds += all_gather_s(size, link, num_bytes)
            num_bytes /= size
        else:
            num_bytes *= size
            seconds += reduce_scatter_s(size, link, num_bytes)
    return seconds


def all_reduce_over_bytes(sizes: Sequence[int], num_bytes: float) -> float:
    """Bytes one device sends in an all-reduce over several axes: 2 (n - 1) / n of the operand."""
    return all_reduce_bytes(math.prod(sizes), num_bytes)
