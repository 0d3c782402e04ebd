"""Judgements as annotations: which span they are about, what of them goes out, and what happens if Phoenix does not take them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.bot import Bot
from bubbot.concurrency import Backoff
from bubbot.features.otel import label_exporter
from bubbot.features.otel.settings import OtelSettings
from bubbot.features.otel.spans import agent_span, find_step_span
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.health import HealthContext
from bubbot.ports.judgements import Annotator, JudgedTarget, Judgement, TargetKind
from bubbot.settings.loader import Settings
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts
from tests.fakes.otlp_server import Receiver, receiver
from tests.family import MEMBER, family
from tests.judging import ANSWER, react, sent
from tests.traced import exporting, facts, reload, say, settings_for, traced, until, written

SCRIPT = {
    "rules": [
        {"when": "look", "steps": [{"calls": [{"name": "tape_info", "arguments": {}}]}, {"text": "it is short"}]},
        {
            "when": "delegate",
            "steps": [{"calls": [{"name": "agent_run", "arguments": {"task": "count"}}]}, {"text": "ok"}],
        },
        {"when": "count", "steps": [{"text": "five"}]},
    ]
}
WHY = "Ann Summers (81450002) has the wrong day"
JUDGE = Annotator("model", "openai/judge")


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds between tries; nobody waits for them."""
    seen: list[float] = []
    plain = label_exporter.LabelExporter.__init__

    async def sleep(seconds: float) -> None:
        seen.append(seconds)
        await asyncio.sleep(0)

    def without_waits(self: label_exporter.LabelExporter, *args: Any, **options: Any) -> None:
        options["backoff"] = Backoff(lambda: 0.0, max_seconds=0.01)
        plain(self, *args, **options, sleep=sleep)

    monkeypatch.setattr(label_exporter.LabelExporter, "__init__", without_waits)
    monkeypatch.setattr("bubbot.features.otel.exporter.QUIET_SECONDS", 0.02)
    return seen


@asynccontextmanager
async def phoenix(home: Path, **otel: Any) -> AsyncIterator[tuple[Bot, Receiver]]:
    """A bot that sends traces to a Phoenix."""
    options = {"content": "full"} | otel
    async with (
        receiver() as taken,
        traced(settings_for(home, SCRIPT, endpoint=taken.url, **options), home) as bot,
    ):
        yield bot, taken


async def entries(bot: Bot) -> list[TapeEntry]:
    (found,) = await bot.store.fetch([TapeQuery(bot.tape("stdin:default").name)])
    return list(found)


async def judge(bot: Bot, low: int, high: int | None = None, kind: TargetKind = "entry", **fields: Any) -> TapeEntry:
    """Judge entries of the chat."""
    options: dict[str, Any] = {"name": "quality", "score": 1.0, "label": "good", "rationale": WHY, "annotator": JUDGE}
    fact = Judgement(JudgedTarget(kind, ((low, high or low),)), **(options | fields))
    (stored,) = await bot.tape("stdin:default").append([fact.to_entry()])
    return stored


async def answer_of(bot: Bot) -> TapeEntry:
    return [each for each in await entries(bot) if each.kind == "message" and each.payload["role"] == "assistant"][-1]


def health(bot: Bot) -> tuple[dict[str, float], list[str]]:
    """The metrics of the export, and its lines in the status."""
    (feature,) = [one for one in bot.features.lasting if one.name == "otel"]
    assert feature.health is not None
    found = feature.health(HealthContext(Texts(), "2026-11-24T10:00:00+00:00", "UTC"))
    return {each.name.removeprefix("bubbot_otel_"): each.value for each in found.samples}, list(found.rows[0].lines)


def metrics(bot: Bot) -> dict[str, float]:
    return health(bot)[0]


def lines(bot: Bot) -> list[str]:
    return health(bot)[1]


async def test_a_rating_is_an_annotation_of_the_span_of_its_turn(tmp_path: Path) -> None:
    async with phoenix(tmp_path) as (bot, taken):
        result = await say(bot, "hello")
        await say(bot, ",rate 4 It has the wrong day.")
        await taken.annotated(1)
        answer = await answer_of(bot)
    (sent,) = taken.results
    assert sent["span_id"] == agent_span(result.turn_id).hex()
    assert sent["span_id"] in {span.id for span in taken.roots}
    assert (sent["name"], sent["annotator_kind"]) == ("quality", "HUMAN")
    assert sent["result"] == {"score": 4.0, "label": None, "explanation": "It has the wrong day."}
    assert (sent["metadata"]["target"], sent["metadata"]["annotator"]) == ("entry", "stdin:1")
    assert answer.meta["turn"] == result.turn_id
    assert len(sent["identifier"]) == 32


