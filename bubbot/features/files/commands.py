"""The commands of files: read, list, search, write and edit them, and take a change back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_tools
from bubbot.features.files.change import CHANGES_FILES, PlannedChange
from bubbot.features.files.folder import (
    FolderItem,
    FoundLine,
    SearchLimits,
    digest,
    list_folder,
    search_files,
)
from bubbot.features.files.roots import on_one_line
from bubbot.features.files.service import (
    SHOWN_DIGEST_CHARS,
    EditArgs,
    FilePathText,
    FileService,
    UndoArgs,
    WriteArgs,
    decode,
)
from bubbot.formatting import clean, format_bytes, replace_controls
from bubbot.ports.turn import Turn
from bubbot.tool import READS_STORED, CallPlan, CommandHelp, HelpTopic, Tool

MAX_SHOWN_LINES = 400
"""Lines of a file that are shown at once."""
MAX_LISTED_ITEMS = 500
MAX_LINE_CHARS = 300
"""Characters of a found line that are shown."""
FolderText: TypeAlias = Annotated[str, Meta(description="the folder")]


class FileReadArgs(Args, frozen=True):
    """Which lines of a file to read."""

    path: FilePathText
    first: Annotated[int, Meta(ge=1, description="the first line to show")] = 1
    lines: Annotated[int, Meta(ge=1, le=MAX_SHOWN_LINES, description="how many lines")] = MAX_SHOWN_LINES


class ListArgs(Args, frozen=True):
    """Which files to list."""

    path: FolderText = "."
    pattern: Annotated[str, Meta(description="only these, such as *.md", max_length=200)] = ""
    depth: Annotated[int, Meta(ge=1, le=20, description="levels of folders")] = 1


class FileSearchArgs(Args, frozen=True):
    """What to look for, and where."""

    text: Annotated[str, Meta(min_length=1, max_length=1_000, description="the text to find, in any case")]
    path: FolderText = "."
    pattern: Annotated[str, Meta(description="only in these files, such as *.md", max_length=200)] = ""


class FileLines(Struct, frozen=True):
    """Lines of a text file.

    Attributes:
        path: the file.
        first: the number of the first one.
        last: that of the last one.
        lines: how many the file has.
        digest: the beginning of the digest of the file.
        shown: the lines.
    """

    path: str
    first: int
    last: int
    lines: int
    digest: str
    shown: tuple[str, ...]

    def describe(self, caller: Caller) -> str:
        """Return them below a line about them."""
        head = caller.result_texts.say(
            "FileLines", path=self.path, first=self.first, last=self.last, lines=self.lines, digest=self.digest
        )
        return clean("\n".join([head, *self.shown]))


class FolderListing(Struct, frozen=True):
    """What is in a folder.

    Attributes:
        path: the folder.
        items: what is in it, by name.
        has_more: there is more, or may be.
    """

    path: str
    items: tuple[FolderItem, ...]
    has_more: bool

    def describe(self, caller: Caller) -> str:
        """Return a line for each item."""
        texts, lines = caller.result_texts, [_format_item(item) for item in self.items]
        if not lines and not self.has_more:
            return texts.say("FolderListing.none", path=self.path)
        if self.has_more:
            is_full = len(lines) == MAX_LISTED_ITEMS
            lines.append(texts.say("FolderListing.more", limit=MAX_LISTED_ITEMS) if is_full else texts.say("files_cut"))
        return clean("\n".join(lines))


class FoundLines(Struct, frozen=True):
    """The lines with a text.

    Attributes:
        path: the folder that was searched.
        lines: what was found.
        is_cut: the search ended before it was through.
    """

    path: str
    lines: tuple[FoundLine, ...]
    is_cut: bool

    def describe(self, caller: Caller) -> str:
        """Return each with its file and number."""
        texts = caller.result_texts
        lines = [f"{on_one_line(line.path)}:{line.number}: {_shorten(line.line)}" for line in self.lines]
        lines += [texts.say("files_cut")] if self.is_cut else []
        return clean("\n".join(lines)) if lines else texts.say("FoundLines.none", path=self.path)


class FileVersion(Struct, frozen=True):
    """What a file holds after a change.

    Attributes:
        variant: `written`, `removed`, or `unchanged` if it held that before.
        path: the file.
        size: in bytes.
        digest: the beginning of its digest; empty if there is no file.
        entry: the fact of the change; 0 for none.
    """

    variant: str
    path: str
    size: int
    digest: str
    entry: int = 0

    def values(self, _caller: Caller) -> Mapping[str, object]:
        """Return the size as its sentences write it."""
        return {"size": format_bytes(self.size)}


class FileCommands:
    """Read and change files, for people in chats and for models."""

    def __init__(self, service: FileService) -> None:
        self.service = service

    @command(
        "file read",
        chat=("file.read",),
        in_shell=False,
        effect=READS_STORED,
        for_model=True,
        help=CommandHelp(HelpTopic.OTHER, "Read a file", (",file.read notes.md", ",file.read notes.md first=200")),
    )
    async def read(self, caller: Caller, args: FileReadArgs) -> FileLines:
        """Show lines of a text file, and the digest that file_edit and file_write ask for."""
        path = self.service.resolve(caller.required_turn, args.path)
        data = await self.service.read(path)
        lines = decode(path, data).splitlines()
        shown = lines[args.first - 1 : args.first - 1 + args.lines]
        first, last = min(args.first, len(lines)), args.first - 1 + len(shown)
        return FileLines(str(path), first, last, len(lines), digest(data)[:SHOWN_DIGEST_CHARS], tuple(shown))

    @command(
        "file list",
        chat=("file.list",),
        in_shell=False,
        effect=READS_STORED,
        for_model=True,
        help=CommandHelp(
            HelpTopic.OTHER, "List files", (",file.list", ",file.list path=/srv/plans pattern=*.md depth=3")
        ),
    )
    async def list(self, caller: Caller, args: ListArgs) -> FolderListing:
        """List files and folders, with sizes. Links are named and not followed."""
        path = self.service.resolve(caller.required_turn, args.path)
        items, has_more = await asyncio.to_thread(list_folder, path, args.pattern, args.depth, MAX_LISTED_ITEMS)
        return FolderListing(str(path), tuple(items), has_more)

    @command(
        "file search",
        chat=("file.search",),
        in_shell=False,
        effect=READS_STORED,
        for_model=True,
        help=CommandHelp(
            HelpTopic.OTHER, "Search in files", (",file.search green tea", ',file.search text=tea pattern="*.md"')
        ),
    )
    async def search(self, caller: Caller, args: FileSearchArgs) -> FoundLines:
        """Find lines of text files that contain a text."""
        path = self.service.resolve(caller.required_turn, args.path)
        found, is_cut = await asyncio.to_thread(search_files, path, args.text, args.pattern, SearchLimits())
        return FoundLines(str(path), tuple(found), is_cut)

    @command(
        "file write",
        chat=("file.write",),
        in_shell=False,
        effect=CHANGES_FILES,
        for_model=True,
        help=CommandHelp(HelpTopic.OTHER, "Write a file", (',file.write list.txt "milk and bread"',)),
    )
    async def write(self, caller: Caller, args: WriteArgs) -> FileVersion:
        """Write a text file. To replace one that is there, read it first and give its digest."""
        turn = caller.required_turn
        return await self._apply(turn, await self.service.plan_write(turn, args))

    @command(
        "file edit",
        chat=("file.edit",),
        in_shell=False,
        effect=CHANGES_FILES,
        for_model=True,
        help=CommandHelp(
            HelpTopic.OTHER,
            "Change a part of a file",
            (",file.edit list.txt digest=3f2a91c04d5e6f70 old=milk new=tea",),
        ),
    )
    async def edit(self, caller: Caller, args: EditArgs) -> FileVersion:
        """Replace a text in a file that was read before."""
        turn = caller.required_turn
        return await self._apply(turn, await self.service.plan_edit(turn, args))

    @command(
        "file undo",
        chat=("file.undo",),
        in_shell=False,
        effect=CHANGES_FILES,
        for_model=True,
        help=CommandHelp(
            HelpTopic.OTHER,
            "Take back a change",
            (",file.undo list.txt", ",file.undo list.txt entry=41"),
            words=("undo",),
        ),
    )
    async def undo(self, caller: Caller, args: UndoArgs) -> FileVersion:
        """Take back the newest change of a file, or bring back what an earlier change left."""
        turn = caller.required_turn
        return await self._apply(turn, await self.service.plan_undo(turn, args))

    async def _apply(self, turn: Turn, change: PlannedChange) -> FileVersion:
        path, size, after = str(change.path), len(change.after or b""), digest(change.after)[:SHOWN_DIGEST_CHARS]
        if change.before == change.after:
            return FileVersion("unchanged", path, size, after)
        entry = await self.service.apply(turn, change)
        return FileVersion("removed" if change.after is None else "written", path, size, after, entry)


def file_tools(service: FileService) -> list[Tool]:
    """Build the tools; before a model's call is decided, it is known which lines it changes."""
    commands = FileCommands(service)

    def plan(make: Callable[[FileService], Callable[[Turn, Any], Awaitable[PlannedChange]]]) -> dict[str, Any]:
        async def plan_call(turn: Turn, args: Any) -> CallPlan:
            return (await make(service)(turn, args)).plan()

        return {"plan": plan_call}

    options: dict[str, dict[str, Any]] = {
        "file_write": plan(lambda files: files.plan_write),
        "file_edit": plan(lambda files: files.plan_edit),
        "file_undo": {**plan(lambda files: files.plan_undo), "is_rare": True},
    }
    return make_tools(FileCommands, lambda: commands, **options)


def _format_item(item: FolderItem) -> str:
    name = on_one_line(item.path)
    match item.kind:
        case "file":
            return f"{name}  {format_bytes(item.size)}"
        case "folder":
            return f"{name}/"
        case "link":
            return f"{name}  (link)"
    return f"{name}  (no file)"


def _shorten(line: str) -> str:
    line = replace_controls(line).strip()
    return line if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 1]}…"
