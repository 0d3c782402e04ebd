"""The feature: turns as traces, for the tools people have. Off by default; then nothing of it is loaded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from msgspec import Struct

from bubbot import __version__
from bubbot.concurrency import Backoff
from bubbot.errors import ConfigError
from bubbot.feature import Apply, Feature, Kernel
from bubbot.features.otel.facts import OTEL_TAPE, ExportBegan, ExportEnded, TurnsExported
from bubbot.features.otel.settings import OtelSettings
from bubbot.features.otel.state import OTEL_METRICS, ExportState
from bubbot.log import Redactor
from bubbot.settings.loader import Settings
from bubbot.tape.entry import Kind
from bubbot.tape.fork import MergeResult
from bubbot.tape.query import TapeQuery

MAX_RETRY_SECONDS = 300.0


class OtelConfig(Struct, frozen=True):
    """What the feature takes of the settings: its section, the secrets to redact, and the name of the bot."""

    settings: OtelSettings
    secrets: Sequence[str]
    agent: str

    @classmethod
    def of(cls, settings: Settings) -> OtelConfig:
        """Take it of the settings."""
        return cls(settings.section(OtelSettings), settings.secrets(), settings.bot.name)


def create_lasting(kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature; what it has sent outlives a change of the settings."""
    return OtelFeature(kernel, OtelConfig.of(settings)).feature()


class OtelFeature:
    """Sends turns to a receiver while it is on.

    Attributes:
        state: the figures for reports.
    """

    def __init__(self, kernel: Kernel, config: OtelConfig) -> None:
        """Build it without reading anything."""
        self._kernel = kernel
        self._config = config
        self._tape = kernel.open_tape(OTEL_TAPE)
        self._woken = asyncio.Event()
        self._changed = asyncio.Event()
        self.state = ExportState()

    def feature(self) -> Feature:
        """Build the record under the settings in force."""
        return Feature(
            name="otel",
            on_merged=(self._wake,) if self._config.settings.url else (),
            background={"export of traces": self._run},
            health=lambda context: self.state.report(context, self._config.settings.url),
            metrics=OTEL_METRICS,
            prepare=self._prepare,
            renew=self.feature,
        )

    async def _wake(self, _merged: MergeResult) -> None:
        self._woken.set()

    async def _prepare(self, settings: Settings) -> Apply:
        config = OtelConfig.of(settings)
        _require_packages(config.settings)

        def apply() -> None:
            if config != self._config:
                self._config = config
                self._changed.set()

        return apply

    async def _run(self) -> None:
        """Export while it is on; begin again with the new settings if these change."""
        while True:
            self._changed.clear()
            work = asyncio.create_task(self._export() if self._config.settings.url else self._record_end())
            change = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.wait((work, change), return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    if (error := work.exception()) is not None:
                        self.state.note_failure(type(error).__name__, self._kernel.now())
                        raise error  # the supervisor tries again
                    await change
            finally:
                for task in (work, change):
                    task.cancel()
                await asyncio.gather(work, change, return_exceptions=True)

    async def _find_position(self) -> int | None:
        """Return the position up to which turns were sent; None if the export is off, or never ran."""
        stages = (ExportBegan, TurnsExported, ExportEnded)
        names = [name for stage in stages for name in stage.EVENTS]
        query = TapeQuery(OTEL_TAPE, kinds=(Kind.EVENT,), names=tuple(names), newest=True, limit=1)
        for entry in (await self._tape.fetch([query]))[0]:
            if entry.name in ExportBegan.EVENTS:
                return ExportBegan.of(entry).position
            if entry.name in TurnsExported.EVENTS:
                return TurnsExported.of(entry).position
        return None

    async def _record_end(self) -> None:
        """Record that it is off, if it was on: what is said from now on is never sent, whenever it is on again."""
        if await self._find_position() is not None:
            await self._tape.append([ExportEnded().to_entry()])

    async def _begin(self) -> int:
        """Return the position to go on from; switched on just now, that is the present."""
        position = await self._find_position()
        if position is None:
            entries = self._kernel.ordered_entries
            position = await entries.newest_position() if entries else 0
            await self._tape.append([ExportBegan(position, self._kernel.new_id()).to_entry()])
        return position

    async def _read_key(self) -> bytes:
        """Return the key of the pseudonyms: that of the first time, so that they stay the same."""
        query = TapeQuery(OTEL_TAPE, kinds=(Kind.EVENT,), names=ExportBegan.EVENTS, limit=1)
        ((first,),) = await self._tape.fetch([query])
        return ExportBegan.of(first).key.encode()

    async def _export(self) -> None:
        # Imported here: a bot that sends nothing loads nothing of this.
        from aiohttp import ClientSession, ClientTimeout

        from bubbot.features.otel.content import Exposure
        from bubbot.features.otel.exporter import TraceExporter
        from bubbot.features.otel.sender import SpanSender

        config, kernel, entries = self._config, self._kernel, self._kernel.ordered_entries
        if entries is None:
            raise ConfigError("[otel] endpoint is set, but this store does not order its entries: no traces are sent.")
        _require_packages(config.settings)
        settings, position = config.settings, await self._begin()
        redactor, key = Redactor(config.secrets), await self._read_key()
        exposure = Exposure(
            settings.content,
            redactor,
            key,
            config.agent,
            {name for tool in self._kernel.list_tools() for name in tool.names},
        )
        async with ClientSession(timeout=ClientTimeout(settings.timeout)) as session:
            exporter = TraceExporter(
                entries,
                kernel.open_tape,
                self._tape,
                SpanSender(session, settings.url, settings.read_headers(), kernel.now),
                exposure,
                strategies=kernel.strategies,
                state=self.state,
                service=settings.service,
                version=__version__,
                backoff=Backoff(random.random, max_seconds=MAX_RETRY_SECONDS),
                now=kernel.now,
                woken=self._woken,
            )
            await exporter.run(position)


def _require_packages(settings: OtelSettings) -> None:
    """Raise `ConfigError` if traces are to be sent and the packages for that are missing."""
    if not settings.url:
        return
    from bubbot.features.otel.encoding import format_install_command, otel_is_installed

    if not otel_is_installed():
        raise ConfigError(
            "[otel] endpoint is set, but the packages for traces are not installed: nothing is sent. "
            f"Install them with {format_install_command()} and start the bot again."
        )
