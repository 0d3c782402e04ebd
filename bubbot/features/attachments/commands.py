"""The command that sends files with the answer."""

from __future__ import annotations

import mimetypes
from typing import Annotated

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_tools
from bubbot.errors import CommandRefused, EntryNotFound
from bubbot.formatting import clean, format_bytes
from bubbot.ports.channel import OutboundFile
from bubbot.runtime.attachments import file_name, image_type
from bubbot.tool import INSIDE, CommandHelp, HelpTopic, Tool

MAX_FILES = 10
"""Files per answer."""


class SendFileArgs(Args, frozen=True):
    """A file: a text, or what is kept under a handle."""

    name: Annotated[str, Meta(description="the file's name, with a suffix that says what it is")]
    text: Annotated[str, Meta(description="what the file is to hold; or name a handle instead")] = ""
    handle: Annotated[str, Meta(description="the handle of a kept attachment or cut result, to send it as it is")] = ""


class FileAttached(Struct, frozen=True):
    """A file that goes out with the answer, and its size in bytes."""

    name: str
    size: int

    def values(self, _caller: Caller) -> dict[str, str]:
        """Return the formatted values of its sentence."""
        return {"size": format_bytes(self.size)}


class FileSender:
    """Puts files of limited size into answers."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    @command(
        "file send",
        chat=("file.send",),
        in_shell=False,
        effect=INSIDE,
        for_model=True,
        help=CommandHelp(
            HelpTopic.TALK,
            "Send a text as a file",
            (',file.send name=list.txt text="milk, bread"', ",file.send name=photo.jpg handle=" + "3f" * 32),
        ),
    )
    async def send(self, caller: Caller, args: SendFileArgs) -> FileAttached:
        """Send a file with the answer: one made of text, or a kept attachment or result by its handle."""
        name, turn = file_name(args.name).lstrip("."), caller.required_turn
        if not name:
            raise CommandRefused("file_unnamed")
        if bool(args.text) == bool(args.handle):
            raise CommandRefused("file_text_or_handle")
        if len(turn.files) >= MAX_FILES:
            raise CommandRefused("file_too_many", number=MAX_FILES)
        try:
            data = clean(args.text).encode() if args.text else await turn.tape.get_blob(args.handle)
        except EntryNotFound:
            raise CommandRefused("file_unknown", handle=args.handle) from None
        if len(data) > self._max_bytes:
            size, limit = format_bytes(len(data)), format_bytes(self._max_bytes)
            raise CommandRefused("file_too_large", name=name, size=size, limit=limit)
        kind = image_type(data) or _guess_type(name, is_text=bool(args.text))
        turn.files.append(OutboundFile(name, kind, digest=await turn.tape.put_blob(data)))
        return FileAttached(name, len(data))


def file_tools(max_bytes: int) -> list[Tool]:
    """Build the tools, for files of limited size."""
    sender = FileSender(max_bytes)
    return make_tools(FileSender, lambda: sender)


def _guess_type(name: str, *, is_text: bool) -> str:
    return mimetypes.guess_type(name)[0] or ("text/plain" if is_text else "application/octet-stream")
