"""The first line of `bubbot status`: whether the bot answers, and if not, why."""

from __future__ import annotations

import pytest
from msgspec import structs

from bubbot.gateway.health.snapshot import BackupStatus, ChannelState, HealthSnapshot
from bubbot.gateway.health.verdict import format_verdict
from bubbot.ports.health import FeatureHealth
from bubbot.texts import Texts

WELL = HealthSnapshot("1", "/home", "UTC", "2026-11-22T12:00:00+00:00", pid=1)
HEARD = ChannelState("telegram", "running", ready=True)
DEAF = ChannelState("work", "running", ready=False)
KEY = FeatureHealth(name="budget", trouble="no answer comes from m since 12:04: it refuses the key")


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "Ready: no turn since the start."),
        ({"outcomes": ("answered", "silent")}, "Answering: no turn failed lately."),
        ({"outcomes": ("failed", "answered")}, "Answering: no turn failed lately."),
        ({"outcomes": ("failed",)}, "Answering, but the last turn failed: the log tells why."),
        (
            {"outcomes": ("answered", "failed", "failed")},
            "Answering, but the last 2 of 3 turns failed: the log tells why.",
        ),
        (
            {"outcomes": ("failed",) * 3, "reports": (KEY,)},
            "Not answering: the last 3 of 3 turns failed; no answer comes from m since 12:04: it refuses the key.",
        ),
        ({"reports": (KEY,)}, "In trouble: no answer comes from m since 12:04: it refuses the key."),
        ({"channels": (HEARD, DEAF)}, "In trouble: nothing is received from work."),
        ({"channels": (DEAF,)}, "Not answering: nothing is received from work."),
        ({"full": True}, "Not answering: the disk is full, and the bot waits for room."),
        ({"full": True, "readonly": True}, "Not answering: the disk is read-only, and the bot waits."),
        (
            {"full": True, "channels": (HEARD, DEAF)},
            "Not answering: the disk is full, and the bot waits for room; nothing is received from work.",
        ),
    ],
)
def test_the_verdict_says_whether_the_bot_answers_and_what_is_wrong(changes: dict[str, object], verdict: str) -> None:
    snapshot = structs.replace(WELL, **changes)
    assert format_verdict(snapshot, Texts()) == verdict
    assert snapshot.is_healthy is (not verdict.startswith(("Not", "In")))


def test_in_quarantine_nothing_else_counts() -> None:
    held = structs.replace(WELL, quarantine=BackupStatus("b", "2026-11-22T12:00:00+00:00"), full=True)
    assert format_verdict(held, Texts()).startswith("Not answering: in quarantine, with no channel.")
