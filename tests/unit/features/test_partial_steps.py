"""Steps that hold less than a step, or something else: older versions left a part of them, and imports hold anything.

Whatever reads recorded steps takes each of them, and says of its request that it was not kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bubbot.app.bot import Bot, open_app
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import BubbotError, EntryNotFound
from bubbot.features.otel.content import Exposure
from bubbot.features.otel.spans import TurnSpans
from bubbot.features.strategies.compare import StrategyComparer
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Sender
from bubbot.runtime.compose import rebuild_request
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.tape.entry import TapeEntry, message, thaw
from bubbot.tape.entry import event as tape_event
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from tests.tapes import whole
from tests.unit.features.trace.test_pages import look, pages_of

ODD: tuple[Any, ...] = (None, -7, "odd", ["odd"], [[1, "x"]], {"odd": 1})
MAKES_REQUEST = frozenset({"view", "system", "tools", "parameters", "request"})


def break_step(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Build steps that lack a field or have another value there; then those of a discarded sub-task of earlier versions."""
    broken = [{name: value for name, value in step.items() if name != gone} for gone in step]
    broken += [{**step, name: odd} for name in step for odd in ODD]
    view = step["view"]
    views = [{name: value for name, value in view.items() if name != gone} for gone in view]
    views += [{**view, name: odd} for name in view for odd in ODD]
    views += [{**view, "style": {**view["style"], name: odd}} for name in view["style"] for odd in ODD]
    broken += [{**step, "view": each} for each in views]
    broken += [{**step, "messages": odd} for odd in ODD]
    return [*broken, {}, {**step, "view": {}, "shown": [], "purpose": "agent:fork"}, {**step, "view": {}, "shown": []}]


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Bot]:
    settings = Settings(model=ModelSettings(name="scripted"))
    async with open_app(settings, Home(home), channel_settings={"write": lambda _: None}) as bot:
        yield bot


async def say(bot: Bot, text: str, chat: str = "default") -> str:
    """Say something at the terminal."""
    return (
        await bot.ask(Inbound("stdin", f"{chat} {text}", chat, Sender("0", "owner"), text, "2026-11-21T20:21:00Z"))
    ).text


async def write_turns(tape: TapeService, steps: list[dict[str, Any]]) -> list[list[TapeEntry]]:
    """Write a turn for each of these steps."""
    entries = list[TapeEntry]()
    for number, step in enumerate(steps):
        turn = [
            tape_event("turn/start", {"attempt": 1, "session": tape.session, "inbounds": []}),
            message("user", f"hello {number}"),
            message("assistant", "You said: hello"),
            tape_event("loop.step", step),
            tape_event("turn/end", {"status": "answered"}),
        ]
        entries += [replace(each, meta={"turn": f"{number:032x}"}) for each in turn]
    stored = await tape.append(entries)
    return [list(stored[place : place + len(turn)]) for place in range(0, len(stored), len(turn))]


@pytest.fixture
async def broken(tmp_path: Path) -> AsyncIterator[tuple[Bot, TapeService, list[list[TapeEntry]]]]:
    """A chat whose turns have broken steps, one each."""
    async with opened(tmp_path) as bot:
        assert await say(bot, "hello") == "You said: hello"
        tape = bot.tape("stdin:default")
        (step,) = [entry for entry in await whole(bot.store, tape.name) if entry.name == "loop.step"]
        yield bot, tape, await write_turns(tape, break_step(thaw(step.data)))


Broken = tuple[Bot, TapeService, list[list[TapeEntry]]]


class TestReadersOfSteps:
    async def test_a_replay_names_each_of_them_and_goes_on(self, broken: Broken) -> None:
        bot, _, turns = broken
        text = await say(bot, ",replay chat=default", "replay")
        facts = [entry.data for entry in (await bot.store.fetch([TapeQuery("bubbot/replay")]))[0]]
        assert facts, text
        fact = facts[0]
        assert text.startswith(f"Requests built again: {len(fact['steps'])}; "), text
        outcomes = {step["entry"][1]: step["recorded"] for step in fact["steps"]}
        discarded = turns[-1][3].id, turns[-2][3].id
        assert [outcomes[each] for each in discarded] == ["gone", "gone"]
        assert f"#{discarded[0]}: not kept" in await say(bot, f",replay chat=default first={discarded[1]}", "replay")

    async def test_the_turns_run_again_as_far_as_they_can(self, broken: Broken) -> None:
        bot, _, _ = broken
        text = await say(bot, ",replay chat=default again=yes", "replay")
        assert text.startswith("Turns run again with scripted: "), text

    async def test_a_request_is_rebuilt_or_an_error_of_ours_says_why_not(self, broken: Broken) -> None:
        _, tape, turns = broken
        problems = set[type]()
        for entry in [entry for turn in turns for entry in turn if entry.name == "loop.step"]:
            try:
                await rebuild_request(entry.data, tape, strategies=OWN_STRATEGIES)
            except BubbotError as error:
                problems.add(type(error))
                continue
            assert entry.data.keys() >= MAKES_REQUEST
        assert EntryNotFound in problems

    async def test_the_trace_page_shows_each_of_them(self, broken: Broken) -> None:
        bot, tape, turns = broken
        pages = pages_of(bot.store)
        shown = [await look(pages, f"/session/{quote(tape.name, safe='')}/step/{turn[3].id}") for turn in turns[-2:]]
        assert "was not kept" in shown[-1]
        assert "was not kept" in shown[-2]

    async def test_an_explanation_tells_what_is_known(self, broken: Broken) -> None:
        bot, _, turns = broken
        told = [await say(bot, f",why {turn[0].meta['turn']}") for turn in turns]
        for turn, text in zip(turns, told, strict=True):
            assert f"(entries {turn[0].id} to {turn[-1].id})" in text
        assert "agent:fork: step 1" in told[-2]

    async def test_spans_are_built_of_each_of_them(self, broken: Broken) -> None:
        _, _, turns = broken
        for turn in turns:
            assert TurnSpans(turn, Exposure("full", str, b"key")).build()

    async def test_the_newest_one_stops_no_comparison_and_no_turn(self, broken: Broken) -> None:
        bot, tape, turns = broken
        comparer = StrategyComparer(OWN_STRATEGIES, lambda _: None)
        first = turns[0][0].id
        for turn in turns[::4]:
            recorded = await tape.as_of([[1, first - 1], [turn[0].id, turn[-1].id]])
            with suppress(EntryNotFound):  # its blobs did not come along
                assert (await comparer.compare(recorded)).step <= turns[0][3].id
        assert await say(bot, "and now?") == "You said: and now?"
        assert "You said" in await say(bot, ",fork and beside it?")
