"""The daemon is killed while it sends traces: no span is lost, and none is there twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.entry import Kind, TapeEntry
from tests.e2e.daemon import WAIT, Daemon, started
from tests.e2e.kill_harness import KILLED, damage, entries_of
from tests.e2e.kill_talk import Talk
from tests.e2e.platforms import OnTelegram
from tests.fakes.botapi.server import Server
from tests.fakes.otlp_server import Receiver, receiver

AT_CHECKPOINT = "append-otel:before#1"
"""The receiver has taken the spans, and the tape does not say so."""


class TracedTalk(Talk):
    """People who talk with a bot that sends traces."""

    async def start(self, point: str = "", broken: str = "") -> Daemon:
        return await started(self.home, target="tests.e2e.otel_daemon:run", arguments=[str(self.home), point, broken])

    async def switch_on(self, taken: Receiver) -> None:
        """Switch the export on: later turns are sent."""
        with (self.home / "config.toml").open("a") as file:
            file.write(f'[otel]\nendpoint = "{taken.url}"\n')
        daemon = await self.run()
        async with asyncio.timeout(WAIT):
            while not await entries_of(self.home, "bubbot/otel"):  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(0.05)
        assert await daemon.end() == 0, daemon.errors


@dataclass
class Figures:
    """What came of the turns on the tapes. `resent`: spans that came more than once, always as the same."""

    turns: int = 0
    spans: int = 0
    lost: int = 0
    doubled: int = 0
    resent: int = 0


async def expected(home: Path) -> Counter[str]:
    """How many spans each turn on the tapes has to have, counted from its facts: by the id of the turn."""
    store = await open_readonly(home / "bubbot.db")
    try:
        page = await store.read_after(0, 1_000_000)
    finally:
        await store.aclose()
    entries = [one.entry for one in page]
    ended = {_turn(entry) for entry in entries if entry.name in ("turn/end", "turn/interrupted")}
    counts: Counter[str] = Counter()
    for entry in entries:
        if (turn := _turn(entry)) in ended and turn:
            counts[turn] += _spans_of(entry)
    return counts


def _turn(entry: TapeEntry) -> str:
    return str(entry.meta.get("turn", ""))


def _spans_of(entry: TapeEntry) -> int:
    """The turn's own span with its start, a step with its attempts, and the calls."""
    if entry.name == "loop.step":
        return 1 + len(entry.payload["data"].get("attempts", ()))
    if entry.kind == Kind.TOOL_CALL:
        return len(entry.payload["calls"])
    return int(entry.name == "turn/start")


async def compare(home: Path, taken: Receiver) -> Figures:
    """Compare what came with the facts. A span is known by its id; what differs under one id is another span."""
    wanted = await expected(home)
    distinct = {(span.id, span.trace, span.parent, span.name, span.start, span.end) for span in taken.spans}
    got = Counter(trace for _, trace, *_ in distinct)
    return Figures(
        len(wanted),
        wanted.total(),
        lost=(wanted - got).total(),
        doubled=(got - wanted).total(),
        resent=sum(count - 1 for count in taken.ids.values()),
    )


async def settle(talk: TracedTalk, taken: Receiver, broken: str = "") -> Figures:
    """Let a bot answer and send all there is, and compare."""
    daemon = await talk.run(broken)
    try:
        await talk.platforms[0].until(talk.complete, 120)
        await talk.platforms[0].quiet()
        async with asyncio.timeout(WAIT):
            while not await _has_sent_all(talk.home):  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(0.05)
    finally:
        code = await daemon.end()
    assert code == 0, daemon.errors
    assert await damage(talk.home) == []
    return await compare(talk.home, taken)


async def _has_sent_all(home: Path) -> bool:
    """Whether a checkpoint stands above the end of each turn."""
    facts = await entries_of(home, "bubbot/otel")
    positions = [entry.payload["data"]["position"] for entry in facts if entry.name == "otel/exported"]
    store = await open_readonly(home / "bubbot.db")
    try:
        after = await store.read_after(max(positions, default=0), 1_000_000)
    finally:
        await store.aclose()
    return not any(one.entry.name in ("turn/end", "turn/interrupted") for one in after)


async def kills(home: Path, *, seed: int, lives: int) -> tuple[Figures, int]:
    """Random instants, every third time the one between the receiver's answer and the checkpoint, while two chats talk: the
    figures, and the number of kills."""
    rng, killed = random.Random(seed), 0
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server, receiver() as taken:
        talk = TracedTalk(home, [OnTelegram(server)])
        talk.open(2)
        await talk.switch_on(taken)
        for life in range(lives):
            at_checkpoint = life % 3 == 0
            daemon = await talk.start(AT_CHECKPOINT if at_checkpoint else "")
            for number in range(3):
                talk.say(rng.choice(talk.people), f"{'use the tool ' if rng.random() < 0.5 else ''}{life}-{number}")
            if at_checkpoint:
                assert await daemon.ended() == KILLED
            else:
                await asyncio.sleep(rng.random() * 1.5)
                await daemon.kill()
            killed += 1
        return await settle(talk, taken), killed


