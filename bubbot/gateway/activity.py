"""The activity of running turns, taken from their previews, for status replies and metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from bubbot.ports.channel import (
    Preview,
    PreviewCallback,
    StepFinished,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)

Monotonic: TypeAlias = Callable[[], float]
RECENT_TURNS = 10
"""Ended turns whose outcome is remembered."""
OnTurnEnded: TypeAlias = Callable[[str, str, float | None], None]
"""Called with the session and status of a recorded turn, and its seconds; None if its start had no preview, as for
a scheduled turn."""


class TurnActivity(Struct, frozen=True):
    """A turn that waits for a model, streams an answer, or runs a tool.

    Attributes:
        phase: "asking" a model, "writing" its answer down, or running a "tool".
        tool: the name of the running tool.
        since: the start of the turn by the monotonic clock; None if its start had no preview.
    """

    phase: Literal["asking", "writing", "tool"] = "asking"
    tool: str = ""
    since: float | None = None


class ActivityTracker:
    """A `PreviewCallback` that remembers the previews it passes on and the outcomes of the newest turns."""

    def __init__(self, show: PreviewCallback, clock: Monotonic) -> None:
        self.show = show
        self._clock = clock
        self._turns: dict[str, TurnActivity] = {}
        self._outcomes: deque[str] = deque(maxlen=RECENT_TURNS)
        self.on_turn_ended: OnTurnEnded = lambda _session, _status, _seconds: None
        """Called for each turn that has ended."""

    def __call__(self, session: str, event: Preview) -> None:
        self.show(session, event)
        match event:
            case TextStreamed():  # first: an answer comes in many pieces
                if session not in self._turns or self._turns[session].phase != "writing":
                    self._set_activity(session, TurnActivity("writing"))
            case TurnStarted():
                self._turns[session] = TurnActivity(since=self._clock())
            case TurnFinished(status):
                activity = self._turns.pop(session, TurnActivity())
                self._outcomes.append(status)
                self.on_turn_ended(session, status, None if activity.since is None else self._clock() - activity.since)
            case ToolStarted(name):
                self._set_activity(session, TurnActivity("tool", name))
            case ToolFinished() | StepFinished():
                self._set_activity(session, TurnActivity("asking"))

    @property
    def recent_outcomes(self) -> tuple[str, ...]:
        """The statuses of the newest turns, newest last."""
        return tuple(self._outcomes)

    def get(self, session: str) -> tuple[TurnActivity, float | None] | None:
        """Return the activity of a session's turn and its seconds so far; None if no turn has a preview."""
        activity = self._turns.get(session)
        if activity is None:
            return None
        return activity, None if activity.since is None else self._clock() - activity.since

    def _set_activity(self, session: str, activity: TurnActivity) -> None:
        previous = self._turns.get(session, activity)
        if (previous.phase, previous.tool) != (activity.phase, activity.tool):  # an answer is streamed in many pieces
            activity = TurnActivity(activity.phase, activity.tool, previous.since)
        elif session in self._turns:
            return
        self._turns[session] = activity
