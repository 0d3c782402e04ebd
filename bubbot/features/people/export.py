"""Everything about a person, as files: for the person in a direct chat, for the owner in a shell."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from pathlib import PurePath

from msgspec import Struct, field
from msgspec.structs import asdict

from bubbot.command import Caller, command
from bubbot.errors import CommandRefused, EntryNotFound
from bubbot.features.people.arguments import ExportPersonArgs, parse_account
from bubbot.features.people.record import (
    AttachedFile,
    ExportLine,
    LeftOut,
    PersonalTapes,
    PersonReader,
    PersonRecord,
)
from bubbot.log import redact
from bubbot.ports.channel import OutboundFile, Role
from bubbot.ports.people import Account, FindAccounts
from bubbot.tape.entry import encode
from bubbot.tape.handle import Clock
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from bubbot.tool import READS_PEOPLE, CommandHelp, HelpTopic

EXPORT_TIMEOUT_SECONDS = 1_800.0
"""The longest time for reading all tapes of a home for one person in a chat."""
MAX_CHAT_CHARS = 12_000_000
"""Characters of all lines that a chat gets."""
MAX_SHELL_CHARS = 500_000_000
"""Characters of all lines that a shell gets."""
PIECE_BYTES = 4_000_000
"""Bytes of one file that a chat gets: every platform takes as many."""
MAX_ATTACHED_BYTES = 500_000_000
"""Bytes of the files that the person sent which go into a folder; the others are named."""
PAGE_FILE, LINES_FILE = "about-me.html", "about-me.jsonl"


class ExportSent(Struct, frozen=True):
    """What an export in a chat came to.

    Attributes:
        lines: how many things it has.
        files: how many files.
        left_out: what is not in it.
    """

    lines: int
    files: int
    left_out: LeftOut = field(default_factory=LeftOut)

    def describe(self, caller: Caller) -> str:
        """Say what the files are, and what is not in them."""
        head = caller.texts.say("ExportSent", count=self.lines)
        return "\n".join([head, *describe_left_out(self.left_out, caller.texts)])


class PersonExported(Struct, frozen=True):
    """What an export in a shell came to.

    Attributes:
        accounts: those of the person.
        lines: how many things it has.
        target: the folder or the file.
        left_out: what is not in it.
    """

    accounts: tuple[str, ...]
    lines: int
    target: str
    left_out: LeftOut = field(default_factory=LeftOut)


class ExportedFiles(PersonExported, frozen=True):
    """The same, with what the shell writes.

    Attributes:
        file: the new file; None for a folder.
        content: of the file.
        folder: the new folder; None for a file.
        files: of the folder, by name.
    """

    file: str | None = None
    content: bytes = b""
    folder: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)

    def describe(self, caller: Caller) -> str:
        """Say what was exported, and what is not in it."""
        accounts = caller.texts.say("list_comma").join(self.accounts)
        head = caller.texts.say("PersonExported", count=self.lines, accounts=accounts)
        return "\n".join([head, *describe_left_out(self.left_out, caller.texts)])


class ExportCommands:
    """The commands, over the tapes of a home."""

    def __init__(
        self,
        store: TapeStore,
        tapes: PersonalTapes,
        find_accounts: FindAccounts,
        *,
        now: Clock,
        zone: tzinfo,
        redact: Callable[[str], str] = redact,
    ) -> None:
        """Take the tapes, what they mean, and what knows the accounts of a person."""
        self._store, self._tapes, self._find_accounts = store, tapes, find_accounts
        self._now, self._zone, self._redact = now, zone, redact

    @command(
        "export me",
        chat=("people.export", "export.me"),
        in_shell=False,
        is_direct=True,
        effect=READS_PEOPLE,
        help=CommandHelp(HelpTopic.SETTINGS, "Everything I hold about you", (",export.me",), words=("privacy", "gdpr")),
    )
    async def export_me(self, caller: Caller) -> ExportSent:
        """Send you everything I hold about you on all your accounts: a page to read, and lines for programs."""
        turn = caller.required_turn
        if turn.typing_account is None:
            raise CommandRefused("export_person")
        record, _ = await self._read(turn.typing_account, MAX_CHAT_CHARS)
        pieces = split_lines(record.lines, PIECE_BYTES)
        names = number_names(LINES_FILE, len(pieces))
        page = await self._draw(record, caller.texts)
        files = [(PAGE_FILE, "text/html", page.encode())] if len(page.encode()) <= PIECE_BYTES else []
        files += [(name, "application/jsonl", piece) for name, piece in zip(names, pieces, strict=True)]
        for name, media_type, data in files:
            turn.files.append(OutboundFile(name, media_type, digest=await turn.tape.put_blob(data)))
        return ExportSent(len(record.lines), len(files), record.left_out)

    @command(
        "access export <person> <target>",
        example="telegram:42 anna",
        role=Role.OWNER,
        effect=READS_PEOPLE,
    )
    async def export_person(self, caller: Caller, args: ExportPersonArgs) -> PersonExported:
        """Write everything that the home holds about a person, over linked accounts, and nothing of anybody else."""
        record, attached = await self._read(parse_account(args.person), MAX_SHELL_CHARS)
        accounts = tuple(":".join(account) for account in record.accounts)
        told = (accounts, len(record.lines), args.target, record.left_out)
        suffix = PurePath(args.target).suffix
        if suffix == ".jsonl":
            return ExportedFiles(*told, file=args.target, content=encode_lines(record.lines))
        page = (await self._draw(record, caller.texts)).encode()
        if suffix == ".html":
            return ExportedFiles(*told, file=args.target, content=page)
        files = {PAGE_FILE: page, LINES_FILE: encode_lines(record.lines)}
        return ExportedFiles(*told, folder=args.target, files=files | await self._read_files(attached))

    async def _read(self, account: Account, max_chars: int) -> tuple[PersonRecord, Sequence[AttachedFile]]:
        accounts = await self._find_accounts(account)
        reader = PersonReader(self._store, self._tapes, accounts, self._redact, max_chars)
        record = await reader.read()
        return record, tuple(reader.files.values())

    async def _draw(self, record: PersonRecord, texts: Texts) -> str:
        # Imported here: few commands draw a page.
        from bubbot.features.people.page import draw_page

        notes = describe_left_out(record.left_out, texts)
        return await asyncio.to_thread(draw_page, record, notes, self._now(), self._zone, texts)

    async def _read_files(self, attached: Sequence[AttachedFile]) -> dict[str, bytes]:
        """Read the files that the person sent, as far as there is room; one that is gone is skipped."""
        found: dict[str, bytes] = {}
        room = MAX_ATTACHED_BYTES
        for each in attached:
            data = await self._find_blob(each)
            if data is not None and len(data) <= room:
                room -= len(data)
                found[f"attachments/{each.digest[:12]}-{safe_name(each.name)}"] = data
        return found

    async def _find_blob(self, attached: AttachedFile) -> bytes | None:
        try:
            return await self._store.get_blob(attached.tape, attached.digest)
        except EntryNotFound:
            return None


def encode_lines(lines: Sequence[ExportLine]) -> bytes:
    """Write the lines as JSON, an object a line."""
    return b"".join(map(_encode_line, lines))


def _encode_line(line: ExportLine) -> bytes:
    return f"{encode(asdict(line))}\n".encode()


def split_lines(lines: Sequence[ExportLine], size: int) -> list[bytes]:
    """Write the lines as `encode_lines` does, in pieces of at most `size` bytes if no line is longer; at least one."""
    pieces: list[bytearray] = [bytearray()]
    for line in lines:
        data = _encode_line(line)
        if pieces[-1] and len(pieces[-1]) + len(data) > size:
            pieces.append(bytearray())
        pieces[-1] += data
    return [bytes(piece) for piece in pieces]


def number_names(name: str, count: int) -> list[str]:
    """Return the names of the pieces of a file."""
    path = PurePath(name)
    return [name] if count == 1 else [f"{path.stem}-{number}{path.suffix}" for number in range(1, count + 1)]


def safe_name(name: str) -> str:
    """Return a name of a file that leads nowhere else."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._")[:80] or "file"


def describe_left_out(left_out: LeftOut, texts: Texts) -> list[str]:
    """Say what an export does not have."""
    counts = {
        "left_out_shared": left_out.shared_answers,
        "left_out_outputs": left_out.outputs,
        "left_out_unnamed": left_out.unnamed,
        "left_out_room": left_out.too_much,
    }
    return [texts.say(name, count=count) for name, count in counts.items() if count]
