"""Forgetting a person: find every entry that names them or is made of their words, and erase all of them at once.

It runs at a start, before anything else reads the tapes, so that no turn, window, state or fork holds what goes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, structs

from bubbot.errors import EntryNotFound
from bubbot.features.people.facts import FACTS, ForgettingFinished, PersonForgetting, PersonForgotten, read_account
from bubbot.features.people.files import forget_files, is_in_settings
from bubbot.features.people.words import WordIndex
from bubbot.ports.forgetting import PEOPLE_TAPE, ForgottenPerson, Restatement, RestateTape
from bubbot.ports.inbox import INBOX_PREFIX, InboundsDone, InboundsInterrupted
from bubbot.ports.outbox import INTENT, OUTBOX_PREFIX, RECEIPT
from bubbot.ports.session_names import read_session
from bubbot.ports.store import CollectsGarbage
from bubbot.tape.copies import CopyIndex, find_current_names
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry, thaw, timestamp
from bubbot.tape.events import STEP_EVENT, TapeErased, TurnStart
from bubbot.tape.fact import models_of
from bubbot.tape.handle import spans_of
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.service import session_tape
from bubbot.tape.store import SYSTEM_TAPE_PREFIX, Batch, TapeStore, TapeSummary

FindAccounts: TypeAlias = Callable[[tuple[str, str]], Awaitable[Sequence[tuple[str, str]]]]
"""Return the accounts of the person with an account."""
ListBackups: TypeAlias = Callable[[], Sequence[str]]
"""Return the backups that are known, by their names."""
PAGE_ENTRIES = 2000
_STAYING = (*InboundsDone.EVENTS, *InboundsInterrupted.EVENTS, *models_of(*FACTS))
"""The facts without which the messages of others would be open again, and those of forgetting; they hold numbers only."""
_MARKS = ("inbox/mark", "outbox/mark")
_HARMLESS_STATE = frozenset({"owner", "phase"})
_PROMPT_FIELDS = ("system", "tools", "messages")


class ForgettingDeps(Struct, frozen=True, kw_only=True):
    """What forgetting needs of the bot.

    Attributes:
        store: the tapes; no turn runs, and no fork is open.
        home: the home folder.
        workspace: the label in the names of tapes.
        references: the declared references of all facts.
        rules: what tapes need besides, by the beginning of their names; empty: those of chats.
        copying_events: the events of features that hold words of what they cite.
        find_accounts: returns the linked accounts of a person.
        list_backups: returns the known backups.
        now: the clock.
    """

    store: TapeStore
    home: Path
    workspace: str
    references: ReferenceRegistry
    rules: Sequence[tuple[str, RestateTape]]
    copying_events: Sequence[str]
    find_accounts: FindAccounts
    list_backups: ListBackups
    now: Callable[[], datetime]


async def open_forgettings(store: TapeStore) -> list[tuple[int, PersonForgetting]]:
    """Return the wishes that are not carried out yet, with the ids of their entries, oldest first."""
    entries = (await store.fetch([TapeQuery(PEOPLE_TAPE, kinds=(Kind.EVENT,))]))[0]
    done = {ForgettingFinished.of(entry).forgetting for entry in entries if entry.name in ForgettingFinished.EVENTS}
    return [
        (entry.id, PersonForgetting.of(entry))
        for entry in entries
        if entry.name in PersonForgetting.EVENTS and not entry.erased and entry.id not in done
    ]


async def carry_out(deps: ForgettingDeps, number: int, wish: PersonForgetting) -> None:
    """Forget the person of a wish. After a crash in the middle, call it again: it goes on where it was."""
    account = await find_account(deps.store, wish)
    if account is None:  # an earlier process has erased the entries, and may have left the log of the database
        await deps.store.erase([Batch(PEOPLE_TAPE, (_dated(TapeErased(reason="person").to_entry(), deps.now()),))], [])
    else:
        traces = await _PersonFinder(deps).find(account)
        files = forget_files(deps.home, traces.person, traces.words)
        await deps.store.erase(
            [Batch(PEOPLE_TAPE, tuple(_dated(entry, deps.now()) for entry in _facts(deps, number, traces, files)))]
            + [
                Batch(tape, tuple(_dated(entry, deps.now()) for entry in added)) for tape, added in traces.added.items()
            ],
            [(tape, tuple(sorted(ids))) for tape, ids in sorted(traces.ids.items())],
            [(tape, tuple(sorted(digests))) for tape, digests in sorted(traces.blobs.items())],
        )
    finished = _dated(ForgettingFinished(number).to_entry(), deps.now())
    await deps.store.append([Batch(PEOPLE_TAPE, (finished,))])


def _facts(deps: ForgettingDeps, number: int, traces: PersonTraces, files: int) -> list[TapeEntry]:
    mentions = {tape: [list(span) for span in spans_of(list(ids))] for tape, ids in sorted(traces.mentions.items())}
    forgotten = PersonForgotten(
        number,
        sum(map(len, traces.ids.values())),
        len(traces.ids),
        files,
        mentions,
        tuple(deps.list_backups()),
        is_in_settings(deps.home, traces.person),
    )
    return [TapeErased(reason="person").to_entry(), forgotten.to_entry()]


def _dated(entry: TapeEntry, now: datetime) -> TapeEntry:
    return entry if entry.date else entry.with_meta(EMPTY_OBJECT, timestamp(now))


async def find_account(store: TapeStore, wish: PersonForgetting) -> tuple[str, str] | None:
    """Return the account that a wish names by its entry; None if that entry is erased."""
    tape, number = wish.entry
    found = (await store.fetch([TapeQuery(tape, IdRanges(((number, number),)))]))[0]
    return read_account(found[0]) if found and not found[0].erased else None


def channel_of(tape: str) -> str:
    """Return the channel of an inbox or outbox tape; empty for another tape."""
    for prefix in (INBOX_PREFIX, f"{OUTBOX_PREFIX}/"):
        if tape.startswith(prefix):
            return tape.removeprefix(prefix).partition("/")[0]
    return ""


@dataclass
class PersonTraces:
    """What a home holds of a person.

    Attributes:
        ids: the entries to erase, by tape.
        added: the entries that say again without the person what has to stay, by tape.
        blobs: blobs to remove though other entries cite them: prompts with the person's words.
        mentions: the entries of others that may say something about the person.
        words: what the person said.
    """

    person: ForgottenPerson
    ids: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    added: dict[str, list[TapeEntry]] = field(default_factory=lambda: defaultdict(list))
    blobs: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    mentions: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    words: WordIndex = field(default_factory=WordIndex)


class _PersonFinder:
    """Finds the traces of one person: first who they are, then what names them, then what is made of their words."""

    def __init__(self, deps: ForgettingDeps) -> None:
        self._deps = deps
        self._store, self._references = deps.store, deps.references
        self._inbounds: set[tuple[str, int]] = set()
        """The person's own messages and presses on the tapes of inboxes."""
        self._turns: set[str] = set()
        """The turns that answered them."""
        self._own_tapes: set[str] = set()
        """The tapes of the person's direct chats, without archives."""
        self._sessions: dict[str, str] = {}
        """The sessions of the tapes of chats, archives included."""
        self._sent: dict[str, set[object]] = defaultdict(set)
        """The messages that arrived, by outbox tape."""
        self._checkpoints: dict[str, list[int]] = defaultdict(list)
        """The states that were folded from tapes of the system, by tape."""

    async def find(self, account: tuple[str, str]) -> PersonTraces:
        """Find the traces of the person with an account.

        All tapes are read twice, a page at a time: for what names the person or is made of that, then for their words.
        """
        tapes = await self._store.tapes()
        person = await self._identify(tuple(await self._deps.find_accounts(account)), tapes)
        current_name = await find_current_names(self._store, tapes)
        traces, copies = PersonTraces(person), CopyIndex(self._references, self._deps.copying_events, current_name)
        chats = [tape for tape in tapes if not tape.name.startswith(SYSTEM_TAPE_PREFIX)]
        system = [tape for tape in tapes if tape.name.startswith(SYSTEM_TAPE_PREFIX)]
        self._own_tapes |= {session_tape(self._deps.workspace, session) for session in person.chats}
        for tape in chats:
            self._sessions[tape.name] = await read_session(self._store, tape.name)
            if tape.archived_from in self._own_tapes or person.has_chat(self._sessions[tape.name]):
                self._own_tapes.add(tape.name)
        for tape in chats:
            await self._mark_chat(traces, tape.name, copies)
        for tape in system:
            await self._mark_system(traces, tape.name, copies)
        for name, ids in copies.find_copies(traces.ids).items():
            traces.ids[name] |= ids
        for tape in (*chats, *system):
            await self._restate(traces, tape)
        for tape in (*chats, *system):
            if tape.name not in self._own_tapes:  # all of it goes
                await self._mark_words(traces, tape.name)
        await self._find_loose_blobs(traces)
        for name, checkpoints in self._checkpoints.items():  # each state is folded again, without the person
            if traces.ids[name]:
                traces.ids[name] |= set(checkpoints)
        traces.ids = {name: ids for name, ids in traces.ids.items() if ids}
        return traces

    async def _pages(self, tape: str, **filters: Any) -> AsyncIterator[list[TapeEntry]]:
        """Yield the entries of a tape with content that these filters of a query let pass, a page at a time."""
        after = 0
        while True:
            query = TapeQuery(tape, IdRanges(((after + 1, None),)), limit=PAGE_ENTRIES, **filters)
            page = (await self._store.fetch([query]))[0]
            yield [entry for entry in page if not entry.erased]
            if len(page) < PAGE_ENTRIES:
                return
            after = page[-1].id

    async def _identify(self, accounts: tuple[tuple[str, str], ...], tapes: Sequence[TapeSummary]) -> ForgottenPerson:
        """Find the chats and the names of the person, and their messages in the inboxes."""
        person = ForgottenPerson(accounts)
        chats, names = {":".join(account) for account in accounts}, set[str]()
        naming = tuple(name for name in self._references.events if self._references.of_event(name).people)
        for name in (tape.name for tape in tapes if tape.name.startswith(SYSTEM_TAPE_PREFIX)):
            for number in dict.fromkeys(number for _, number in accounts):
                async for page in self._pages(name, kinds=(Kind.EVENT,), names=naming, text=number):
                    for entry in page:
                        self._note_identity(name, entry, person, chats, names)
        return structs.replace(person, chats=tuple(sorted(chats)), names=tuple(sorted(names - {""})))

    def _note_identity(
        self, tape: str, entry: TapeEntry, person: ForgottenPerson, chats: set[str], names: set[str]
    ) -> None:
        """Note the message, the direct chat and the name that a fact of the system tells of the person."""
        if not self._names_person(entry, person, channel_of(tape)):
            return
        data = _mapping(entry.payload.get("data"))
        sender = _mapping(data.get("sender"))
        channel = str(data.get("channel") or channel_of(tape))
        if tape.startswith(INBOX_PREFIX) and sender and person.has_account(channel, str(sender.get("id"))):
            self._inbounds.add((tape, entry.id))
            names.add(str(sender.get("name") or ""))
            if data.get("direct") is True:
                self._own_tapes.add(session_tape(self._deps.workspace, str(data.get("session"))))
                chats.add(f"{channel}:{data.get('chat')}")
        elif isinstance(data.get("name"), str) and person.has_account(channel, str(data.get("id"))):
            names.add(str(data["name"]))

    def _names_person(self, entry: TapeEntry, person: ForgottenPerson, channel: str) -> bool:
        """Return true if a field of an entry names the person; `channel`: of ids beside which none stands."""
        found = self._references.find_people(entry, channel)
        if any(person.has_account(*each.account) for each in found):
            return True
        return any(person.has_account(channel, str(number)) for number in self._references.find_meta_people(entry))

    async def _mark_chat(self, traces: PersonTraces, tape: str, copies: CopyIndex) -> None:
        """Mark what names the person on the tape of a chat, their turns included."""
        turns = set[str]()
        async for page in self._pages(tape, kinds=(Kind.EVENT,), names=TurnStart.EVENTS):
            turns |= {str(entry.meta.get("turn")) for entry in page if self._is_own_turn(entry)}
        self._turns |= turns
        async for page in self._pages(tape):
            copies.add(tape, page)
            if tape in self._own_tapes:
                traces.ids[tape] |= {entry.id for entry in page}
                traces.words.add(_texts_of(page))
            else:
                for entry in page:
                    self._mark_said(traces, tape, entry, turns)

    def _mark_said(self, traces: PersonTraces, tape: str, entry: TapeEntry, turns: Set[str]) -> None:
        """Mark an entry of a chat with others that the person said, that names them, or that is of one of their turns."""
        person, channel = traces.person, self._sessions[tape].partition(":")[0]
        sender, quote = _mapping(entry.meta.get("sender")), _mapping(entry.meta.get("quote"))
        is_of_person = person.has_account(channel, str(sender.get("id"))) if sender else False
        is_in_turn = entry.meta.get("turn") in turns and (not sender or is_of_person)
        if not (is_of_person or is_in_turn or self._names_person(entry, person, channel)):
            return
        if is_in_turn and _is_plain_anchor(entry):
            return
        traces.ids[tape].add(entry.id)
        if is_of_person:
            traces.words.add(_texts_of([entry]))
        elif entry.kind == Kind.MESSAGE and sender and quote:  # words of another, with a quote of the person
            traces.added[tape].append(_without_quote(tape, entry))

    def _is_own_turn(self, start: TapeEntry) -> bool:
        """Return true if a turn began with a message of the person."""
        inbounds = start.data.get("inbounds")
        first = inbounds[0] if isinstance(inbounds, (list, tuple)) and inbounds else None
        return isinstance(first, (list, tuple)) and tuple(first) in self._inbounds

    async def _mark_system(self, traces: PersonTraces, tape: str, copies: CopyIndex) -> None:
        """Mark what names the person on a tape of the system, and what their turns wrote there."""
        person, channel, ids = traces.person, channel_of(tape), traces.ids[tape]
        is_inbox, done, naming = tape.startswith(INBOX_PREFIX), set[int](), set[int]()
        async for page in self._pages(tape):
            copies.add(tape, page)
            for entry in page:
                if _is_checkpoint(entry):
                    self._checkpoints[tape].append(entry.id)
                if entry.kind != Kind.EVENT or entry.name in _STAYING or _is_checkpoint(entry):
                    if entry.name in InboundsDone.EVENTS:
                        done |= set(entry.data["inbounds"])
                    continue
                data = entry.data
                if entry.name == RECEIPT:
                    self._sent[tape].add(data.get("intent"))
                is_own = (tape, entry.id) in self._inbounds
                is_from_turn = not is_inbox and self._is_from_turn(entry, tape)
                if is_own or is_from_turn or data.get("intent") in ids or person.is_identified_in(_raw(entry)):
                    ids.add(entry.id)
                elif self._names_person(entry, person, channel):
                    # The message of another that quotes them is on the tape of its chat, once it is done.
                    (naming if is_inbox and entry.name == "inbox/received" else ids).add(entry.id)
        ids |= naming & done

    def _is_from_turn(self, entry: TapeEntry, tape: str) -> bool:
        """Return true if a turn of the person wrote an entry, or an intent answers one of their messages."""
        turn = entry.meta.get("turn") or (entry.data.get("turn") if entry.name == INTENT else None)
        if turn in self._turns:
            return True
        # The outbox of a channel, or a shard of it, answers the inbox of the same name.
        inbox = tape.replace(f"{OUTBOX_PREFIX}/", INBOX_PREFIX, 1) if tape.startswith(f"{OUTBOX_PREFIX}/") else ""
        return (inbox, entry.data.get("inbound")) in self._inbounds

    async def _restate(self, traces: PersonTraces, tape: TapeSummary) -> None:
        """Apply the rules of the features to a tape."""
        is_system = tape.name.startswith(SYSTEM_TAPE_PREFIX)
        rules = [
            rule
            for prefix, rule in self._deps.rules
            if (tape.name.startswith(prefix) if prefix else not is_system)
            and (is_system or traces.ids[tape.name])  # on the tape of a chat nothing has to stay if nothing goes
        ]
        if rules and tape.name not in self._own_tapes:
            entries = [entry async for page in self._pages(tape.name) for entry in page]
            for rule in rules:
                found: Restatement = rule(tape.name, entries, traces.person, traces.ids[tape.name])
                traces.ids[tape.name] |= found.erased
                traces.words.add(found.words)
                if tape.archived_from is None:
                    traces.added[tape.name] += found.added
        if tape.archived_from is not None:
            traces.added.pop(tape.name, None)  # an archive takes nothing more
        if not traces.added.get(tape.name):
            traces.added.pop(tape.name, None)

    async def _mark_words(self, traces: PersonTraces, tape: str) -> None:
        """Mark results, records and prompts with the person's words; note what others say of them."""
        ids, is_system, checked = traces.ids[tape], tape.startswith(SYSTEM_TAPE_PREFIX), dict[str, bool]()
        async for page in self._pages(tape):
            for entry in page:
                if entry.id in ids or entry.name in _STAYING:
                    continue
                if is_system:
                    self._mark_record(traces, tape, entry)
                else:
                    self._mark_told(traces, tape, entry)
                    await self._mark_prompts(traces, tape, entry, checked)

    def _mark_record(self, traces: PersonTraces, tape: str, entry: TapeEntry) -> None:
        """Mark an entry of the system with the person's words; a message to others with their name, once it is sent."""
        is_sent = entry.id in self._sent[tape]
        if entry.name in (INTENT, "inbox/received") and not is_sent:
            return
        text = _raw(entry)
        if traces.words.is_in(text) or (is_sent and traces.person.is_named_in(text)):
            traces.ids[tape].add(entry.id)

    def _mark_told(self, traces: PersonTraces, tape: str, entry: TapeEntry) -> None:
        """Mark an entry of a chat with the person's words, or note that somebody else says something of them."""
        text, person = _raw(entry), traces.person
        is_about = traces.words.is_in(text) or person.is_identified_in(text)
        if is_about and entry.kind not in (Kind.MESSAGE, Kind.ANCHOR, Kind.TOOL_CALL):
            traces.ids[tape].add(entry.id)
        elif is_about or person.is_named_in(text):
            traces.mentions[tape].add(entry.id)

    async def _mark_prompts(self, traces: PersonTraces, tape: str, entry: TapeEntry, checked: dict[str, bool]) -> None:
        """Mark a step whose prompts, kept as blobs, hold words of the person, and these blobs. `checked`: by digest."""
        if entry.name != STEP_EVENT or entry.id in traces.ids[tape]:
            return
        for name in _PROMPT_FIELDS:
            digest = entry.data.get(name)
            if not isinstance(digest, str):
                continue
            if digest not in checked:
                checked[digest] = await self._is_about(traces, tape, digest)
            if checked[digest]:
                traces.ids[tape].add(entry.id)
                traces.blobs[tape].add(digest)

    async def _is_about(self, traces: PersonTraces, tape: str, digest: str) -> bool:
        try:
            text = (await self._store.get_blob(tape, digest)).decode(errors="replace")
        except EntryNotFound:
            return False
        return traces.words.is_in(text) or traces.person.is_identified_in(text) or traces.person.is_named_in(text)

    async def _find_loose_blobs(self, traces: PersonTraces) -> None:
        """Find the blobs of touched tapes that no entry names: no turn runs, so nobody will."""
        if not isinstance(self._store, CollectsGarbage):
            return
        loose = await self._store.find_unreferenced_blobs()
        for tape, blobs in loose.tapes.items():
            if traces.ids.get(tape):
                traces.blobs[tape] |= {digest for digest, _ in blobs}


