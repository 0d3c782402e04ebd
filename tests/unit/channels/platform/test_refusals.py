"""Refusals of a bot that the platform accepted before: when they are believed, and how long to wait between two tries."""

from __future__ import annotations

import logging

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


class Watched:
    """A monitor at a time that tests set; `levels` are those of its log lines."""

    def __init__(self, caplog: pytest.LogCaptureFixture, quiet_seconds: float = 0.0) -> None:
        self.now = 1_000.0
        self._caplog = caplog
        caplog.set_level(logging.INFO, "channels.platform.refusals")
        self.monitor = RefusalMonitor(
            "tg", TIMING, monotonic=lambda: self.now, jitter=lambda: 1.0, quiet_seconds=quiet_seconds
        )

    def refuse(self, at: float) -> float:
        self.now = 1_000.0 + at
        return self.monitor.record_refusal("revoked")

    def accept(self, at: float) -> str:
        """Record a success and return what is still wrong."""
        self.now = 1_000.0 + at
        self.monitor.record_success()
        return self.monitor.problem

    @property
    def lines(self) -> list[str]:
        return [f"{line.levelname}: {line.getMessage()}" for line in self._caplog.records]


BEGIN = "WARNING: platform refuses the bot, retrying: revoked"
DOWN = "ERROR: channel down, retrying every 60 seconds: revoked"


def test_refusals_are_believed_if_they_last_and_are_many(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(caplog)
    assert watched.monitor.problem == ""
    assert [watched.refuse(at) for at in (0, 1, 2, 119.9)] == [1.0, 2.0, 4.0, 6.0]
    assert (watched.monitor.problem, watched.lines) == ("revoked", [BEGIN])
    assert [watched.refuse(at) for at in (120, 180, 240)] == [60.0, 60.0, 60.0]
    assert watched.lines == [BEGIN, DOWN]


def test_two_refusals_are_not_believed_however_far_apart(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(caplog)
    assert [watched.refuse(at) for at in (0, 500)] == [1.0, 2.0]
    assert watched.lines == [BEGIN]
    assert watched.refuse(501) == 60.0


def test_a_success_ends_them_and_they_begin_anew(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(caplog)
    assert watched.accept(0) == ""
    for at in (0, 60, 120):
        watched.refuse(at)
    assert (watched.accept(150), watched.accept(151)) == ("", "")
    assert [watched.refuse(at) for at in (160, 161, 162)] == [1.0, 2.0, 4.0]
    up = "INFO: platform accepts the bot again: channel=tg after=150s"
    assert watched.lines == [BEGIN, DOWN, up, BEGIN]


def test_with_a_quiet_time_they_end_only_after_it(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(caplog, quiet_seconds=30.0)
    assert [watched.refuse(at) for at in (0, 30)] == [1.0, 2.0]
    assert (watched.accept(59.9), watched.accept(60)) == ("revoked", "")
    for at in (100, 130, 160, 190, 220):
        watched.refuse(at)
    assert watched.lines == [BEGIN, "INFO: platform accepts the bot again: channel=tg after=60s", BEGIN, DOWN]
    assert [watched.refuse(at) for at in (250.1, 251, 252)] == [1.0, 2.0, 4.0], "after a quiet time they begin anew"
    assert watched.lines[-1] == BEGIN
