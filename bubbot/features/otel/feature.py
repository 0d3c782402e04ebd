"""The feature: turns as traces, for the tools people have. Off by default; then nothing of it is loaded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from bubbot import __version__
from bubbot.concurrency import Backoff
from bubbot.errors import ConfigError
from bubbot.feature import Apply, Around, Feature, Kernel, Lifecycle
from bubbot.features.otel.facts import OTEL_TAPE, ExportBegan, ExportEnded, LabelsSent, TurnsExported
from bubbot.features.otel.settings import AUTO, OtelSettings
from bubbot.features.otel.state import OTEL_METRICS, ExportState
from bubbot.log import Redactor
from bubbot.middleware import CallNext, ModelCall, ToolInvocation
from bubbot.ports.channel import TERMINAL_CHANNEL
from bubbot.ports.health import Outage
from bubbot.ports.model import CALL_HEADERS, ModelReply
from bubbot.ports.store import OrdersEntries
from bubbot.settings.channels import CHANNEL_KINDS
from bubbot.settings.loader import Settings
from bubbot.tape.entry import Kind
from bubbot.tape.fork import MergeResult
from bubbot.tape.query import TapeQuery
from bubbot.tool import ToolOutput

if TYPE_CHECKING:
    from bubbot.features.otel.content import Exposure

MAX_RETRY_SECONDS = 300.0


class OtelConfig(Struct, frozen=True):
    """What the feature takes of the settings: its section, the secrets to redact, the name of the bot, and those of the channels.

    Channels that there were before have the names of their kinds.
    """

    settings: OtelSettings
    secrets: Sequence[str]
    agent: str
    channels: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings) -> OtelConfig:
        """Take it of the settings."""
        channels = tuple(sorted({TERMINAL_CHANNEL, *CHANNEL_KINDS, *settings.channels}))
        return cls(settings.section(OtelSettings), settings.secrets(), settings.bot.name, channels)


def create_lasting(kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature; what it has sent outlives a change of the settings."""
    return OtelFeature(kernel, OtelConfig.of(settings)).feature()


class StepSpan(NamedTuple):
    """The span of the running step of a turn, 16 hex digits."""

    id: str


