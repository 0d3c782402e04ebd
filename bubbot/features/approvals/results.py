"""What the commands of approvals return: the contract of `--json`, and the values of the sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from bubbot.shell_command import IsoTime

if TYPE_CHECKING:
    from bubbot.command import Caller


class CardRow(Struct, frozen=True):
    """A card that waits for an answer.

    Attributes:
        id: what is typed to answer it.
        session: the chat in which it came up.
        by: the person for whom the turn ran, as channel and id.
        tools: the tools of its calls.
        scopes: what a yes may cover.
        asked: when it was asked.
        expires: when it means no.
    """

    id: str
    session: str
    by: str
    tools: tuple[str, ...]
    scopes: tuple[str, ...]
    asked: IsoTime
    expires: IsoTime

    def values(self, _caller: Caller) -> Mapping[str, object]:
        """Return the formatted values of its sentence."""
        return {"tools": ", ".join(self.tools), "until": self.expires[:16].replace("T", " ")}


class CardDetails(Struct, frozen=True):
    """A card with all that it asks for.

    Attributes:
        card: its row.
        details: exactly what would happen.
    """

    card: CardRow
    details: str


class GrantRow(Struct, frozen=True):
    """What may run without asking.

    Attributes:
        number: names it.
        tool: the tool.
        kind: of what it covers: arguments, domain, folder, recipient or pinned.
        value: what it covers; for arguments their digest.
        session: the chat in which it counts until a new conversation begins there; None: everywhere and always.
        by: who gave it, as channel and id.
        granted: when.
        arguments: what exact arguments these are, as the card showed them; empty for everything else.
    """

    number: int
    tool: str
    kind: str
    value: str
    session: str | None
    by: str
    granted: IsoTime
    arguments: str = ""

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return "chat" if self.session else "always"

    def values(self, _caller: Caller) -> Mapping[str, object]:
        """Return the formatted values of its sentence."""
        return {"covered": " ".join(self.arguments.split()) or self.value}


class GrantList(Struct, frozen=True):
    """What may run without asking, after one was taken back.

    Attributes:
        grants: the oldest first.
    """

    grants: tuple[GrantRow, ...] = ()


class CardAnswer(Struct, frozen=True):
    """What became of an answer.

    Attributes:
        id: of the card.
        verdict: what counts: approved or denied.
        is_waiting: the call runs when the bot runs with the channel of its chat.
    """

    id: str
    verdict: str
    is_waiting: bool

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return f"{self.verdict}_waiting" if self.is_waiting else self.verdict
