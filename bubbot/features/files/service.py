"""Files of a turn's roots: read, and changed so that each change is a fact before it happens."""

from __future__ import annotations

import asyncio
from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta

from bubbot.arguments.fields import Args
from bubbot.errors import CommandRefused, EntryNotFound
from bubbot.features.files.change import FileHistoryView, PlannedChange
from bubbot.features.files.facts import FileChanged, FileFailed
from bubbot.features.files.folder import digest, folder_size, read_file, refuse, refuse_size, replace_file
from bubbot.features.files.roots import FilePath, FileRoots
from bubbot.features.files.settings import FileSettings
from bubbot.formatting import format_bytes
from bubbot.ports.turn import Turn

SHOWN_DIGEST_CHARS = 16
"""Characters of a digest that a model reads and gives back."""

FilePathText: TypeAlias = Annotated[str, Meta(description="relative to your workspace, or absolute")]


class WriteArgs(Args, frozen=True):
    """What a file is to hold."""

    path: FilePathText
    content: Annotated[str, Meta(description="all that the file is to hold")]
    digest: Annotated[str, Meta(description="what file_read showed, if the file is there already")] = ""


class EditArgs(Args, frozen=True):
    """What to replace in a file."""

    path: FilePathText
    digest: Annotated[str, Meta(description="what file_read showed")]
    old: Annotated[str, Meta(min_length=1, description="the text to replace, exactly as it stands there, once")]
    new: Annotated[str, Meta(description="what takes its place")]
    everywhere: Annotated[bool, Meta(description="replace every occurrence")] = False


class UndoArgs(Args, frozen=True):
    """Which change to take back."""

    path: Annotated[str, Meta(description="the file")]
    entry: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="bring back what this change left; default: undo the newest"),
    ] = None


class FileService:
    """Reads and changes files of a turn's roots; each change is a fact before it happens."""

    def __init__(self, roots: FileRoots, settings: FileSettings) -> None:
        self._roots = roots
        self._settings = settings

    def resolve(self, turn: Turn, text: str) -> FilePath:
        """Return the path that a text names; see `FileRoots.resolve`."""
        return self._roots.resolve(turn, text)

    async def read(self, path: FilePath) -> bytes:
        """Return what a file holds. Raise `CommandRefused` if it cannot be read."""
        data = await self._read_any(path)
        if data is None:
            raise refuse("file_missing", path)
        return data

    async def _read_any(self, path: FilePath) -> bytes | None:
        return await asyncio.to_thread(read_file, path, self._settings.max_bytes)

    async def plan_write(self, turn: Turn, args: WriteArgs) -> PlannedChange:
        """Check a write. An existing file is replaced only if its digest was read."""
        path = self.resolve(turn, args.path)
        before, after = await self._read_any(path), args.content.encode()
        if before is not None and before != after:
            _check_digest(path, before, args.digest)
        return await self._check(PlannedChange(path, before, after))

    async def plan_edit(self, turn: Turn, args: EditArgs) -> PlannedChange:
        """Check an edit."""
        path = self.resolve(turn, args.path)
        before = await self.read(path)
        _check_digest(path, before, args.digest)
        text = decode(path, before)
        count = text.count(args.old)
        if count == 0:
            raise refuse("file_text_missing", path)
        if count > 1 and not args.everywhere:
            raise refuse("file_text_repeated", path, number=count)
        size = len(before) + count * (len(args.new.encode()) - len(args.old.encode()))
        if size > self._settings.max_bytes:  # before it takes that memory
            raise refuse_size(path, size, self._settings.max_bytes)
        return await self._check(PlannedChange(path, before, text.replace(args.old, args.new).encode()))

    async def plan_undo(self, turn: Turn, args: UndoArgs) -> PlannedChange:
        """Find the version that takes the place of the present one."""
        path = self.resolve(turn, args.path)
        before = await self._read_any(path)
        changes = await turn.tape.read(FileHistoryView(str(path)))
        if args.entry is not None:
            change = next((change for change in changes if change.id == args.entry), None)
            if change is None:
                raise refuse("file_no_change", path, entry=args.entry)
            wanted = change.fact.after
        else:
            # The newest one that left what the file holds now: else something else has changed it since.
            change = next((change for change in changes if change.fact.after == digest(before)), None)
            if change is None:
                raise refuse("file_changed_by_others" if changes else "file_nothing_to_undo", path)
            wanted = change.fact.before
        try:
            after = await turn.tape.get_blob(wanted) if wanted else None
        except EntryNotFound:
            raise refuse("file_version_gone", path, entry=change.id) from None
        undoes = change.id if args.entry is None else None
        return await self._check(PlannedChange(path, before, after, undoes))

    async def apply(self, turn: Turn, change: PlannedChange) -> int:
        """Make the change; return the entry of its fact, which is durable before the file changes.

        Raises:
            CommandRefused: it did not happen; the tape says so.
        """
        versions = [version for version in (change.before, change.after) if version is not None]
        fact = FileChanged(
            str(change.path),
            digest(change.before),
            digest(change.after),
            len(change.after or b""),
            tuple([await turn.tape.put_blob(version) for version in versions]),
            UNSET if change.undoes is None else change.undoes,
        )
        (entry,) = await turn.tape.append([fact.to_entry()])
        await turn.tape.save()
        try:
            await asyncio.to_thread(replace_file, change.path, change.after, change.before, self._settings.max_bytes)
        except CommandRefused as refusal:
            await turn.tape.append([FileFailed(entry.id, refusal.code).to_entry()])
            raise
        return entry.id

    async def _check(self, change: PlannedChange) -> PlannedChange:
        """Refuse a change that is not allowed: in a read-only root, or of a file or a workspace that grows too large."""
        path, size = change.path, len(change.after or b"")
        if not path.parts:
            raise refuse("file_is_folder", path)
        if (root := self._roots.find_read_only(path)) is not None:
            raise refuse("file_read_only", path, root=str(root.path))
        if size > self._settings.max_bytes:
            raise refuse_size(path, size, self._settings.max_bytes)
        if path.root.is_workspace:
            used = await asyncio.to_thread(folder_size, FilePath(path.root, ()))
            if used - len(change.before or b"") + size > self._settings.workspace_bytes:
                limit = format_bytes(self._settings.workspace_bytes)
                raise CommandRefused("file_workspace_full", used=format_bytes(used), limit=limit)
        return change


def _check_digest(path: FilePath, data: bytes, given: str) -> None:
    if len(given) < SHOWN_DIGEST_CHARS or not digest(data).startswith(given.strip()):
        raise refuse("file_digest_wrong" if given else "file_digest_missing", path)


def decode(path: FilePath, data: bytes) -> str:
    """Return the text of a file. Raise `CommandRefused` if it is none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise refuse("file_not_text", path, size=format_bytes(len(data))) from None
