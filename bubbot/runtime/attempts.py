"""The calls that one step makes: which model was asked, which answered, what failed and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bubbot.errors import ModelError
from bubbot.ports.model import FailedAttempt, ModelReply, Usage
from bubbot.runtime.calls import clean
from bubbot.tape.entry import JsonObject


def usage_data(usage: Usage) -> dict[str, Any]:
    """Build what a step keeps of the tokens."""
    return {name: getattr(usage, name) for name in Usage.__slots__}


class AttemptRecorder:
    """Records the calls of one step, in order. `elapsed` is a monotonic clock in seconds, `model` who is asked first.

    A model that never asks twice reports nothing; its one call is recorded from what the runner sees.
    """

    def __init__(self, model: str, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._model = model
        self._begun = self._started = elapsed()
        self._first_text: float | None = None
        self._calls: list[dict[str, Any]] = []

    def as_json(self) -> list[JsonObject]:
        """The calls as the step records them; times are in milliseconds since the step began."""
        return list(self._calls)

    def on_text(self) -> None:
        """Note when the first piece of an answer came."""
        if self._first_text is None:
            self._first_text = self._elapsed()

    def on_failed_call(self, failed: FailedAttempt) -> None:
        """Record a call that failed; another one follows it after its wait, if it names a model."""
        self._model = failed.model
        self._started = self._elapsed() - failed.elapsed
        self._add("failed", kind=failed.kind, error=clean(failed.error))
        self._model = failed.next_model
        self._started = self._elapsed() + failed.wait
        self._first_text = None

    def on_reply(self, reply: ModelReply, cost: float | None) -> None:
        """Record the call that answered, and its cost in US dollars (None: unknown)."""
        self._model = reply.model or self._model
        self._add("ok", usage=usage_data(reply.usage), cost=cost)

    def on_error(self, error: ModelError, cost: float | None) -> None:
        """Record the call that ended the step. One that the model has reported already is not repeated."""
        if self._model:
            self._add("failed", kind=error.kind, error=clean(str(error)), cost=cost)

    def on_stop(self, cost: float | None) -> None:
        """Record a call that was cut off from outside."""
        if self._model:
            self._add("stopped", cost=cost)

    def _add(self, status: str, **facts: Any) -> None:
        started = min(self._started, self._elapsed())  # it may have ended within the wait
        call = {
            "model": self._model,
            "started_ms": round((started - self._begun) * 1000),
            "elapsed_ms": round((self._elapsed() - started) * 1000),
            "status": status,
        }
        if self._first_text is not None:
            call["first_text_ms"] = round((self._first_text - started) * 1000)
        self._calls.append(call | facts)
