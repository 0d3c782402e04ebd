"""What turns are doing: kept in mind from what they show, and handed on as it came."""

from __future__ import annotations

from bubbot.channel import Preview, StepEnded, TextShown, ToolEnded, ToolStarted, TurnEnded, TurnStarted
from bubbot.gateway.activity import Activity, Doing


def test_it_hands_on_what_is_shown_and_knows_what_is_done() -> None:
    shown: list[tuple[str, Preview]] = []
    ended: list[tuple[str, str, float | None]] = []
    now = [100.0]
    activity = Activity(lambda session, event: shown.append((session, event)), lambda: now[0])
    activity.ended = lambda *told: ended.append(told)
    assert activity.of("a:1") is None
    steps: list[tuple[Preview, Doing]] = [
        (TurnStarted(1), Doing(since=100.0)),
        (TextShown("I will look."), Doing("writing", since=100.0)),
        (StepEnded(1, 1), Doing(since=100.0)),
        (ToolStarted("web_fetch", "{}"), Doing("tool", "web_fetch", since=100.0)),
        (ToolEnded("web_fetch", ok=True, size=1, spilled=False), Doing(since=100.0)),
    ]
    for event, doing in steps:
        activity("a:1", event)
        now[0] += 1
        assert activity.of("a:1") == (doing, now[0] - 100.0)
    activity("a:1", TurnEnded("answered"))
    assert activity.of("a:1") is None
    assert ended == [("a:1", "answered", 5.0)]
    assert [event for _, event in shown] == [*(event for event, _ in steps), TurnEnded("answered")]


def test_of_a_turn_that_did_not_show_its_begin_nobody_says_how_long_it_took() -> None:
    ended: list[float | None] = []
    activity = Activity(lambda _session, _event: None, lambda: 1.0)
    activity.ended = lambda _session, _status, seconds: ended.append(seconds)
    activity("a:1", ToolStarted("x", ""))
    assert activity.of("a:1") == (Doing("tool", "x"), None)
    activity("a:1", TurnEnded("answered"))
    activity("a:2", TurnEnded("failed"))
    assert ended == [None, None]
