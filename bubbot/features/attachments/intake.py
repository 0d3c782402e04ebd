"""Taking in attachments: fetched through their channel, stored as blobs; texts, PDFs and recordings put into words.

A failure never loses the message: it becomes a fact, and a sentence for the model and for people. A file that has no words
for the model is told to people, too: one sentence for each reason, in one notice for each message.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bubbot.errors import EntryNotFound, FetchFailed, ModelError
from bubbot.features.attachments.facts import AttachmentFailed, AttachmentTranscribed
from bubbot.formatting import clean, format_bytes
from bubbot.ports.channel import Attachment, Inbound
from bubbot.ports.model import TranscribesAudio, Transcript
from bubbot.ports.turn import AcceptedInbound
from bubbot.runtime.attachments import (
    MAX_FILE_NAME_CHARS,
    MAX_NOTE_CHARS,
    AttachmentResult,
    Fetch,
    file_name,
    image_type,
    list_attachments,
    one_line,
    unfetched_part,
)
from bubbot.runtime.context.attachments import FILE, IMAGE
from bubbot.runtime.context.selectors import OWN_PART_KEY
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.handle import TapeHandle
from bubbot.texts import Texts

log = logging.getLogger(__name__)

FETCH_TIMEOUT_SECONDS = 60.0
"""The time for one try at a file."""
FETCH_WAITS_SECONDS = (1.0, 4.0)
"""The waits before each further try."""
MAX_FETCHES_AT_ONCE = 4
TRANSCRIPTION_TIMEOUT_SECONDS = 120.0
MAX_FAILURE_REASON_CHARS = 300
AUDIO_KINDS = ("voice", "audio")
PDF_MARK = b"%PDF-"
PDF_MARK_BYTES = 1024
"""A PDF has its mark within so many bytes."""
TEXT_TYPES = frozenset(
    {
        "application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml",
        "application/javascript", "application/x-sh", "application/sql", "application/csv", "application/x-ndjson",
        "application/x-python", "application/x-tex", "application/rtf", "application/x-httpd-php", "image/svg+xml",
    }
)  # fmt: skip
TEXT_SUFFIX = (
    r"(?i)\.(txt|md|rst|org|tex|log|csv|tsv|jsonl?|ndjson|xml|html?|s?css|svg|ya?ml|toml|ini|cfg|conf|env|properties|pyi?"
    r"|ipynb|m?js|[jt]sx?|vue|java|kts?|scala|groovy|[ch]|cc|[ch]pp|cs|mm?|go|rs|rb|php|p[lm]|lua|r|jl|swift|dart|hs|ml"
    r"|fs|exs?|erl|clj|lisp|el|scm|(ba|z|fi)?sh|ps1|bat|cmd|sql|graphql|proto|tf|gradle|cmake|mk|diff|patch|srt|vtt|ics"
    r"|vcf|po|asm|s|vh?d?|sol|nix|zig|nim|f90|pas)"
)

MeterTranscription: TypeAlias = Callable[[Inbound, str], AbstractAsyncContextManager[Callable[[Transcript], None]]]
"""Reserve a transcription for the sender of an inbound, by the model of this name; the block reports its result."""


class PdfText(Struct, frozen=True):
    """The text of a PDF, or why there is none.

    Attributes:
        text: its lines; empty if it holds pictures only.
        pages: how many pages it has.
        pages_read: how many of them were read.
        fault: why it was not read; empty if it was.
        reason: the fault in words, for the model.
    """

    text: str = ""
    pages: int = 0
    pages_read: int = 0
    fault: Literal["", "locked", "failed"] = ""
    reason: str = ""


ReadPdf: TypeAlias = Callable[[bytes], Awaitable[PdfText]]
"""Read a PDF, within limits of time and memory."""


class _Reading(Struct):
    """What became of one attachment.

    Attributes:
        parts: content parts of the message.
        facts: entries for the tape.
        sentence: the name of the sentence for people; empty if all is well.
        name: what the sentence calls the file.
        reason: the reason within the sentence.
    """

    parts: list[JsonObject]
    facts: list[TapeEntry] = []
    sentence: str = ""
    name: str = ""
    reason: str = ""


class AttachmentIntake:
    """Takes in attachments, a few at once over all sessions."""

    def __init__(
        self,
        *,
        max_bytes: int = 20_000_000,
        max_inline: int = 20_000,
        transcriber: tuple[str, TranscribesAudio] | None = None,
        meter: MeterTranscription | None = None,
        read_pdf: ReadPdf | None = None,
        texts: Texts | None = None,
        fetch_timeout: float = FETCH_TIMEOUT_SECONDS,
        waits: Sequence[float] = FETCH_WAITS_SECONDS,
        fetches_at_once: int = MAX_FETCHES_AT_ONCE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Set the limits and what reads files.

        Args:
            max_bytes: of one file.
            max_inline: characters of a text that are put into the context.
            transcriber: writes down recordings; with the name of its model. None: recordings stay files.
            meter: None if nobody counts transcriptions.
            read_pdf: None: PDFs stay files.
            texts: None for English.
            fetch_timeout: seconds for one try at a file.
            waits: seconds before each further try.
            fetches_at_once: over all sessions.
            sleep: replaced in tests.
        """
        self._max_bytes = max_bytes
        self._max_inline = max_inline
        self._texts = texts or Texts()
        self._meter = meter
        self._read_pdf = read_pdf
        self._transcriber = transcriber
        self._fetch_timeout = fetch_timeout
        self._waits = waits
        self._sleep = sleep
        self._slots = asyncio.Semaphore(fetches_at_once)

    async def take_in(
        self, tape: TapeHandle, inbox: str, batch: Sequence[AcceptedInbound], fetch: Fetch
    ) -> dict[int, AttachmentResult]:
        """Take in the attachments of messages and of the messages they quote, in order, by message id.

        Raises:
            StoreError: a blob could not be stored.
        """
        tasks: dict[int, list[asyncio.Task[_Reading]]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for accepted in batch:
                    origin, sent = [inbox, accepted.id], accepted.inbound
                    tasks[accepted.id] = [
                        group.create_task(self._take_one(tape, origin, attachment, fetch, sent, quoted=quoted))
                        for attachment, quoted in list_attachments(accepted.inbound)
                    ]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the store's error, which is the same for all of them
        return {
            accepted.id: _join(
                [task.result() for task in tasks[accepted.id]],
                self._texts.in_language(accepted.inbound.sender.language),
            )
            for accepted in batch
        }

    async def _take_one(
        self,
        tape: TapeHandle,
        inbound: list[Any],
        attachment: Attachment,
        fetch: Fetch,
        sent: Inbound,
        *,
        quoted: bool,
    ) -> _Reading:
        if not attachment.reference:
            return _Reading([unfetched_part(attachment)])
        async with self._slots:
            try:
                data = await self._read(tape, attachment, fetch)
            except FetchFailed as error:
                return self._failure(attachment, inbound, str(error))
            digest = attachment.digest or await tape.put_blob(data)
            part: dict[str, Any] = {**_describe(attachment, data), "digest": digest}
            if quoted:
                part["quoted"] = True
            if part["type"] == IMAGE:
                return _Reading([part])
            if attachment.kind in AUDIO_KINDS and self._transcriber is not None:
                return await self._write_down(tape, part, inbound, attachment, data=data, sent=sent)
        is_recording = attachment.kind in AUDIO_KINDS
        name = part["name"] or self._texts.say("attachment_recording" if is_recording else "attachment_nameless")
        if self._read_pdf is not None and PDF_MARK in data[:PDF_MARK_BYTES]:
            return await self._take_pdf(tape, part, name, await self._read_pdf(data))
        if (text := _decode_text(part, data)) is not None:
            return _Reading([part | self._inline_text(text)])
        # What is quoted was sent before, perhaps by somebody else.
        sentence = "" if quoted else "attachment_unheard" if is_recording else "attachment_unread"
        return _Reading([part], sentence=sentence, name=name)

    async def _take_pdf(self, tape: TapeHandle, part: dict[str, Any], name: str, pdf: PdfText) -> _Reading:
        if pdf.fault:
            return _Reading([part | {"unread": pdf.reason}], sentence=_PDF_FAULTS[pdf.fault], name=name)
        rest = f", of which the first {pdf.pages_read} were read" if pdf.pages_read < pdf.pages else ""
        part["note"] = ", ".join(filter(None, (part.get("note"), f"{pdf.pages} page{'s' * (pdf.pages != 1)}{rest}")))
        if not (text := clean(pdf.text).strip()):
            part["unread"] = "its pages hold pictures and no text"
            return _Reading([part], sentence="attachment_pdf_empty", name=name)
        return _Reading([part | await self._inline_words(tape, text)])

    @staticmethod
    def _failure(
        attachment: Attachment, inbound: list[Any], reason: str, *, failure: str = "could not be fetched"
    ) -> _Reading:
        name = file_name(attachment.name) or attachment.kind
        reason = one_line(reason, MAX_FAILURE_REASON_CHARS).rstrip(".")
        log.info("attachment failed: %s: %s", failure, reason, extra={"action": "attachment.failed"})
        fact = AttachmentFailed(inbound, name, attachment.kind, reason)
        part = {"type": "text", "text": f"[attachment {name} {failure}: {reason}]", OWN_PART_KEY: True}
        return _Reading([part], [fact.to_entry()], "attachment_failed", name, reason)

    async def _read(self, tape: TapeHandle, attachment: Attachment, fetch: Fetch) -> bytes:
        """Read the bytes that were stored with the message, or fetch them. Raise `FetchFailed`."""
        if not attachment.digest:
            return await self._fetch_with_retries(attachment, fetch)
        try:
            data = await tape.get_blob(attachment.digest)
        except EntryNotFound as error:
            raise FetchFailed("the session was reset before the file was read: send it again") from error
        if len(data) > self._max_bytes:
            raise FetchFailed(_too_large(len(data), self._max_bytes))
        return data

    async def _fetch_with_retries(self, attachment: Attachment, fetch: Fetch) -> bytes:
        """Fetch the bytes, with further tries.

        Raises:
            FetchFailed: every try failed, or the file is too large.
        """
        limit = self._max_bytes
        if attachment.size is not None and attachment.size > limit:
            raise FetchFailed(_too_large(attachment.size, limit))
        for wait in (*self._waits, None):
            try:
                data = await self._try_fetch(attachment, fetch, limit)
            except FetchFailed as error:
                if error.permanent or wait is None:
                    raise
                await self._sleep(wait)
                continue
            if len(data) > limit:  # the adapter ignored the limit of its port
                raise FetchFailed(_too_large(len(data), limit))
            return data
        raise AssertionError("the last try returns or raises")

    async def _try_fetch(self, attachment: Attachment, fetch: Fetch, limit: int) -> bytes:
        timeout = asyncio.timeout(self._fetch_timeout)
        try:
            async with timeout:
                return await fetch(attachment, limit)
        except FetchFailed:
            raise
        except TimeoutError:
            seconds = f"within {self._fetch_timeout:g} seconds" if timeout.expired() else "in time"
            raise FetchFailed(f"it did not arrive {seconds}", permanent=False) from None
        except Exception as error:  # boundary to the adapter: its defect must not lose the message
            log.exception("channel raised while fetching an attachment", extra={"action": "fetch.defect"})
            raise FetchFailed(f"the channel failed: {type(error).__name__}", permanent=False) from error

    async def _write_down(
        self,
        tape: TapeHandle,
        part: dict[str, Any],
        inbound: list[Any],
        attachment: Attachment,
        *,
        data: bytes,
        sent: Inbound,
    ) -> _Reading:
        assert self._transcriber is not None
        model, _ = self._transcriber
        name = part["name"] or f"{attachment.kind}{_SOUND.get(part['media_type'], '.ogg')}"
        try:
            async with asyncio.timeout(TRANSCRIPTION_TIMEOUT_SECONDS):
                transcript = clean(await self._transcribe(data, name, part["media_type"], sent))
        except (ModelError, TimeoutError) as error:
            reason = str(error) or f"no transcription within {TRANSCRIPTION_TIMEOUT_SECONDS:g} seconds"
            failed = self._failure(attachment, inbound, reason, failure="could not be written down")
            failed.parts = [part, *failed.parts]
            return failed
        fact = AttachmentTranscribed(inbound, part["digest"], model, len(transcript))
        words = await self._inline_words(tape, transcript)
        return _Reading([part | words | {"by": model}], [fact.to_entry()])

    async def _transcribe(self, data: bytes, name: str, media_type: str, sent: Inbound) -> str:
        """Return the transcript of a recording, reserved before the call like every model call."""
        assert self._transcriber is not None
        model, transcriber = self._transcriber
        if self._meter is None:
            return (await transcriber.transcribe(data, name, media_type)).text
        async with self._meter(sent, model) as on_transcript:
            transcript = await transcriber.transcribe(data, name, media_type)
            on_transcript(transcript)
        return transcript.text

    def _inline_text(self, text: str) -> dict[str, Any]:
        excerpt = text[: self._max_inline]
        return {"text": excerpt} | ({"characters": len(text)} if len(excerpt) < len(text) else {})

    async def _inline_words(self, tape: TapeHandle, text: str) -> dict[str, Any]:
        """Inline words that are not the file's own bytes; all of them are kept if they are cut, to be read on."""
        inline = self._inline_text(text)
        return inline | ({"text_digest": await tape.put_blob(text.encode())} if "characters" in inline else {})


def _too_large(size: int, limit: int) -> str:
    return f"it has {format_bytes(size)}; at most {format_bytes(limit)} are taken"


def _describe(attachment: Attachment, data: bytes) -> dict[str, Any]:
    """Describe the bytes in a content part, without their digest."""
    image = image_type(data)
    part: dict[str, Any] = {
        "type": IMAGE if image else FILE,
        "media_type": image or one_line(attachment.media_type, MAX_FILE_NAME_CHARS).partition(";")[0].lower(),
        "name": file_name(attachment.name),
        "size": len(data),
    }
    if note := one_line(attachment.note, MAX_NOTE_CHARS):
        part["note"] = note
    return part if image else {**part, "kind": attachment.kind}


def _decode_text(part: JsonObject, data: bytes) -> str | None:
    """Decode the text of a text file; None for every other file.

    Its type or name says that it is text, or neither says anything, and it decodes as UTF-8.
    """
    media, suffix = str(part["media_type"]), PurePath(str(part["name"])).suffix
    says_so = media.startswith("text/") or media in TEXT_TYPES or re.fullmatch(TEXT_SUFFIX, suffix)
    if not says_so and media not in ("", "application/octet-stream"):
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


_PDF_FAULTS = {"locked": "attachment_pdf_locked", "failed": "attachment_pdf_failed"}
_SOUND = {"audio/mpeg": ".mp3", "audio/mp4": ".m4a", "audio/x-m4a": ".m4a", "audio/wav": ".wav", "audio/x-wav": ".wav",
          "audio/flac": ".flac", "audio/webm": ".webm", "audio/ogg": ".ogg"}  # fmt: skip


def _join(readings: Sequence[_Reading], texts: Texts) -> AttachmentResult:
    """Join what became of the attachments of a message, with one notice for all that people are told."""
    names: dict[tuple[str, str], list[str]] = {}
    for reading in readings:
        if reading.sentence:
            names.setdefault((reading.sentence, reading.reason), []).append(reading.name)
    notice = "\n".join(
        texts.say(sentence, name=", ".join(dict.fromkeys(files)), reason=reason)
        for (sentence, reason), files in names.items()
    )
    return AttachmentResult(
        [part for reading in readings for part in reading.parts],
        [fact for reading in readings for fact in reading.facts],
        [notice] if notice else [],
    )
