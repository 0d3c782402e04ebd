"""Everything that the home holds about one person, read from all its tapes.

What a person gets is theirs alone: a fact of another person is never in it, also if it names this one. Which fields of a fact
are of the person whom it names is declared by the fact (`Fact.PERSONAL`); of any other fact that names the person there is a line
without its words.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bubbot.ports.inbox import INBOX_PREFIX
from bubbot.ports.outbox import OUTBOX_PREFIX
from bubbot.ports.people import Account
from bubbot.ports.session_names import IMPORT_EVENT, IMPORTS_TAPE, read_session
from bubbot.ports.usage import BUDGET_TAPE, CallSettled, user_key
from bubbot.tape.entry import Kind, TapeEntry, is_said_by_person, sender_id, text_field, thaw
from bubbot.tape.events import CommandRun, Correction, TurnJoined, TurnStart
from bubbot.tape.fact import Fact
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.store import SYSTEM_TAPE_PREFIX, TapeStore

PAGE_ENTRIES = 1_000
"""Entries read at a time, so that turns go on meanwhile."""
HUMAN_ORIGINS = (None, "human")

LineKind: TypeAlias = Literal[
    "name",
    "role",
    "access",
    "consent",
    "memory",
    "schedule",
    "approval",
    "usage",
    "message",
    "attachment",
    "answer",
    "command",
    "correction",
    "reaction",
    "quote",
    "topic",
    "fact",
]
LineReason: TypeAlias = Literal[
    "account",
    "configured",
    "said",
    "sent",
    "answered",
    "typed",
    "quoted",
    "own_memory",
    "wrote",
    "opened",
    "used",
    "named",
]
"""Why something is about the person.

