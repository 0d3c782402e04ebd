"""The tool that sends files with the answer."""

import mimetypes
from collections.abc import Sequence

from pydantic import Field

from bubbot.errors import EntryNotFound, ToolFailed, ToolRetry
from bubbot.ports.channel import OutboundFile
from bubbot.ports.text import clean, format_bytes
from bubbot.ports.tool import INSIDE, CommandHelp, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.attachments import file_name, image_type

MAX_FILES = 10
"""Files per answer."""


class SendArgs(ToolArgs):
    """The arguments of `file.send`."""

    name: str = Field(description="the file's name, with a suffix that says what it is")
    text: str = Field(default="", description="what the file is to hold; or name a handle instead")
    handle: str = Field(default="", description="the handle of a kept attachment or cut result, to send it as it is")


def file_tools(max_bytes: int) -> Sequence[Tool]:
    """Build the tools of this file. `max_bytes`: the size limit of one file."""

    @tool(
        "file.send",
        effect=INSIDE,
        help=CommandHelp(
            HelpTopic.TALK,
            "Send a text as a file",
            (',file.send name=list.txt text="milk, bread"', ",file.send name=photo.jpg handle=" + "3f" * 32),
        ),
    )
    async def file_send(turn: Turn, args: SendArgs) -> str:
        """Send a file with the answer: one made of text, or a kept attachment or result by its handle."""
        name, texts = file_name(args.name).lstrip("."), turn.result_texts
        if not name:
            raise ToolRetry(texts.say("file_unnamed"))
        if bool(args.text) == bool(args.handle):
            raise ToolRetry(texts.say("file_text_or_handle"))
        if len(turn.files) >= MAX_FILES:
            raise ToolFailed(texts.say("file_too_many", number=MAX_FILES))
        data = clean(args.text).encode() if args.text else await _read_blob(turn, args.handle)
        if len(data) > max_bytes:
            size, limit = format_bytes(len(data)), format_bytes(max_bytes)
            raise ToolFailed(texts.say("file_too_large", name=name, size=size, limit=limit))
        digest = await turn.tape.put_blob(data)
        turn.files.append(
            OutboundFile(name, image_type(data) or _guess_type(name, is_text=bool(args.text)), digest=digest)
        )
        return texts.say("file_goes_out", name=name, size=format_bytes(len(data)))

    return [file_send]


async def _read_blob(turn: Turn, handle: str) -> bytes:
    try:
        return await turn.tape.get_blob(handle)
    except EntryNotFound:
        raise ToolRetry(turn.result_texts.say("file_unknown", handle=handle)) from None


def _guess_type(name: str, *, is_text: bool) -> str:
    return mimetypes.guess_type(name)[0] or ("text/plain" if is_text else "application/octet-stream")
