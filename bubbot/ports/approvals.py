"""Approvals: a question that people answer by a card, and what the chat runs after their answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from bubbot.ports.turn import Turn


class ApprovalQuestion(Struct, frozen=True):
    """A question of a feature that waits for a yes. A card asks it, bound to exactly these details.

    Attributes:
        about: the name of what asks, such as `task.gate`; it stands on the card.
        details: what people agree to, whole.
        command: the command that the chat runs after the answer, whatever it is.
        by: who may answer: the person for whom the turn runs, or somebody with the role that may allow what is asked.
        hours: after this time without an answer it means no.
        chat: the session of the chat that gets the card, which the chat of the turn then never does; empty: the settings decide.
    """

    about: str
    details: str
    command: str
    by: Literal["asker", "owner"] = "asker"
    hours: float = 24.0
    chat: str = ""


class ApprovalAnswer(Struct, frozen=True):
    """An answer to a question.

    Attributes:
        is_yes: true for a yes.
        by: the id of who answered.
        date: when, ISO 8601 in UTC.
    """

    is_yes: bool
    by: str
    date: str


AskApproval: TypeAlias = Callable[[Turn, ApprovalQuestion], Awaitable[str]]
"""Ask with a card that is merged with the turn; return its id."""
FindApproval: TypeAlias = Callable[[str], Awaitable[ApprovalAnswer | None]]
"""Return the answer to the card of an id; None if nobody has answered it."""