@pytest.mark.parametrize("traceparent", ["off", "near"])
async def test_targets_have_the_spans_of_their_step_their_turn_or_their_sub_task(
    tmp_path: Path, traceparent: str
) -> None:
    async with phoenix(tmp_path, traceparent=traceparent) as (bot, taken):
        turn = (await say(bot, "look here")).turn_id
        other = (await say(bot, "delegate it")).turn_id
        found = await entries(bot)
        mine = [each for each in found if each.meta.get("turn") == turn]
        (call,) = [each for each in mine if each.kind == "tool_call"]
        (result,) = [each for each in mine if each.kind == "tool_result"]
        step = next(each for each in mine if each.name == "loop.step")
        asked = next(each for each in mine if each.payload.get("role") == "user")
        inner = next(each for each in found if each.meta.get("fork"))
        fork = str(inner.meta["fork"])
        bounds = mine[0].id, mine[-1].id
        expected = {}
        for name, stored, span in (
            ("call", await judge(bot, call.id, name="call"), find_step_span(turn, step)),
            ("result", await judge(bot, result.id, name="result"), find_step_span(turn, step)),
            ("step", await judge(bot, step.id, name="step"), find_step_span(turn, step)),
            ("asked", await judge(bot, asked.id, name="asked"), agent_span(turn)),
            ("turn", await judge(bot, *bounds, kind="turn", name="turn"), agent_span(turn)),
            ("slice", await judge(bot, mine[0].id, found[-1].id, kind="slice", name="slice"), agent_span(other)),
            ("branch", await judge(bot, inner.id, kind="branch", name="branch"), agent_span(other, fork)),
        ):
            expected[name] = span.hex(), stored.id
        await taken.annotated(len(expected))
    got = {each["name"]: (each["span_id"], each["metadata"]["entry"]) for each in taken.results}
    assert got == expected
    assert ("span" in step.data) == (traceparent == "near")
    assert {span for span, _ in got.values()} <= {span.id for span in taken.spans}
    assert {each["annotator_kind"] for each in taken.results} == {"LLM"}


async def test_of_a_judgement_that_another_took_the_place_of_only_the_newest_has_a_result(tmp_path: Path) -> None:
    async with phoenix(tmp_path) as (bot, taken):
        await say(bot, "hello")
        await say(bot, ",rate 2 bad")
        await taken.annotated(1)
        await say(bot, ",rate 5 good after all")
        await taken.annotated(2)
        await until_settled(bot)
    old, new = taken.results
    assert new["result"]["score"] == 5.0
    assert old["result"] == {"score": None, "label": None, "explanation": None}
    assert (old["metadata"]["superseded_by"], old["metadata"]["score"]) == (new["identifier"], 2.0)
    assert "superseded_by" not in new["metadata"]


async def test_a_reaction_is_an_annotation_of_its_own_name_and_one_taken_back_has_no_result(tmp_path: Path) -> None:
    async with (
        receiver() as taken,
        family(
            tmp_path, ScriptedModel({"default": [ANSWER]}), OtelSettings(endpoint=taken.url, content="full"), agents={}
        ) as bench,
        exporting(bench.daemon.bot),
    ):
        await bench.say("when does the train leave?", MEMBER)
        await react(bench, sent(bench, "Nine"), "\N{THUMBS UP SIGN}")
        await taken.until(lambda: [each["result"]["score"] for each in taken.results] == [1.0])
        await react(bench, sent(bench, "Nine"), "\N{THUMBS DOWN SIGN}")
        await taken.until(lambda: [each["result"]["score"] for each in taken.results] == [None, -1.0])
        await react(bench, sent(bench, "Nine"))
        await taken.until(lambda: [each["result"]["score"] for each in taken.results] == [None, None])
    assert {each["name"] for each in taken.results} == {"quality.reaction"}
    assert {each["span_id"] for each in taken.results} == {taken.roots[0].id}
    assert taken.results[0]["metadata"] | {"entry": 0, "date": "", "superseded_by": ""} == {
        "entry": 0,
        "date": "",
        "target": "entry",
        "annotator": f"tg:{MEMBER}",
        "identifier": "reaction",
        "superseded_by": "",
        "score": 1.0,
        "label": "\N{THUMBS UP SIGN}",
    }


async def until_settled(bot: Bot) -> None:
    """Wait until a fact says that all labels were sent."""

    async def settled() -> bool:
        count = sum(data["labels"] for name, data in await facts(bot) if name == "otel/annotated")
        return bool(count == metrics(bot)["labels_sent"] > 0)

    await until(settled)


