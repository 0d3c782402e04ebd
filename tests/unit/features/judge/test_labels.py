"""The judgements of a tape: those that people wrote, and those that their reactions are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bubbot.features.judge.labels import LabelsView
from bubbot.features.judge.settings import JudgeSettings
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.judgements import REACTION, Annotator, JudgedTarget, Judgement
from bubbot.tape.query import evaluate
from tests.family import GROUP, MEMBER, OWNER, Family, family
from tests.judging import ANSWER, answers_of, labels, react, sent, told
from tests.turns import says


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Family]:
    async with family(tmp_path, ScriptedModel({"default": [ANSWER]}), agents={}) as found:
        await found.say("when does the train leave?", MEMBER)
        yield found


async def test_a_reaction_to_an_answer_is_a_judgement_of_its_person(bench: Family) -> None:
    await react(bench, sent(bench, "Nine"), "👍")
    (label,) = await labels(bench)
    (answer,) = answers_of(await bench.entries())
    target, person = JudgedTarget("entry", ((answer, answer),)), Annotator("human", MEMBER, "tg")
    assert label.judgement == Judgement(target, "quality", 1.0, "👍", "", person, REACTION)
    assert label.is_in_force
    assert not await bench.facts("judge/labelled"), "a reaction is on the tape already"


async def test_taking_a_reaction_back_takes_the_judgement_back(bench: Family) -> None:
    await react(bench, sent(bench, "Nine"), "👍")
    await react(bench, sent(bench, "Nine"))
    (label,) = await labels(bench)
    assert label.superseded_by == (await bench.entries())[-1].id


async def test_a_later_reaction_takes_the_place_of_an_earlier_one_and_both_stay(bench: Family) -> None:
    await react(bench, sent(bench, "Nine"), "👍")
    await react(bench, sent(bench, "Nine"), "👎")
    assert told(await labels(bench)) == [(-1.0, MEMBER, True), (1.0, MEMBER, False)]


async def test_people_judge_beside_each_other(bench: Family) -> None:
    await react(bench, sent(bench, "Nine"), "👍")
    await react(bench, sent(bench, "Nine"), "👎", sender=OWNER)
    assert told(await labels(bench)) == [(-1.0, OWNER, True), (1.0, MEMBER, True)]


async def test_the_settings_say_which_reactions_count_and_what_they_judge(bench: Family) -> None:
    await react(bench, sent(bench, "Nine"), "🎉")
    assert not await labels(bench)
    (label,) = await labels(bench, settings=JudgeSettings(reactions={"🎉": 3.0}, name="fun"))
    assert (label.judgement.name, label.judgement.score) == ("fun", 3.0)
    assert not await labels(bench, settings=JudgeSettings(reactions={}))


async def test_reactions_below_the_parts_of_an_answer_are_one_judgement(bench: Family) -> None:
    bench.channel.limit = 6
    bench.model.requests.clear()
    await bench.say("again?", MEMBER)
    last = len(bench.channel.sent)
    await react(bench, f"p{last - 1}", "👍")
    await react(bench, f"p{last}", "👎")
    assert told(await labels(bench)) == [(-1.0, MEMBER, True), (1.0, MEMBER, False)]
    await react(bench, f"p{last}")
    assert told(await labels(bench)) == [(-1.0, MEMBER, False), (1.0, MEMBER, True)]


async def test_a_reaction_to_something_else_than_an_answer_is_no_judgement(bench: Family) -> None:
    await bench.say(",topics")
    await react(bench, f"p{len(bench.channel.sent)}", "👍")
    asked = next(entry for entry in await bench.entries() if entry.payload.get("role") == "user")
    await react(bench, str(asked.meta["message"]), "👍", sender=OWNER)
    assert len(await bench.facts("reaction")) == 2
    assert not await labels(bench)


async def test_the_same_id_in_another_chat_is_no_answer_here(bench: Family) -> None:
    await bench.say("and the bus?", MEMBER, MEMBER)
    await react(bench, sent(bench, "Nine"), "👍", chat=GROUP)  # that message is in Ben's own chat
    assert not await labels(bench)


async def test_a_rating_and_a_reaction_of_one_person_stand_beside_each_other(bench: Family) -> None:
    await react(bench, sent(bench, "Nine"), "👍")
    await bench.say(",rate 4", MEMBER)
    await bench.say(",rate 2", MEMBER)
    assert told(await labels(bench)) == [(2.0, MEMBER, True), (4.0, MEMBER, False), (1.0, MEMBER, True)]


async def test_judgements_hold_on_after_a_start(tmp_path: Path) -> None:
    script = ScriptedModel({"default": [says("Nine.")]})
    async with family(tmp_path, script, agents={}) as bench:
        await bench.say("when?", MEMBER)
        await react(bench, "p1", "👍")
    async with family(tmp_path, script, agents={}) as bench:
        assert told(await labels(bench)) == [(1.0, MEMBER, True)]


def test_of_two_judgements_by_one_annotator_the_later_one_is_in_force() -> None:
    target, ann = JudgedTarget("entry", ((1, 1),)), Annotator("code", "exact")
    facts = [
        Judgement(target, "quality", score, "", "", ann).to_entry().with_id(n) for n, score in ((2, 1.0), (3, 0.0))
    ]
    view = LabelsView().steps("chat")
    queries = next(view)
    with pytest.raises(StopIteration) as end:
        view.send([evaluate(facts, query) for query in queries])
    assert [(each.entry, each.superseded_by) for each in end.value.value] == [(3, 0), (2, 3)]


def test_an_empty_emoji_is_refused() -> None:
    with pytest.raises(ValueError, match="no emoji may be empty"):
        JudgeSettings(reactions={" ": 1.0})
