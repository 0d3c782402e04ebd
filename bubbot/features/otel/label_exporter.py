"""Following the tapes for judgements: each is sent to Phoenix as an annotation, once its span was sent.

It goes after the export of spans, from a checkpoint of its own: a receiver that takes no annotations holds up no span. The
checkpoint is written after Phoenix has answered; what is sent again has the same identifier and changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec import UNSET

from bubbot.concurrency import Backoff
from bubbot.errors import TapeCorrupt, TraceReceiverFailed
from bubbot.features.otel.annotations import Annotation, build_annotations
from bubbot.features.otel.content import Exposure
from bubbot.features.otel.exporter import IDLE_POSITIONS, UNSENDABLE_ERRORS, is_imported, read_page
from bubbot.features.otel.facts import LabelsSent
from bubbot.features.otel.sender import HttpSender
from bubbot.features.otel.state import ExportState
from bubbot.ports.judgements import LABEL_EVENTS, Label, ReadLabels
from bubbot.ports.session_names import IMPORT_EVENT, IMPORTS_TAPE
from bubbot.ports.store import OrdersEntries, PositionedEntry
from bubbot.tape.entry import Kind
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService

log = logging.getLogger(__name__)

MAX_ANNOTATIONS = 100
"""Annotations of one request."""
MAX_TRIES = 10
"""How often a label is sent whose span Phoenix does not have: it stores spans some seconds after it has taken them."""
LOOK_AGAIN_SECONDS = 3600.0
"""Seconds after which a receiver that was not Phoenix is looked at again."""


class _NotPhoenix(Exception):
    """The receiver knows no annotations."""


@dataclass(slots=True)
class _Waiting:
    """A label whose span is not there yet. `position`: the checkpoint stays below it. `due`: by the monotonic clock."""

    tape: str
    position: int
    tries: int = 1
    due: float = 0.0


@dataclass(slots=True)
class _Outcome:
    """What came of annotations: how many were taken, how many never will be, and which have no span."""

    taken: int = 0
    rejected: int = 0
    missing: list[Annotation] = field(default_factory=list)


class LabelExporter:
    """Sends the judgements of all tapes to one Phoenix."""

    def __init__(
        self,
        entries: OrdersEntries,
        open_tape: Callable[[str], TapeService],
        tape: TapeHandle,
        sender: HttpSender,
        exposure: Exposure,
        *,
        read_labels: ReadLabels,
        state: ExportState,
        began: str,
        is_explicit: bool,
        backoff: Backoff,
        now: Clock,
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
            read_labels: returns the labels of a tape.
            state: how far spans were sent, and the figures for reports.
            began: when the export of spans was switched on.
            is_explicit: the settings name this Phoenix; else the receiver of spans may be another one.
            backoff: the waits after failures.
            advanced: is set if spans were sent.
            sleep: waits for that many seconds.
        """
        self._entries = entries
        self._open_tape = open_tape
        self._tape = tape
        self._sender = sender
        self._exposure = exposure
        self._read_labels = read_labels
        self._state = state
        self._began = began
        self._is_explicit = is_explicit
        self._backoff = backoff
        self._now = now
        self._advanced = advanced
        self._sleep = sleep
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        self._checkpoint = 0

    async def run(self, position: int) -> None:
        """Send all labels after a position whose spans were sent, and what comes, until cancelled."""
        self._checkpoint = position
        while True:
            self._advanced.clear()
            try:
                await self._look_for_phoenix()
                while position < self._state.position:
                    position = await self._send_page(position)
                await self._send_waiting(position)
            except _NotPhoenix:
                self._note_other()
                pause: float | None = LOOK_AGAIN_SECONDS
            else:
                due = min((each.due for each in self._waiting.values()), default=None)
                pause = None if due is None else max(0.0, due - time.monotonic())
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._advanced.wait()

    async def _look_for_phoenix(self) -> None:
        """Find out if the receiver takes annotations: Phoenix answers a list without any. Raise `_NotPhoenix` if it does not."""
        if self._state.takes_labels:
            return
        answer = await self._post([])
        try:
            is_phoenix = isinstance(json.loads(answer), Mapping)
        except ValueError:
            is_phoenix = False
        if not is_phoenix:
            raise _NotPhoenix
        self._state.takes_labels = True

    async def _send_page(self, position: int) -> int:
        """Send the labels that a page of entries brings, and write the checkpoint; return the position behind the page."""
        start, page = await read_page(self._entries, position)
        page = [each for each in page if each.position <= self._state.position]
        end = page[-1].position if page else max(start, self._state.position)
        changed: dict[str, list[PositionedEntry]] = {}
        for each in page:
            if each.entry.name in LABEL_EVENTS:
                changed.setdefault(each.tape, []).append(each)
        total = _Outcome()
        for name, entries in changed.items():
            at = {each.entry.id: each.position for each in entries}
            outcome = await self._send(await self._build(name, entries))
            for annotation in outcome.missing:
                self._wait_for_span(annotation, at.get(annotation.entry, entries[0].position), outcome)
            total.taken += outcome.taken
            total.rejected += outcome.rejected
        await self._write_checkpoint(end, total)
        return end

    async def _build(self, name: str, entries: Sequence[PositionedEntry]) -> list[Annotation]:
        """Build the annotations of a tape that these facts change."""
        try:
            imports = TapeQuery(IMPORTS_TAPE, kinds=(Kind.EVENT,), names=(IMPORT_EVENT,))
            (imported,) = await self._tape.fetch([imports])
        except TapeCorrupt:
            imported = ()
        own = {each.entry.id for each in entries if not any(is_imported(each, fact) for fact in imported)}
        return await self._build_chosen(name, partial(_choose, changed=own)) if own else []

    async def _build_chosen(self, name: str, choose: Callable[[Sequence[Label]], list[Label]]) -> list[Annotation]:
        """Build the annotations of some labels of a tape; of one with an imported or damaged entry that cannot be read, none."""
        try:
            labels = choose(await self._read_labels(name))
            return await build_annotations(self._open_tape(name), labels, self._exposure)
        except UNSENDABLE_ERRORS as error:
            log.warning(
                "judgements not sent, the facts of their tape cannot be read: %s", type(error).__name__,
                extra={"action": "otel.unreadable", "tape": name},
            )  # fmt: skip
            return []

    async def _send_waiting(self, position: int) -> None:
        """Send the labels again whose span was missing, if it is time."""
        now = time.monotonic()
        due = [key for key, each in self._waiting.items() if each.due <= now]
        for name in dict.fromkeys(tape for tape, _ in due):
            numbers = {number for tape, number in due if tape == name}
            outcome = await self._send(await self._build_chosen(name, partial(_pick, numbers=numbers)))
            missing = {each.entry for each in outcome.missing}
            for number in numbers - missing:
                del self._waiting[name, number]
            for annotation in outcome.missing:
                self._wait_for_span(annotation, 0, outcome)
            await self._write_checkpoint(position, outcome)

    def _wait_for_span(self, annotation: Annotation, position: int, outcome: _Outcome) -> None:
        """Keep a label whose span is missing, or stop trying: the span of a turn before the export began is never sent."""
        key = annotation.tape, annotation.entry
        waiting = self._waiting.get(key)
        tries = waiting.tries + 1 if waiting else 1
        if annotation.date < self._began or tries >= MAX_TRIES:
            self._waiting.pop(key, None)
            outcome.rejected += 1
            self._note_rejected(annotation, "Phoenix has no span of what it is about")
            return
        due = time.monotonic() + self._backoff.delay_seconds(tries)
        self._waiting[key] = _Waiting(annotation.tape, waiting.position if waiting else position, tries, due)

    async def _write_checkpoint(self, position: int, outcome: _Outcome) -> None:
        """Write how far labels were sent; no further than before the first one that waits for its span."""
        self._state.labels_sent += outcome.taken
        self._state.labels_rejected += outcome.rejected
        self._state.labels_waiting = len(self._waiting)
        safe = min((each.position - 1 for each in self._waiting.values()), default=position)
        if outcome.taken or outcome.rejected or safe - self._checkpoint >= IDLE_POSITIONS:
            self._checkpoint = max(self._checkpoint, min(safe, position))
            fact = LabelsSent(self._checkpoint, outcome.taken, outcome.rejected or UNSET)
            await self._tape.append([fact.to_entry()])

    async def _send(self, annotations: Sequence[Annotation]) -> _Outcome:
        """Send annotations until each is taken, refused, or known to have no span."""
        outcome = _Outcome()
        todo = [annotations[at : at + MAX_ANNOTATIONS] for at in range(0, len(annotations), MAX_ANNOTATIONS)]
        while todo:
            part = todo.pop(0)
            try:
                await self._post([each.body for each in part])
            except TraceReceiverFailed as error:
                missing = _find_missing([each.body for each in part], error)
                if error.status == 404 and missing:
                    outcome.missing += [each for each in part if each.span in missing]
                    todo.insert(0, [each for each in part if each.span not in missing])
                elif len(part) > 1:
                    todo[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]
                elif error.status == 404:
                    outcome.missing += part
                else:
                    outcome.rejected += 1
                    self._note_rejected(part[0], str(error))
            else:
                outcome.taken += len(part)
            todo = [each for each in todo if each]
        return outcome

    async def _post(self, data: Sequence[Mapping[str, Any]]) -> bytes:
        """Send one request until it is answered for good.

        Raises:
            TraceReceiverFailed: the request is refused as wrong, or a span of it is missing.
            _NotPhoenix: there is no such address.
        """
        body, failures = json.dumps({"data": data}).encode(), 0
        while True:
            try:
                answer = await self._sender.post(body, {"content-type": "application/json"})
            except TraceReceiverFailed as error:
                if not data and self._is_of_another(error):
                    raise _NotPhoenix from error
                if data and error.status in (404, 405) and not _find_missing(data, error):
                    self._state.takes_labels = False  # a missing span, or is it another receiver now?
                    await self._look_for_phoenix()
                if data and (error.is_final or error.status in (404, 405)):
                    self._note_answer()
                    raise
                failures += 1
                await self._note_failure(error, failures)
            else:
                self._note_answer()
                return answer

    def _is_of_another(self, error: TraceReceiverFailed) -> bool:
        """Return true if only another receiver refuses a list without annotations so; a Phoenix of the settings may want a key."""
        if self._is_explicit:
            return error.status in (404, 405)
        return 400 <= error.status < 500 and error.status not in (408, 425, 429)

    def _note_answer(self) -> None:
        if self._state.labels_outage.end():
            log.info("labels are taken again", extra={"action": "otel.labels_taken"})

    def _note_other(self) -> None:
        """Note that there is no Phoenix: a warning if the settings say that there is one."""
        if self._state.is_other:
            return
        self._state.is_other = True
        log.log(
            logging.WARNING if self._is_explicit else logging.INFO,
            "the receiver takes no annotations of spans, as Phoenix does: judgements are not sent",
            extra={"action": "otel.no_phoenix"},
        )

    def _note_rejected(self, annotation: Annotation, reason: str) -> None:
        log.info(
            "a judgement is not sent: %s", reason,
            extra={"action": "otel.label_refused", "tape": annotation.tape, "entry": annotation.entry},
        )  # fmt: skip

    async def _note_failure(self, error: TraceReceiverFailed, failures: int) -> None:
        """Note that a request failed, and wait."""
        wait = self._backoff.delay_seconds(failures) if error.retry_after is None else error.retry_after
        self._state.failures += 1
        if self._state.labels_outage.begin(str(error), self._now()):
            log.warning(
                "judgements wait, Phoenix has not taken them: %s", error,
                extra={"action": "otel.labels_failed", "seconds": round(wait)},
            )  # fmt: skip
        await self._sleep(wait)


def _find_missing(data: Sequence[Mapping[str, Any]], error: TraceReceiverFailed) -> set[str]:
    """Return the spans of a request that an answer names: Phoenix says which ones it does not have."""
    return {span for each in data if (span := str(each["span_id"])).encode() in error.answer}


def _pick(labels: Sequence[Label], numbers: set[int]) -> list[Label]:
    return [label for label in labels if label.entry in numbers]


def _choose(labels: Sequence[Label], changed: set[int]) -> list[Label]:
    """Choose the labels that changed with these facts: the new ones, those they took the place of, and what is in force now."""
    touched = [label for label in labels if label.entry in changed or label.superseded_by in changed]
    subjects = {label.judgement.subject for label in touched}
    in_force = [label for label in labels if label.is_in_force and label.judgement.subject in subjects]
    return [*touched, *(label for label in in_force if label not in touched)]