@pytest.mark.parametrize("content", ["off", "redacted"])
async def test_a_rationale_and_an_annotator_follow_the_rule_of_content(tmp_path: Path, content: str) -> None:
    async with phoenix(tmp_path, content=content) as (bot, taken):
        await say(bot, "hello", sender="81450002", name="Ann Summers")
        await say(bot, f",rate 4 {WHY}", sender="81450002", name="Ann Summers")
        answer = await answer_of(bot)
        await judge(bot, answer.id, label="see 81450002 of Ann", name="other")
        await judge(bot, answer.id, label="good", name="third")
        await taken.annotated(3)
    rated, other, third = sorted(taken.results, key=lambda each: each["metadata"]["entry"])
    person = taken.roots[0]["user.id"]
    assert rated["metadata"]["annotator"] == person != "stdin:81450002"
    assert third["result"]["label"] == "good"
    if content == "off":
        assert (rated["result"]["explanation"], other["result"]["label"]) == (None, None)
    else:
        assert rated["result"]["explanation"] == f"[person {person}] ([person {person}]) has the wrong day"
        assert "81450002" not in other["result"]["label"]
    assert not any(word in str(taken.annotation_requests) for word in ("81450002", "Summers"))


@pytest.mark.parametrize("status", [500, 503, 429, 401])
async def test_a_phoenix_that_may_take_it_later_is_asked_again_and_no_span_waits(
    tmp_path: Path, waits: list[float], status: int
) -> None:
    async with phoenix(tmp_path) as (bot, taken):
        taken.annotation_answers = [(status, "later")] * 3
        await say(bot, "hello")
        await say(bot, ",rate 4")
        await taken.annotated(1)
        await say(bot, "one more")
        await taken.turns(3)
        await until_settled(bot)
        assert lines(bot)[-1] == "judgements that Phoenix has taken: 1, waiting: 0, without a span or refused: 0"
    assert len(waits) == 3
    assert len(taken.annotations) == 1


async def test_a_phoenix_that_hangs_holds_up_no_span_and_gets_it_later(tmp_path: Path) -> None:
    async with phoenix(tmp_path, timeout=0.1) as (bot, taken):
        taken.annotation_gate.clear()
        await say(bot, "hello")
        await say(bot, ",rate 4")
        await until(lambda: _is_told(bot, "it gave no answer in time"))
        await say(bot, "one more")
        await taken.turns(3)
        taken.annotation_gate.set()
        await taken.annotated(1)


async def _is_told(bot: Bot, words: str) -> bool:
    return any(words in line for line in lines(bot))


async def test_a_judgement_whose_span_is_not_there_yet_is_sent_again(tmp_path: Path) -> None:
    async with phoenix(tmp_path) as (bot, taken):
        turn = (await say(bot, "hello")).turn_id
        taken.hidden = {agent_span(turn).hex()}
        await say(bot, ",rate 4")
        await taken.until(lambda: len(taken.annotation_requests) > 2)
        answer = await answer_of(bot)
        taken.hidden = set()
        await taken.annotated(1)
        await until_settled(bot)
        assert (metrics(bot)["labels_sent"], metrics(bot)["labels_rejected"]) == (1, 0)
    assert answer.meta["turn"] == turn


async def test_a_judgement_of_a_span_that_never_comes_is_given_up_and_others_are_sent(tmp_path: Path) -> None:
    async with phoenix(tmp_path) as (bot, taken):
        first = (await say(bot, "hello")).turn_id
        taken.hidden = {agent_span(first).hex()}
        await say(bot, ",rate 4")
        await say(bot, "hello again")
        await say(bot, ",rate 3")
        await taken.annotated(1)

        async def is_given_up() -> bool:
            return metrics(bot)["labels_rejected"] == 1

        await until(is_given_up)
        tries = [data for data, _ in taken.annotation_requests if [each["result"]["score"] for each in data] == [4.0]]
        assert len(tries) >= label_exporter.MAX_TRIES - 1
    (sent,) = taken.results
    assert sent["result"]["score"] == 3.0


async def test_a_judgement_of_a_turn_before_the_export_is_tried_once(tmp_path: Path) -> None:
    async with traced(settings_for(tmp_path, SCRIPT), tmp_path, begun=False) as bot:
        await say(bot, "hello")
    async with phoenix(tmp_path) as (bot, taken):
        await judge(bot, (await answer_of(bot)).id)

        async def is_given_up() -> bool:
            return metrics(bot)["labels_rejected"] == 1

        await until(is_given_up)
    assert len([data for data, _ in taken.annotation_requests if data]) == 1