`account`: the platform calls the account so. `configured`: the settings list the account. `said`, `sent`, `typed`: the person wrote
it, sent it, or typed it. `answered`: the bot said it to this person. `quoted`: it quotes the person. `own_memory`: it stands in the
person's own memory, or in that of a chat that is the person's alone. `wrote`: a turn of the person wrote it into a memory that
others see, too. `opened`: the person opened it. `used`: it was spent on answers to the person. `named`: it names the person.
"""
_KINDS: Mapping[str, LineKind] = {
    "access": "access",
    "approval": "approval",
    "inbox": "message",
    "memory": "memory",
    "people": "consent",
    "reaction": "reaction",
    "schedule": "schedule",
}
"""The kinds of lines, by what the name of a fact begins with."""


class ExportLine(Struct, frozen=True, kw_only=True):
    """One thing that the home holds about a person.

    Attributes:
        kind: what it is.
        why: why it is about the person.
        session: the chat; empty if it is of no chat, or of one in which the person never spoke.
        tape: the tape on which it stands; empty if it is that of a chat in which the person never spoke.
        id: its entry there; 0 if it follows from several.
        date: ISO 8601 in UTC; empty if unknown.
        text: its words; empty if it has none that are of the person alone.
        data: what else belongs to it.
    """

    kind: LineKind
    why: LineReason
    session: str = ""
    tape: str = ""
    id: int = 0
    date: str = ""
    text: str = ""
    data: Mapping[str, Any] = {}


class LeftOut(Struct):
    """What an export leaves out, counted.

    Attributes:
        shared_answers: answers to the person and others together.
        outputs: outputs of commands, which may show what others said.
        unnamed: facts that name the person and of which nothing is declared to be of the person alone.
        too_much: lines that had no room.
    """

    shared_answers: int = 0
    outputs: int = 0
    unnamed: int = 0
    too_much: int = 0


class PersonRecord(Struct, frozen=True):
    """Everything about a person.

    Attributes:
        accounts: those of the person.
        lines: what the home holds; about the person first, then chat by chat in the order of the tapes.
        left_out: what is not in it.
    """

    accounts: tuple[Account, ...]
    lines: tuple[ExportLine, ...]
    left_out: LeftOut


class AttachedFile(Struct, frozen=True):
    """A file that the person sent and the home keeps.

    Attributes:
        tape: whose blob it is.
        digest: of the blob.
        name: as it was sent.
    """

    tape: str
    digest: str
    name: str


class PersonalTapes(Struct, frozen=True, kw_only=True):
    """What the tapes of a home mean to an export.

    Attributes:
        references: which fields of facts name people.
        user_tape: returns the name of the tape with the memory of an account.
        memory_texts: the facts with the texts of a version of a chat's memory; each has a `content`.
        topic_prefix: the beginning of the names of the anchors that take up a topic.
        configured_role: returns the role that the settings give an account; empty for none.
    """

    references: ReferenceRegistry
    user_tape: Callable[[Account], str]
    memory_texts: tuple[type[Fact], ...]
    topic_prefix: str
    configured_role: Callable[[Account], str]


@dataclass(slots=True)
class _TurnPeople:
    """Who wrote what a turn answers.

    Attributes:
        account: the person's, such as `telegram:42`; empty if the person wrote nothing of it.
        inbounds: what the person wrote of it, by inbox tape and id.
        starts: the entries with which the turn began.
        texts: of the person's messages.
        is_others: somebody else wrote some of it.
    """

    account: str = ""
    inbounds: list[tuple[str, int]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    is_others: bool = False

    @property
    def is_mine(self) -> bool:
        """True if the person wrote some of it."""
        return bool(self.account)

    @property
    def is_mine_alone(self) -> bool:
        """True if the person wrote all of it."""
        return self.is_mine and not self.is_others


@dataclass(slots=True)
class _ChatScan:
    """What is found on the tape of one chat, until it is known whose turns its entries belong to."""

    tape: str
    session: str
    turns: dict[str, _TurnPeople] = field(default_factory=lambda: defaultdict(_TurnPeople))
    lines: list[ExportLine] = field(default_factory=list)
    of_turns: list[tuple[str, ExportLine]] = field(default_factory=list)
    memory: list[tuple[str, ExportLine]] = field(default_factory=list)
    memory_seen: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    has_own: bool = False
    has_others: bool = False
    is_group: bool = False

    def tell(
        self, entry: TapeEntry, kind: LineKind, why: LineReason, text: str, data: Mapping[str, Any] | None = None
    ) -> ExportLine:
        """Make a line of an entry."""
        return ExportLine(
            kind=kind,
            why=why,
            session=self.session,
            tape=self.tape,
            id=entry.id,
            date=entry.date,
            text=text,
            data=data or {},
        )

    @property
    def is_own(self) -> bool:
        """True if the chat is the person's alone."""
        return self.has_own and not self.has_others and not self.is_group


