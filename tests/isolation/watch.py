"""What others than the people of a chat get to see: receivers of traces, readers of the log, viewers of the trace page."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from html import unescape
from random import Random
from unittest.mock import patch
from urllib.parse import parse_qsl, quote, unquote

from bubbot.app.bot import Bot
from bubbot.app.trace import OpenTrace, admit_people, open_trace, trace_tokens
from bubbot.errors import BubbotError
from bubbot.features.access.service import AccessService
from bubbot.features.otel.sender import SpanSender
from bubbot.home import Home
from bubbot.log import Redactor, StderrHandler
from bubbot.ports.pages import PageRequest
from bubbot.server.pages import AdmitViewer
from bubbot.settings.loader import Settings
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import session_tape
from bubbot.tape.store import TapeStore

LINK = re.compile(r'(?:href|src|data-tail|data-base)="(/[^"#]*)')
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
TOKEN_SECONDS = 3_600


@dataclass
class SpanReceiver:
    """A receiver of traces. `bodies` are what it was sent and nobody looked at yet."""

    bodies: list[bytes] = field(default_factory=list)

    @contextmanager
    def receive(self) -> Iterator[None]:
        """Take in the place of the network what is sent within the block."""

        async def send(_sender: SpanSender, body: bytes) -> bytes:
            self.bodies.append(body)
            return b""

        with patch.object(SpanSender, "send", send):
            yield

    def take(self) -> str:
        """Return what came since the last time."""
        bodies, self.bodies = self.bodies, []
        return b"\n".join(bodies).decode(errors="replace")


class LogReader:
    """Reads the log of the bot as an operator does: every line from `info` on, in the form for machines."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._stream = io.StringIO()
        self._handler = StderrHandler(self._stream, logging.INFO, Redactor(secrets), "keyvalue", None, sentences=False)

    @contextmanager
    def read(self) -> Iterator[None]:
        """Read what is logged within the block."""
        root, own = logging.getLogger(), logging.getLogger("bubbot")
        level = own.level
        root.addHandler(self._handler)
        own.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.removeHandler(self._handler)
            own.setLevel(level)

    def take(self) -> str:
        """Return what was logged since the last time."""
        text = self._stream.getvalue()
        self._stream.seek(0)
        self._stream.truncate()
        return text


@dataclass
class TraceVisitor:
    """Somebody with a token, or without, at the trace page of a home; each look is at other pages.

    Attributes:
        trace: the pages.
        workspace: the label in the names of tapes.
        store: to guess addresses that nobody linked: what an attacker might know.
        admit: finds out who has a token.
        home: makes the tokens.
        chance: draws the pages.
    """

    trace: OpenTrace
    store: TapeStore
    workspace: str
    admit: AdmitViewer
    home: Home
    chance: Random

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: Settings, home: Home, bot: Bot, access: AccessService, chance: Random
    ) -> AsyncIterator[TraceVisitor]:
        """Open the pages as the daemon does that serves them."""
        async with open_trace(settings, home) as trace:
            admit = admit_people(trace_tokens(home), access.role, trace.auditors)
            yield cls(trace, bot.base_store, bot.workspace, admit, home, chance)

    async def look(self, person: str, pages: int) -> list[tuple[str, str]]:
        """Return the paths and texts of some pages that a person sees: the first one, and what is linked or guessed."""
        admission = await self.admit(trace_tokens(self.home).issue(person, TOKEN_SECONDS))
        if admission is None:
            return []
        tapes = [tape.name for tape in await self.store.tapes()]
        own = [session_tape(self.workspace, session) for session in sorted(admission.viewer.sessions or ())] or tapes
        seen, links, address = list[tuple[str, str]](), list[str](), "/"
        for _ in range(pages):
            path, _, query = address.partition("?")
            parts = tuple(unquote(part) for part in path.split("/") if part)
            try:
                answer = await self.trace.pages.answer(PageRequest(parts, dict(parse_qsl(query)), admission.viewer))
                text = answer.body.decode(errors="replace")
            except BubbotError as error:
                text = str(error)
            seen.append((address, text))
            links += [link for link in map(unescape, LINK.findall(text)) if link.startswith("/session/")]
            is_linked = links and self.chance.random() < 0.35  # the newest lead further
            guessed = self.chance.choice(own if self.chance.random() < 0.5 else tapes)
            address = self.chance.choice(links[-40:]) if is_linked else await self._guess(guessed)
        return seen

    async def _guess(self, tape: str) -> str:
        """Draw an address about a tape, which perhaps nobody linked."""
        name, head = quote(tape, safe=""), await self.store.head(tape)
        base, entry = f"/session/{name}", self.chance.randint(1, max(head, 1))
        query = TapeQuery(tape, IdRanges(((max(1, entry - 20), entry),)))
        entries = (await self.store.fetch([query]))[0]
        steps = [each for each in entries if each.name == "loop.step"]
        blobs = [(each.id, digest) for each in entries for digest in DIGEST.findall(str(each.payload))]
        of_tape = [
            base, f"{base}/turns", f"{base}/export?first={entry}&last={entry + 40}", f"{base}/tail?after={entry}",
            f"{base}/entry/{entry}", f"{base}/panel/memory", f"{base}/panel/search?p.words=kwall", f"{base}/panel/deliveries",
            f"{base}/panel/usage?p.period=all", f"{base}/panel/schedule", f"{base}/panel/effects", f"{base}/panel/anchors",
        ]  # fmt: skip
        of_all = [
            f"/panel/shared-memory?p.zone={name}", "/panel/search?p.words=kwall", "/panel/schedule", "/panel/approvals",
            "/panel/usage?p.period=all", "/panel/replays",
        ]  # fmt: skip
        of_requests = [
            *(f"{base}/step/{step.id}{part}" for step in steps[-3:] for part in ("", "/system", "/system")),
            *(f"{base}/entry/{step.id}/blob/{step.data.get('system')}" for step in steps[-3:]),
            *(f"{base}/entry/{each}/blob/{digest}" for each, digest in blobs[-4:]),
        ]
        return self.chance.choice(self.chance.choice((of_tape, of_all, of_requests or of_tape, of_requests or of_tape)))
