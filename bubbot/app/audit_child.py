"""The child that makes the pages of one auditor, in a sandbox: `python -P -m bubbot.app.audit_child DATABASE LANGUAGE ZONE`.

It reads requests and writes answers, each with its length before it; see `audit_host`. The database has the granted tapes and
nothing else, and this process can open no other file of the bot.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from bubbot.app.audit_host import LENGTH_BYTES, AuditAnswer, AuditRequest
from bubbot.app.stores import find_workspace
from bubbot.app.trace import make_pages
from bubbot.errors import BubbotError
from bubbot.home import Home
from bubbot.ports.pages import PageRequest
from bubbot.settings.loader import BotSettings, Settings
from bubbot.stores.sqlite.store import SqliteStore, open_readonly
from bubbot.tape.boundary import Viewer


def main() -> None:
    """Serve until the input ends."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not look like an answer
    database, language, zone = sys.argv[1:]
    settings = Settings(bot=BotSettings(language=language, timezone=zone))
    asyncio.run(_serve(Path(database), settings, sys.stdin.buffer, output))


async def _serve(database: Path, settings: Settings, requests: BinaryIO, answers: BinaryIO) -> None:
    store: SqliteStore | None = None
    opened = (0, 0)
    while head := requests.read(LENGTH_BYTES):
        request = msgspec.json.decode(requests.read(int.from_bytes(head)), type=AuditRequest)
        found = database.stat()  # noqa: ASYNC240 - nobody else waits in this process
        if store is None or opened != (found.st_ino, found.st_mtime_ns):
            if store is not None:
                await store.aclose()
            store, opened = await open_readonly(database), (found.st_ino, found.st_mtime_ns)
        answer = msgspec.json.encode(await _answer(store, settings, request))
        answers.write(len(answer).to_bytes(LENGTH_BYTES) + answer)
        answers.flush()


async def _answer(store: SqliteStore, settings: Settings, request: AuditRequest) -> AuditAnswer:
    viewer = Viewer(request.name, frozenset(request.sessions), request.account)
    try:
        workspace = await find_workspace(store, Home(Path("/")))
        page = await make_pages(settings, workspace, None, store).answer(
            PageRequest(request.path, request.query, viewer)
        )
    except BubbotError as error:
        return AuditAnswer(error=type(error).__name__, text=str(error))
    return AuditAnswer(page.body, page.content_type, page.status, page.filename, page.policy)


if __name__ == "__main__":
    main()
