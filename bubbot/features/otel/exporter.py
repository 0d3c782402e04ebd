"""Following the tapes: each turn that was merged is sent as spans, in order, from a checkpoint on.

The tape is the queue: nothing is kept in memory but the turns of one request. The checkpoint is written after the receiver
has taken them, so that a kill in between sends them again, under the same ids: none is lost, and a receiver that tells spans
apart by their ids has none twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec import UNSET, Struct

from bubbot.concurrency import Backoff
from bubbot.errors import TapeCorrupt, TraceReceiverFailed
from bubbot.features.otel.content import Exposure
from bubbot.features.otel.encoding import encode_turn, read_rejected
from bubbot.features.otel.facts import TurnRefused, TurnsExported
from bubbot.features.otel.requests import read_people, read_requests
from bubbot.features.otel.sender import SpanSender
from bubbot.features.otel.spans import NO_REQUESTS, SpanData, TurnSpans, find_session
from bubbot.features.otel.state import ExportState
from bubbot.ports.session_names import IMPORT_EVENT, IMPORTS_TAPE
from bubbot.ports.store import OrdersEntries, PositionedEntry
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import TURN_ENDS, TURN_START
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import TapeService

log = logging.getLogger(__name__)

PAGE_ENTRIES = 500
"""Entries read at a time."""
MAX_REQUEST_SPANS = 500
MAX_REQUEST_BYTES = 2_000_000
"""Spans and bytes after which a request takes no further turn; a single turn may have more."""
GATHER_SECONDS = 1.0
"""Seconds to wait for further turns before a request."""
QUIET_SECONDS = 60.0
"""Seconds after which the tapes are looked at although no turn ended here."""
UNSENDABLE_ERRORS = (
    TapeCorrupt, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip
"""What an imported or a damaged entry raises, or one that no span can hold: `bubbot tape verify` looks at the damaged ones,
and they hold up no other turn."""
IDLE_POSITIONS = 20_000
"""Positions without a turn after which a checkpoint spares the next start from reading them."""


class ExportedTurn(Struct, frozen=True):
    """A turn to send: its id, how many spans it has, and these as the body of a request.

    Bodies one after the other are the body of one request: that is how the encoding of OTLP is.
    """

    id: str
    spans: int
    body: bytes


@dataclass(slots=True)
class _Batch:
    """The turns of a request, and the position up to which there are no others."""

    turns: list[ExportedTurn] = field(default_factory=list)
    position: int = 0
    spans: int = 0
    bytes: int = 0

    def add(self, turn: ExportedTurn) -> None:
        """Add a turn."""
        self.turns.append(turn)
        self.spans += turn.spans
        self.bytes += len(turn.body)

    @property
    def is_full(self) -> bool:
        """True if it should be sent before another turn is read."""
        return self.spans >= MAX_REQUEST_SPANS or self.bytes >= MAX_REQUEST_BYTES


class TraceExporter:
    """Sends the turns of all tapes to one receiver."""

    def __init__(
        self,
        entries: OrdersEntries,
        open_tape: Callable[[str], TapeService],
        tape: TapeHandle,
        sender: SpanSender,
        exposure: Exposure,
        *,
        strategies: ContextStrategies,
        state: ExportState,
        service: str,
        version: str,
        backoff: Backoff,
        now: Clock,
        woken: asyncio.Event,
        advanced: asyncio.Event,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Build it without reading anything.

        Args:
            entries: the order of the entries of all tapes.
            open_tape: opens a tape by its name.
            tape: gets the facts of the export.
            sender: sends to the receiver.
            exposure: what the receiver may see.
            strategies: rebuild what models were shown.
            state: the figures for reports.
            service: the name of the bot at the receiver.
            version: that of bubbot.
            backoff: the waits after failures.
            woken: is set if a turn was merged.
            advanced: gets set once all spans up to a position were sent.
            sleep: waits for that many seconds.
        """
        self._entries = entries
        self._open_tape = open_tape
        self._tape = tape
        self._sender = sender
        self._exposure = exposure
        self._strategies = strategies
        self._state = state
        self._service = service
        self._version = version
        self._backoff = backoff
        self._now = now
        self._woken = woken
        self._advanced = advanced
        self._sleep = sleep

    async def run(self, position: int) -> None:
        """Send everything after a position, and what comes, until cancelled."""
        checkpoint = position
        await self._look(position)
        self._state.is_begun = True
        while True:
            self._woken.clear()
            async for batch in self._read_batches(position):
                position = batch.position
                if batch.turns or position - checkpoint >= IDLE_POSITIONS:
                    await self._deliver(batch, checkpoint)
                    checkpoint = position
            await self._look(position)
            self._state.position = position
            self._advanced.set()
            if not self._state.behind:  # else the checkpoint just written, or what came meanwhile, is read first
                with suppress(TimeoutError):
                    async with asyncio.timeout(QUIET_SECONDS):
                        await self._woken.wait()
            await self._sleep(GATHER_SECONDS)

    async def _read_batches(self, position: int) -> AsyncIterator[_Batch]:
        """Yield the turns that ended after a position, in requests; the last may have none."""
        batch = _Batch(position=position)
        while True:
            batch.position, page = await read_page(self._entries, batch.position)
            if not page:
                break
            for positioned in page:
                batch.position = positioned.position
                if positioned.entry.name in TURN_ENDS and (turn := await self._read_turn(positioned)) is not None:
                    batch.add(turn)
                    if batch.is_full:
                        yield batch
                        batch = _Batch(position=batch.position)
        yield batch

    async def _read_turn(self, end: PositionedEntry) -> ExportedTurn | None:
        """Read the turn that ends here; None if there is nothing of it to send."""
        tape = self._open_tape(end.tape)
        before = IdRanges(((1, end.entry.id),))
        query = TapeQuery(end.tape, before, kinds=(Kind.EVENT,), names=(TURN_START,), newest=True, limit=1)
        imports = TapeQuery(IMPORTS_TAPE, kinds=(Kind.EVENT,), names=(IMPORT_EVENT,))
        try:
            starts, imported = await tape.fetch([query, imports])
            # The end may have been recorded for a fork that no turn wrote; turns of a file are those of another bot.
            if not starts or any(is_imported(end, fact) for fact in imported):
                return None
            cited = _cited_spans(starts[0])
            queries = [TapeQuery(end.tape, IdRanges(((starts[0].id, end.entry.id),)))]
            queries += [TapeQuery(end.tape, IdRanges(cited))] if cited else []
            entries, *further = await tape.fetch(queries)
            spans = await self._build_spans(tape, entries, further[0] if further else ())
            if not spans:
                return None
            body = await asyncio.to_thread(encode_turn, spans, self._service, self._version)
        except UNSENDABLE_ERRORS as error:
            # The reason is not logged: it may quote what was said.
            log.warning(
                "turn not sent, its facts cannot be read or encoded: %s", type(error).__name__,
                extra={"action": "otel.unreadable", "tape": end.tape, "entry": end.entry.id},
            )  # fmt: skip
            return None
        return ExportedTurn(str(end.entry.meta.get("turn", "")), len(spans), body)

    async def _build_spans(
        self, tape: TapeService, entries: Sequence[TapeEntry], cited: Sequence[TapeEntry]
    ) -> list[SpanData]:
        """Build the spans of a turn; with content those of models have the request, rebuilt from the tape."""
        exposure, requests = self._exposure, NO_REQUESTS
        if exposure.has_content:
            try:
                if exposure.content == "redacted":
                    exposure = exposure.of_turn(find_session(entries), await read_people(tape, entries))
                requests = await read_requests(tape, entries, self._strategies, exposure)
            except TapeCorrupt:  # an older message is damaged, and this turn is not
                requests = NO_REQUESTS
        return TurnSpans(entries, exposure, cited, requests).build()

    async def _deliver(self, batch: _Batch, checkpoint: int) -> None:
        """Send the turns until they are taken, then write the checkpoint."""
        rejected = await self._send(batch.turns, checkpoint) if batch.turns else 0
        fact = TurnsExported(batch.position, len(batch.turns), batch.spans, rejected or UNSET)
        await self._tape.append([fact.to_entry()])

    async def _send(self, turns: Sequence[ExportedTurn], checkpoint: int) -> int:
        """Send turns until they are taken; return how many spans were not, because nothing will make the receiver take them.

        A request that it does not take is halved, until one turn is left that is at fault.
        """
        body, spans = b"".join(turn.body for turn in turns), sum(turn.spans for turn in turns)
        failures = 0
        while True:
            try:
                rejected = read_rejected(await self._sender.send(body))
            except TraceReceiverFailed as error:
                if error.is_final and len(turns) > 1:
                    half = len(turns) // 2
                    return await self._send(turns[:half], checkpoint) + await self._send(turns[half:], checkpoint)
                if error.is_final:
                    return await self._refuse(turns[0], error)
                failures += 1
                await self._note_failure(error, failures, checkpoint)
            else:
                self._note_success(spans - rejected, rejected)
                if rejected >= spans > 0:
                    self._note_refusal(len(turns), "it takes none of their spans")
                return rejected

    async def _refuse(self, turn: ExportedTurn, error: TraceReceiverFailed) -> int:
        """Record that the receiver does not take a turn; the next ones are sent."""
        self._note_success(0, 0)  # it is there, and takes the next ones
        self._state.rejected += turn.spans
        self._note_refusal(1, str(error), turn.id)
        await self._tape.append([TurnRefused(turn.id, error.status).to_entry()])
        return turn.spans

    def _note_refusal(self, turns: int, reason: str, turn: str = "") -> None:
        """Note that turns are lost to the receiver. Each cause is one warning until it takes a turn again."""
        is_new = self._state.note_refusal(turns, reason, self._now())
        log.log(
            logging.WARNING if is_new else logging.INFO,
            "the receiver of traces refuses a turn, which is not sent again; if it refuses all, check [otel] endpoint and "
            "headers, and its own log: %s",
            reason,
            extra={"action": "otel.refused", **({"trace": turn[:8]} if turn else {})},
        )

    async def _note_failure(self, error: TraceReceiverFailed, failures: int, checkpoint: int) -> None:
        """Note that a request failed, and wait."""
        wait = self._backoff.delay_seconds(failures) if error.retry_after is None else error.retry_after
        await self._look(checkpoint)
        self._state.failures += 1
        if self._state.outage.begin(str(error), self._now()):
            log.warning(
                "traces wait, their receiver has not taken them: %s", error,
                extra={"action": "otel.failed", "seconds": round(wait)},
            )  # fmt: skip
        await self._sleep(wait)

    def _note_success(self, sent: int, rejected: int) -> None:
        if self._state.outage.end():
            log.info("traces are taken again", extra={"action": "otel.taken"})
        if sent:
            self._state.refused, self._state.refusal = 0, ""
        if sent and rejected:
            log.warning(
                "the receiver of traces has not taken some spans", extra={"action": "otel.rejected", "spans": rejected}
            )
        self._state.sent += sent
        self._state.rejected += rejected

    async def _look(self, position: int) -> None:
        """Look how many entries wait."""
        self._state.behind = max(0, await self._entries.newest_position() - position)


async def read_page(entries: OrdersEntries, position: int) -> tuple[int, Sequence[PositionedEntry]]:
    """Read the entries after a position; return them, and that position, or a later one if a damaged entry was passed.

    The turn of such an entry is left out; it holds up no others.
    """
    limit = PAGE_ENTRIES
    while True:
        try:
            return position, await entries.read_after(position, limit)
        except TapeCorrupt as error:
            if limit > 1:  # look for the entry
                limit //= 2
                continue
            position += 1
            log.warning("entry passed over by the traces: %s", error, extra={"action": "otel.damaged"})


def is_imported(end: PositionedEntry, fact: TapeEntry) -> bool:
    """Return true if an entry came with this import: an imported tape begins with the entries of its file."""
    count = fact.data.get("entries")
    return fact.data.get("tape") == end.tape and isinstance(count, int) and end.entry.id <= count


def _cited_spans(start: TapeEntry) -> tuple[tuple[int, int], ...]:
    """Return the ids of messages that an interrupted attempt left, and that this turn answers."""
    messages = start.data.get("messages", ())
    return tuple((int(each), int(each)) for each in messages) if isinstance(messages, (list, tuple)) else ()
