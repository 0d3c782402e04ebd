"""What the commands about programs take, and what they say."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller
from bubbot.features.mcp.serve.facts import CLIENT_NAME, CLIENT_NAME_FORM
from bubbot.shell_command import Argument

ClientArg = Annotated[
    str,
    Meta(
        description="the name of the program, such as my-editor",
        pattern=rf"^{CLIENT_NAME}\Z",
        extra={"form": CLIENT_NAME_FORM},
    ),
]


class AddClientArgs(Args, frozen=True):
    """A program, and the chats that it may read."""

    client: ClientArg
    sessions: Annotated[
        str,
        Meta(description="the chats that it may read, such as telegram:42; spaces between them", max_length=4_000),
        Argument(rest=True),
    ]
    send: Annotated[
        bool, Meta(description="it may also ask to send messages there; an owner has to allow each one")
    ] = False


class RemoveClientArgs(Args, frozen=True):
    """A program, and the chats that it may no longer read."""

    client: ClientArg
    sessions: Annotated[
        str,
        Meta(description="only these chats (default: all, and its token ends)", max_length=4_000),
        Argument(rest=True),
    ] = ""


class ClientArgs(Args, frozen=True):
    """A program."""

    client: ClientArg


class SendMessageArgs(Args, frozen=True, kw_only=True):
    """A message that a program wants to send."""

    session: Annotated[
        str,
        Meta(
            description="the chat that shall get it, such as telegram:42 (needless if there is one alone)",
            max_length=1_000,
        ),
    ] = ""
    text: Annotated[str, Meta(description="the message, as people shall read it", min_length=1, max_length=4_000)]
    id: Annotated[
        str,
        Meta(
            description="any id that you choose for this message: a call with the same id sends nothing more and says how it stands",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}\Z",
            extra={"form": "1 to 64 letters, digits and . _ : -, a letter or digit first"},
        ),
    ]


class AskSendArgs(Args, frozen=True):
    """A message that a program wants to send, and the program."""

    client: ClientArg
    session: Annotated[str, Meta(description="the chat that shall get it, such as telegram:42", max_length=1_000)]
    id: Annotated[
        str,
        Meta(
            description="the program's own id for the message: with the same id nothing more is sent",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}\Z",
            extra={"form": "1 to 64 letters, digits and . _ : -, a letter or digit first"},
        ),
    ]
    text: Annotated[
        str,
        Meta(description="the message, as people shall read it", min_length=1, max_length=4_000),
        Argument(rest=True),
    ]


class WishArgs(Args, frozen=True):
    """A message of a program that waits."""

    id: Annotated[str, Meta(description="the id that the bot gave it", max_length=32)]


class WishNote(Struct, frozen=True):
    """How a message of a program stands, for whoever typed the command; empty for the bot's own turns.

    Attributes:
        text: as it is shown.
    """

    text: str

    def describe(self, _caller: Caller) -> str:
        """Show it."""
        return self.text


class MessageState(Struct, frozen=True):
    """How a message stands that a program wants to send.

    Attributes:
        session: the chat that shall get it.
        id: the program's own id for it.
        status: `waiting`: an owner is asked, and nothing is sent yet; `sent`: the bot sent it; `declined`: an owner said no, or the
            program may not send there any more; `expired`: nobody answered within 24 hours; `failed`: the bot could not ask.
        date: when that began, ISO 8601 in UTC.
    """

    session: str
    id: str
    status: Literal["waiting", "sent", "declined", "expired", "failed"]
    date: str

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return self.status


class ClientRow(Struct, frozen=True):
    """A program that may read tapes.

    Attributes:
        client: its name.
        sessions: the chats that it may read.
        has_token: it may ask over HTTP; without one it is served by standard input and output alone.
        targets: the chats of these to which it may ask to send messages.
    """

    client: str
    sessions: tuple[str, ...]
    has_token: bool
    targets: tuple[str, ...] = ()

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return "token" if self.has_token else "stdio"

    def describe(self, caller: Caller) -> str:
        """Write it in a line."""
        texts = caller.texts
        sessions = texts.say("list_comma").join(self.sessions) or texts.say("none")
        line = texts.say_on(caller.surface, f"ClientRow.{self.variant}", client=self.client, sessions=sessions)
        if not self.targets:
            return line
        return texts.say("mcp_client_sends", line=line, targets=texts.say("list_comma").join(self.targets))


class ClientChange(Struct, frozen=True):
    """What a program may read after a change.

    Attributes:
        client: its name.
        sessions: the chats that it may read now.
        added: what it may read that it could not before.
        removed: what it may read no longer.
        targets: the chats to which it may ask to send messages now.
    """

    client: str
    sessions: tuple[str, ...]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        if self.added:
            return "added"
        return ("revoked" if self.sessions else "removed") if self.removed else "unchanged"

    def more(self) -> tuple[str, ...]:
        """Say where it may ask to send."""
        return ("ClientChange.sends",) if self.targets else ()

    def values(self, caller: Caller) -> dict[str, str]:
        """Return the lists as people read them."""
        comma, nothing = caller.texts.say("list_comma"), caller.texts.say("none")
        lists = {"sessions": self.sessions, "added": self.added, "removed": self.removed, "targets": self.targets}
        return {name: comma.join(items) or nothing for name, items in lists.items()}


class NewToken(Struct, frozen=True):
    """A token that was made. It is shown once, and nowhere stored.

    Attributes:
        client: the program that it is for.
        token: what the program sends, as `Authorization: Bearer TOKEN`.
    """

    client: str
    token: str
