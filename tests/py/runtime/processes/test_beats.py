"""A summary says of each process what rank 0 knows of it."""

from hypothesis import given
from hypothesis import strategies as st

from shardc.runtime.processes.beats import Beats, Reached, Seen, beat, read_summary, summary

TIMES = st.sampled_from([0.0, 1.0, 3.25, 70.5])
SEEN = st.builds(
    Seen,
    st.builds(Reached, st.integers(0, 1), st.integers(0, 3), st.integers(0, 3)),
    st.sampled_from(["absent", "runs", "ended", 'failed: ValueError: "no"']),
    TIMES,
    TIMES,
)


@given(st.lists(SEEN, min_size=1, max_size=9), st.integers(0, 1000))
def test_a_summary_is_read_as_it_was_written(seen, number):
    known = dict(enumerate(seen))
    assert read_summary(summary(known, number, 0.0)) == (number, known)
    _, read = read_summary(summary(known, number, 2.0))
    for rank, own in known.items():
        assert (read[rank].reached, read[rank].state) == (own.reached, own.state)
        late = max(own.quiet_s, own.lag_s) > 2.0
        assert (read[rank].quiet_s, read[rank].lag_s) == (
            (own.quiet_s, own.lag_s) if late else (0.0, 0.0)
        )


def test_a_heartbeat_counts_from_when_it_changed():
    beats = Beats(3, 10.0)
    beats.hear({0: beat(1, Reached(1), "runs"), 1: beat(1, Reached(1), "runs")}, 11.0)
    beats.hear({0: beat(2, Reached(1, 1), "runs"), 1: beat(1, Reached(1), "runs")}, 13.0)
    beats.hear({0: beat(3, Reached(1, 1), "runs")}, 14.0)
    found = beats.seen()
    assert found[0] == Seen(Reached(1, 1), "runs", 0.0, 0.0)
    assert found[1] == Seen(Reached(1), "runs", 3.0, 1.0)
    assert found[2] == Seen(quiet_s=4.0, lag_s=3.0)


def test_a_process_has_failed_whatever_it_says_of_its_failure():
    failed = {"absent": False, "runs": False, "ended": False, "failed: no memory": True}
    assert {state: Seen(state=state).has_failed for state in failed} == failed
