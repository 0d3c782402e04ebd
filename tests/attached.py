"""Benches whose channel has files to fetch, and looks at what became of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bubbot.features.attachments.intake import AttachmentIntake
from bubbot.ports.channel import Attachment
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.texts import Texts
from tests.e2e.test_images import PNG
from tests.raw import raw
from tests.turns import Bench, KeptChannel, Options

PHOTO = Attachment("photo", "photo.png", "image/png", len(PNG), "image")
NOTES = Attachment("notes", "notes.txt", "text/plain")
VOICE = Attachment("voice", "", "audio/ogg", kind="voice", note="7 seconds")


async def no_wait(seconds: float) -> None:
    """Does not wait."""


def execute(path: Path, sql: str, *values: str) -> list[Any]:
    with raw(path) as conn:
        return conn.execute(sql, values).fetchall()


def options(transcriber: Any = None, *, read_pdf: Any = None, texts: Texts | None = None, **limits: Any) -> Options:
    intake = AttachmentIntake(transcriber=transcriber, read_pdf=read_pdf, texts=texts, sleep=no_wait, **limits)
    return Options(intake=intake)


def channel(**files: Any) -> KeptChannel:
    made = KeptChannel()
    made.files = files
    return made


def content(entry: TapeEntry) -> list[Any]:
    found = entry.payload["content"]
    return [dict(part) for part in found]


async def message(bench: Bench) -> TapeEntry:
    """The newest message of a person."""
    return [one for one in await bench.entries() if one.kind == Kind.MESSAGE and one.payload["role"] == "user"][-1]


def shown(bench: Bench) -> str:
    """What the model was shown of the newest message, as text."""
    return json.dumps(bench.requests[-1].messages[-1]["content"], ensure_ascii=False)
