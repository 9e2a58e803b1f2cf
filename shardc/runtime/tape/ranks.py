"""Proves that the processes of a job cannot deadlock.

A program over devices of several processes, and a message between processes, are collectives: each
participating process waits for the others. Every process runs its own part of one tape.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardc.errors import ShardcError
from shardc.runtime.tape.instructions import Receive, Run, Send, Tape


class Meeting(NamedTuple):
    """One collective: `said`, as the instructions print it, and the tape position of its start."""

    said: str
    number: int


def check_meetings(tape: Tape, groups: Sequence[int], ranks: Mapping[int, frozenset[int]]) -> None:
    """Raises unless all collectives of a step complete, whatever their durations.

    Advances every process to its next collective, which completes when all participants have
    reached it. Processes with the same device groups behave alike and are advanced together: the
    cost is that of the tape times the processes per message, not of the job.

    Args:
        groups: by program, its device group.
        ranks: by device group, the processes of its devices.
    Raises:
        ShardcError: SHARDC-266, two processes reach their common collectives in different orders,
            or one never reaches them.
    """
    lanes, wanted = _lanes(tape, groups, _classes(ranks))
    at = dict.fromkeys(lanes, 0)
    come: dict[Meeting, set[int]] = {}
    ready = list(lanes)
    while ready:
        who = ready.pop()
        if at[who] == len(lanes[who]):
            continue
        meeting = lanes[who][at[who]]
        come.setdefault(meeting, set()).add(who)
        if come[meeting] == wanted[meeting]:
            for each in come.pop(meeting):
                at[each] += 1
                ready.append(each)
    stuck = {who: lanes[who][i] for who, i in at.items() if i < len(lanes[who])}
    if stuck:
        waits = [f"rank {who} waits in '{meeting.said}'" for who, meeting in stuck.items()]
        raise ShardcError(
            f"the processes wait for each other: {', '.join(waits[:4])}",
            code="SHARDC-266",
            help="this is a bug in the order of the step's instructions; report the plan and"
            " schedule",
        )


def _classes(ranks: Mapping[int, frozenset[int]]) -> dict[int, frozenset[int]]:
    """By device group, the first rank of each class of ranks with the same groups."""
    member: dict[int, list[int]] = {}
    for group, own in ranks.items():
        for rank in own:
            member.setdefault(rank, []).append(group)
    first: dict[tuple[int, ...], int] = {}
    for rank in sorted(member):
        first.setdefault(tuple(member[rank]), rank)
    stands_for = {rank: first[tuple(of)] for rank, of in member.items()}
    return {group: frozenset(stands_for[rank] for rank in own) for group, own in ranks.items()}


def _lanes(
    tape: Tape, groups: Sequence[int], ranks: Mapping[int, frozenset[int]]
) -> tuple[dict[int, list[Meeting]], dict[Meeting, frozenset[int]]]:
    """The collectives of each rank in order, and the participants of each collective.

    A sender waits at the send, a process that only receives at the receive.
    """
    lanes: dict[int, list[Meeting]] = {rank: [] for own in ranks.values() for rank in sorted(own)}
    wanted: dict[Meeting, frozenset[int]] = {}
    for position, instruction in enumerate(tape.instructions):
        match instruction:
            case Run(_, program, _, _):
                all_ = here = ranks[groups[program]]
                meeting = Meeting(str(instruction), position)
            case Send(number) | Receive(number):
                source, target, _ = tape.messages[number]
                all_ = ranks[source] | ranks[target]
                sends = isinstance(instruction, Send)
                here = ranks[source] if sends else ranks[target] - ranks[source]
                meeting = Meeting(f"message {number}", -1 - number)
            case _:
                continue
        if len(all_) > 1:
            wanted[meeting] = all_
            for rank in here:
                lanes[rank].append(meeting)
    return lanes, wanted
