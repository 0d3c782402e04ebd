"""The arguments of the commands of access."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bubbot.arguments.fields import Args
from bubbot.ports.access import Audience


class CodeArgs(Args, frozen=True):
    """A pairing code, and the role for its person."""

    code: Annotated[str, Meta(description="the code that the person got from me; it works once, within an hour")]
    role: Annotated[Literal["member", "admin", "owner"], Meta(description="member, admin or owner")] = "member"


class PersonArgs(Args, frozen=True):
    """An account of a person."""

    id: Annotated[str, Meta(description="the numeric id of the account; ,access lists those of people who wrote")]
    channel: Annotated[str, Meta(description="the name of the channel (default: this one)")] = ""


class GrantArgs(PersonArgs, frozen=True):
    """An account of a person, and a role."""

    role: Annotated[Literal["member", "admin", "owner"], Meta(description="member, admin or owner")] = "member"


class AudienceArgs(Args, frozen=True):
    """A group, and who may speak there."""

    group: Annotated[
        str, Meta(description="the id of the group, such as -1001234567, or of a server or channel of Discord")
    ]
    who: Annotated[Audience, Meta(description="everybody there as a member, known people with a role alone, or nobody")]
    channel: Annotated[str, Meta(description="the name of the channel (default: this one)")] = ""


class ReadingArgs(Args, frozen=True):
    """A chat, and one that reads it."""

    source: Annotated[str, Meta(description="the chat that is read, such as telegram:42", max_length=1_000)]
    reader: Annotated[str, Meta(description="the chat that reads it", max_length=1_000)]


class AuditArgs(Args, frozen=True):
    """An auditor, and a chat."""

    auditor: Annotated[str, Meta(description="who looks: an account such as telegram:42, or a name", max_length=200)]
    session: Annotated[str, Meta(description="the chat whose tape is shown, such as telegram:7", max_length=1_000)]


class HistoryArgs(Args, frozen=True):
    """How many facts."""

    limit: Annotated[int, Meta(description="how many (default: 50)", ge=1)] = 50