class PersonReader:
    """Reads what a store holds about the person with these accounts."""

    def __init__(
        self,
        store: TapeStore,
        tapes: PersonalTapes,
        accounts: Sequence[Account],
        redact: Callable[[str], str],
        max_chars: int,
    ) -> None:
        """Take what to read.

        Args:
            redact: takes the secrets of the bot out of a text.
            max_chars: of all texts together; what has no room is counted.
        """
        self._store, self._tapes, self._redact = store, tapes, redact
        self._accounts = tuple(accounts)
        self._room = max_chars
        self._left_out = LeftOut()
        self._events = self._list_personal_events()
        texts = [name for fact in tapes.memory_texts for name in fact.EVENTS]
        self._memory_events = frozenset(texts)
        own = [*TurnStart.EVENTS, *TurnJoined.EVENTS, *CommandRun.EVENTS, *Correction.EVENTS, *texts]
        self._chat_events = tuple(dict.fromkeys([*own, *self._events]))
        self._own_inbounds: dict[tuple[str, int], str] = {}
        self._own_jobs: set[tuple[str, int]] = set()
        self._inbound_lines: dict[tuple[str, int], ExportLine] = {}
        self._told_inbounds: set[tuple[str, int]] = set()
        self._own_entries: set[tuple[str, int]] = set()
        self._own_turns: dict[tuple[str, int], list[str]] = {}
        self._own_sessions: set[str] = set()
        self._names: dict[tuple[str, str, str], list[str]] = {}
        self._quotes: list[tuple[tuple[str, int], ExportLine]] = []
        self._imported: frozenset[str] = frozenset()
        self.files: dict[tuple[str, str], AttachedFile] = {}

    async def read(self) -> PersonRecord:
        """Read all tapes; the store is read in pages, and what is written meanwhile may be missing."""
        names = [tape.name for tape in await self._store.tapes()]
        imports = TapeQuery(IMPORTS_TAPE, kinds=(Kind.EVENT,), names=(IMPORT_EVENT,))
        self._imported = frozenset(str(entry.data.get("tape")) for entry in (await self._store.fetch([imports]))[0])
        channels = {channel for channel, _ in self._accounts}
        system = [name for name in names if name.startswith(SYSTEM_TAPE_PREFIX)]
        for name in system:
            if name.startswith(INBOX_PREFIX) and _channel_of_inbox(name) in channels:
                await self._read_inbox(name)
        chats: list[ExportLine] = []
        for name in names:
            if not name.startswith(SYSTEM_TAPE_PREFIX):
                session = await read_session(self._store, name)
                chats += await self._read_chat(name, session)
        about = [line async for line in self._read_about(system)]
        inbounds = [line for place, line in self._inbound_lines.items() if place not in self._told_inbounds]
        quotes = [line for place, line in self._quotes if self._is_own_quote(place, line.text)]
        lines = [*self._list_names(), *self._list_roles(), *about, *chats, *inbounds, *quotes]
        return PersonRecord(self._accounts, tuple(self._limit(map(self._conceal, lines))), self._left_out)

    # Inboxes: who wrote what, under which names

    async def _read_inbox(self, tape: str) -> None:
        channel = _channel_of_inbox(tape)
        async for entry in self._pages(tape, kinds=(Kind.EVENT,), names=self._events):
            for fact, path, account in self._find_person(entry, channel):
                data = fact.personal_data(path) if fact else {}
                place = (tape, entry.id)
                if path == "sender.id" and entry.data.get("origin") not in HUMAN_ORIGINS:
                    self._own_jobs.add(place)
                elif path == "sender.id":
                    self._note_name(channel, data.get("sender"), entry.date)
                    self._own_inbounds[place] = account
                    self._inbound_lines[place] = self._tell_inbound(tape, entry, data)
                elif path == "quote.sender.id":
                    quote = data.get("quote")
                    if isinstance(quote, Mapping) and not quote.get("own"):
                        self._note_name(channel, quote.get("sender"), entry.date)
                else:
                    self._inbound_lines[place] = self._tell_fact(tape, "", entry, fact, path)

    def _tell_inbound(self, tape: str, entry: TapeEntry, data: Mapping[str, Any]) -> ExportLine:
        files = [_describe_file(each) for each in data.get("attachments") or () if isinstance(each, Mapping)]
        extra = {"emojis": data["emojis"]} if data.get("emojis") else {}
        extra |= {"what": data["what"]} if data.get("what") else {}
        return ExportLine(
            kind="message",
            why="said",
            session=text_field(entry.data, "session"),
            tape=tape,
            id=entry.id,
            date=entry.date,
            text=str(data.get("text") or ""),
            data={**extra, **({"attachments": files} if files else {})},
        )

    def _note_name(self, channel: str, person: object, date: str) -> None:
        """Note how the platform calls an account, and its language."""
        if isinstance(person, Mapping) and isinstance(person.get("id"), str):
            name, language = str(person.get("name") or ""), str(person.get("language") or "")
            for kind, value in (("name", name), ("language", language)):
                if value:
                    dates = self._names.setdefault((f"{channel}:{person['id']}", kind, value), [date, date])
                    dates[0], dates[1] = min(dates[0], date), max(dates[1], date)

    def _list_names(self) -> Iterator[ExportLine]:
        for account in self._accounts:
            yield ExportLine(kind="name", why="account", text=":".join(account))
        for (name, kind, value), (first, last) in self._names.items():
            data = {"account": name, "what": kind, "last": last}
            yield ExportLine(kind="name", why="account", date=first, text=value, data=data)

    def _list_roles(self) -> Iterator[ExportLine]:
        for account in self._accounts:
            if role := self._tapes.configured_role(account):
                yield ExportLine(kind="role", why="configured", text=role, data={"account": ":".join(account)})

    # Chats

    async def _read_chat(self, tape: str, session: str) -> list[ExportLine]:
        """Read the tape of a chat, or an archive of one; of a chat without a session only what it quotes."""
        scan, channel = _ChatScan(tape, session), session.partition(":")[0]
        if any(channel == own for own, _ in self._accounts):
            async for entry in self._pages(tape, kinds=(Kind.MESSAGE, Kind.ANCHOR)):
                if entry.kind == Kind.MESSAGE:
                    self._scan_message(scan, channel, entry)
                elif (entry.name or "").startswith(self._tapes.topic_prefix):
                    self._scan_topic(scan, entry)
        async for entry in self._pages(tape, kinds=(Kind.EVENT,), names=self._chat_events):
            self._scan_event(scan, channel, entry)
        return self._settle(scan)

    def _list_personal_events(self) -> tuple[str, ...]:
        """List the facts that name people, and those that quote."""
        references = self._tapes.references
        return tuple(
            name
            for name, model in references.events.items()
            if references.of_event(name).people
            or (issubclass(model, Fact) and model.quoted_texts is not Fact.quoted_texts)
        )

    def _scan_message(self, scan: _ChatScan, channel: str, entry: TapeEntry) -> None:
        meta, turn = entry.meta, text_field(entry.meta, "turn")
        if not is_said_by_person(entry.kind, entry.payload):
            if not meta.get("fork"):
                scan.of_turns.append((turn, scan.tell(entry, "answer", "answered", _plain_text(entry))))
            return
        quote = meta.get("quote")
        if isinstance(quote, Mapping) and not quote.get("own") and self._is_person(channel, sender_id(quote)):
            data = {"name": text_field(quote.get("sender") or {}, "name")}
            scan.lines.append(scan.tell(entry, "quote", "quoted", text_field(quote, "text"), data))
        if meta.get("origin") not in HUMAN_ORIGINS:
            return
        scan.is_group = scan.is_group or bool(meta.get("group"))
        if not self._is_person(channel, sender_id(meta)):
            scan.turns[turn].is_others = scan.has_others = True
            return
        scan.turns[turn].account = f"{channel}:{sender_id(meta)}"
        if isinstance(quote, Mapping) and not quote.get("own") and not self._is_person(channel, sender_id(quote)):
            scan.turns[turn].is_others = True  # the answer may have the quoted words
        scan.has_own = True
        self._own_sessions.add(scan.session)
        self._note_told(scan, entry)
        self._note_name(channel, meta.get("sender"), entry.date)
        text = _plain_text(entry)
        scan.turns[turn].texts.append(text)
        scan.lines.append(scan.tell(entry, "message", "said", text))
        for part in _list_files(entry):
            name, digest = text_field(part, "name"), text_field(part, "digest")
            scan.lines.append(scan.tell(entry, "attachment", "sent", name, _describe_file(part)))
            if digest:
                self.files[scan.tape, digest] = AttachedFile(scan.tape, digest, name)

    def _scan_topic(self, scan: _ChatScan, entry: TapeEntry) -> None:
        state = entry.payload.get("state")
        title = text_field(state, "title") if isinstance(state, Mapping) else ""
        if title and title != "-":
            line = scan.tell(entry, "topic", "opened", title)
            scan.of_turns.append((text_field(entry.meta, "turn"), line))

    def _scan_event(self, scan: _ChatScan, channel: str, entry: TapeEntry) -> None:
        name, turn = entry.name or "", text_field(entry.meta, "turn")
        if name in (*TurnStart.EVENTS, *TurnJoined.EVENTS):
            self._scan_turn(scan, turn, entry)
        elif name in CommandRun.EVENTS:
            self._scan_command(scan, turn, entry)
        elif name in Correction.EVENTS:
            if self._is_person(channel, sender_id(entry.meta)):
                data = {key: entry.data[key] for key in ("corrects", "hide") if key in entry.data}
                text = text_field(entry.data, "content")
                scan.lines.append(scan.tell(entry, "correction", "said", text, data))
                self._note_told(scan, entry)
        elif name in self._memory_events:
            day = text_field(entry.data, "date")
            data = {"day": day} if day else {}
            line = scan.tell(entry, "memory", "wrote", text_field(entry.data, "content"), data)
            scan.memory.append((turn, line))
        else:
            self._note_quotes(scan.tape, scan.session, entry)
            for fact, path, _ in self._find_person(entry, channel):
                scan.lines.append(self._tell_fact(scan.tape, scan.session, entry, fact, path))
                self._note_told(scan, entry)

    def _scan_turn(self, scan: _ChatScan, turn: str, entry: TapeEntry) -> None:
        """Note who wrote the messages that a turn answers. An imported tape names inboxes of another home."""
        if entry.name in TurnStart.EVENTS:
            scan.turns[turn].starts.append(entry.id)
        for place in entry.data.get("inbounds", ()) if scan.tape not in self._imported else ():
            known = _parse_place(place)
            if known is not None and known in self._own_inbounds:
                scan.turns[turn].account = self._own_inbounds[known]
                scan.turns[turn].inbounds.append(known)
                self._own_sessions.add(scan.session)
            elif known not in self._own_jobs:
                scan.turns[turn].is_others = True

    def _scan_command(self, scan: _ChatScan, turn: str, entry: TapeEntry) -> None:
        line = scan.tell(entry, "command", "typed", text_field(entry.data, "raw"))
        scan.of_turns.append((turn, line))

    def _settle(self, scan: _ChatScan) -> list[ExportLine]:
        """Return the lines of a chat, now that it is known whose its turns are."""
        lines = list(scan.lines)
        for turn, line in scan.of_turns:
            people = scan.turns.get(turn, _TurnPeople())
            if people.is_mine_alone or (scan.is_own and line.kind == "answer" and not people.is_others):
                lines.append(line)
                if line.kind == "command":
                    self._left_out.outputs += 1
                    self._told_inbounds.update(people.inbounds)
            elif people.is_mine or scan.is_own:
                self._left_out.shared_answers += line.kind == "answer"
        for turn, line in scan.memory:
            people = scan.turns.get(turn, _TurnPeople())
            seen = scan.memory_seen[line.data.get("day", "")]
            new = [each for each in line.text.splitlines() if each.strip() and each.strip() not in seen]
            seen.update(each.strip() for each in new)
            if scan.is_own:
                lines.append(replace(line, why="own_memory"))
            elif new and people.is_mine_alone:
                data = {**line.data, "by": people.account}
                lines.append(replace(line, text="\n".join(new), data=data))
        self._own_entries |= {(scan.tape, line.id) for line in lines if line.why in ("said", "typed")}
        for people in scan.turns.values():
            if people.is_mine_alone:
                self._own_turns |= {(scan.tape, start): people.texts for start in people.starts}
        return sorted(lines, key=lambda line: line.id)

    def _note_told(self, scan: _ChatScan, entry: TapeEntry) -> None:
        """Note that the line of this entry tells of an inbound, so that its own line is not needed."""
        place = _parse_place(entry.meta.get("inbound"))
        if scan.tape not in self._imported and place is not None:
            self._told_inbounds.add(place)

    # Other tapes

    async def _read_about(self, system: Sequence[str]) -> AsyncIterator[ExportLine]:
        """Yield what the system's tapes hold about the person, except inboxes."""
        own_memory = {self._tapes.user_tape(account) for account in self._accounts}
        budget = [name for name in system if name == BUDGET_TAPE or name.startswith(f"{BUDGET_TAPE}/")]
        for name in system:
            if name.startswith((INBOX_PREFIX, OUTBOX_PREFIX)) or name in budget:
                continue
            if name in own_memory:
                async for entry in self._pages(name, kinds=(Kind.EVENT,)):
                    yield self._tell_own_memory(name, entry)
                continue
            async for entry in self._pages(name, kinds=(Kind.EVENT,), names=self._events):
                session = text_field(entry.data, "session")
                self._note_quotes(name, session, entry)
                for fact, path, account in self._find_person(entry, ""):
                    line = self._tell_fact(name, session, entry, fact, path)
                    yield replace(line, data={**line.data, "by": account}) if line.kind == "memory" else line
        for line in await self._add_usage(budget):
            yield line

    def _tell_own_memory(self, tape: str, entry: TapeEntry) -> ExportLine:
        data = {name: value for name, value in thaw(entry.data).items() if name not in ("session", "channel", "by")}
        text = str(data.pop("content", "") or data.pop("long_term", ""))
        by = (text_field(entry.data, "channel"), text_field(entry.data, "by"))
        data["by"] = ":".join(by) if by in self._accounts else "terminal" if by == ("", "") else "another person"
        return ExportLine(
            kind="memory",
            why="own_memory",
            session=text_field(entry.data, "session"),
            tape=tape,
            id=entry.id,
            date=entry.date,
            text=text,
            data={"event": entry.name or "", **data},
        )

    async def _add_usage(self, tapes: Iterable[str]) -> list[ExportLine]:
        """Add up the calls that were made for the person, by day and model."""
        users = {user_key(f"{channel}:", number) for channel, number in self._accounts}
        sums: dict[tuple[str, str], list[int]] = {}
        for tape in tapes:
            async for entry in self._pages(tape, kinds=(Kind.EVENT,), names=CallSettled.EVENTS):
                call = CallSettled.try_of(entry)
                if call is not None and call.user in users:
                    total = sums.setdefault((call.day, call.model), [0, 0, 0, 0])
                    for place, value in enumerate((1, call.input_tokens, call.output_tokens, call.nano or 0)):
                        total[place] += value
        return [
            ExportLine(
                kind="usage",
                why="used",
                tape=BUDGET_TAPE,
                date=day,
                data={
                    "model": model,
                    "calls": calls,
                    "input_tokens": read,
                    "output_tokens": written,
                    "dollars": nano / 1e9,
                },
            )
            for (day, model), (calls, read, written, nano) in sorted(sums.items())
        ]

    # What all have in common

    async def _pages(self, tape: str, **filters: Any) -> AsyncIterator[TapeEntry]:
        """Yield the entries of a tape that are not erased, read in pages."""
        after = 0
        while True:
            part = IdRanges(((after + 1, None),))
            page = (await self._store.fetch([TapeQuery(tape, part, limit=PAGE_ENTRIES, **filters)]))[0]
            for entry in page:
                if not entry.erased:
                    yield entry
            if len(page) < PAGE_ENTRIES:
                return
            after = page[-1].id
            await asyncio.sleep(0)

    def _find_person(self, entry: TapeEntry, channel: str) -> Iterator[tuple[Fact | None, str, str]]:
        """Yield where a fact names the person: the fact if it can be read, the path, and the account."""
        for found in self._tapes.references.find_people(entry, channel):
            if found.account in self._accounts:
                model = self._tapes.references.events[entry.name or ""]
                fact = model.try_of(entry) if issubclass(model, Fact) else None
                yield fact, found.path, ":".join(found.account)

    def _tell_fact(self, tape: str, session: str, entry: TapeEntry, fact: Fact | None, path: str) -> ExportLine:
        data = fact.personal_data(path) if fact else {}
        self._left_out.unnamed += not data
        text = str(data.pop("text", "") or data.pop("content", ""))
        prefix = (entry.name or "").replace(".", "/").partition("/")[0]
        kind = _KINDS.get(prefix, "fact")
        why: LineReason = "wrote" if kind == "memory" else "said" if kind in ("reaction", "schedule") else "named"
        return ExportLine(
            kind=kind,
            why=why,
            session=session,
            tape=tape,
            id=entry.id,
            date=entry.date,
            text=text,
            data={"event": entry.name or "", **data},
        )

    def _note_quotes(self, tape: str, session: str, entry: TapeEntry) -> None:
        """Note what a fact quotes; whether it is the person's is known once all tapes are read."""
        model = self._tapes.references.events.get(entry.name or "")
        if model is None or not issubclass(model, Fact) or model.quoted_texts is Fact.quoted_texts:
            return
        fact = model.try_of(entry)
        for quoted, text in fact.quoted_texts() if fact else ():
            if (place := _parse_place(quoted)) is not None:
                line = ExportLine(
                    kind="quote",
                    why="quoted",
                    session=session,
                    tape=tape,
                    id=entry.id,
                    date=entry.date,
                    text=text,
                    data={"event": entry.name or "", "quotes": list(place)},
                )
                self._quotes.append((place, line))

    def _is_own_quote(self, place: tuple[str, int], text: str) -> bool:
        """Return true if a text is quoted of the person: of an entry, or of a turn that may have been shown words of others."""
        return place in self._own_entries or any(text in own for own in self._own_turns.get(place, ()))

    def _is_person(self, channel: str, number: str) -> bool:
        return (channel, number) in self._accounts

    def _conceal(self, line: ExportLine) -> ExportLine:
        """Take out secrets, and the chats in which the person never spoke: their ids may be those of other people."""
        is_known = line.session in self._own_sessions or not line.session
        is_foreign = not is_known and not line.tape.startswith(SYSTEM_TAPE_PREFIX)
        return replace(
            line,
            session=line.session if is_known else "",
            tape="" if is_foreign else line.tape,
            text=self._redact(line.text),
            data=_redact_all(line.data, self._redact),
        )

    def _limit(self, lines: Iterable[ExportLine]) -> Iterator[ExportLine]:
        for line in lines:
            self._room -= len(line.text) + len(str(line.data)) + len(line.session) + 100
            if self._room < 0:
                self._left_out.too_much += 1
            else:
                yield line


