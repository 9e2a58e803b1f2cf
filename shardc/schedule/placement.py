"""The placement of stages: stage -> device group, for each replica."""

from shardc.schedule.work import Placement, Work


def looped(work: Work) -> Placement:
    """Stage s on group s mod p: with several chunks, round and round."""
    p = work.num_groups
    return tuple(tuple(s % p for s in range(work.num_stages)) for _ in range(work.replicas))


def zigzag(work: Work) -> Placement:
    """To the last group and back, repeatedly: with two chunks a V."""
    p = work.num_groups
    there = [s % p if s // p % 2 == 0 else p - 1 - s % p for s in range(work.num_stages)]
    return (tuple(there),) * work.replicas


def both_ways(work: Work) -> Placement:
    """A zigzag from the first group, and its mirror image from the last."""
    there = zigzag(work)[0]
    return there, tuple(work.num_groups - 1 - group for group in there)


def stages_of(placement: Placement, group: int) -> list[tuple[int, int]]:
    """The (stage, replica) pairs on a group."""
    return [
        (stage, replica)
        for replica, of_stage in enumerate(placement)
        for stage, own in enumerate(of_stage)
        if own == group
    ]
