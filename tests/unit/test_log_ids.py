"""The log finds what belongs together: records of turns, model calls and deliveries carry session and turn."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from bubbot import log
from bubbot.errors import DeliveryFailed
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest
from bubbot.stores.inmemory import InMemoryStore
from tests.gateways import WAITS, Stage, failing, rules
from tests.turns import Options, Replying, running
from tests.unit.test_log import _as_before as _as_before  # noqa: PLC0414 - the fixture
from tests.virtual import virtual


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.setup("debug", stream=stream, form="json")
    yield stream
    log.setup("debug", stream=io.StringIO())


def records(stream: io.StringIO, action: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [one for one in found if one["action"] == action]


async def answering(request: ModelRequest) -> AsyncIterator[ModelEvent]:
    """A model that logs while it answers, and breaks where it is told to."""
    logging.getLogger("bubbot.models.test").info("asked", extra={"action": "model.test"})
    if "break" in str(request.messages[-1]["content"]):
        raise ValueError("broken")
    await asyncio.sleep(1)
    yield ModelReply("fine")


def test_of_a_turn_its_model_calls_and_its_deliveries(stream: io.StringIO) -> None:
    turns: dict[str, str] = {}

    @virtual
    async def talk() -> None:
        channel = Stage()
        gone = DeliveryFailed("no", permanent=True)
        channel.fail = failing("send", gone, gone, gone)
        async with running(InMemoryStore(), Replying(answering), Options(rules=rules()), channel=channel) as bench:
            for chat, text in (("1", "hello"), ("1", "break"), ("2", "hello")):
                turns[f"{chat} {text}"] = (await bench.say(text, chat=chat)).turn_id
            await asyncio.sleep(sum(WAITS))

    talk()
    ids = [("test:1", turns["1 hello"]), ("test:1", turns["1 break"]), ("test:2", turns["2 hello"])]
    for action in ("model.test", "deliver.failed"):
        assert [(one["session"], one["turn"]) for one in records(stream, action)] == ids, action
    assert [(one["session"], one["turn"]) for one in records(stream, "turn.failed")] == ids[1:2]


def test_what_one_task_delivers_for_several_turns_has_the_id_of_each(stream: io.StringIO) -> None:
    turns: list[str] = []

    @virtual
    async def talk() -> None:
        channel, gate = Stage(), asyncio.Event()
        send = channel.send

        async def held(part: Any) -> Any:
            await gate.wait()
            return await send(part)

        channel.send = held  # type: ignore[method-assign]
        channel.fail = failing("send", *[DeliveryFailed("no", permanent=True)] * 2)
        async with running(InMemoryStore(), Replying(answering), Options(rules=rules()), channel=channel) as bench:
            turns.extend([(await bench.say(text)).turn_id for text in ("one", "two")])
            gate.set()
            await bench.quiet()

    talk()
    assert [one["turn"] for one in records(stream, "deliver.failed")] == turns
