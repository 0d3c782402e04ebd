"""What a message on Telegram costs without bubbot: python -m benchmarks.echo [--messages 2000] [--chats 40] [--rounds 3].

Bots that do nothing but answer, one after another with the same people and server as the soak's, in processor time a message:

- *library*: python-telegram-bot as its documentation shows it, over its own client, httpx.
- *aiohttp*: the library's objects and calls over aiohttp, as bubbot makes them, with no dispatcher.
- *rows*: the same, and for each message one transaction of `sqlite3` with the rows that bubbot writes for it, ready made.
- *typing*: as *aiohttp*, and it shows that it types before each answer.

They keep no order, try nothing again, and forget a message if they are killed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from telegram import Bot, Update
from telegram.ext import Application, ContextTypes, MessageHandler, filters

from benchmarks.soak import words
from benchmarks.soak.measure import Busy
from benchmarks.soak.parts import Bench
from benchmarks.soak.process import START, started
from benchmarks.soak.talk import asked, tell
from channels.telegram.api import UPDATE_KINDS
from channels.telegram.http import load_certificates, open_http
from channels.telegram.settings import TelegramSettings

KINDS = ("library", "aiohttp", "rows", "typing")
AHEAD = 4
ROWS = 11
"""Rows of a plain message: accepted, eight of its turn, begun, delivered."""
ROW_BYTES = 330
"""Bytes of JSON in one of them, on average."""


class Rows:
    """A table with durable commits."""

    def __init__(self, path: Path) -> None:
        self._conn = sqlite3.connect(path, isolation_level=None)
        self._conn.execute("PRAGMA journal_mode = WAL")
        self._conn.execute("PRAGMA synchronous = FULL")
        self._conn.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, tape INTEGER, payload TEXT, digest BLOB)")
        self._row = (1, "x" * ROW_BYTES, b"x" * 32)

    def write(self) -> None:
        """Write the rows of one message."""
        self._conn.execute("BEGIN IMMEDIATE")
        self._conn.executemany("INSERT INTO entries (tape, payload, digest) VALUES (?, ?, ?)", [self._row] * ROWS)
        self._conn.execute("COMMIT")


def answer(update: Update) -> tuple[int, str]:
    """Return the chat of a message, and what is to be said there."""
    assert update.message is not None
    return update.message.chat.id, words.ANSWERED.replace("{text}", update.message.text or "")


async def run_library(settings: TelegramSettings) -> None:
    """Poll and answer as the documentation shows."""

    async def reply(update: Update, _context: ContextTypes.DEFAULT_TYPE) -> None:
        assert update.message is not None
        await update.message.reply_text(answer(update)[1])

    app = Application.builder().token(settings.token).base_url(settings.base_url).concurrent_updates(256).build()
    app.add_handler(MessageHandler(filters.TEXT, reply))
    async with app:
        assert app.updater is not None
        await app.start()
        await app.updater.start_polling(poll_interval=0.0)
        await asyncio.Event().wait()


async def run_plain(settings: TelegramSettings, before: Callable[[Bot, int], Awaitable[Any]]) -> None:
    """Poll and answer over aiohttp; `before` runs before each answer."""
    trust = load_certificates(settings)
    clients = [open_http(settings, trust, pool=32), open_http(settings, trust, pool=1)]
    bot = Bot(settings.token, base_url=settings.base_url, request=clients[0], get_updates_request=clients[1])
    offset, running = 0, set[asyncio.Task[None]]()

    async def reply(update: Update) -> None:
        chat, text = answer(update)
        await before(bot, chat)
        await bot.do_api_request("sendMessage", {"chat_id": str(chat), "text": text})

    while True:
        wanted = {"timeout": 20, "allowed_updates": UPDATE_KINDS, "offset": offset}
        for raw in await bot.do_api_request("getUpdates", wanted):
            offset = raw["update_id"] + 1
            task = asyncio.create_task(reply(Update.de_json(raw, bot)))
            running.add(task)
            task.add_done_callback(running.discard)


async def serve(kind: str, token: str, base_url: str, folder: Path) -> None:
    """Answer until standard input closes."""
    settings = TelegramSettings(token=token, base_url=base_url)
    rows = Rows(folder / "rows.db")

    async def before(bot: Bot, chat: int) -> None:
        if kind == "rows":
            rows.write()
        elif kind == "typing":
            await bot.do_api_request("sendChatAction", {"chat_id": str(chat), "action": "typing"})

    work = asyncio.create_task(run_library(settings) if kind == "library" else run_plain(settings, before))
    tell({"running": True})
    async for _ in asked():
        tell({"reply": {}})
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work


async def measure(kind: str, chats: int, messages: int, rounds: int) -> float:
    """Return the least milliseconds of processor time a message."""
    with tempfile.TemporaryDirectory(prefix="echo-") as name:
        folder = Path(name)
        people_start = started("telegram", folder, "benchmarks.soak.people", ["telegram", str(chats)])
        async with people_start as people:
            table = await people.said("table", START)
            arguments = [kind, table["token"], table["base_url"], str(folder)]
            async with started("bot", folder, "benchmarks.echo", arguments) as bot:
                await bot.said("running", START)
                bench = Bench(bot, {"telegram": people})
                await bench.talk(1, 1)
                took = []
                for _ in range(rounds):
                    with Busy([bot]) as busy:
                        await bench.talk(messages // chats, AHEAD)
                    took.append(1000 * busy.took["bot"] / (messages // chats * chats))
    return min(took)


async def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=2000, help="in one round")
    parser.add_argument("--chats", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for kind in KINDS:
        print(
            f"{kind:<8} {await measure(kind, given.chats, given.messages, given.rounds):.2f} ms a message", flush=True
        )


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in KINDS:
        os.umask(0o077)
        asyncio.run(serve(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
    else:
        asyncio.run(main())
