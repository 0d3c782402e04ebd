"""Requests among the processes of a deployment: what was typed or pressed at one is for the process that has the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, runtime_checkable

from bubbot.tape.entry import JsonObject

EVERYBODY = ""
"""The session of a request that each process carries out, and that nobody answers."""
ANSWER_SECONDS = 5.0
"""Seconds after which nobody waits for an answer any more."""

AnswerRequest: TypeAlias = Callable[[str, str, JsonObject], Awaitable[JsonObject | None]]
"""Carry out a request: session, kind, what it says. Return the answer; None if this process does not have the session."""


class WorkerRequests(Protocol):
    """The requests of one process, and to it. They are no facts: what has to be remembered is on a tape."""

    async def post(
        self, session: str, kind: str, data: JsonObject, *, seconds: float = ANSWER_SECONDS
    ) -> JsonObject | None:
        """Ask the process that has a session; return its answer, or None if there is none in time.

        The process that asks is asked, too, if it serves. For `EVERYBODY` return None at once.

        Raises:
            StoreError: the store cannot be asked.
        """
        ...

    async def serve(self, answer: AnswerRequest) -> None:
        """Answer requests until cancelled, this process's own ones included; the first answer counts.

        A request that nobody has answered is offered again now and then, until it expires: the session may have come here.
        """
        ...


@runtime_checkable
class SharesRequests(Protocol):
    """A store whose processes can ask each other."""

    @property
    def requests(self) -> WorkerRequests: ...