@pytest.mark.parametrize("status", [400, 422])
async def test_one_that_phoenix_refuses_holds_up_no_other(tmp_path: Path, waits: list[float], status: int) -> None:
    async with phoenix(tmp_path) as (bot, taken):
        await say(bot, "hello")
        answer = await answer_of(bot)
        taken.annotation_gate.clear()
        await taken.until(lambda: taken.annotation_requests)  # the question
        for name in ("a", "b", "c"):
            await judge(bot, answer.id, name=name)
        await judge(bot, answer.id, name="note")
        taken.annotation_answers = [(status, "odd")] * 2  # the list, and of its first half the first
        taken.annotation_gate.set()
        await taken.annotated(3)

        async def settled() -> bool:
            return metrics(bot)["labels_sent"] + metrics(bot)["labels_rejected"] == 4

        await until(settled)
    assert waits == []
    assert "note_" in {each["name"] for each in taken.results}, "Phoenix keeps the name"


async def test_a_receiver_that_is_no_phoenix_is_noted_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with receiver() as taken:
        taken.is_phoenix = False
        settings = settings_for(tmp_path, SCRIPT, endpoint=taken.url)
        async with traced(settings, tmp_path) as bot:
            for text in ("hello", ",rate 4", "hello", ",rate 5"):
                await say(bot, text)
            await taken.turns(4)
            await written(bot, "otel/exported")
            await until(lambda: _noted(caplog))
            assert len(lines(bot)) == 1
        assert taken.annotation_requests == []
        taken.is_phoenix = True  # what was said since is not lost
        async with traced(settings, tmp_path):
            await taken.annotated(2)
    assert len([one for one in caplog.records if getattr(one, "action", "") == "otel.no_phoenix"]) == 1


async def _noted(caplog: pytest.LogCaptureFixture) -> bool:
    return any(getattr(one, "action", "") == "otel.no_phoenix" for one in caplog.records)


async def test_after_a_restart_what_was_not_taken_is_sent_and_what_was_taken_is_not(tmp_path: Path) -> None:
    async with receiver() as taken:
        settings = settings_for(tmp_path, SCRIPT, endpoint=taken.url, content="full")
        taken.annotation_answers = [(500, "broken")] * 1000
        async with traced(settings, tmp_path) as bot:
            await say(bot, "hello")
            await say(bot, ",rate 4")
            await taken.until(lambda: any(data for data, _ in taken.annotation_requests))
        taken.annotation_answers = []
        async with traced(settings, tmp_path) as bot:
            await taken.annotated(1)
            await until_settled(bot)
            assert [data["labels"] for name, data in await facts(bot) if name == "otel/annotated"] == [1]
        count = len([data for data, _ in taken.annotation_requests if data])
        async with traced(settings, tmp_path) as bot:
            await say(bot, "one more")
            await say(bot, ",rate 1")
            await taken.annotated(2)
        assert len([data for data, _ in taken.annotation_requests if data]) == count + 1


async def test_what_is_judged_while_the_export_is_off_is_never_sent(tmp_path: Path) -> None:
    async with phoenix(tmp_path) as (bot, taken):
        on = bot_settings(taken, tmp_path)
        await say(bot, "hello")
        await written(bot, "otel/exported")
        await reload(bot, settings_for(tmp_path, SCRIPT))
        await written(bot, "otel/ended")
        await say(bot, ",rate 1 private")
        await reload(bot, on)
        await written(bot, "otel/began", 2)
        await say(bot, ",rate 5 public")
        await taken.annotated(2)
    assert "private" not in str(taken.annotation_requests)
    assert {each["result"]["score"] for each in taken.results} == {5.0, None}


def bot_settings(taken: Receiver, home: Path) -> Settings:
    return settings_for(home, SCRIPT, endpoint=taken.url, content="full")


async def test_another_address_gets_no_key_of_the_first_and_off_sends_none(tmp_path: Path) -> None:
    async with receiver() as spans, receiver() as labels:
        spans.is_phoenix = False
        key = {"endpoint": spans.url, "headers": "authorization=Bearer for-spans"}
        settings = settings_for(tmp_path, SCRIPT, **key, annotations=labels.url)
        async with traced(settings, tmp_path) as bot:
            await say(bot, "hello")
            await say(bot, ",rate 4")
            await labels.until(lambda: len(labels.annotation_requests) > 1)
            spans_of_labels = {each["span_id"] for data, _ in labels.annotation_requests for each in data}
            assert {key for _, key in labels.annotation_requests} == {""}
        own = settings_for(
            tmp_path, SCRIPT, **key, annotations=labels.url, annotations_headers="authorization=Bearer own"
        )
        labels.annotation_requests.clear()
        async with traced(own, tmp_path):
            await labels.until(lambda: labels.annotation_requests)
            assert {key for _, key in labels.annotation_requests} == {"Bearer own"}
        labels.annotation_requests.clear()
        off = settings_for(tmp_path, SCRIPT, **key, annotations="off")
        async with traced(off, tmp_path) as bot:
            await say(bot, "hello")
            await spans.turns(3)
    assert labels.annotation_requests == []
    assert spans_of_labels <= {span.id for span in spans.spans}
