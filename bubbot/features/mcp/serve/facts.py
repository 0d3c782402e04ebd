"""The facts about programs that read tapes: which of them may read which chats, and what they prove themselves by."""

from __future__ import annotations

from bubbot.tape.fact import Fact
from bubbot.tape.references import SessionId

CLIENTS_TAPE = "bubbot/mcp_clients"
CLIENT_NAME = r"[a-z0-9][a-z0-9_-]{0,31}"
"""The names of programs."""
CLIENT_NAME_FORM = "1 to 32 small letters, digits, _ and -, a letter or digit first"


class ClientGrant(Fact):
    """A program may read the tape of a chat.

    Attributes:
        client: the name of the program.
        session: the chat.
        by: who granted it, or took it back: `terminal` or `channel:id`.
    """

    EVENTS = ("mcp/client_granted", "mcp/client_revoked")
    client: str
    session: SessionId
    by: str

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


FACTS: tuple[type[Fact], ...] = (ClientGrant, ClientToken, ClientRemoved)
