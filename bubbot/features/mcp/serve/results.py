"""What the commands about programs take, and what they say."""

from __future__ import annotations

from typing import Annotated

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


class ClientRow(Struct, frozen=True):
    """A program that may read tapes.

    Attributes:
        client: its name.
        sessions: the chats that it may read.
        has_token: it may ask over HTTP; without one it is served by standard input and output alone.
    """

    client: str
    sessions: tuple[str, ...]
    has_token: bool

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return "token" if self.has_token else "stdio"

    def describe(self, caller: Caller) -> str:
        """Write it in a line."""
        texts = caller.texts
        sessions = texts.say("list_comma").join(self.sessions) or texts.say("none")
        return texts.say_on(caller.surface, f"ClientRow.{self.variant}", client=self.client, sessions=sessions)


class ClientChange(Struct, frozen=True):
    """What a program may read after a change.

    Attributes:
        client: its name.
        sessions: the chats that it may read now.
        added: what it may read that it could not before.
        removed: what it may read no longer.
    """

    client: str
    sessions: tuple[str, ...]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        if self.added:
            return "added"
        return ("revoked" if self.sessions else "removed") if self.removed else "unchanged"

    def values(self, caller: Caller) -> dict[str, str]:
        """Return the lists as people read them."""
        comma, nothing = caller.texts.say("list_comma"), caller.texts.say("none")
        lists = {"sessions": self.sessions, "added": self.added, "removed": self.removed}
        return {name: comma.join(items) or nothing for name, items in lists.items()}


class NewToken(Struct, frozen=True):
    """A token that was made. It is shown once, and nowhere stored.

    Attributes:
        client: the program that it is for.
        token: what the program sends, as `Authorization: Bearer TOKEN`.
    """

    client: str
    token: str
