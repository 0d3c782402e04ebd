"""A second program with the bot's token: noticed by its messages, told once, and forgotten when it is quiet."""

from __future__ import annotations

from typing import Any

import pytest

from channels.discord.duplicates import DuplicateMonitor

MAX_RECENT_NONCES = 4000
REQUIRED_CONFIRMATIONS = 3
WINDOW_SECONDS = 600.0


GRACE = 60.0


class Monitor(DuplicateMonitor):
    """One with a clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__("dc", monotonic=lambda: self.now, grace_seconds=GRACE)

    def foreign(self, *nonces: object, bot: str = "1", **more: Any) -> None:
        for nonce in nonces:
            self.check_message("1", {"author": {"id": bot}, "nonce": nonce, **more})


@pytest.fixture
def monitor() -> Monitor:
    made = Monitor()
    made.start_session()
    made.now += GRACE
    return made


def test_so_many_foreign_messages_within_the_window_are_a_warning_until_they_are_old(monitor: Monitor) -> None:
    monitor.foreign(*range(REQUIRED_CONFIRMATIONS - 1))
    assert monitor.warning == ""
    monitor.now += WINDOW_SECONDS
    monitor.foreign("last")
    assert "another program sends messages" in monitor.warning
    monitor.now += 0.5
    assert monitor.warning == ""


def test_what_the_bot_sent_and_what_has_no_nonce_of_a_program_is_not_foreign(monitor: Monitor) -> None:
    monitor.record_nonce("7")
    for _ in range(REQUIRED_CONFIRMATIONS):
        monitor.foreign("7", 7, None)
        monitor.foreign("x", bot="2")
        monitor.foreign("x", webhook_id="5")
        monitor.foreign("x", interaction_metadata={"id": "5"})
        monitor.check_message("1", "no message")
        monitor.check_message("1", {"nonce": "x"})
    assert monitor.warning == ""


def test_nothing_counts_before_the_session_and_in_its_first_seconds() -> None:
    monitor = Monitor()
    monitor.foreign(1, 2, 3)
    monitor.start_session()
    monitor.now += GRACE - 0.5
    monitor.start_session()  # a resumed one does not begin again
    monitor.foreign(4, 5, 6)
    assert monitor.warning == ""
    monitor.now += 0.5
    monitor.foreign(7, 8, 9)
    assert monitor.warning


def test_the_log_tells_it_once_and_again_after_a_quiet_window(
    monitor: Monitor, caplog: pytest.LogCaptureFixture
) -> None:
    monitor.foreign(*range(REQUIRED_CONFIRMATIONS + 2))
    monitor.now += WINDOW_SECONDS
    monitor.foreign("still there")
    assert len(caplog.records) == 1
    monitor.now += WINDOW_SECONDS + 0.5
    monitor.foreign(*range(REQUIRED_CONFIRMATIONS))
    assert len(caplog.records) == 2


def test_the_newest_nonces_are_remembered(monitor: Monitor) -> None:
    for number in range(MAX_RECENT_NONCES):
        monitor.record_nonce(str(number))
    monitor.record_nonce("0")  # sent again
    monitor.foreign("0", "1", "2")
    assert monitor.warning == ""
    monitor.record_nonce("new")
    monitor.foreign(*["0", "2", "new"] * REQUIRED_CONFIRMATIONS)
    assert monitor.warning == ""
    monitor.foreign(*["1"] * REQUIRED_CONFIRMATIONS)
    assert monitor.warning
