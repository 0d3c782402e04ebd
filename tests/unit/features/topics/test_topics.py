"""Topics in a running bot: taking one up, leaving it, what comes back, and what people are told."""

from __future__ import annotations

import pytest

from bubbot.features.topics.settings import TopicSettings
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Button
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, message
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.references import MovedIds
from bubbot.texts import Texts
from tests.turns import HOME, Bench, Options, Played, asked, calls, running, says


async def shown(bench: Bench) -> list[str]:
    """What people and the bot said, as the newest request shows it, without times and the opening line."""
    found = [(role, str(content)) for role, content in asked(bench.requests[-1])[1:]]
    return [content.partition("] ")[2] if role == "user" else content for role, content in found]


async def anchors(bench: Bench, beginning: str = "topic") -> list[TapeEntry]:
    return [
        entry for entry in await bench.entries() if entry.kind == "anchor" and (entry.name or "").startswith(beginning)
    ]


async def chat(bench: Bench, *lines: str) -> str:
    """Says these lines; returns the last answer."""
    return [(await bench.say(line)).text for line in lines][-1]


class TestTakingUp:
    async def test_a_new_topic_opens_a_window_without_what_was_said_before(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            answer = await chat(bench, "hello", ",topic Trip to Rome")
            assert answer.startswith("Topic Trip to Rome opens here (entry ")
            await chat(bench, "when do we leave?")
            assert await shown(bench) == ["when do we leave?"]

    async def test_topics_stay_apart_and_each_comes_back(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await chat(bench, ",topic a", "a1", ",topic b", "b1", ",topic A", "a2", ",topic B", "b2")
            assert await shown(bench) == ["b1", "You said: b1", "b2"]
            await chat(bench, ",topic a", "a3")
            assert await shown(bench) == ["a1", "You said: a1", "a2", "You said: a2", "a3"]

    async def test_the_anchor_names_its_parent_and_the_messages_that_come_back(
        self, memory_store: InMemoryStore
    ) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await chat(bench, ",topic a", "a1", ",topic b", ",topic a")
            first, second = await anchors(bench, "topic/a")
            said = [entry.id for entry in await bench.entries() if entry.kind == "message"]
            assert second.payload["state"] == {"owner": "human", "title": "a", "parents": (first.id,)}
            assert [low for low, high in second.payload["recalls"] if low == high] == said
            moved = MovedIds(HOME, {first.id: 900, said[0]: 901}, KERNEL_REFERENCES).move(HOME, second)
            assert moved.payload["state"]["parents"] == (900,)
            assert moved.payload["recalls"][0] == (901, 901)

    async def test_a_topic_that_is_current_is_not_taken_up_again(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            assert await chat(bench, ",topic a", ",topic  A ") == "This is a already."
            assert await chat(bench, ",topic off", ",topic -") == "This is the main line already."
            assert [entry.name for entry in await anchors(bench)] == [
                "topic-left/-",
                "topic/a",
                "topic-left/a",
                "topic/-",
            ]

    async def test_the_newest_summary_and_open_questions_come_back(self, memory_store: InMemoryStore) -> None:
        steps = ["Find a flight", "Ask Bob"]
        handoff = calls("tape_handoff", name="hotel", summary="The hotel is booked.", next_steps=steps, source_ids=[1])
        model = Played(handoff, says("noted"), says("ok"))
        async with running(memory_store, model) as bench:
            answer = await chat(bench, ",topic trip", "hotel booked", ",topic b", "else", ",topic trip")
            assert answer.splitlines()[1:] == [
                "Summary: The hotel is booked.",
                "  open: Find a flight",
                "  open: Ask Bob",
            ]
            state = (await anchors(bench, "topic/trip"))[-1].payload["state"]
            assert (state["summary"], state["source_ids"]) == ("The hotel is booked.", (1,))
            await chat(bench, "what is left?")
            opening = asked(bench.requests[-1])[0][1]
            assert opening.startswith("[Anchor created: topic/trip]: ")
            assert '"next_steps":["Find a flight","Ask Bob"]' in opening

    async def test_a_handoff_inside_a_topic_stays_in_it(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await chat(bench, ",topic a", "a1", ",handoff phase/two all_good", "a2", ",topic b", ",topic a", "a3")
            assert await shown(bench) == ["a1", "You said: a1", "a2", "You said: a2", "a3"]

    async def test_a_new_conversation_inside_a_topic_begins_its_thread_again(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await chat(bench, ",topic a", ",handoff done old_news", "a1", ",new", "a2")
            assert (await chat(bench, ",topic")).startswith("The topic is a, since ")
            await chat(bench, ",topic b", ",topic a", "a3")
            assert await shown(bench) == ["a2", "You said: a2", "a3"]
            assert "summary" not in (await anchors(bench, "topic/a"))[-1].payload["state"]

    async def test_the_main_line_comes_back_too(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await chat(bench, "m1", ",topic a", "a1")
            assert (await chat(bench, ",topic off")).startswith("Back on the main line; 2 of its messages are shown")
            await chat(bench, "m2", ",topic a", ",topic -", "m3")
            assert await shown(bench) == ["m1", "You said: m1", "m2", "You said: m2", "m3"]

    async def test_no_more_comes_back_than_the_limits_allow(self, memory_store: InMemoryStore) -> None:
        limits = TopicSettings(recall_messages=4, recall_tokens=60)
        async with running(memory_store, ScriptedModel(), Options(topics=limits)) as bench:
            await chat(bench, ",topic a", "a1", "a2", "a3", ",topic b", ",topic a", "a4")
            assert await shown(bench) == ["a2", "You said: a2", "a3", "You said: a3", "a4"]
            await chat(bench, ",topic b")
        odd = TopicSettings(recall_messages=3)
        async with running(memory_store, ScriptedModel(), Options(topics=odd), life="odd") as bench:
            await chat(bench, ",topic a", "a5")  # never an answer first
            assert await shown(bench) == ["a4", "You said: a4", "a5"]
        async with running(memory_store, ScriptedModel(), Options(topics=limits), life="second") as bench:
            await chat(bench, ",topic long", "x" * 300, ",topic b", ",topic long", "on")
            assert await shown(bench) == ["on"]

    async def test_what_was_corrected_or_hidden_meanwhile_comes_back_so(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await chat(bench, ",topic a", "at five", "my secret", ",topic b")
            five, secret = [entry.id for entry in await bench.entries() if entry.payload.get("role") == "user"]
            await chat(bench, f",correct {five} at six")
            await bench.tape().hide(secret)
            await chat(bench, ",topic a", "when?")
            texts = [str(content) for _, content in asked(bench.requests[-1])]
            assert [text for text in texts if "at six" in text] == [f"[corrects #{five}, by Ann (#1)] at six"]
            assert "my secret" not in {text.partition("] ")[2] for text in texts}

    async def test_what_a_sub_task_said_or_handed_over_is_no_part_of_the_thread(
        self, memory_store: InMemoryStore
    ) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await chat(bench, ",topic a", "a1")
            said = message("user", "do this apart", fork="t/1")
            await bench.tape().append([said, anchor("apart", {"summary": "apart"}, meta={"fork": "t/1"})])
            assert "2 messages" in await chat(bench, ",topic")
            assert "apart" not in await chat(bench, ",topic b", ",topic a")
            await chat(bench, "a2")
            assert await shown(bench) == ["a1", "You said: a1", "a2"]

    @pytest.mark.parametrize("wrong", ["x" * 65, "x" * 1001])
    async def test_a_wrong_name_is_refused_and_changes_nothing(self, memory_store: InMemoryStore, wrong: str) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            answer = await chat(bench, f",topic {wrong}")
            assert "64 characters" in answer or "1000" in answer
            assert await anchors(bench) == []

    @pytest.mark.parametrize(
        "state",
        [
            None,
            "text",
            ["a"],
            {"summary": 7, "next_steps": "x", "title": [], "messages": "9"},
            {"summary": "s", "source_ids": [999, 0, "x"], "parents": [999], "next_steps": [1, "a"]},
        ],
    )
    async def test_an_imported_anchor_with_an_odd_state_does_no_harm(
        self, memory_store: InMemoryStore, state: object
    ) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            odd = [
                TapeEntry("anchor", {"name": name, "state": state})
                for name in ("topic/odd", "topic-left/odd", "topic/")
            ]
            await bench.tape().append(odd)
            await chat(bench, ",topic odd", ",topics", ",topic", "hello", ",topic b", ",topic odd")
            assert {data["status"] for data in await bench.events("command")} == {"ok"}
            assert len(await anchors(bench, "topic/odd")) == 3

    async def test_no_handoff_changes_the_topic(self, memory_store: InMemoryStore) -> None:
        model = Played(calls("tape_handoff", name="topic/evil"), says("I tried"))
        async with running(memory_store, model) as bench:
            await chat(bench, ",topic a", "go to evil", ",handoff topic-left/a")
            assert [entry.name for entry in await anchors(bench)] == ["topic-left/-", "topic/a"]


class TestTheList:
    async def test_it_has_dates_numbers_and_open_questions_newest_first(self, memory_store: InMemoryStore) -> None:
        model = Played(calls("tape_handoff", name="x", next_steps=["Find a flight"]), says("noted"), says("ok"))
        async with running(memory_store, model) as bench:
            await chat(bench, ",topic Trip", "hotel booked", ",topic Cake", "sugar?", "and milk?")
            assert (await chat(bench, ",topics")).splitlines() == [
                "Cake: 4 messages, last on 2026-11-21 20:22 (here)",
                "Trip: 2 messages, last on 2026-11-21 20:21",
                "  open: Find a flight",
            ]
            assert (await chat(bench, ",topics tri")).splitlines()[0].startswith("Trip: 2 messages")
            assert await chat(bench, ",topics nothing") == "There are no such topics. ,topic NAME opens one."

    async def test_the_numbers_add_up_over_visits(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await chat(bench, ",topic a", "1", ",topic b", ",topic a", "2", "3", ",topic off", "m")
            assert [line.partition(",")[0] for line in (await chat(bench, ",topics")).splitlines()] == [
                "a: 6 messages",
                "b: 0 messages",
            ]
            await chat(bench, ",topic a", "4")
            assert "8 messages" in await chat(bench, ",topic")

    async def test_it_speaks_the_language_of_the_chat(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(), Options(texts=Texts("zh"))) as bench:
            assert (await chat(bench, ",topic 旅行")).startswith("话题“旅行”从这里开始")
            assert await chat(bench, ",topics") == "旅行：0 条消息，最近一条在 2026-11-21 20:21（当前）"

    async def test_a_chat_without_topics_has_none(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            assert await chat(bench, "hello", ",topics") == "There are no such topics. ,topic NAME opens one."
            assert (await chat(bench, ",topic")).startswith("This is the main line, without a topic.")

    @pytest.mark.law("T8")
    async def test_looking_writes_no_anchor(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await chat(bench, ",topic a")
            before = await anchors(bench)
            await chat(bench, ",topics", ",topic")
            assert await anchors(bench) == before

    async def test_long_lists_are_cut_and_say_so(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await chat(bench, "hello")
            await bench.tape().append([anchor(f"topic/t{number}") for number in range(60)])
            lines = (await chat(bench, ",topics")).splitlines()
            assert (len(lines), lines[-1][:20]) == (51, "… and 10 more topics")


class TestProposing:
    async def test_the_model_proposes_and_a_person_confirms(self, memory_store: InMemoryStore) -> None:
        model = Played(calls("topic_propose", name="Cake"), says("Sugar, then."), says("ok"))
        async with running(memory_store, model) as bench:
            answer = await chat(bench, ",topic Trip", "what goes into a cake?")
            assert "Shall we go on in Cake? ,topic Cake does that." in "\n".join([answer, *bench.channel.texts])
            assert [entry.name for entry in await anchors(bench, "topic/")] == ["topic/trip"]
            (intent,) = [
                data for data in await bench.events("outbox/intent", bench.outbox.name) if "Sugar" in str(data)
            ]
            assert str(Button("Go on in Cake", ",topic Cake").command) in str(intent)
            await chat(bench, ",topic Cake")
            assert [entry.name for entry in await anchors(bench, "topic/")] == ["topic/trip", "topic/cake"]

    async def test_the_current_topic_is_not_proposed(self, memory_store: InMemoryStore) -> None:
        model = Played(calls("topic_propose", name="TRIP"), says("as you like"))
        async with running(memory_store, model) as bench:
            await chat(bench, ",topic Trip", "hm")
            assert "This is TRIP already." in str(bench.requests[-1].messages)

    async def test_the_model_cannot_take_one_up(self, memory_store: InMemoryStore) -> None:
        model = Played(calls("topic_open", name="Cake"), says("no"))
        async with running(memory_store, model) as bench:
            await chat(bench, "hm")
            assert "topic.open is not available here" in str(bench.requests[-1].messages)
            assert await anchors(bench) == []


class TestResets:
    @pytest.mark.parametrize("how", ["archive", "erase"])
    async def test_topics_go_with_the_tape(self, memory_store: InMemoryStore, how: str) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await chat(bench, ",topic a", "a1", f",reset {how}")
            assert await chat(bench, ",topics") == "There are no such topics. ,topic NAME opens one."
            await chat(bench, ",topic a", "fresh")
            assert await shown(bench) == ["fresh"]


async def test_a_thousand_topics_are_few_reads(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await chat(bench, "hello")
        await bench.tape().append(
            [entry for number in range(1000) for entry in (anchor(f"topic/t{number}"), message("user", "x"))]
        )
        assert (await chat(bench, ",topic t5")).startswith("Going on with t5")