class OtelFeature:
    """Sends turns and judgements to a receiver while it is on.

    Attributes:
        state: the figures for reports.
    """

    def __init__(self, kernel: Kernel, config: OtelConfig) -> None:
        """Build it without reading anything."""
        self._kernel = kernel
        self._config = config
        self._tape = kernel.open_tape(OTEL_TAPE)
        self._woken = asyncio.Event()
        self._advanced = asyncio.Event()
        self._changed = asyncio.Event()
        self.state = ExportState()

    def feature(self) -> Feature:
        """Build the record under the settings in force."""
        return Feature(
            name="otel",
            on_merged=(self._wake,) if self._config.settings.url else (),
            around=Around(
                model=(self._trace_call,) if self._config.settings.names_spans else (),
                tool=(self._trace_tool,) if self._config.settings.names_spans else (),
            ),
            lifecycle=Lifecycle(
                background={"export of traces": self._run, "export of judgements": self._run_labels},
                prepare=self._prepare,
                renew=self.feature,
            ),
            health=lambda context: self.state.report(context, self._config.settings.url),
            metrics=OTEL_METRICS,
        )

    async def _trace_call(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        """Let servers of models know the span of the step that calls them."""
        from bubbot.features.otel.propagation import make_call_headers

        call.span = call.span or self._kernel.new_id()[:16]
        call.turn.metadata[StepSpan] = StepSpan(call.span)
        token = CALL_HEADERS.set(make_call_headers(call.turn.root.id, call.span, self._config.settings.traceparent))
        try:
            return await call_next(call)
        finally:
            CALL_HEADERS.reset(token)

    async def _trace_tool(self, call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
        """Let servers of tools know the span of the step whose model calls them."""
        from bubbot.features.otel.propagation import make_call_headers

        step = call.turn.metadata.get(StepSpan)
        if call.call is None or step is None:
            return await call_next(call)
        headers = make_call_headers(call.turn.root.id, step.id, self._config.settings.traceparent)
        token = CALL_HEADERS.set(headers)
        try:
            return await call_next(call)
        finally:
            CALL_HEADERS.reset(token)

    async def _wake(self, _merged: MergeResult) -> None:
        self._woken.set()

    async def _prepare(self, settings: Settings) -> Apply:
        config = OtelConfig.of(settings)
        _require_packages(config.settings)

        def apply() -> None:
            if config != self._config:
                self._config = config
                self.state.position = 0  # judgements wait until the export of spans has begun again
                self._changed.set()

        return apply

    async def _run(self) -> None:
        """Export while it is on; begin again with the new settings if these change."""
        await self._keep_running(
            lambda: self._export() if self._config.settings.url else self._record_end(), self.state.outage
        )

    async def _run_labels(self) -> None:
        """Export judgements while that is on, behind the spans."""
        await self._keep_running(self._export_labels, self.state.labels_outage)

    async def _keep_running(self, make_work: Callable[[], Coroutine[None, None, None]], outage: Outage) -> None:
        while True:
            self._changed.clear()
            work = asyncio.create_task(make_work())
            change = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.wait((work, change), return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    if (error := work.exception()) is not None:
                        outage.begin(type(error).__name__, self._kernel.now())
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
        position, entries = await self._find_position(), self._kernel.ordered_entries
        if position is None or (entries is not None and await _is_of_another_store(entries, position)):
            position = await entries.newest_position() if entries else 0
            await self._tape.append([ExportBegan(position, self._kernel.new_id()).to_entry()])
        return position

    async def _find_labels_position(self) -> tuple[int, str]:
        """Return the position up to which judgements were sent, and when the export began."""
        began = TapeQuery(OTEL_TAPE, kinds=(Kind.EVENT,), names=ExportBegan.EVENTS, newest=True, limit=1)
        sent = TapeQuery(OTEL_TAPE, kinds=(Kind.EVENT,), names=LabelsSent.EVENTS, newest=True, limit=1)
        ((first,), newest) = await self._tape.fetch([began, sent])
        position = ExportBegan.of(first).position
        return max([position, *(LabelsSent.of(entry).position for entry in newest if entry.id > first.id)]), first.date

    async def _read_key(self) -> bytes:
        """Return the key of the pseudonyms: that of the first time, so that they stay the same."""
        query = TapeQuery(OTEL_TAPE, kinds=(Kind.EVENT,), names=ExportBegan.EVENTS, limit=1)
        ((first,),) = await self._tape.fetch([query])
        return ExportBegan.of(first).key.encode()

    async def _export(self) -> None:
        # Imported here: a bot that sends nothing loads nothing of this.
        from aiohttp import ClientSession, ClientTimeout

        from bubbot.features.otel.exporter import TraceExporter
        from bubbot.features.otel.sender import SpanSender

        config, kernel, entries = self._config, self._kernel, self._kernel.ordered_entries
        if entries is None:
            raise ConfigError("[otel] endpoint is set, but this store does not order its entries: no traces are sent.")
        _require_packages(config.settings)
        settings, position = config.settings, await self._begin()
        exposure = await self._make_exposure(config)
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
                advanced=self._advanced,
            )
            await exporter.run(position)

    async def _export_labels(self) -> None:
        from aiohttp import ClientSession, ClientTimeout

        from bubbot.features.otel.label_exporter import LabelExporter
        from bubbot.features.otel.sender import HttpSender

        config, kernel, entries = self._config, self._kernel, self._kernel.ordered_entries
        settings, state = config.settings, self.state
        state.takes_labels = state.is_other = False
        state.labels_outage.end()
        if not settings.annotations_url or entries is None:
            return
        while not state.position:  # nothing was sent yet since the start, and the key may not be there
            self._advanced.clear()
            await self._advanced.wait()
        exposure, (position, began) = await self._make_exposure(config), await self._find_labels_position()
        async with ClientSession(timeout=ClientTimeout(settings.timeout)) as session:
            headers = settings.read_annotations_headers()
            url = f"{settings.annotations_url}?sync=true"  # else Phoenix takes anything, and drops what has no span
            exporter = LabelExporter(
                entries,
                kernel.open_tape,
                self._tape,
                HttpSender(session, url, headers, kernel.now, "[otel] annotations"),
                exposure,
                read_labels=kernel.read_labels,
                state=state,
                began=began,
                is_explicit=settings.annotations != AUTO,
                backoff=Backoff(random.random, max_seconds=MAX_RETRY_SECONDS),
                now=kernel.now,
                advanced=self._advanced,
            )
            await exporter.run(position)

    async def _make_exposure(self, config: OtelConfig) -> Exposure:
        from bubbot.features.otel.content import Exposure

        tools = {name for tool in self._kernel.list_tools() for name in tool.names}
        redactor, key = Redactor(config.secrets), await self._read_key()
        return Exposure(config.settings.content, redactor, key, config.agent, tools, config.channels)


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


async def _is_of_another_store(entries: OrdersEntries, position: int) -> bool:
    """Return true for a position from before the tapes were copied into this store, where positions are others."""
    oldest = await entries.read_after(0, 1)
    return bool(oldest) and (0 < position < oldest[0].position or position > await entries.newest_position())
