"""The tools: reading, listing, searching, writing and editing files, and taking a change back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import ClassVar, NoReturn

from pydantic import Field

from bubbot.errors import EntryNotFound, ToolFailed, ToolRetry
from bubbot.features.files.events import CHANGED, FAILED, FileChanged, FileFailed
from bubbot.features.files.folder import (
    FileProblem,
    FolderItem,
    SearchLimits,
    digest,
    folder_size,
    list_folder,
    read_file,
    replace_file,
    search_files,
)
from bubbot.features.files.history import FileHistoryView, find_undone
from bubbot.features.files.roots import FilePath, FileRoots
from bubbot.features.files.settings import FileSettings
from bubbot.ports.text import clean, format_bytes, replace_controls
from bubbot.ports.tool import (
    READS_STORED,
    CallPlan,
    CommandHelp,
    Effect,
    EffectKind,
    GrantKind,
    GrantTarget,
    HelpTopic,
    Power,
    Tool,
    ToolArgs,
    tool,
)
from bubbot.ports.turn import Turn
from bubbot.records import dataclass
from bubbot.tape.provenance import Source

SHOWN_DIGEST_CHARS = 16
"""Characters of a digest that a model reads and gives back."""
MAX_SHOWN_LINES = 400
"""Lines of a file that are shown at once."""
MAX_LISTED_ITEMS = 500
CONTEXT_LINES = 2
MAX_COMPARED_PAIRS = 250_000
"""Pairs of an old and a new line that are compared for a difference."""
MAX_LINE_CHARS = 300
"""Characters of a found line that are shown."""
CHANGES_FILES = Effect(EffectKind.INSIDE, Source.WORLD, in_workspace=True)
CHANGES_FOLDERS = Effect(EffectKind.INSIDE, Source.WORLD, power=Power.FOLDERS)
"""The tool changes what it can take back, and answers with words of files."""


class FileReadArgs(ToolArgs):
    """The arguments of `file.read`."""

    path: str = Field(description="relative to your workspace, or absolute")
    first: int = Field(default=1, ge=1, description="the first line to show")
    lines: int = Field(default=MAX_SHOWN_LINES, ge=1, le=MAX_SHOWN_LINES, description="how many lines")
    positional: ClassVar[tuple[str, ...]] = ("path",)


class WriteArgs(ToolArgs):
    """The arguments of `file.write`."""

    path: str = Field(description="relative to your workspace, or absolute")
    content: str = Field(description="all that the file is to hold")
    digest: str = Field(default="", description="what file_read showed, if the file is there already")
    positional: ClassVar[tuple[str, ...]] = ("path", "content")


class EditArgs(ToolArgs):
    """The arguments of `file.edit`."""

    path: str = Field(description="relative to your workspace, or absolute")
    digest: str = Field(description="what file_read showed")
    old: str = Field(min_length=1, description="the text to replace, exactly as it stands there, once")
    new: str = Field(description="what takes its place")
    everywhere: bool = Field(default=False, description="replace every occurrence")


class ListArgs(ToolArgs):
    """The arguments of `file.list`."""

    path: str = Field(default=".", description="the folder")
    pattern: str = Field(default="", description="only these, such as *.md", max_length=200)
    depth: int = Field(default=1, ge=1, le=20, description="levels of folders")


class FileSearchArgs(ToolArgs):
    """The arguments of `file.search`."""

    text: str = Field(min_length=1, max_length=1_000, description="the text to find, in any case")
    path: str = Field(default=".", description="the folder")
    pattern: str = Field(default="", description="only in these files, such as *.md", max_length=200)
    positional: ClassVar[tuple[str, ...]] = ("text",)


class UndoArgs(ToolArgs):
    """The arguments of `file.undo`."""

    path: str = Field(description="the file")
    entry: int | None = Field(
        default=None, ge=1, description="bring back what this change left; default: undo the newest"
    )
    positional: ClassVar[tuple[str, ...]] = ("path",)


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change that can be made: where, from what and to what; None means no file."""

    path: FilePath
    before: bytes | None
    after: bytes | None
    undoes: int | None = None


