"""The arguments of the commands of memory: a chat and a model name a scope, a shell names whose memory it is."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, field

from bubbot.arguments.fields import Args
from bubbot.shell_command import Argument

MAX_VIEW_CHARS = 64
ScopeName: TypeAlias = Literal["chat", "user", "workspace"]


class ScopedArgs(Args, frozen=True):
    """The memory that a tool works on."""

    scope: Annotated[
        ScopeName, Meta(description="Whose: chat, user (this person, in direct chats), workspace (everybody)")
    ] = "chat"


class ReadMemoryArgs(Args, frozen=True):
    """The memory that a tool reads."""

    scope: Annotated[
        Literal["", "chat", "user", "workspace"],
        Meta(description="Whose, as for memory.save; empty: all that may be shown here"),
    ] = ""


class SaveArgs(ScopedArgs, frozen=True, kw_only=True):
    """Arguments of `memory.save`."""

    content: Annotated[str, Meta(description="The whole long-term text: every line that still holds, and what is new")]
    confirm: Annotated[bool, Meta(description="True only once the person has agreed to the lines that go")] = False


class RememberArgs(ScopedArgs, frozen=True, kw_only=True):
    """Arguments of `memory.remember`."""

    text: Annotated[str, Meta(description="What to remember, besides what is remembered already")]


class DailyArgs(ScopedArgs, frozen=True, kw_only=True):
    """Arguments of `memory.daily`."""

    content: Annotated[str, Meta(description="What to add to the notes of the day")]
    date: Annotated[str | None, Meta(description="The day as YYYY-MM-DD; default: today")] = None


class RecallArgs(ReadMemoryArgs, frozen=True, kw_only=True):
    """Arguments of `memory.recall`."""

    query: Annotated[
        str,
        Meta(description="Words to look for, in any order, spelling mistakes forgiven, or a date; everything if empty"),
    ] = ""
    days: Annotated[int, Meta(description="How many days before today to look through", ge=0, le=36_500)] = 7


class ForgetLinesArgs(ScopedArgs, frozen=True, kw_only=True):
    """Arguments of `memory.forget`."""

    text: Annotated[str, Meta(description="Every line of memory that contains this text goes")]


class RestoreArgs(ScopedArgs, frozen=True, kw_only=True):
    """Arguments of `memory.restore`."""

    version: Annotated[int, Meta(description="The number of the version to bring back, as memory.show lists them")]


class ViewArgs(Args, frozen=True):
    """Which memory view to choose."""

    name: Annotated[
        str, Meta(description="the view to choose, or `default` for the configured one", max_length=MAX_VIEW_CHARS)
    ] = ""


class ClearArgs(ScopedArgs, frozen=True, kw_only=True):
    """Arguments of `memory.clear`."""

    confirm: Annotated[bool, Meta(description="True only once the person has agreed to what goes")] = False


# In a shell


def parse_entry_id(text: str) -> int:
    """Parse the id of an entry. Raise `ValueError`."""
    return _parse_number(text, "an entry")


def parse_version(text: str) -> int:
    """Parse the number of a version. Raise `ValueError`."""
    return _parse_number(text, "a version")


def _parse_number(text: str, subject: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**15:
        raise ValueError(f"{text!r} is not the number of {subject}")
    return int(text)


class OwnerArgs(Args, frozen=True):
    """Whose memory: that of a session, of a person, or of the workspace."""

    session: Annotated[str | None, Argument("a session such as default or telegram:42")] = None
    user: Annotated[
        str | None, Argument("the person with this account, such as telegram:42, instead of a session", "CHANNEL:ID")
    ] = None
    workspace: Annotated[bool, Argument("the memory of everybody who may speak, instead of a session")] = False


class ShowOwnerArgs(OwnerArgs, frozen=True, kw_only=True):
    """Which memory, and of when."""

    as_of: Annotated[
        int | None, Argument("what was remembered when N was the newest entry of the tape", "N", parse_entry_id)
    ] = None  # fmt: skip


class SaveOwnerArgs(OwnerArgs, frozen=True, kw_only=True):
    """The complete new long-term memory."""

    content: Annotated[str | None, Argument("the whole new text; - reads it from standard input")] = field(
        default=None, name="text"
    )
    yes: Annotated[bool, Argument("do not ask before lines go")] = False


class ForgetOwnerArgs(OwnerArgs, frozen=True, kw_only=True):
    """The lines to forget."""

    text: Annotated[str | None, Argument("what the lines contain; upper and lower case are the same")] = None


class RestoreOwnerArgs(OwnerArgs, frozen=True, kw_only=True):
    """The version to bring back."""

    version: Annotated[int | None, Argument("its number, as show lists them", parse=parse_version)] = None


class WhyViewArgs(Args, frozen=True):
    """Whose memory view to explain."""

    session: Annotated[str | None, Argument("a session such as default or telegram:42")] = None


class ExportMemoryArgs(OwnerArgs, frozen=True, kw_only=True):
    """Where to write the memory."""

    file: Annotated[str | None, Argument("a new file (default: standard output)")] = None


class EraseArgs(Args, frozen=True):
    """Whose memory to erase."""

    user: Annotated[str | None, Argument("the person with this account, such as telegram:42", "CHANNEL:ID")] = None
    workspace: Annotated[bool, Argument("the memory of everybody who may speak")] = False
    yes: Annotated[bool, Argument("do not ask before")] = False


class ImportFilesArgs(OwnerArgs, frozen=True, kw_only=True):
    """Where memory comes from."""

    path: Annotated[str | None, Argument("a Markdown file, or a folder with MEMORY.md and YYYY-MM-DD.md")] = None
    replace: Annotated[bool, Argument("also if something is remembered already")] = False


class ImportArgs(OwnerArgs, frozen=True, kw_only=True):
    """The contents of the imported files.

    Attributes:
        long_term: the text of the long-term memory.
        notes: the daily notes, as date and content.
        left_out: the names of files that are not memory.
        replace: replace a memory that is not empty.
    """

    long_term: str
    notes: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
    replace: bool
