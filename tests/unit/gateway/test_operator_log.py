"""The log as an operator reads it: one line for each turn and each change of access, and no text of anybody."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs

from bubbot import log
from bubbot.arguments.fields import Args
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Sender
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, Usage
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tool import Tool, tool
from tests.callers import by, refused, run
from tests.gateways import Stage, admitting, edit_of
from tests.turns import Options, Played, Replying, calls, running, says
from tests.unit.test_log import _as_before as _as_before  # noqa: PLC0414 - the fixture
from tests.virtual import virtual

CANARY = "PURPLE-CANARY"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.setup("info", stream=stream, form="json")
    yield stream
    log.setup("info", stream=io.StringIO())


def records(stream: io.StringIO, action: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [one for one in found if one["action"] == action]


def bot(model: Any, *, tools: Sequence[Tool] = (), **listed: Any) -> Any:
    store = InMemoryStore()
    rules = admitting(store, **(listed or {"owners": {"1"}}))
    return running(store, model, Options(rules=rules, tools=tools), channel=Stage())


def test_a_turn_is_one_line_with_its_outcome_time_tokens_cost_and_trace(stream: io.StringIO) -> None:
    turns: list[str] = []

    async def answer(_request: ModelRequest) -> AsyncIterator[ModelEvent]:
        await asyncio.sleep(2)
        yield ModelReply("fine", usage=Usage(30, 12, cost=0.00125))

    @virtual
    async def talk() -> None:
        async with bot(Replying(answer)) as bench:
            turns.append((await bench.say("hello")).turn_id)

    talk()
    (line,) = records(stream, "turn.end")
    known = {name: line[name] for name in ("session", "turn", "outcome", "tokens", "cost_usd", "trace")}
    assert known == {
        "session": "test:home",
        "turn": turns[0],
        "outcome": "answered",
        "tokens": 42,
        "cost_usd": 0.00125,
        "trace": turns[0][:8],
    }
    assert line["ms"] >= 2000


def test_each_outcome_has_its_line(stream: io.StringIO) -> None:
    @virtual
    async def talk() -> None:
        async with bot(Played({"error": "refused"})) as bench:
            await bench.say("hello")
            await bench.say(",help")

    talk()
    assert [line["outcome"] for line in records(stream, "turn.end")] == ["failed", "answered"]


def test_codes_and_roles_are_lines_with_ids_and_without_the_code(stream: io.StringIO) -> None:
    codes: list[str] = []

    @virtual
    async def talk() -> None:
        async with bot(ScriptedModel()) as bench:
            access = bench.line.policy.access
            code = await access.create_code(Sender("9", f"Eve {CANARY}"), "test", "9")
            codes.append(code)
            with refused():
                await run(access.approve, by("test:1"), "ABCDEFGH", "member")
            await run(access.approve, by("test:1"), code, "member")
            await run(access.grant, by("terminal"), "9", "test", "admin")
            await run(access.revoke, by("terminal"), "9", "test")

    talk()
    assert [(one["channel"], one["id"]) for one in records(stream, "access.code")] == [("test", "9")]
    assert [(one["by"], one["message"][-7:]) for one in records(stream, "access.code_refused")] == [
        ("test:1", "unknown")
    ]
    assert [(one["id"], one["by"]) for one in records(stream, "access.code_used")] == [("9", "test:1")]
    assert [(one["message"], one["id"], one["by"]) for one in records(stream, "access.role")] == [
        ("role changed: member, before stranger", "9", "test:1"),
        ("role changed: admin, before member", "9", "terminal"),
        ("role changed: stranger, before admin", "9", "terminal"),
    ]
    assert codes[0] not in stream.getvalue()
    assert CANARY not in stream.getvalue()


def test_strangers_are_counted_and_logged_once_a_minute(stream: io.StringIO) -> None:
    @virtual
    async def talk() -> None:
        async with bot(ScriptedModel()) as bench:
            for number in range(100):
                await bench.gate.receive(
                    bench.inbound("x", sender="9", chat="-5", direct=False, external_id=f"a{number}")
                )
            await asyncio.sleep(61)
            await bench.gate.receive(bench.inbound("x", sender="9", chat="-5", direct=False, external_id="b"))
            await asyncio.sleep(200)
            await bench.gate.receive(bench.inbound("x", sender="9", chat="-5", direct=False, external_id="c"))

    talk()
    assert [line["messages"] for line in records(stream, "receive.strangers")] == [1, 99, 1, 1]


def test_what_is_counted_is_logged_at_the_end(stream: io.StringIO) -> None:
    @virtual
    async def talk() -> None:
        async with bot(ScriptedModel()) as bench:
            for number in range(5):
                await bench.gate.receive(
                    bench.inbound("x", sender="9", chat="-5", direct=False, external_id=f"a{number}")
                )
            await bench.line.aclose()

    talk()
    assert [line["messages"] for line in records(stream, "receive.strangers")] == [1, 4]


class Words(Args, frozen=True):
    text: str


@tool("probe.break")
async def breaking(turn: Turn, args: Words) -> str:
    """Fails with what it was given."""
    raise ValueError(args.text)


def test_no_text_of_anybody_is_in_the_log(stream: io.StringIO) -> None:
    @virtual
    async def talk() -> None:
        replies = (calls("tape.search", text=CANARY), calls("probe.break", text=CANARY), says(f"I say {CANARY}"))
        async with bot(Played(*replies), tools=[breaking]) as bench:
            named = Sender("1", f"Ann {CANARY}")
            await bench.gate.receive(structs.replace(bench.inbound(f"hello {CANARY}"), sender=named, message="7"))
            await bench.quiet()
            await bench.gate.receive(edit_of("7", f"edited {CANARY}"))
            for text in (
                f",memory.save {CANARY}",
                f",nonsense {CANARY}",
                f",access.approve {CANARY}",
                f",tape.fork {CANARY}",
                f",probe.break {CANARY}",
            ):
                await bench.say(text)
            for key, chat, direct in (("s1", "9", True), ("s2", "9", True), ("s3", "-5", False)):
                await bench.gate.receive(
                    bench.inbound(f"{key} {CANARY}", sender="9", chat=chat, direct=direct, external_id=key)
                )
            await bench.quiet()

    talk()
    assert len(records(stream, "turn.end")) == 6
    assert [one["message"] for one in records(stream, "tool.raised")] == ["tool raised ValueError"]
    assert [one["message"] for one in records(stream, "command.raised")] == ["command raised ValueError"]
    assert CANARY not in stream.getvalue()


def test_the_form_for_people_has_date_time_and_zone() -> None:
    stream = io.StringIO()
    log.setup("info", stream=stream, form="text", zone=ZoneInfo("Asia/Tokyo"))
    logging.getLogger("bubbot.test").info("fine", extra={"action": "x.y"})
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d JST info    x\.y: fine\n", stream.getvalue())
