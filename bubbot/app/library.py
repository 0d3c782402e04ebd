"""bubbot as a library: the tapes of a home, and a bot of one's own. `bubbot` offers these names; see docs/reference/python.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from bubbot.app.bot import Bot, PortWrappers, open_app
from bubbot.app.events import OWN_REFERENCES
from bubbot.app.settings import build_settings, load, load_with_missing_secrets
from bubbot.app.tapes import new_id, now, open_tapes
from bubbot.feature import FeatureFactory
from bubbot.features.memory.zone import MemoryZone
from bubbot.features.search.view import SearchView
from bubbot.home import Home
from bubbot.runtime.context.strategy import ContextStrategy
from bubbot.settings.sections import DEFAULT_STORE
from bubbot.tape.entry import TapeEntry
from bubbot.tape.fact import Fact, models_of
from bubbot.tape.handle import Clock, TapeFeatures, TapeHandle, spans_of
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.service import NewId, TapeService, session_tape
from bubbot.tape.store import TapeStore
from bubbot.tool import Tool


@dataclass(frozen=True, slots=True)
class HomeTapes:
    """The tapes of a home.

    Attributes:
        store: the store behind them.
        workspace: the label of the home in the names of the tapes of sessions.
        now: the clock.
        new_id: makes unique ids.
        references: the references that move along when entries of a fork get other ids.
        features: search and memory of the tapes.
    """

    store: TapeStore
    workspace: str
    now: Clock
    new_id: NewId
    references: ReferenceRegistry
    features: TapeFeatures

    def tape(self, name: str) -> TapeService:
        """Return the tape of this name; the first append creates it."""
        return self._open(name, "")

    def session(self, session: str) -> TapeService:
        """Return the tape of a chat, such as `telegram:42`."""
        return self._open(session_tape(self.workspace, session), session)

    async def names(self) -> list[str]:
        """Return the names of all tapes, sorted."""
        return sorted([tape.name for tape in await self.store.tapes()])

    def _open(self, name: str, session: str) -> TapeService:
        return TapeService(
            self.store,
            name,
            now=self.now,
            new_id=self.new_id,
            session=session,
            references=self.references,
            features=self.features,
        )


@asynccontextmanager
async def open_store(
    path: str | PathLike[str],
    *,
    read_only: bool = False,
    zone: str = "UTC",
    facts: Sequence[type[Fact]] = (),
    now: Clock = now,
    new_id: NewId = new_id,
) -> AsyncIterator[HomeTapes]:
    """Open the tapes of a home folder, which is created if it is missing. No bot may write to it meanwhile.

    Args:
        path: the folder.
        read_only: also works while a bot is running.
        zone: the time zone that decides which day it is for the memory.
        facts: your facts, whose references follow if entries of a fork get other ids.
        now: the clock.
        new_id: makes unique ids.

    Raises:
        HomeLocked: another process writes to this home.
        ConfigError: the home's config.toml cannot be used, or names a store that is not installed.
        StoreError: the database cannot be opened, or there is none to read.
        EntryInvalid: a fact has the name of an event of bubbot.
    """
    references = OWN_REFERENCES.with_events(models_of(*facts))
    features = TapeFeatures(_search, partial(_open_memory, now, ZoneInfo(zone)))
    home = Home(Path(path))
    has_settings = (home.path / "config.toml").exists()
    settings = load_with_missing_secrets(home=home.path).store if has_settings else DEFAULT_STORE
    async with open_tapes(home, settings, write=not read_only, now=now) as (store, workspace):
        yield HomeTapes(store, workspace, now, new_id, references, features)


@asynccontextmanager
async def open_bot(
    path: str | PathLike[str],
    settings: Mapping[str, Any] | None = None,
    *,
    strategies: Sequence[ContextStrategy] = (),
    tools: Sequence[Tool] = (),
    features: Sequence[FeatureFactory] = (),
) -> AsyncIterator[Bot]:
    """Open a bot without channels in a home folder; `Bot.say` asks it.

    Args:
        path: the folder, which is created if it is missing.
        settings: tables as in config.toml, such as `{"model": {"name": "scripted"}}`, instead of the file; None reads
            the file and the environment.
        strategies: context strategies that `[context] selector` may name. They are guarded like those of packages.
        tools: tools in addition to those of bubbot.
        features: features in addition, guarded like those of packages; their settings are sections of these names.

    Raises:
        ConfigError: a setting cannot be used.
        HomeLocked: another process writes to this home.
    """
    home = Home(Path(path))
    sections = {factory.name: factory.settings for factory in features if factory.settings is not None}
    loaded = load(home=home.path) if settings is None else build_settings(settings, sections)
    wrappers = PortWrappers(tools=tools, strategies=strategies, features=features)
    async with open_app(loaded, home, hold=True, wrappers=wrappers) as bot:
        yield bot


async def _search(tape: TapeHandle, words: str, limit: int) -> tuple[TapeEntry, ...]:
    found = await tape.read(SearchView(words, limit=limit))
    ids = [hit.id for hit in found.hits]
    if not ids:
        return ()
    (entries,) = await tape.fetch([TapeQuery(tape.name, IdRanges(tuple(spans_of(ids))))])
    by_id = {entry.id: entry for entry in entries}
    return tuple([by_id[entry_id] for entry_id in ids])


def _open_memory(now: Clock, zone: ZoneInfo, tape: TapeHandle) -> MemoryZone:
    return MemoryZone(tape, now=now, zone=zone)