def _parse_place(place: object) -> tuple[str, int] | None:
    """Return the tape and the id of an entry; None for anything else (imports)."""
    if isinstance(place, Sequence) and len(place) == 2 and isinstance(place[0], str) and type(place[1]) is int:
        return place[0], place[1]
    return None


def _channel_of_inbox(tape: str) -> str:
    """Return the channel of an inbox, or of a shard of one."""
    return tape.removeprefix(INBOX_PREFIX).partition("/")[0]


def _plain_text(entry: TapeEntry) -> str:
    """Return the text of a message, without its files."""
    content = entry.payload.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    texts = [text_field(part, "text") for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
    return "\n".join(texts)


def _list_files(entry: TapeEntry) -> list[Mapping[str, Any]]:
    """List the files of a message that its sender sent: those of a quoted message are of somebody else."""
    content = entry.payload.get("content")
    parts = content if isinstance(content, Sequence) and not isinstance(content, str) else ()
    files = [part for part in parts if isinstance(part, Mapping) and part.get("type") != "text"]
    return [part for part in files if not part.get("quoted")]


def _describe_file(part: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("name", "media_type", "size", "kind", "digest", "note", "text")
    return {key: thaw(part[key]) for key in keys if part.get(key)}


def _redact_all(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {name: _redact_all(item, redact) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redact_all(item, redact) for item in value]
    return value