class FileService:
    """Reads and changes files of a turn's roots; each change is a fact before it happens."""

    def __init__(self, roots: FileRoots, settings: FileSettings) -> None:
        self._roots = roots
        self._settings = settings

    def resolve(self, turn: Turn, text: str) -> FilePath:
        """Return the path that a text names; see `FileRoots.resolve`."""
        return self._roots.resolve(turn, text)

    async def read(self, turn: Turn, path: FilePath) -> bytes:
        """Return what a file holds. Raise `ToolRetry` or `ToolFailed` if it cannot be read."""
        data = await self.read_any(turn, path)
        if data is None:
            raise ToolRetry(turn.result_texts.say("file_missing", path=str(path)))
        return data

    async def read_any(self, turn: Turn, path: FilePath) -> bytes | None:
        """Return what a file holds, or None if there is none. Raise as `read` does."""
        try:
            return await asyncio.to_thread(read_file, path, self._settings.max_bytes)
        except FileProblem as problem:
            self.fail(turn, path, problem)

    def fail(self, turn: Turn, path: FilePath, problem: FileProblem) -> NoReturn:
        """Raise the `ToolFailed` that says what is wrong with a file."""
        limit = format_bytes(self._settings.max_bytes)
        raise ToolFailed(
            turn.result_texts.say(problem.kind, path=str(path), reason=problem.detail, limit=limit)
        ) from problem

    async def plan_write(self, turn: Turn, args: WriteArgs) -> PlannedChange:
        """Check a write. An existing file is replaced only if its digest was read."""
        path = self.resolve(turn, args.path)
        before, after = await self.read_any(turn, path), args.content.encode()
        if before is not None and before != after:
            self._check_digest(turn, path, before, args.digest)
        return await self._check(turn, PlannedChange(path, before, after))

    async def plan_edit(self, turn: Turn, args: EditArgs) -> PlannedChange:
        """Check an edit."""
        path, texts = self.resolve(turn, args.path), turn.result_texts
        before = await self.read(turn, path)
        self._check_digest(turn, path, before, args.digest)
        text = _decode(turn, path, before)
        count = text.count(args.old)
        if count == 0:
            raise ToolRetry(texts.say("file_text_missing", path=str(path)))
        if count > 1 and not args.everywhere:
            raise ToolRetry(texts.say("file_text_repeated", path=str(path), number=count))
        size = len(before) + count * (len(args.new.encode()) - len(args.old.encode()))
        if size > self._settings.max_bytes:  # before it takes that memory
            self.fail(turn, path, FileProblem("file_too_long", str(size)))
        return await self._check(turn, PlannedChange(path, before, text.replace(args.old, args.new).encode()))

    async def plan_undo(self, turn: Turn, args: UndoArgs) -> PlannedChange:
        """Find the version that takes the place of the present one."""
        path, texts = self.resolve(turn, args.path), turn.result_texts
        before = await self.read_any(turn, path)
        changes = await turn.tape.read(FileHistoryView(str(path)))
        if args.entry is not None:
            change = next((change for change in changes if change.entry == args.entry), None)
            if change is None:
                raise ToolRetry(texts.say("file_no_change", path=str(path), entry=args.entry))
            wanted = change.after
        else:
            change = find_undone(changes, digest(before))
            if change is None:
                raise ToolRetry(
                    texts.say("file_nothing_to_undo" if not changes else "file_changed_by_others", path=str(path))
                )
            wanted = change.before
        try:
            after = await turn.tape.get_blob(wanted) if wanted else None
        except EntryNotFound:
            raise ToolFailed(texts.say("file_version_gone", path=str(path), entry=change.entry)) from None
        undoes = change.entry if args.entry is None else None
        return await self._check(turn, PlannedChange(path, before, after, undoes))

    async def apply(self, turn: Turn, change: PlannedChange) -> int:
        """Make the change; return the entry of its fact, which is durable before the file changes.

        Raises:
            ToolFailed: it did not happen; the tape says so.
        """
        versions = [version for version in (change.before, change.after) if version is not None]
        blobs = [await turn.tape.put_blob(version) for version in versions]
        fact: FileChanged = {
            "path": str(change.path),
            "before": digest(change.before),
            "after": digest(change.after),
            "size": len(change.after or b""),
            "blobs": blobs,
        }
        if change.undoes is not None:
            fact["undoes"] = change.undoes
        entry = await turn.tape.append_event(CHANGED, fact)
        await turn.tape.save()
        try:
            await asyncio.to_thread(replace_file, change.path, change.after, change.before, self._settings.max_bytes)
        except FileProblem as problem:
            failure: FileFailed = {"change": entry.id, "reason": problem.kind}
            await turn.tape.append_event(FAILED, failure)
            self.fail(turn, change.path, problem)
        return entry.id

    async def _check(self, turn: Turn, change: PlannedChange) -> PlannedChange:
        """Raise `ToolFailed` if a change is not allowed: a read-only root, or a file or a workspace that grows too large."""
        path, size, texts = change.path, len(change.after or b""), turn.result_texts
        if not path.parts:
            self.fail(turn, path, FileProblem("file_is_folder"))
        if (root := self._roots.find_read_only(path)) is not None:
            raise ToolFailed(texts.say("file_read_only", path=str(path), root=str(root.path)))
        if size > self._settings.max_bytes:
            self.fail(turn, path, FileProblem("file_too_long", str(size)))
        if path.root.is_workspace:
            used = await asyncio.to_thread(folder_size, FilePath(path.root, ()))
            if used - len(change.before or b"") + size > self._settings.workspace_bytes:
                limit = format_bytes(self._settings.workspace_bytes)
                raise ToolFailed(texts.say("file_workspace_full", used=format_bytes(used), limit=limit))
        return change

    def _check_digest(self, turn: Turn, path: FilePath, data: bytes, given: str) -> None:
        if len(given) < SHOWN_DIGEST_CHARS or not digest(data).startswith(given.strip()):
            kind = "file_digest_wrong" if given else "file_digest_missing"
            raise ToolRetry(turn.result_texts.say(kind, path=str(path)))

    def plan_of(self, change: PlannedChange) -> CallPlan:
        """Describe a change: its lines, as a difference, and the version that they rest on."""
        target = GrantTarget(GrantKind.FOLDER, str(change.path.root.path))
        effect = CHANGES_FILES if change.path.root.is_workspace else CHANGES_FOLDERS
        return CallPlan(effect, difference(change), target, state=digest(change.before))


