"""What is needed to run recorded turns again: the turns of a slice, whose words they have, and the results of their calls."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from copy import copy
from operator import itemgetter

from bubbot.middleware import ToolInvocation
from bubbot.ports.channel import HUMAN_ORIGIN
from bubbot.ports.model import ToolCall
from bubbot.ports.people import Account
from bubbot.runtime.context.view import records_view
from bubbot.runtime.turns import StepRecord, TurnRecord, read_calls, read_results
from bubbot.tape.anchor import SESSION_START
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, canonical, is_said_by_person, sender_id, text_field
from bubbot.tape.events import TURN_ENDS, CommandRun, TurnJoined, TurnStart
from bubbot.tape.handle import TapeHandle
from bubbot.tape.provenance import PROVENANCE, TERMINAL_SENDER, Source, source_of
from bubbot.tape.query import IdRanges, Span, TapeQuery, union
from bubbot.tape.store import SYSTEM_TAPE_PREFIX
from bubbot.tool import EffectKind

UNKNOWN_SENDER = "?"
"""Stands for the id of a person who is not known, and so allows nothing; no platform uses it."""
NOT_RECORDED = "not recorded: in this replay nothing runs, and the turn that is replayed made no such call"
"""The answer to a call that the record does not have: a replay runs no tool, and so has no effects."""
MAX_SHOWN_ELSEWHERE = 1_000
"""Parts of other tapes, such as versions of a memory, of which it is remembered who speaks in them."""
PAGE_ENTRIES = 500
"""Entries read at a time: a slice may be a chat of years."""


class SpeakerFinder:
    """Finds the people whose words the turns of one tape hold, and who have to allow their use.

    It reads the tape once, in its order, and keeps of each entry only who speaks in it.
    """

    def __init__(self, tape: TapeHandle) -> None:
        self._tape = tape
        self._channel = tape.session.partition(":")[0]
        self._read_to = 0
        self._spoken: list[tuple[int, frozenset[Account]]] = []
        self._everybody: list[tuple[int, frozenset[Account]]] = []
        self._groups: dict[frozenset[Account], frozenset[Account]] = {}
        self._repeated: list[int] = []
        self._reported: list[int] = []
        self._has_others = False
        self._forwarded = set[tuple[object, ...]]()
        self._asking: dict[int, frozenset[Account] | None] = {}
        self._shown_elsewhere: dict[tuple[str, tuple[Span, ...]], tuple[frozenset[Account], bool]] = {}

    def go_on(self, tape: TapeHandle) -> SpeakerFinder:
        """Return a finder for a fork of the tape that was opened at the newest entry which this one has read."""
        finder = SpeakerFinder(tape)
        for name in vars(self).keys() - {
            "_tape",
            "_channel",
        }:  # all that it knows: a part that is left out hides people
            setattr(finder, name, copy(getattr(self, name)))
        return finder

    async def find(self, turn: TurnRecord) -> set[Account] | None:
        """Find the people whose messages and memory the models of a turn were shown, and whom these quote.

        A summary, the result of a call or the answer of a command may hold anybody's words: if there is one, return everybody who
        had spoken on the tape. Return None if the speakers are unknown: the models were shown another chat, a tool or a command
        told an owner about other people, it is not recorded what was shown, or a message that the turn answers is gone. The person
        at the terminal does not count.
        """
        last = turn.entries[-1].id
        elsewhere: dict[str, list[Span]] = {}
        for name, shown in (each for step in turn.steps for each in step.shown_elsewhere):
            elsewhere.setdefault(name, []).extend(shown)
        await self._read(last)
        people = self._find_asking(turn)
        is_told = all(isinstance(step.data.get("shown"), tuple) for step in turn.steps)
        if people is None or not is_told or any(not name.startswith(SYSTEM_TAPE_PREFIX) for name in elsewhere):
            return None
        explains_others = False
        for name, spans in elsewhere.items():
            found, is_of_others = await self._find_elsewhere(name, tuple(union(spans)))
            people |= found
            explains_others |= is_of_others
        for low, high in (*union(span for step in turn.steps for span in step.shown), (turn.entries[0].id, last)):
            if not explains_others and _has_any(self._reported, low, high or last):
                return None
            if _has_any(self._repeated, low, high or last):
                people |= await self.find_before(last)
            spoken = slice(bisect_left(self._spoken, low, key=_ID), bisect_right(self._spoken, high or last, key=_ID))
            people.update(*{accounts for _, accounts in self._spoken[spoken]})
        return _without_terminal(people)

    async def find_before(self, entry: int) -> set[Account]:
        """Find everybody who had spoken on the tape, or had been quoted, when this was its newest entry."""
        await self._read(entry)
        place = bisect_right(self._everybody, entry, key=_ID)
        return _without_terminal(self._everybody[place - 1][1] if place else ())

    def _find_asking(self, turn: TurnRecord) -> set[Account] | None:
        """Return the senders of the inbounds that a turn answers, commands included, and whom these quote; None if one is gone."""
        people = set[Account]()
        for entry in turn.entries:
            accounts = self._asking.get(entry.id, frozenset())
            if accounts is None:
                return None
            people |= accounts
        return people

    async def _find_elsewhere(self, name: str, spans: tuple[Span, ...]) -> tuple[frozenset[Account], bool]:
        """Return who speaks in entries of another tape, and true if others than the owner do; requests mostly show the same ones."""
        known = self._shown_elsewhere.get((name, spans))
        if known is None:
            (entries,) = await self._tape.fetch([TapeQuery(name, IdRanges(spans))])
            people = frozenset[Account]().union(*map(self._find_people, entries))
            known = people, any(source_of(entry) is Source.PEOPLE for entry in entries)
            if len(self._shown_elsewhere) >= MAX_SHOWN_ELSEWHERE:
                del self._shown_elsewhere[next(iter(self._shown_elsewhere))]
            self._shown_elsewhere[name, spans] = known
        return known

    async def _read_asking(self, entries: Iterable[TapeEntry]) -> list[tuple[int, tuple[str, int], JsonObject | None]]:
        """List the inbounds that these entries begin or join to a turn: entry, place (inbox tape, id), and data; None if it is gone."""
        facts = [(entry.id, TurnStart.try_of(entry) or TurnJoined.try_of(entry)) for entry in entries]
        named = [(each, (str(name), int(number))) for each, fact in facts if fact for name, number in fact.inbounds]
        numbers: dict[str, list[Span]] = {}
        for _, (name, number) in named:
            numbers.setdefault(name, []).append((number, number))
        found = await self._tape.fetch([TapeQuery(name, IdRanges(union(spans))) for name, spans in numbers.items()])
        inbounds = {
            (name, entry.id): entry.data
            for name, entries_of in zip(numbers, found, strict=True)
            for entry in entries_of
            if not entry.erased
        }
        return [(each, place, inbounds.get(place)) for each, place in named]

    def _people_of(self, inbound: JsonObject) -> set[Account]:
        return _read_people(inbound, text_field(inbound, "channel") or self._channel)

    async def _read(self, last: int) -> None:
        """Read who speaks in the entries up to one, and in those after it that are there already."""
        while self._read_to < last:
            low = self._read_to + 1
            part = IdRanges(((low, low + PAGE_ENTRIES - 1),))
            (entries,) = await self._tape.fetch([TapeQuery(self._tape.name, part)])
            self._read_to = max(entries[-1].id if entries else 0, min(low + PAGE_ENTRIES - 1, last))
            # Who only typed commands has no message here, and their words come back, such as the text of a job.
            typed: dict[int, set[Account]] = defaultdict(set)
            for begun, place, data in await self._read_asking(entries):
                people = None if data is None else self._people_of(data)
                typed[begun] |= _without_terminal(people or ())
                asking = self._asking.get(begun, frozenset())
                whole = None if people is None or asking is None else asking | people
                self._asking[begun] = whole if whole is None else self._groups.setdefault(whole, whole)
                if data is not None and _is_forwarded(data):
                    self._forwarded.add(place)
            for entry in entries:
                if accounts := self._find_people(entry) | typed[entry.id]:
                    self._spoken.append((entry.id, self._groups.setdefault(accounts, accounts)))
                    before = self._everybody[-1][1] if self._everybody else frozenset[Account]()
                    if not accounts <= before:
                        self._everybody.append((entry.id, before | accounts))
                if _may_repeat_words(entry):
                    self._repeated.append(entry.id)
                    # Nobody but owners has spoken here: what people said elsewhere, such as the jobs of all chats.
                    if source_of(entry) is Source.PEOPLE and not self._has_others:
                        self._reported.append(entry.id)
                elif is_said_by_person(entry.kind, entry.payload):
                    self._has_others |= source_of(entry) is Source.PEOPLE

    def _find_people(self, entry: TapeEntry) -> frozenset[Account]:
        # Facts of memory that chats share name a channel; others do not, since it is that of their chat.
        shared = text_field(entry.data, "channel") or self._channel, text_field(entry.data, "by")
        people = _without_terminal({*_read_people(entry.meta, self._channel), shared})
        place = entry.meta.get("inbound")
        is_pair = isinstance(place, tuple) and all(isinstance(part, str | int) for part in place)
        is_forwarded = is_pair and place in self._forwarded
        is_of_unknown = is_forwarded or _quotes_unknown(entry)
        return frozenset({*people, (self._channel, UNKNOWN_SENDER)} if is_of_unknown else people)


def _has_any(ids: list[int], low: int, high: int) -> bool:
    return bisect_right(ids, high) > bisect_left(ids, low)


def _is_forwarded(inbound: JsonObject) -> bool:
    """Return true for a message whose sender did not choose its words; what others than people send is of their own making."""
    return inbound.get(PROVENANCE) == Source.WORLD and inbound.get("origin") in (None, HUMAN_ORIGIN)


def _quotes_unknown(entry: TapeEntry) -> bool:
    """Return true for a message that quotes somebody without an id."""
    quote = entry.meta.get("quote")
    return isinstance(quote, Mapping) and not quote.get("own") and not sender_id(quote)


_ID = itemgetter(0)


def _read_people(meta: JsonObject, channel: str) -> set[Account]:
    """Return who wrote something, and whom it quotes."""
    people, quote = {(channel, sender_id(meta))}, meta.get("quote")
    if isinstance(quote, Mapping) and not quote.get("own"):
        people.add((channel, sender_id(quote)))
    return people


def _without_terminal(people: Iterable[Account]) -> set[Account]:
    return {account for account in people if account[1] not in ("", TERMINAL_SENDER)}


def _may_repeat_words(entry: TapeEntry) -> bool:
    """Return true for what a model, a tool or a command wrote of what others said."""
    is_result = entry.kind == Kind.TOOL_RESULT or entry.name in CommandRun.EVENTS
    return is_result or (entry.kind == Kind.ANCHOR and entry.name != SESSION_START)


async def find_turns(tape: TapeHandle, first: int, last: int) -> AsyncIterator[TurnRecord]:
    """Find the turns of a range of entries that asked a model for an answer, some entries at a time."""
    turns: dict[str, list[TapeEntry]] = {}
    for low in range(first, last + 1, PAGE_ENTRIES):
        part = IdRanges(((low, min(low + PAGE_ENTRIES - 1, last)),))
        for entry in (await tape.fetch([TapeQuery(tape.name, part)]))[0]:
            if isinstance(turn := entry.meta.get("turn"), str) and not entry.erased and entry.is_shown_to(""):
                turns.setdefault(turn, []).append(entry)
                if entry.name in TURN_ENDS and answering_steps(found := TurnRecord.of(turns.pop(turn))):
                    yield found
    for found in map(TurnRecord.of, turns.values()):  # cut off by the end of the range
        if answering_steps(found):
            yield found


def answering_steps(turn: TurnRecord) -> list[StepRecord]:
    """List the steps of a turn that asked a model for its answer, as far as their requests can be built again."""
    return [step for step in turn.answering_steps if records_view(step.data)]


def only_reads_here(call: ToolInvocation) -> bool:
    """Return true for a call that only reads what is stored here."""
    effects = [call.tool.effect, *([call.plan.effect] if call.plan is not None else [])]
    return all(
        each.kind is EffectKind.READ and not (each.has_network and each.source is Source.WORLD) for each in effects
    )


class RecordedResults:
    """The calls of a turn with their results. Each result answers one call; the last one of equal calls answers again."""

    def __init__(self, turn: TurnRecord) -> None:
        self.missed = 0
        calls: dict[str, tuple[str, str]] = {}
        self._results: dict[tuple[str, str], list[str]] = defaultdict(list)
        for entry in turn.entries:
            calls |= {call.id: _call_key(call) for call in read_calls(entry)}
            for result in read_results(entry):
                if (key := calls.get(str(result.get("tool_call_id")))) is not None:
                    self._results[key].append(str(result.get("content", "")))

    def find(self, call: ToolCall) -> str | None:
        """Return the recorded result of a call; None if the record has no such call."""
        results = self._results.get(_call_key(call))
        if not results:
            self.missed += 1
            return None
        return results.pop(0) if len(results) > 1 else results[0]

    def answer(self, call: ToolCall) -> str:
        """Return the recorded result of a call, else a sentence that nothing runs."""
        result = self.find(call)
        return NOT_RECORDED if result is None else result


def _call_key(call: ToolCall) -> tuple[str, str]:
    name = call.name.replace("_", ".")
    try:
        value = json.loads(call.arguments) if call.arguments.strip() else {}
        return name, canonical({"arguments": value})
    except (ValueError, RecursionError):
        return name, call.arguments
