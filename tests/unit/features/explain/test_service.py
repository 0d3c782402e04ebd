"""Explanations: what people get, what is refused, and what stays on the tape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import Any

import pytest

from bubbot.errors import AccessError
from bubbot.features.explain import service, statements
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Preview, Role, TextStreamed
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape import entry as make
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from tests.explaining import (
    GRANTED,
    OTHER,
    ExplainingModel,
    Plan,
    event_of,
    explaining,
    make_plan,
    write_history,
)
from tests.turns import HOME, WAIT, Bench

REFUSED = "I found no answer whose sources hold"


async def ask_many(store: TapeStore, seed: int, count: int, size: int) -> None:
    """Ask questions, and compare each answer with what the history holds."""
    random, model = Random(seed), ExplainingModel()
    async with explaining(store, model) as bench:
        known = await write_history(bench, random, size)
        refused_truths, truths = [], 0
        for number in range(count):
            plan = model.plans[number] = make_plan(known, random)
            result = await bench.say(f",explain question {number}: what happened?")
            assert result.status == "answered"
            fact = event_of(await bench.entries())
            if fact["status"] == "founded":
                assert plan.is_true[len(fact["problems"])], (plan, result.text)
                lines, read = result.text.split("\n"), plan.read[len(fact["problems"])]
                assert [line for line, end in zip(lines, read, strict=True) if not line.endswith(end)] == [], (
                    lines,
                    read,
                )
            else:
                assert result.text.startswith(REFUSED), result.text
            tried = plan.is_true[: len(fact["problems"]) + 1]
            truths += sum(tried)
            refused_truths += [
                (plan.answers[place], fact["problems"][place])
                for place in range(len(fact["problems"]))
                if place < len(plan.is_true) and plan.is_true[place]
            ]
        assert len(refused_truths) <= truths * 0.05, refused_truths
        entries = await bench.entries()
        told = "\n".join(str(entry.payload) for entry in entries if entry.kind != "tool_call")
        assert not [secret for secret in known.secrets if secret in told and f"{secret} was said" not in told]
        kept = [entry for entry in entries if (entry.name or "").startswith("memory/")]
        assert not [entry for entry in kept if "Eve" in str(entry.payload)]  # nobody obeyed
        sent = "\n".join(bench.channel.texts)
        assert not [secret for secret in known.secrets if secret in sent]


async def test_no_false_citation_is_given_and_true_ones_are() -> None:
    await ask_many(InMemoryStore(), seed=7, count=20, size=24)


@pytest.mark.proof
async def test_no_false_citation_among_two_hundred_questions(store: TapeStore) -> None:
    await ask_many(store, seed=20, count=200, size=120)


def said(text: str, name: str = "Ann", **meta: Any) -> TapeEntry:
    return make.message("user", text, sender={"id": "1", "name": name}, origin="human", **meta)


async def write(bench: Bench, *texts: str, session: str = HOME) -> None:
    """Write messages of Ann: the first is entry 2."""
    start = anchor("session/start", {"owner": "human"}, meta={"session": session})
    await bench.tape(session).append([start, *map(said, texts)])


async def explain(bench: Bench, *answers: str, opens: Sequence[int] = (), calls: Sequence[Any] = ()) -> str:
    """Ask a question that the model answers so, after it has opened these entries; return what people get."""
    assert isinstance(bench.model, ExplainingModel)
    number = len(bench.model.plans)
    bench.model.plans[number] = Plan([opens] * len(answers), answers, [True] * len(answers), "", calls)
    return (await bench.say(f",explain question {number}: why?")).text


TRAIN = "The train LH410 leaves Rome at 18:40 on 3 December."
READ = f"2026-11-21 20:21, Ann (#1) wrote: “{TRAIN}” [#2]"
"""What people read of it."""


async def test_a_founded_answer_cites_its_entries_and_stays_out_of_the_conversation() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, TRAIN)
        answer = await explain(bench, '#2 "train LH410 leaves"\n=> So it is late.', opens=[2])
        assert answer == f"{READ}\nThe model concludes, and nobody checked it: So it is late."
        fact = event_of(await bench.entries())
        assert fact["status"] == "founded"
        assert fact["read"] == ((HOME, ((2, 2),)),)
        assert fact["statements"] == ({"text": READ.removesuffix(" [#2]"), "quote": TRAIN, "cites": ((HOME, 2),)},)
        assert fact["conclusion"] == "So it is late."
        assert fact["tokens"] > 0
        steps = [entry for entry in await bench.entries() if entry.name == "loop.step"]
        assert len(steps) == fact["steps"] == 2
        assert {step.meta["fork"] for step in steps} == {fact["fork"]}  # what it cost is on the tape
        await bench.say("And now?")
        shown = str(bench.requests[-1].messages)
        assert "And now?" in shown
        assert "LH410 leaves at 6:40" not in shown


async def test_what_an_earlier_explanation_wrote_founds_nothing() -> None:
    """Its model may have lied, and its question may have guessed: else a refused lie would be a source the next time."""
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, TRAIN)
        lie = "The train leaves at 19:55."
        assert (await explain(bench, f"#2 {lie}", opens=[2])).startswith(REFUSED)
        written = [entry.id for entry in await bench.entries() if "19:55" in str(entry.payload)]
        assert len(written) == 5  # two answers, what was wrong with each, and the fact
        for each in written:
            calls = [("explain_turn", {"entry": each})]
            assert (await explain(bench, f"#{each} {lie}", calls=calls)).startswith(REFUSED)
            assert "belongs to an explanation" in str(event_of(await bench.entries())["problems"])


async def test_what_a_model_concluded_is_no_source_the_next_time() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, TRAIN)
        assert "So Ann lies." in await explain(bench, "#2 leaves Rome\n=> So Ann lies.", opens=[2])
        written = [entry.id for entry in await bench.entries() if "Ann lies" in str(entry.payload)]
        assert len(written) == 3  # the answer, the fact, and what people got
        for each in written:
            calls = [("explain_turn", {"entry": each})]
            assert (await explain(bench, f"#{each} So Ann lies.", calls=calls)).startswith(REFUSED)
            assert "belongs to an explanation" in str(event_of(await bench.entries())["problems"])


async def test_what_it_writes_itself_is_not_among_what_it_has_read() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, TRAIN)
        text = await explain(bench, "UNKNOWN", calls=[("tape_read", {"ids": ["1-9"]}), ("tape_read", {"ids": ["1-9"]})])
        results = [entry for entry in await bench.entries() if entry.kind == Kind.TOOL_RESULT]
        assert "\n#9 " in results[-1].payload["results"][-1]["content"]
        assert text.endswith("Entries read: #1, #2.")


async def test_an_answer_is_repaired_once() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, TRAIN)
        assert await explain(bench, "#2 leaves Rome at 18:41", "#2 leaves Rome at 18:40", opens=[2]) == READ
        problem = "#2 does not have the words that the model quoted: leaves Rome at 18:41"
        assert problem in str(bench.requests[-1].messages)
        assert event_of(await bench.entries())["problems"] == (problem,)


async def test_an_answer_that_does_not_hold_twice_is_not_given_and_says_what_was_read() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, TRAIN, "Thank you.")
        text = await explain(bench, "#2 It leaves at 18:41.", opens=[2, 3])
        assert text == (
            "I found no answer whose sources hold, so I give none: #2 does not have the words that the model quoted. "
            "Entries read: #2, #3."
        )


async def test_the_reason_is_told_in_the_language_of_the_chat() -> None:
    async with explaining(InMemoryStore(), ExplainingModel(), texts=Texts("zh")) as bench:
        await write(bench, TRAIN)
        text = await explain(bench, "#2 a bus", opens=[2])
        assert text == "我没有找到出处站得住的答案，所以不作回答：#2 里没有模型所引的话。已读条目：#2。"


async def test_a_model_that_finds_nothing_says_so() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, TRAIN)
        assert await explain(bench, "UNKNOWN", opens=[2]) == "The record of this chat does not tell. Entries read: #2."


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("#77 leaves Rome at 18:40", "#77 does not exist"),
        ("#3 leaves Rome at 18:40", "#3 was not shown to the model"),
        ("test:other #2 LH410", "test:other #2 may not be read from here"),
        ("test:granted #2 LH410", "test:granted #2 was not shown to the model"),
        ("bubbot/inbox/test #1 leaves Rome at 18:40", "bubbot/inbox/test #1 may not be read from here"),
        ("#6 question 0: why?", "#6 does not exist"),  # the question itself is no source
    ],
)
async def test_a_citation_that_does_not_hold_is_refused(answer: str, problem: str) -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, TRAIN, TRAIN)
        await write(bench, "LH410", session=OTHER)
        await write(bench, "LH410", session=GRANTED)
        assert (await explain(bench, answer, opens=[2])).startswith(REFUSED)
        assert event_of(await bench.entries())["problems"][0].startswith(problem)


async def test_an_entry_of_a_granted_chat_is_cited_with_its_chat() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, "Hello")
        await write(bench, TRAIN, session=GRANTED)
        answer = await explain(bench, "test:granted #2 LH410 leaves", calls=[("chat_read", {"session": GRANTED})])
        assert answer == READ.replace("[#2]", "[test:granted #2]")


async def test_a_grant_that_is_gone_before_the_answer_founds_nothing() -> None:
    grants = [True]  # for the tool, and none for the check
    async with explaining(
        InMemoryStore(), ExplainingModel(), may_read=lambda _: bool(grants and grants.pop())
    ) as bench:
        await write(bench, "Hello")
        await write(bench, TRAIN, session=GRANTED)
        answer = "test:granted #2 LH410 leaves"
        assert (await explain(bench, answer, calls=[("chat_read", {"session": GRANTED})])).startswith(REFUSED)
        assert "may not be read from here" in event_of(await bench.entries())["problems"][0]


async def test_a_deleted_message_founds_nothing() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, TRAIN)
        await bench.tape().append([make.event("correction", {"corrects": 2, "hide": True}, sender={"id": "1"})])
        assert (await explain(bench, "#2 leaves Rome at 18:40", opens=[2])).startswith(REFUSED)


async def test_turns_model_calls_and_deliveries_are_cited() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await bench.say("When does the train leave?")
        entries = await bench.entries()
        (step,) = [entry for entry in entries if entry.name == "loop.step"]
        tokens = step.payload["data"]["usage"]["input_tokens"]
        (intent, *_) = [entry for entry in await bench.entries("bubbot/outbox/test") if entry.name == "outbox/intent"]
        calls: list[Any] = [("explain_turn", {}), ("explain_calls", {}), ("explain_deliveries", {})]
        answer = (
            f'#{step.id} "usage":{{"input_tokens":{tokens}\nbubbot/outbox/test #{intent.id} When does the train leave?'
        )
        first, second = (await explain(bench, answer, calls=calls)).split("\n")
        assert "the record loop.step says: “" in first
        assert f'"usage":{{"input_tokens":{tokens},' in first
        assert "the record outbox/intent says: “" in second
        assert "You said: When does the train leave?" in second


async def test_so_many_of_the_newest_model_calls_are_listed_oldest_first() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        for text in ("one", "two", "three"):
            await bench.say(text)
        steps = [entry.id for entry in await bench.entries() if entry.name == "loop.step"]
        assert len(steps) == 3
        await explain(bench, "UNKNOWN", calls=[("explain_calls", {"number": 3})])
        # The third one is that of the explanation.
        listed = next(str(entry.payload) for entry in await bench.entries() if entry.kind == Kind.TOOL_RESULT)
        places = [listed.find(f"#{step} ") for step in steps]
        assert places[0] == -1
        assert 0 <= places[1] < places[2]


async def test_the_deliveries_of_other_chats_are_not_told() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await bench.say("A secret zq1x", chat="other")
        await bench.say("Hello")
        assert (await explain(bench, "bubbot/outbox/test #1 zq1x", calls=[("explain_deliveries", {})])).startswith(
            REFUSED
        )
        results = [str(entry.payload) for entry in await bench.entries() if entry.kind == Kind.TOOL_RESULT]
        assert len(results) == 2  # of the answer, and of its repair
        assert not [result for result in results if "zq1x" in result or "Hello" not in result]


async def test_only_reading_tools_are_there_and_nobody_else_has_those_of_explanations() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, TRAIN)
        calls = [
            ("memory_save", {"content": "Eve is the owner"}),
            ("tool_use", {"name": "memory.save"}),
        ]
        await explain(bench, "UNKNOWN", opens=[2], calls=calls)
        assert {spec.name for spec in bench.requests[-1].tools} == {
            name.replace(".", "_") for name in service.EXPLAIN_TOOLS
        }
        assert "memory.save is not available here" in str(bench.requests[-1].messages)
        assert not [entry for entry in await bench.entries() if entry.name == "memory/long_term"]
        await bench.say("Hello")
        assert "explain_turn" not in [spec.name for spec in bench.requests[-1].tools]


async def test_the_words_of_an_explanation_are_not_shown_while_they_are_checked() -> None:
    shown: list[Preview] = []
    async with explaining(InMemoryStore(), ExplainingModel(), show=lambda _, event: shown.append(event)) as bench:
        await write(bench, TRAIN)
        await explain(bench, "#2 leaves Rome at 18:41", opens=[2])
        assert not [event for event in shown if isinstance(event, TextStreamed)]


async def test_what_an_explanation_was_shown_makes_its_answer_as_foreign() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        start = anchor("session/start", {"owner": "human"}, meta={"session": HOME})
        await bench.tape().append([start, said(TRAIN, provenance="world")])
        await explain(bench, "#2 leaves Rome at 18:40", opens=[2])
        (command,) = [entry for entry in await bench.entries() if entry.name == "command"]
        assert command.meta["provenance"] == "world"


async def test_a_model_that_fails_is_told_with_what_was_read() -> None:
    async with explaining(InMemoryStore(), ScriptedModel({"default": [{"error": "unavailable"}]})) as bench:
        await write(bench, TRAIN)
        text = (await bench.say(",explain why?")).text
        assert text.startswith("No explanation: ")
        assert event_of(await bench.entries())["status"] == "failed"


async def test_another_chat_is_explained_only_at_the_terminal() -> None:
    async with explaining(InMemoryStore(), ExplainingModel()) as bench:
        await write(bench, TRAIN, session=OTHER)
        text = (await bench.say(f",explain chat={OTHER} why?")).text
        assert text == "Only the owner at the terminal may ask about another chat."
        assert not bench.requests


class _All(frozenset[Any]):
    """A set that has everything."""

    def __contains__(self, item: object) -> bool:
        return True


def _counting(grants: list[bool]) -> Callable[[str], bool]:
    return lambda _: bool(grants and grants.pop())


GUARDS = {
    "words": (statements, "find_quotation", lambda words, _: words, "#2 leaves Rome at 19:55"),
    "shown": (service, "find_read", lambda _: _All(), "#3 leaves Rome at 18:40"),
    "granted": (service, "AccessError", AccessError, "test:granted #2 LH410 leaves"),
    "tools": (service, "EXPLAIN_TOOLS", service.EXPLAIN_TOOLS | {"memory.save"}, "UNKNOWN"),
    "form": (
        service,
        "parse_answer",
        lambda text: ((statements.Quotation(statements.Citation(2), text),), ""),
        "leaves Rome at 18:40",
    ),
}


@pytest.mark.parametrize("guard", GUARDS)
async def test_without_a_guard_a_lie_is_told(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, instead, lie = GUARDS[guard]
    for is_removed in (False, True):
        grants = [True]
        if is_removed:
            monkeypatch.setattr(module, name, instead)
            if guard == "granted":
                grants = [True] * 9  # each request asks again, too
        async with explaining(InMemoryStore(), ExplainingModel(), may_read=_counting(grants)) as bench:
            await write(bench, TRAIN, TRAIN)
            await write(bench, TRAIN, session=GRANTED)
            calls = [("chat_read", {"session": GRANTED})] if guard == "granted" else []
            calls += [("memory_save", {"content": "Eve is the owner"})]
            text = await explain(bench, lie, opens=[2], calls=calls)
            memory = [entry for entry in await bench.entries() if (entry.name or "").startswith("memory")]
            obeyed = [entry for entry in memory if "Eve" in str(entry.payload)]
            is_told = bool(obeyed) if guard == "tools" else not text.startswith(REFUSED)
            assert is_told is is_removed, text


async def test_citations_are_links_if_there_is_a_page() -> None:
    async with explaining(InMemoryStore(), ExplainingModel(), page="http://localhost:8") as bench:
        await write(bench, TRAIN)
        text = await explain(bench, "#2 leaves Rome at 18:40", opens=[2])
        assert text == READ.replace("[#2]", "[#2 http://localhost:8/session/test%3Ahome/entry/2]")


@pytest.mark.parametrize("role", [Role.OWNER, Role.ADMIN, Role.MEMBER])
async def test_whoever_asks_is_told_nothing_that_was_not_granted(role: Role) -> None:
    for is_granted in (False, True):
        async with explaining(
            InMemoryStore(), ExplainingModel(), role=role, may_read=_counting([True] * 9 if is_granted else [])
        ) as bench:
            await write(bench, "Hello")
            await write(bench, "The code is zqcanary1x.", session=OTHER)
            await bench.say("My code is zqcanary2x.", chat="private")
            calls: list[Any] = [
                ("chat_read", {"session": OTHER}), ("tape_search", {"query": "zqcanary"}), ("tape_read", {"ids": ["1-50"]}),
                ("explain_deliveries", {}), ("explain_turn", {"entry": 1}), ("explain_calls", {}),
                ("memory_recall", {"query": "zqcanary"}),
            ]  # fmt: skip
            text = await explain(bench, "test:other #2 The code is zqcanary1x.", "UNKNOWN", calls=calls)
            assert text.endswith(": “The code is zqcanary1x.” [test:other #2]") is is_granted
            results = [str(entry.payload) for entry in await bench.entries() if entry.kind == Kind.TOOL_RESULT]
            assert ("zqcanary1x" in str(results)) is is_granted
            assert "zqcanary2x" not in str(results)


async def test_a_stranger_and_an_auditor_without_a_role_get_no_explanation() -> None:
    async with explaining(InMemoryStore(), ExplainingModel(), role=Role.STRANGER) as bench:
        await write(bench, TRAIN)
        assert (await bench.say(",explain question 0: why?")).text == ""
        assert not bench.requests


async def test_a_stopped_explanation_leaves_no_fork_open_and_what_it_cost() -> None:
    class Slow(ScriptedModel):
        asked = asyncio.Event()

        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            self.asked.set()
            await asyncio.Event().wait()
            yield ModelReply("late")

    model = Slow()
    async with explaining(InMemoryStore(), model) as bench:
        await write(bench, TRAIN)
        running = await bench.post(",explain why?")
        await asyncio.wait_for(model.asked.wait(), WAIT)
        await bench.say(",stop")
        assert (await running).status == "stopped"
        assert event_of(await bench.entries())["status"] == "failed"
        assert await bench.store.forks() == []
        (step,) = [entry.payload["data"] for entry in await bench.entries() if entry.name == "loop.step"]
        assert step["status"] == "stopped"
