"""The model calls of one step: which model was asked, which answered, what failed and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bubbot.errors import ModelError
from bubbot.ports.model import FailedAttempt, ModelReply, Usage
from bubbot.ports.text import clean
from bubbot.tape.entry import JsonObject


def usage_as_json(usage: Usage) -> dict[str, Any]:
    """Build the token counts that a step records."""
    return {name: getattr(usage, name) for name in Usage.__slots__}


class AttemptRecorder:
    """Records the calls of one step, in order.

    A model that never asks twice reports nothing; its one call is recorded from what the runner sees.
    """

    def __init__(self, model: str, elapsed: Callable[[], float]) -> None:
        """Start the step: `model` is asked first, `elapsed` is a monotonic clock in seconds."""
        self._elapsed = elapsed
        self._model = model
        self._step_started = self._call_started = elapsed()
        self._first_text: float | None = None
        self._calls: list[dict[str, Any]] = []

    def as_json(self) -> list[JsonObject]:
        """Return the calls as the step records them; times are in milliseconds since the step began."""
        return list(self._calls)

    def on_text(self) -> None:
        """Record when the first piece of an answer came."""
        if self._first_text is None:
            self._first_text = self._elapsed()

    def on_failed_call(self, attempt: FailedAttempt) -> None:
        """Record a call that failed; if it names a next model, another call follows after its wait."""
        self._model = attempt.model
        self._call_started = self._elapsed() - attempt.elapsed
        self._add("failed", kind=attempt.kind, error=clean(attempt.error))
        self._model = attempt.next_model
        self._call_started = self._elapsed() + attempt.wait
        self._first_text = None

    def on_reply(self, reply: ModelReply, cost: float | None) -> None:
        """Record the call that answered, and its cost in US dollars (None: unknown)."""
        self._model = reply.model or self._model
        self._add("ok", usage=usage_as_json(reply.usage), cost=cost)

    def on_error(self, error: ModelError, cost: float | None) -> None:
        """Record the call that ended the step, unless the model has reported it already."""
        if self._model:
            self._add("failed", kind=error.kind, error=clean(str(error)), cost=cost)

    def on_stop(self, cost: float | None) -> None:
        """Record a call that was cut off from outside."""
        if self._model:
            self._add("stopped", cost=cost)

    def _add(self, status: str, **facts: Any) -> None:
        started = min(self._call_started, self._elapsed())  # the call may have ended during the wait
        call = {
            "model": self._model,
            "started_ms": round((started - self._step_started) * 1000),
            "elapsed_ms": round((self._elapsed() - started) * 1000),
            "status": status,
        }
        if self._first_text is not None:
            call["first_text_ms"] = round((self._first_text - started) * 1000)
        self._calls.append(call | facts)
