"""Taking in attachments: fetched through their channel, stored as blobs, texts and recordings put into words.

A failure never loses the message: it becomes a fact, and a sentence for the model and for people.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, TypeAlias

from bubbot.errors import FetchFailed, ModelError
from bubbot.features.budget.budget import Budget
from bubbot.features.budget.state import BudgetSubject, user_key
from bubbot.ports.channel import Attachment, Inbound
from bubbot.ports.model import ModelReply, TranscribesAudio
from bubbot.ports.text import clean, format_bytes
from bubbot.ports.turn import AcceptedInbound
from bubbot.runtime.context.attachments import FILE, IMAGE
from bubbot.runtime.context.compact import estimate_tokens
from bubbot.runtime.context.quoting import clean_label
from bubbot.runtime.context.selectors import OWN_PART_KEY
from bubbot.tape import entry as make
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.handle import TapeHandle
from bubbot.texts import Texts

log = logging.getLogger(__name__)

ATTACHMENT_FAILED = "attachment/failed"
ATTACHMENT_TRANSCRIBED = "attachment/transcribed"
MAX_FILE_NAME_CHARS = 80
"""Characters of a file name."""
MAX_NOTE_CHARS = 500
MAX_FAILURE_REASON_CHARS = 300
AUDIO_KINDS = ("voice", "audio")
TEXT_TYPES = frozenset(
    {
        "application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml",
        "application/javascript", "application/x-sh", "application/sql", "application/csv", "application/x-ndjson",
        "application/x-python", "application/x-tex", "application/rtf", "application/x-httpd-php", "image/svg+xml",
    }
)  # fmt: skip
TEXT_SUFFIX = re.compile(
    r"\.(txt|md|rst|org|tex|log|csv|tsv|jsonl?|ndjson|xml|html?|s?css|svg|ya?ml|toml|ini|cfg|conf|env|properties|pyi?"
    r"|ipynb|m?js|[jt]sx?|vue|java|kts?|scala|groovy|[ch]|cc|[ch]pp|cs|mm?|go|rs|rb|php|p[lm]|lua|r|jl|swift|dart|hs|ml"
    r"|fs|exs?|erl|clj|lisp|el|scm|(ba|z|fi)?sh|ps1|bat|cmd|sql|graphql|proto|tf|gradle|cmake|mk|diff|patch|srt|vtt|ics"
    r"|vcf|po|asm|s|vh?d?|sol|nix|zig|nim|f90|pas)",
    re.IGNORECASE,
)

Fetch: TypeAlias = Callable[[Attachment, int], Awaitable[bytes]]
"""`FetchesAttachments.fetch` of a channel."""


@dataclass(frozen=True, slots=True)
class AttachmentLimits:
    """The limits of attachments.

    Attributes:
        max_bytes: bytes of one file.
        max_inline: characters of a text that are put into the context.
        timeout: seconds for one try at a file.
        waits: seconds before each further try.
        at_once: files fetched at the same time.
        transcription_timeout: seconds for the transcription of one recording.
    """

    max_bytes: int = 20_000_000
    max_inline: int = 20_000
    timeout: float = 60.0
    waits: Sequence[float] = (1.0, 4.0)
    at_once: int = 4
    transcription_timeout: float = 120.0


@dataclass
class AttachmentResult:
    """The result for the attachments of one message.

    Attributes:
        parts: content parts of the message.
        facts: entries for the tape.
        notices: sentences for people.
    """

    parts: list[JsonObject] = field(default_factory=list)
    facts: list[TapeEntry] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


async def refuse_fetch(attachment: Attachment, limit: int) -> bytes:
    """Refuse to fetch, for channels that cannot."""
    raise FetchFailed("this channel cannot fetch files")


class AttachmentIntake:
    """Takes in attachments, a few at once over all sessions."""

    def __init__(
        self,
        settings: AttachmentLimits | None = None,
        transcriber: tuple[str, TranscribesAudio] | None = None,
        *,
        budget: Budget | None = None,
        texts: Texts | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Set the limits and the transcriber.

        Args:
            settings: None for the defaults.
            transcriber: writes down recordings; with the name of its model. None: recordings stay files.
            budget: counts transcriptions; None if nobody counts.
            texts: the bot's own sentences; None for English.
            sleep: replaced in tests.
        """
        self._settings = settings or AttachmentLimits()
        self._texts = texts or Texts()
        self._budget = budget
        self._transcriber = transcriber
        self._sleep = sleep
        self._slots = asyncio.Semaphore(self._settings.at_once)

    async def take_in(
        self, tape: TapeHandle, inbox: str, batch: Sequence[AcceptedInbound], fetch: Fetch
    ) -> dict[int, AttachmentResult]:
        """Take in the attachments of messages and of the messages they quote, in order, by message id.

        Raises:
            StoreError: a blob could not be stored.
        """
        tasks: dict[int, list[asyncio.Task[AttachmentResult]]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for accepted in batch:
                    origin, payer = [inbox, accepted.id], _budget_subject(accepted.inbound)
                    tasks[accepted.id] = [
                        group.create_task(self._take_one(tape, origin, attachment, fetch, payer, quoted=quoted))
                        for attachment, quoted in list_attachments(accepted.inbound)
                    ]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the store's error, which is the same for all of them
        return {accepted: _joined_results([task.result() for task in done]) for accepted, done in tasks.items()}

    async def _take_one(
        self,
        tape: TapeHandle,
        inbound: list[Any],
        attachment: Attachment,
        fetch: Fetch,
        payer: BudgetSubject,
        *,
        quoted: bool,
    ) -> AttachmentResult:
        if not attachment.reference:
            return AttachmentResult([unfetched_part(attachment)])
        async with self._slots:
            try:
                data = await self._fetch_with_retries(attachment, fetch)
            except FetchFailed as error:
                return self._failure(attachment, inbound, str(error))
            digest = await tape.put_blob(data)
            part: dict[str, Any] = {**_describe(attachment, data), "digest": digest}
            if quoted:
                part["quoted"] = True
            if part["type"] == IMAGE:
                return AttachmentResult([part])
            if attachment.kind in AUDIO_KINDS and self._transcriber is not None:
                return await self._write_down(part, inbound, attachment, data, payer)
        text = _decode_text(part, data)
        return AttachmentResult([part | self._inline_text(text) if text is not None else part])

    def _failure(
        self, attachment: Attachment, inbound: list[Any], reason: str, *, failure: str = "could not be fetched"
    ) -> AttachmentResult:
        name = file_name(attachment.name) or attachment.kind
        reason = _one_line(reason, MAX_FAILURE_REASON_CHARS).rstrip(".")
        log.info("attachment failed: %s: %s", failure, reason, extra={"action": "attachment.failed"})
        fact = {"inbound": inbound, "name": name, "kind": attachment.kind, "reason": reason}
        part = {"type": "text", "text": f"[attachment {name} {failure}: {reason}]", OWN_PART_KEY: True}
        return AttachmentResult(
            [part],
            [make.event(ATTACHMENT_FAILED, fact)],
            [self._texts.say("attachment_failed", name=name, reason=reason)],
        )

    async def _fetch_with_retries(self, attachment: Attachment, fetch: Fetch) -> bytes:
        """Fetch the bytes, with further tries.

        Raises:
            FetchFailed: every try failed, or the file is too large.
        """
        limit = self._settings.max_bytes
        if attachment.size is not None and attachment.size > limit:
            raise FetchFailed(_too_large(attachment.size, limit))
        for wait in (*self._settings.waits, None):
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
        timeout = asyncio.timeout(self._settings.timeout)
        try:
            async with timeout:
                return await fetch(attachment, limit)
        except FetchFailed:
            raise
        except TimeoutError:
            seconds = f"within {self._settings.timeout:g} seconds" if timeout.expired() else "in time"
            raise FetchFailed(f"it did not arrive {seconds}", permanent=False) from None
        except Exception as error:  # boundary to the adapter: its defect must not lose the message
            log.exception("channel raised while fetching an attachment", extra={"action": "fetch.defect"})
            raise FetchFailed(f"the channel failed: {type(error).__name__}", permanent=False) from error

    async def _write_down(
        self, part: dict[str, Any], inbound: list[Any], attachment: Attachment, data: bytes, payer: BudgetSubject
    ) -> AttachmentResult:
        assert self._transcriber is not None
        model, _ = self._transcriber
        name = part["name"] or f"{attachment.kind}{_SOUND.get(part['media_type'], '.ogg')}"
        try:
            async with asyncio.timeout(self._settings.transcription_timeout):
                transcript = clean(await self._transcribe(data, name, part["media_type"], payer))
        except (ModelError, TimeoutError) as error:
            reason = str(error) or f"no transcription within {self._settings.transcription_timeout:g} seconds"
            failed = self._failure(attachment, inbound, reason, failure="could not be written down")
            return AttachmentResult([part, *failed.parts], failed.facts, failed.notices)
        fact = {"inbound": inbound, "digest": part["digest"], "model": model, "characters": len(transcript)}
        return AttachmentResult(
            [part | self._inline_text(transcript) | {"by": model}], [make.event(ATTACHMENT_TRANSCRIBED, fact)]
        )

    async def _transcribe(self, data: bytes, name: str, media_type: str, payer: BudgetSubject) -> str:
        """Return the transcript of a recording, reserved before the call like every model call.

        Seconds of sound are not tokens: the reservation counts none.
        """
        assert self._transcriber is not None
        model, transcriber = self._transcriber
        if self._budget is None:
            return (await transcriber.transcribe(data, name, media_type)).text
        async with self._budget.metered_call(payer, model, 0) as call:
            transcript = await transcriber.transcribe(data, name, media_type)
            call.output_estimate = estimate_tokens(transcript.text)
            call.reply = ModelReply(transcript.text, usage=transcript.usage, model=model)
        return transcript.text

    def _inline_text(self, text: str) -> dict[str, Any]:
        excerpt = text[: self._settings.max_inline]
        return {"text": excerpt} | ({"characters": len(text)} if len(excerpt) < len(text) else {})


def _budget_subject(inbound: Inbound) -> BudgetSubject:
    """Name the budget subject of a transcription, which happens before the turn begins."""
    return BudgetSubject(inbound.session, user_key(inbound.session, inbound.sender.id))


def _joined_results(results: Sequence[AttachmentResult]) -> AttachmentResult:
    return AttachmentResult(
        [part for result in results for part in result.parts],
        [fact for result in results for fact in result.facts],
        [notice for result in results for notice in result.notices],
    )


def list_attachments(inbound: Inbound) -> list[tuple[Attachment, bool]]:
    """List the attachments of a message, then those of its quote, marked by true."""
    quoted = inbound.quote.attachments if inbound.quote else ()
    return [
        *((attachment, False) for attachment in inbound.attachments),
        *((attachment, True) for attachment in quoted),
    ]


def unfetched_part(attachment: Attachment) -> JsonObject:
    """Build the content part for an attachment that is not fetched."""
    words = [attachment.kind, file_name(attachment.name), format_bytes(attachment.size) if attachment.size else ""]
    note = _one_line(attachment.note, MAX_NOTE_CHARS)
    title = " ".join(word for word in words if word) if attachment.reference or not note else ""
    text = ", ".join(word for word in (title, note, "not fetched" if attachment.reference else "") if word)
    return {"type": "text", "text": f"[{text}]", OWN_PART_KEY: True}


def _too_large(size: int, limit: int) -> str:
    return f"it has {format_bytes(size)}; at most {format_bytes(limit)} are taken"


def _describe(attachment: Attachment, data: bytes) -> dict[str, Any]:
    """Describe the bytes in a content part, without their digest."""
    image = image_type(data)
    part: dict[str, Any] = {
        "type": IMAGE if image else FILE,
        "media_type": image or _one_line(attachment.media_type, MAX_FILE_NAME_CHARS).partition(";")[0].lower(),
        "name": file_name(attachment.name),
        "size": len(data),
    }
    if note := _one_line(attachment.note, MAX_NOTE_CHARS):
        part["note"] = note
    return part if image else {**part, "kind": attachment.kind}


def image_type(data: bytes) -> str:
    """Detect the media type of an image that models take, by its first bytes; empty for all other data."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


def _decode_text(part: JsonObject, data: bytes) -> str | None:
    """Decode the text of a text file; None for every other file.

    Its type or name says that it is text, or neither says anything, and it decodes as UTF-8.
    """
    media, suffix = str(part["media_type"]), PurePath(str(part["name"])).suffix
    says_so = media.startswith("text/") or media in TEXT_TYPES or TEXT_SUFFIX.fullmatch(suffix)
    if not says_so and media not in ("", "application/octet-stream"):
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def file_name(name: str) -> str:
    """Clean a file name: one line without folders and brackets, since it is shown within brackets."""
    name = _one_line(name.replace("\\", "/").rpartition("/")[2], 10_000)
    stem, dot, suffix = name.rpartition(".")
    return (
        name
        if len(name) <= MAX_FILE_NAME_CHARS
        else f"{(stem or suffix)[: MAX_FILE_NAME_CHARS - 12]}…{dot}{suffix[:10]}"
    )


def _one_line(text: str, limit: int) -> str:
    """Put a text on one line that stays within its brackets."""
    return clean_label(clean(text), limit)


_SOUND = {"audio/mpeg": ".mp3", "audio/mp4": ".m4a", "audio/x-m4a": ".m4a", "audio/wav": ".wav", "audio/x-wav": ".wav",
          "audio/flac": ".flac", "audio/webm": ".webm", "audio/ogg": ".ogg"}  # fmt: skip
