"""What turns are doing just now, as they show it: for people who ask, and for counting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from bubbot.ports.channel import (
    Preview,
    StepFinished,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from bubbot.runtime.preview import Show

Monotonic: TypeAlias = Callable[[], float]
Ended: TypeAlias = Callable[[str, str, float | None], None]
"""Told the session of a turn that is recorded, its status, and the seconds it took where its begin was shown: that of
a scheduled turn is not."""


@dataclass(frozen=True, slots=True)
class TurnActivity:
    """What a turn does: asks a model, writes down its answer, or runs the tool with this name. `since`: when it began,
    by the monotonic clock; None where that was not shown."""

    what: Literal["asking", "writing", "tool"] = "asking"
    tool: str = ""
    since: float | None = None


class ActivityTracker:
    """A `Show` that keeps in mind what it hands on."""

    def __init__(self, show: Show, clock: Monotonic) -> None:
        self.show = show
        self._clock = clock
        self._turns: dict[str, TurnActivity] = {}
        self.ended: Ended = lambda _session, _status, _seconds: None
        """Told of each turn that has ended."""

    def __call__(self, session: str, event: Preview) -> None:
        """See `Show`."""
        self.show(session, event)
        match event:
            case TurnStarted():
                self._turns[session] = TurnActivity(since=self._clock())
            case TurnFinished(status):
                doing = self._turns.pop(session, TurnActivity())
                self.ended(session, status, None if doing.since is None else self._clock() - doing.since)
            case TextStreamed():
                self._now(session, TurnActivity("writing"))
            case ToolStarted(name):
                self._now(session, TurnActivity("tool", name))
            case ToolFinished() | StepFinished():
                self._now(session, TurnActivity("asking"))

    def of(self, session: str) -> tuple[TurnActivity, float | None] | None:
        """What a session's turn does, and for how many seconds it has been under way; None where none shows anything."""
        doing = self._turns.get(session)
        if doing is None:
            return None
        return doing, None if doing.since is None else self._clock() - doing.since

    def _now(self, session: str, doing: TurnActivity) -> None:
        before = self._turns.get(session, doing)
        if (before.what, before.tool) != (doing.what, doing.tool):  # an answer comes in many pieces
            doing = replace(doing, since=before.since)
        elif session in self._turns:
            return
        self._turns[session] = doing
