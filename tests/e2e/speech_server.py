"""A server on loopback that speaks OpenAI's transcription endpoint, with faults that a script plays.

`POST /v1/audio/transcriptions` takes a multipart form with `file` and `model` and answers `{"text": …}`, or an error in
OpenAI's form. It is strict: an unknown path, a form without a file name, or a suffix that the endpoint does not list is
an error 400.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from aiohttp import web
from aiohttp.multipart import BodyPartReader

SUFFIXES = frozenset([".flac", ".m4a", ".mp3", ".mp4", ".mpeg", ".mpga", ".oga", ".ogg", ".wav", ".webm"])


@dataclass(frozen=True, slots=True)
class Heard:
    """One request: the recording, its name and type, the model, the key, the form of the answer that it wants."""

    data: bytes
    name: str
    media_type: str
    model: str
    key: str
    form: str = ""


@dataclass
class SpeechServer:
    """Each request takes the next answer: a text, a body, or the status of an error; the last stands for all later ones."""

    answers: Sequence[str | int | dict[str, Any]]
    heard: list[Heard] = field(default_factory=list)
    address: str = ""

    async def transcribe(self, request: web.Request) -> web.Response:
        """The endpoint."""
        fields: dict[str, str] = {}
        data, name, media = b"", "", ""
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            if part.name == "file":
                data, name, media = bytes(await part.read()), part.filename or "", part.headers.get("Content-Type", "")
            else:
                fields[part.name or ""] = await part.text()
        if not data or "model" not in fields or PurePath(name).suffix not in SUFFIXES:
            return _error(400, f"Invalid file format {name!r} or a missing field")
        key = request.headers.get("Authorization", "")
        self.heard.append(Heard(data, name, media, fields["model"], key, fields.get("response_format", "")))
        answer = self.answers[min(len(self.heard), len(self.answers)) - 1]
        if isinstance(answer, int):
            return _error(answer, "no")
        return web.json_response(answer if isinstance(answer, dict) else {"text": answer})


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": {"message": text, "type": "error", "param": None, "code": None}}, status=status)


@asynccontextmanager
async def listening(*answers: str | int | dict[str, Any]) -> AsyncIterator[SpeechServer]:
    """The server, until the block ends."""
    ours = SpeechServer(answers)
    app = web.Application(client_max_size=30_000_000)
    app.router.add_post("/v1/audio/transcriptions", ours.transcribe)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    ours.address = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield ours
    finally:
        await runner.cleanup()
