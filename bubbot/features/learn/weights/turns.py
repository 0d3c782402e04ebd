"""Turns with a reward that no export has yet: what `[learn] after` counts and what the next export holds."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from bubbot.features.learn.episodes import EpisodeReader, EpisodeTurn
from bubbot.features.learn.formats import FORMATS
from bubbot.features.learn.formats.writer import EpisodeHead, ExportFormat
from bubbot.features.learn.people import ConsentCheck
from bubbot.features.learn.rewards import Reward, assign_rewards, discount
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.weights.facts import ExportReady
from bubbot.features.learn.writing import Episode
from bubbot.ports.judgements import LABEL_EVENTS, ReadLabels
from bubbot.ports.people import AsksConsent
from bubbot.ports.session_names import read_session
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.rerun import SpeakerFinder
from bubbot.runtime.turn_spans import TurnAtView, TurnSpan, find_turn_spans
from bubbot.tape.entry import Kind
from bubbot.tape.fact import Cited
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import NewId, TapeService
from bubbot.tape.store import SYSTEM_TAPE_PREFIX, TapeStore, TapeSummary

MAX_OPEN_TAPES = 4
"""Tapes of which it remembers who speaks on them."""


class TurnSources(Struct, frozen=True):
    """What knows of turns, rewards and consents in the tapes of a home.

    Attributes:
        store: the tapes.
        strategies: rebuild what models were shown.
        consents: know what people allow.
        read_labels: returns the judgements of a tape.
        basis: the tapes with what people allow: if they grow, all is looked at again.
    """

    store: TapeStore
    now: Clock
    new_id: NewId
    strategies: ContextStrategies
    consents: AsksConsent
    read_labels: ReadLabels
    basis: tuple[str, ...] = ()

    async def open(self, name: str) -> TapeService:
        """Open the tape of a session by its name."""
        session = await read_session(self.store, name)
        return TapeService(self.store, name, now=self.now, new_id=self.new_id, session=session)


@dataclass(slots=True)
class RewardedTurns:
    """Finds turns with a reward, which everybody whose words they may have allows for training, and no export has.

    It reads a tape again only if something was judged on it since, and keeps the ranges of the turns that count, of others that
    they do not, and the readers of few tapes.

    Attributes:
        sources: where it looks.
        section: the settings in force; what their format cannot hold does not count.
    """

    sources: TurnSources
    section: LearnSettings
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _read_to: dict[str, int] = field(default_factory=dict[str, int])
    _basis: tuple[tuple[str, int], ...] = ()
    _found: dict[str, list[TurnSpan]] = field(default_factory=dict[str, list[TurnSpan]])
    _checked: dict[tuple[str, TurnSpan], bool] = field(default_factory=dict[tuple[str, TurnSpan], bool])
    _opened: OrderedDict[str, tuple[TapeService, EpisodeReader]] = field(
        default_factory=OrderedDict[str, tuple[TapeService, EpisodeReader]]
    )

    @property
    def format(self) -> ExportFormat:
        """That of the next export."""
        return next(each for each in FORMATS if each.name == self.section.format)

    @property
    def count(self) -> int:
        """How many there were at the last look."""
        return sum(map(len, self._found.values()))

    def forget(self) -> None:
        """Look at all tapes again: what people allow has changed, or an export was written."""
        for kept in (self._read_to, self._found, self._checked, self._opened):
            kept.clear()

    async def look(self, exports: Sequence[Cited[ExportReady]]) -> int:
        """Look at what was judged since the last time; return how many turns there are.

        Args:
            exports: the exports that are written.
        """
        async with self._lock:
            every = await self.sources.store.tapes()
            basis = tuple((each.name, each.head) for each in every if each.name in self.sources.basis)
            if basis != self._basis:
                self.forget()
                self._basis = basis
            tapes = [each for each in every if _is_session(each)]
            for name in self._found.keys() - {each.name for each in tapes}:
                del self._found[name]
                self._opened.pop(name, None)
            for tape in tapes:
                before = self._read_to.get(tape.name, 0)
                if tape.head == before:
                    continue
                if before > tape.head:  # it began again
                    self._forget_tape(tape.name)
                    before = 0
                if await self._has_labels(tape.name, before):
                    self._found[tape.name] = (await self._find(tape, exports))[0]
                self._read_to[tape.name] = tape.head
            return self.count

    async def build_episodes(self, exports: Sequence[Cited[ExportReady]]) -> list[Episode]:
        """Return the turns of the last look as episodes, each a slice, in the order of tapes and turns."""
        async with self._lock:
            episodes = list[Episode]()
            for tape in sorted(await self.sources.store.tapes(), key=lambda each: each.name):
                if not self._found.get(tape.name):
                    continue
                spans, turns, rewards = await self._find(tape, exports)
                opened, reader = await self._open(tape.name)
                episodes += [
                    Episode(opened, reader, turn.first, turn.last, tape.head, tape.hash, turns, rewards)
                    for turn in spans
                ]
            return episodes

    async def _has_labels(self, name: str, after: int) -> bool:
        part = IdRanges(((after + 1, None),))
        query = TapeQuery(name, part, kinds=(Kind.EVENT,), names=LABEL_EVENTS, limit=1)
        return bool((await self.sources.store.fetch([query]))[0])

    async def _find(
        self, tape: TapeSummary, exports: Sequence[Cited[ExportReady]]
    ) -> tuple[list[TurnSpan], list[TurnSpan], Mapping[str, Sequence[Reward]]]:
        """Return the turns of a tape that count, all turns from the first of them on, and the rewards of these."""
        opened, reader = await self._open(tape.name)
        exported = await self._find_exported(tape, opened, exports)
        labels = [
            label
            for label in await self.sources.read_labels(tape.name)
            if label.is_in_force and label.judgement.target.entries
            if not _is_inside(label.judgement.target.entries[-1][1], exported)
        ]
        if not labels:
            return [], [], {}
        lowest = min(label.judgement.target.entries[-1][1] for label in labels)
        oldest = await opened.read(TurnAtView(lowest))
        turns = await find_turn_spans(opened, oldest.first if oldest else 1, tape.head)
        rewards = assign_rewards(labels, turns, self.section)
        returns = discount(rewards, turns, self.section.discount)
        counting = list[TurnSpan]()
        for turn in turns:
            if not rewards.get(turn.id):
                continue
            if (tape.name, turn) not in self._checked:
                head = EpisodeHead("", tape.name, opened.session, turn.first, turn.last, "", returns)
                self._checked[tape.name, turn] = await self._holds(reader, head)
            if self._checked[tape.name, turn]:
                counting.append(turn)
        return counting, turns, rewards

    async def _find_exported(
        self, tape: TapeSummary, opened: TapeHandle, exports: Sequence[Cited[ExportReady]]
    ) -> list[tuple[int, int]]:
        """Return the turns that exports have. A tape that began again after an export has none of its turns."""
        cited = [each for each in exports if tape.name in each.fact.exported]
        if not cited:
            return []
        (first,) = await opened.fetch([TapeQuery(tape.name, IdRanges(((1, 1),)))])
        began = first[0].date if first else ""
        return [(low, high) for each in cited if each.date >= began for low, high in each.fact.exported[tape.name]]

    async def _holds(self, reader: EpisodeReader, head: EpisodeHead) -> bool:
        """Return true if the format writes a record of a turn, which people therefore allow, and which can be rebuilt."""
        writer = self.format.open()
        list(writer.begin(head))
        async for found in reader.read(head.first, head.last, {}):
            if isinstance(found, EpisodeTurn):
                list(writer.write(found))
        return writer.records > 0

    async def _open(self, name: str) -> tuple[TapeService, EpisodeReader]:
        """Open a tape with a reader, which remembers who speaks on it: that of few tapes is kept."""
        if name not in self._opened:
            tape = await self.sources.open(name)
            check = ConsentCheck(SpeakerFinder(tape), self.sources.consents, "training")
            self._opened[name] = tape, EpisodeReader(tape, self.sources.strategies, check)
            if len(self._opened) > MAX_OPEN_TAPES:
                self._opened.popitem(last=False)
        self._opened.move_to_end(name)
        return self._opened[name]

    def _forget_tape(self, name: str) -> None:
        self._opened.pop(name, None)
        self._found.pop(name, None)
        for key in [key for key in self._checked if key[0] == name]:
            del self._checked[key]


def _is_session(tape: TapeSummary) -> bool:
    """Return true for the tape of a chat that goes on: what was put aside is exported by hand."""
    return tape.archived_from is None and tape.head > 0 and not tape.name.startswith(SYSTEM_TAPE_PREFIX)


def _is_inside(entry: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(low <= entry <= high for low, high in spans)
