"""Many messages at once: taken in their order, and made durable in few commits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.store import TapeStore
from tests.gateways import Stage, admitting, rules
from tests.turns import HOME, Bench, Options, running

COUNT = 200


async def received_together(bench: Bench, messages: Sequence[Inbound]) -> None:
    await asyncio.gather(*(bench.gate.receive(message) for message in messages))


async def test_messages_received_at_once_keep_the_order_of_the_calls(store: TapeStore) -> None:
    """Both those that are answered and those that are only recorded."""
    admission = admitting(store, owners={"1"}, record_only={"home"})
    async with running(store, ScriptedModel(), Options(rules=admission), channel=Stage()) as bench:
        messages = [bench.inbound(f"m{number}", direct=False, addressed=bool(number % 3)) for number in range(40)]
        await received_together(bench, messages)
        await bench.quiet()
        stored = [entry.payload["data"]["text"] for entry in await bench.entries(bench.inbox.name) if is_text(entry)]
        assert stored == [message.text for message in messages]
        said = [entry.payload["content"] for entry in await bench.entries(HOME) if entry.payload.get("role") == "user"]
        assert [text.rpartition(" ")[2] for text in said] == stored


def is_text(entry: TapeEntry) -> bool:
    return entry.name in ("inbox/received", "inbox/changed")


async def test_messages_received_at_once_share_commits(sqlite_store: SqliteStore) -> None:
    async with running(sqlite_store, ScriptedModel(), Options(rules=rules()), channel=Stage()) as bench:
        bench.app.pause()  # the turns have commits of their own
        before = sqlite_store.commit_count
        await received_together(bench, [bench.inbound(f"m{number}") for number in range(COUNT)])
        assert sqlite_store.commit_count - before < COUNT / 10
        assert len(await bench.events("inbox/received", bench.inbox.name)) == COUNT
