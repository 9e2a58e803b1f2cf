"""The runs of programs in a profile: which of them belongs to which action."""

from typing import Any, NamedTuple

from shardc.runtime.tape.profiled import Dispatch, ProfiledStep, fill_in


class Event(NamedTuple):
    """An event as JAX's profile gives it."""

    name: str
    start_ns: float
    duration_ns: float
    stats: tuple[tuple[str, Any], ...] = ()


class Line(NamedTuple):
    """The events of a thread."""

    events: list[Event]


class Plane(NamedTuple):
    """The threads of the host."""

    lines: list[Line]


class Profile(NamedTuple):
    """A profile."""

    planes: list[Plane]


def op(module: str, program: int, run: int, start: float, end: float) -> Event:
    stats = {"hlo_module": f"jit_{module}", "program_id": program, "run_id": run}
    return Event("dot", start, end - start, tuple(stats.items()))


def profile(*threads: list[Event]) -> Profile:
    return Profile([Plane([Line(events) for events in threads])])


def first(*_: Any) -> Any:
    raise AssertionError("it is only a key")


def second(*_: Any) -> Any:
    raise AssertionError("it is only a key")


def step(*dispatched: tuple[str, str, Any]) -> ProfiledStep:
    return ProfiledStep(dispatched=[Dispatch(*each) for each in dispatched])


def test_runs_are_those_of_the_actions_in_order_of_their_numbers() -> None:
    """On two devices, whose threads mix; runs of two programs overlap."""
    one = step(("0F0", "f", first), ("0F1", "f", first), ("1F0", "g", second))
    fill_in(
        [one],
        profile(
            [op("f", 0, 7, 100, 110), op("f", 0, 7, 112, 120), op("f", 0, 8, 130, 140)],
            [op("g", 1, 3, 125, 150), op("f", 0, 7, 105, 125), op("f", 0, 8, 120, 131)],
            [Event("ThreadpoolListener", 0, 1), Event("other", 5, 9, (("run_id", 7),))],
        ),
    )
    assert one.runs == [("0F0", 0, 25), ("0F1", 20, 40), ("1F0", 25, 50)]


def test_programs_of_one_name_are_told_apart() -> None:
    """As of a training step and of an evaluation step."""
    steps = [step(("0F0", "f", first)), step(("0F0", "f", second)), step(("0F0", "f", first))]
    found = profile([op("f", 4, 90, 0, 5), op("f", 9, 10, 6, 8), op("f", 4, 91, 9, 10)])
    fill_in(steps, found)
    assert [each.runs for each in steps] == [[("0F0", 0, 5)], [("0F0", 0, 2)], [("0F0", 0, 1)]]


def test_what_the_profile_does_not_have_is_left_out() -> None:
    """A program without ops; one of whose runs some are missing."""
    one = step(("0F0", "f", first), ("0F1", "f", first), ("0U", "update", second))
    fill_in([one], profile([op("f", 0, 7, 0, 5)]))
    assert one.runs == []