async def test_no_span_is_lost_or_doubled_over_kills(tmp_path: Path) -> None:
    figures, killed = await kills(tmp_path / "home", seed=1, lives=3)
    assert (killed, figures.lost, figures.doubled) == (3, 0, 0)
    assert figures.turns >= 9
    assert figures.resent > 0, "a kill between the answer and the checkpoint sends the same spans again"


@pytest.mark.proof
@pytest.mark.parametrize(("broken", "point"), [("early-checkpoint", "append-otel:after#1"), ("new-ids", AT_CHECKPOINT)])
async def test_without_the_order_or_the_ids_it_is_seen(tmp_path: Path, broken: str, point: str) -> None:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server, receiver() as taken:
        talk = TracedTalk(tmp_path / "home", [OnTelegram(server)])
        talk.open(1)
        await talk.switch_on(taken)
        daemon = await talk.start(point, broken)
        talk.say(talk.people[0], "hello")
        assert await daemon.ended() == KILLED
        figures = await settle(talk, taken, broken)
    assert (figures.lost > 0, figures.doubled > 0) == (broken == "early-checkpoint", broken == "new-ids")


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(4))
async def test_a_hundred_kills(tmp_path: Path, seed: int) -> None:
    figures, killed = await kills(tmp_path / "home", seed=seed, lives=25)
    print(f"kills {killed}: {figures}")
    assert (killed, figures.lost, figures.doubled) == (25, 0, 0)


async def test_a_turn_that_runs_again_is_a_trace_of_its_own_that_leads_to_the_first(tmp_path: Path) -> None:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server, receiver() as taken:
        talk = TracedTalk(tmp_path / "home", [OnTelegram(server)])
        talk.open(1)
        await talk.switch_on(taken)
        daemon = await talk.start("tool:after#1")
        talk.say(talk.people[0], "use the tool")
        assert await daemon.ended() == KILLED
        figures = await settle(talk, taken)
    assert (figures.lost, figures.doubled, figures.turns) == (0, 0, 2)
    first, second = sorted(taken.roots, key=lambda span: span.start)
    assert (first["bubbot.turn.status"], second["bubbot.turn.status"], second["bubbot.turn.attempt"]) == (
        "interrupted",
        "answered",
        2,
    )
    assert second.links == ((first.trace, first.id),)
    calls = [span for span in taken.named("execute_tool") if span.trace == first.trace]
    assert [span["error.type"] for span in calls] == ["not_finished", "not_finished"]
    assert first.end <= second.start, "it lasted as long as what it did, not until it was found"


async def _has_noted_labels(home: Path) -> bool:
    return any(entry.name == "otel/annotated" for entry in await entries_of(home, "bubbot/otel"))


AT_LABELS = "append-otel:before#2"
"""Phoenix has taken the judgement of the turn whose spans it took before, and the tape does not say so."""


async def test_a_judgement_is_sent_after_a_kill_and_one_sent_twice_is_the_same(tmp_path: Path) -> None:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server, receiver() as taken:
        talk = TracedTalk(tmp_path / "home", [OnTelegram(server)])
        talk.open(1)
        await talk.switch_on(taken)
        daemon = await talk.run()
        talk.say(talk.people[0], "hello")
        await talk.platforms[0].until(talk.complete, 120)
        await taken.turns(1)
        (answered,) = taken.roots
        taken.annotation_gate.clear()
        talk.say(talk.people[0], ",rate 4")
        await taken.until(lambda: any(data for data, _ in taken.annotation_requests))
        await daemon.kill()  # on its way to Phoenix, and not there
        assert not taken.annotations
        taken.annotation_requests.clear()
        taken.annotation_gate.set()
        daemon = await talk.run()
        await taken.annotated(1)
        async with asyncio.timeout(WAIT):
            while not await _has_noted_labels(talk.home):  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(0.05)
        assert await daemon.end() == 0, daemon.errors

        daemon = await talk.start(AT_LABELS)
        talk.say(talk.people[0], ",rate 2")
        assert await daemon.ended() == KILLED
        assert len(taken.annotations) == 2
        before = dict(taken.annotations)
        taken.annotation_requests.clear()
        daemon = await talk.run()
        await taken.until(lambda: any(data for data, _ in taken.annotation_requests))
        assert await daemon.end() == 0, daemon.errors
    assert taken.annotations == before, "sent twice, it is the same"
    assert {span for span, _, _ in taken.annotations} == {answered.id}
    assert sorted(str(each["result"]["score"]) for each in taken.results) == ["2.0", "None"]