def difference(change: PlannedChange) -> str:
    """Return the changed lines as a unified difference; bytes that are no text are only counted."""
    try:
        texts = [(version or b"").decode() for version in (change.before, change.after)]
    except UnicodeDecodeError:
        return f"{_on_one_line(change.path)}: {len(change.before or b'')} bytes become {len(change.after or b'')}"
    head = _on_one_line(change.path) + (" (removed)" if change.after is None else "")
    return "\n".join([head, *_changed_lines(*_split_lines(*texts))])


def _split_lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """Split two versions of a text into lines, so that none of their line ends is changed without being seen."""
    if all(re.fullmatch(r"(?:[^\r\n]*\r\n)+", text) for text in (old, new)):
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    parts = [text.replace("\r", "<U+000D>").split("\n") for text in (old, new)]
    if old and new and old.endswith("\n") != new.endswith("\n"):
        parts[old.endswith("\n")][-1] += "<no line end>"
    first, second = [lines if lines[-1] else lines[:-1] for lines in parts]
    return first, second


def _changed_lines(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the unified difference of two texts, whose cost follows what lies between the first and the last change.

    If that is much, all of it is shown, old and new: the least difference could take hours to find.
    """
    start = _count_equal(old, new)
    end = _count_equal(old[start:][::-1], new[start:][::-1])
    low, high = max(start - CONTEXT_LINES, 0), max(end - CONTEXT_LINES, 0)
    before, after = old[low : len(old) - high], new[low : len(new) - high]
    removed, added = old[start : len(old) - end], new[start : len(new) - end]
    if len(removed) * len(added) <= MAX_COMPARED_PAIRS:
        # Imported here: few processes compare files.
        from difflib import unified_diff

        lines = unified_diff(before, after, "before", "after", lineterm="", n=CONTEXT_LINES)
        return [_move_lines(line, low) if line.startswith("@@") else line for line in lines]
    return [
        *("--- before", "+++ after", f"@@ -{low + 1},{len(before)} +{low + 1},{len(after)} @@"),
        *(f" {line}" for line in old[low:start]),
        *(f"-{line}" for line in removed),
        *(f"+{line}" for line in added),
        *(f" {line}" for line in old[len(old) - end : len(old) - high]),
    ]


def _count_equal(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the lines with which both begin."""
    differing = (place for place, (line, opposite) in enumerate(zip(one, other, strict=False)) if line != opposite)
    return next(differing, min(len(one), len(other)))


def _move_lines(head: str, low: int) -> str:
    return re.sub(r"(?<= [-+])\d+", lambda number: str(int(number[0]) + low), head)


def _on_one_line(path: FilePath | str) -> str:
    """Write a path so that nothing in it passes for another line, or for another direction."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def _decode(turn: Turn, path: FilePath, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolFailed(turn.result_texts.say("file_not_text", path=str(path), size=format_bytes(len(data)))) from None


def make_file_tools(service: FileService) -> tuple[Tool, ...]:
    """Make the tools."""
    return (*_make_reading_tools(service), *_make_changing_tools(service))


def _make_reading_tools(service: FileService) -> tuple[Tool, ...]:
    @tool(
        "file.read",
        effect=READS_STORED,
        help=CommandHelp(HelpTopic.OTHER, "Read a file", (",file.read notes.md", ",file.read notes.md first=200")),
    )
    async def file_read(turn: Turn, args: FileReadArgs) -> str:
        """Show lines of a text file, and the digest that file_edit and file_write ask for."""
        path, texts = service.resolve(turn, args.path), turn.result_texts
        data = await service.read(turn, path)
        lines = _decode(turn, path, data).splitlines()
        shown = lines[args.first - 1 : args.first - 1 + args.lines]
        last = args.first - 1 + len(shown)
        head = texts.say(
            "file_shown",
            path=str(path),
            first=min(args.first, len(lines)),
            last=last,
            lines=len(lines),
            digest=digest(data)[:SHOWN_DIGEST_CHARS],
        )
        return clean("\n".join([head, *shown]))

    @tool(
        "file.list",
        effect=READS_STORED,
        help=CommandHelp(
            HelpTopic.OTHER, "List files", (",file.list", ",file.list path=/srv/plans pattern=*.md depth=3")
        ),
    )
    async def file_list(turn: Turn, args: ListArgs) -> str:
        """List files and folders, with sizes. Links are named and not followed."""
        path, texts = service.resolve(turn, args.path), turn.result_texts
        try:
            items, has_more = await asyncio.to_thread(list_folder, path, args.pattern, args.depth, MAX_LISTED_ITEMS)
        except FileProblem as problem:
            service.fail(turn, path, problem)
        if not items and not has_more:
            return texts.say("files_none", path=str(path))
        lines = [_format_item(item) for item in items]
        if has_more:
            is_full = len(items) == MAX_LISTED_ITEMS
            lines.append(texts.say("files_more", limit=MAX_LISTED_ITEMS) if is_full else texts.say("files_search_cut"))
        return clean("\n".join(lines))

    @tool(
        "file.search",
        effect=READS_STORED,
        help=CommandHelp(
            HelpTopic.OTHER, "Search in files", (",file.search green tea", ',file.search text=tea pattern="*.md"')
        ),
    )
    async def file_search(turn: Turn, args: FileSearchArgs) -> str:
        """Find lines of text files that contain a text."""
        path, texts = service.resolve(turn, args.path), turn.result_texts
        try:
            found, is_cut = await asyncio.to_thread(search_files, path, args.text, args.pattern, SearchLimits())
        except FileProblem as problem:
            service.fail(turn, path, problem)
        lines = [f"{_on_one_line(line.path)}:{line.number}: {_shorten(line.line)}" for line in found]
        if is_cut:
            lines.append(texts.say("files_search_cut"))
        return clean("\n".join(lines)) if lines else texts.say("files_not_found", path=str(path))

    return file_read, file_list, file_search


def _make_changing_tools(service: FileService) -> tuple[Tool, ...]:
    async def plan_write(turn: Turn, args: WriteArgs) -> CallPlan:
        return service.plan_of(await service.plan_write(turn, args))

    async def plan_edit(turn: Turn, args: EditArgs) -> CallPlan:
        return service.plan_of(await service.plan_edit(turn, args))

    async def plan_undo(turn: Turn, args: UndoArgs) -> CallPlan:
        return service.plan_of(await service.plan_undo(turn, args))

    @tool(
        "file.write",
        effect=CHANGES_FILES,
        plan=plan_write,
        help=CommandHelp(HelpTopic.OTHER, "Write a file", (',file.write list.txt "milk and bread"',)),
    )
    async def file_write(turn: Turn, args: WriteArgs) -> str:
        """Write a text file. To replace one that is there, read it first and give its digest."""
        return await _apply(service, turn, await service.plan_write(turn, args))

    @tool(
        "file.edit",
        effect=CHANGES_FILES,
        plan=plan_edit,
        help=CommandHelp(
            HelpTopic.OTHER,
            "Change a part of a file",
            (",file.edit list.txt digest=3f2a91c04d5e6f70 old=milk new=tea",),
        ),
    )
    async def file_edit(turn: Turn, args: EditArgs) -> str:
        """Replace a text in a file that was read before."""
        return await _apply(service, turn, await service.plan_edit(turn, args))

    @tool(
        "file.undo",
        effect=CHANGES_FILES,
        is_rare=True,
        plan=plan_undo,
        help=CommandHelp(
            HelpTopic.OTHER,
            "Take back a change",
            (",file.undo list.txt", ",file.undo list.txt entry=41"),
            words=("undo",),
        ),
    )
    async def file_undo(turn: Turn, args: UndoArgs) -> str:
        """Take back the newest change of a file, or bring back what an earlier change left."""
        return await _apply(service, turn, await service.plan_undo(turn, args))

    return file_write, file_edit, file_undo


async def _apply(service: FileService, turn: Turn, change: PlannedChange) -> str:
    texts, path = turn.result_texts, str(change.path)
    if change.before == change.after:
        return texts.say("file_unchanged", path=path, digest=digest(change.after)[:SHOWN_DIGEST_CHARS])
    entry = await service.apply(turn, change)
    if change.after is None:
        return texts.say("file_removed", path=path, entry=entry)
    return texts.say(
        "file_written",
        path=path,
        size=format_bytes(len(change.after)),
        digest=digest(change.after)[:SHOWN_DIGEST_CHARS],
        entry=entry,
    )


def _format_item(item: FolderItem) -> str:
    name = _on_one_line(item.path)
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