def _is_checkpoint(entry: TapeEntry) -> bool:
    """Return true for a state that was folded from a tape of the system."""
    if entry.kind == Kind.ANCHOR:
        return entry.name in _MARKS
    return entry.kind == Kind.EVENT and (entry.name or "").endswith("/checkpoint")


def _raw(entry: TapeEntry) -> str:
    texts: list[str] = []
    _add_strings(texts, entry.payload)
    _add_strings(texts, entry.meta)
    return "\n".join(texts)


def _add_strings(texts: list[str], value: Any) -> None:
    """Add the texts and the numbers in a JSON value, keys included, and those in a text that is JSON itself."""
    if isinstance(value, str):
        texts.append(value)
        if value[:1] in ("{", "["):  # such as the arguments of a call
            with suppress(ValueError, RecursionError):
                _add_strings(texts, json.loads(value))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            texts.append(str(key))
            _add_strings(texts, item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _add_strings(texts, item)
    elif value is not None:
        texts.append(str(value))


def _texts_of(entries: Iterable[TapeEntry]) -> list[str]:
    """Return what people said and noted in these entries."""
    texts: list[str] = []
    for entry in entries:
        if entry.kind == Kind.MESSAGE and entry.payload.get("role") == "user":
            if "part" in entry.meta or entry.meta.get("origin") == "system":
                continue  # the bot's own words, such as the rules of a task: others are shown the same ones
            _add_strings(texts, entry.payload.get("content"))
        elif entry.kind == Kind.EVENT and (entry.name or "").startswith("memory."):
            _add_strings(texts, entry.data.get("content"))
    return texts


def _is_plain_anchor(entry: TapeEntry) -> bool:
    """Return true for an anchor that opens a window and says nothing: without it the window before would come back."""
    state = entry.payload.get("state") if entry.kind == Kind.ANCHOR else None
    return (
        entry.opens_window
        and isinstance(state, Mapping)
        and set(state) <= _HARMLESS_STATE
        and not entry.meta.get("sender")
    )


def _without_quote(tape: str, entry: TapeEntry) -> TapeEntry:
    """Return a copy of another one's message without the quote; it is found, and not shown a second time."""
    meta = {key: value for key, value in thaw(entry.meta).items() if key != "quote"}
    return TapeEntry(entry.kind, entry.payload, {**meta, "source": [tape, entry.id], "context": False}, entry.date)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
