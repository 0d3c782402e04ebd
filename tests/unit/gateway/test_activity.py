"""What turns are doing: kept in mind from what they show, and handed on as it came."""

from __future__ import annotations

from bubbot.gateway.activity import ActivityTracker, TurnActivity
from bubbot.ports.channel import (
    Preview,
    StepFinished,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)

RECENT_TURNS = 10


def test_it_hands_on_what_is_shown_and_knows_what_is_done() -> None:
    shown: list[tuple[str, Preview]] = []
    ended: list[tuple[str, str, float | None]] = []
    now = [100.0]
    activity = ActivityTracker(lambda session, event: shown.append((session, event)), lambda: now[0])
    activity.on_turn_ended = lambda *told: ended.append(told)
    assert activity.get("a:1") is None
    steps: list[tuple[Preview, TurnActivity]] = [
        (TurnStarted(1), TurnActivity(since=100.0)),
        (TextStreamed("I will look."), TurnActivity("writing", since=100.0)),
        (StepFinished(1, 1), TurnActivity(since=100.0)),
        (ToolStarted("web_fetch", "{}"), TurnActivity("tool", "web_fetch", since=100.0)),
        (ToolFinished("web_fetch", ok=True, size=1, spilled=False), TurnActivity(since=100.0)),
    ]
    for event, doing in steps:
        activity("a:1", event)
        now[0] += 1
        assert activity.get("a:1") == (doing, now[0] - 100.0)
    activity("a:1", TurnFinished("answered"))
    assert activity.get("a:1") is None
    assert ended == [("a:1", "answered", 5.0)]
    assert [event for _, event in shown] == [*(event for event, _ in steps), TurnFinished("answered")]


def test_of_a_turn_that_did_not_show_its_begin_nobody_says_how_long_it_took() -> None:
    ended: list[float | None] = []
    activity = ActivityTracker(lambda _session, _event: None, lambda: 1.0)
    activity.on_turn_ended = lambda _session, _status, seconds: ended.append(seconds)
    activity("a:1", ToolStarted("x", ""))
    assert activity.get("a:1") == (TurnActivity("tool", "x"), None)
    activity("a:1", TurnFinished("answered"))
    activity("a:2", TurnFinished("failed"))
    activity("a:3", TextStreamed("Well"))
    assert activity.get("a:3") == (TurnActivity("writing"), None)
    assert ended == [None, None]


def test_the_outcomes_of_the_newest_turns_are_remembered_of_all_sessions() -> None:
    activity = ActivityTracker(lambda _session, _event: None, lambda: 1.0)
    assert activity.recent_outcomes == ()
    for number in range(RECENT_TURNS + 2):
        activity(f"a:{number}", TurnFinished("failed" if number < 3 else "answered"))
    assert activity.recent_outcomes == ("failed", *["answered"] * (RECENT_TURNS - 1))
