"""Refusals of a bot that the platform accepted before: how long to wait between two tries."""

from __future__ import annotations

import pytest

from channels.platform.refusals import RefusalMonitor, RefusalTiming

TIMING = RefusalTiming(first_wait=1.0, max_wait=6.0, confirmed_wait=60.0, confirmed_after=120.0, min_refusals=3)


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_waits_double_up_to_their_limit_and_are_shortened_by_half_at_most(jitter: float, share: float) -> None:
    seconds = 0.0
    monitor = RefusalMonitor("tg", TIMING, monotonic=lambda: seconds, jitter=lambda: jitter)
    waits = [monitor.record_refusal("no") for _ in range(5)]
    assert waits == [share * longest for longest in (1.0, 2.0, 4.0, 6.0, 6.0)]
    seconds = 120.0
    assert monitor.record_refusal("no") == share * 60.0
