"""The facts about programs that read tapes: which of them may read which chats, what they prove themselves by, and what they
want to send there."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from bubbot.tape.fact import Fact
from bubbot.tape.references import SessionId

CLIENTS_TAPE = "bubbot/mcp_clients"
CLIENT_NAME = r"[a-z0-9][a-z0-9_-]{0,31}"
"""The names of programs."""
CLIENT_NAME_FORM = "1 to 32 small letters, digits, _ and -, a letter or digit first"
SendEnd: TypeAlias = Literal["sent", "declined", "expired", "failed"]
"""How a message that a program wanted to send ended."""


class ClientGrant(Fact):
    """A program may read the tape of a chat.

    Attributes:
        client: the name of the program.
        session: the chat.
        by: who granted it, or took it back: `terminal` or `channel:id`.
        send: it may also ask to send messages there, each of which an owner has to allow; absent: it may not.
    """

    EVENTS = ("mcp/client_granted", "mcp/client_revoked")
    client: str
    session: SessionId
    by: str
    send: bool | UnsetType = UNSET

    @property
    def subject(self) -> tuple[str, str]:
        """The pair that is granted."""
        return self.client, self.session


class ClientToken(Fact):
    """A program got a token, in place of the one before. Only its digest is stored.

    Attributes:
        client: the name of the program.
        digest: SHA-256 of the token, in hexadecimal digits.
        by: who made it: `terminal` or `channel:id`.
    """

    EVENTS = ("mcp/client_token",)
    client: str
    digest: str
    by: str

    @property
    def subject(self) -> str:
        """The program: of its tokens only the newest one counts."""
        return self.client


class ClientRemoved(Fact):
    """All that a program was granted is taken back, and its token ends.

    Attributes:
        client: the name of the program.
        by: who removed it: `terminal` or `channel:id`.
    """

    EVENTS = ("mcp/client_removed",)
    client: str
    by: str


class SendAsked(Fact):
    """A program wants the bot to send a message. Nothing is sent before an owner has allowed exactly this.

    Attributes:
        id: what the bot calls it; `,mcp.send` takes it.
        client: the name of the program.
        session: the chat that shall get the message.
        text: the message, whole.
        digest: SHA-256 of program, chat and text, in hexadecimal digits.
    """

    EVENTS = ("mcp/send_asked",)
    id: str
    client: str
    session: SessionId
    text: str
    digest: str

    @property
    def subject(self) -> str:
        """The message."""
        return self.id


class SendShown(Fact):
    """A card asks an owner whether a message of a program is sent.

    Attributes:
        id: that of the message.
        approval: the card.
    """

    EVENTS = ("mcp/send_shown",)
    id: str
    approval: str

    @property
    def subject(self) -> str:
        """The message."""
        return self.id


class SendEnded(Fact):
    """What became of a message of a program. If it was sent, this is stored in one transaction with what is delivered.

    Attributes:
        id: that of the message.
        status: `sent`; `declined`: an owner said no, or the program may not send there any more; `expired`: nobody answered in time;
            `failed`: the bot could not ask or send.
    """

    EVENTS = ("mcp/send_ended",)
    id: str
    status: SendEnd


FACTS: tuple[type[Fact], ...] = (ClientGrant, ClientToken, ClientRemoved, SendAsked, SendShown, SendEnded)
SESSION_EVENTS = SendAsked.EVENTS
"""Facts with words for one chat, which an erasure of that chat reaches."""
