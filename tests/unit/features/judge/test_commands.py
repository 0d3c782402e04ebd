"""Rate, label, list and show: what people do about judgements, in a chat and in a shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bubbot.features.judge.decision import MAX_READ, DecisionView
from bubbot.features.judge.settings import JudgeSettings
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Quote, Sender
from bubbot.ports.judgements import Annotator, JudgedTarget, Judgement
from bubbot.runtime.targets import find_target, format_target
from bubbot.shell_command import CommandContext
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind
from bubbot.tape.service import TapeService
from tests.callers import refused, run_shell
from tests.family import GROUP, MEMBER, OWNER, Family, family
from tests.judging import ANSWER, answers_of, labels, quote_of, told
from tests.turns import says

HERE = f"tg:{GROUP}"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Family]:
    script = {"rules": [{"when": "bus", "steps": [says("At ten.")]}], "default": [ANSWER]}
    async with family(tmp_path, ScriptedModel(script), agents={}) as found:
        await found.say("when does the train leave?", MEMBER)
        yield found


def shell_of(bench: Family, settings: JudgeSettings | None = None) -> CommandContext:
    """Return what a shell's commands work on, beside the running bot."""
    bot = bench.daemon.bot
    numbers = iter(range(1_000))
    return CommandContext(
        bot.store,
        bot.workspace,
        lambda: datetime.now(UTC),
        lambda: f"shell{next(numbers)}",
        settings or JudgeSettings(),
    )


class TestRate:
    async def test_a_member_rates_the_newest_answer(self, bench: Family) -> None:
        await bench.say("and the bus?", MEMBER)
        assert await bench.say(",rate 2 It is late.", MEMBER) == [
            f"Noted: 2 of 5 for the answer #{answers_of(await bench.entries())[-1]}. No model is shown it."
        ]
        (label,) = await labels(bench)
        fact, answer = label.judgement, answers_of(await bench.entries())[-1]
        assert format_target(fact.target) == f"#{answer}"
        assert (fact.name, fact.score, fact.rationale) == ("quality", 2.0, "It is late.")
        assert fact.annotator == Annotator("human", MEMBER, "tg")

    async def test_the_answer_that_is_replied_to_is_rated(self, bench: Family) -> None:
        await bench.say("and the bus?", MEMBER)
        quote = quote_of(bench, "Nine")
        await bench.say(",rate 5", MEMBER, quote=quote, reply_to=quote.message)
        first, _ = answers_of(await bench.entries())
        assert format_target((await labels(bench))[0].judgement.target) == f"#{first}"

    async def test_of_two_ratings_in_one_turn_each_has_its_own_answer(self, bench: Family) -> None:
        await bench.say("and the bus?", MEMBER)
        first, second = quote_of(bench, "Nine"), quote_of(bench, "ten")
        await asyncio.gather(
            bench.say(",rate 5", MEMBER, quote=first, reply_to=first.message),
            bench.say(",rate 5", MEMBER, quote=second, reply_to=second.message),
        )
        judged = {label.judgement.target.entries[0][0] for label in await labels(bench)}
        assert judged == {*answers_of(await bench.entries())}

    async def test_a_reply_to_something_else_is_refused(self, bench: Family) -> None:
        await bench.say(",topics", MEMBER)
        other = f"p{len(bench.channel.sent)}"
        for message in (other, "m77777"):
            quote = Quote(message, Sender("9"), "something", own=message == other)
            (answer,) = await bench.say(",rate 5", MEMBER, quote=quote, reply_to=message)
            assert answer.startswith("that message is none of my answers here")
        assert not await labels(bench)

    async def test_without_an_answer_there_is_nothing_to_rate(self, bench: Family) -> None:
        assert await bench.say(",rate 5", MEMBER, MEMBER) == [
            "there is no answer here yet that could be rated: ask something first"
        ]

    @pytest.mark.parametrize("line", [",rate 0", ",rate 6", ",rate good", ",rate"])
    async def test_a_score_beyond_the_scale_is_refused(self, bench: Family, line: str) -> None:
        (answer,) = await bench.say(line, MEMBER)
        assert ",rate <score> [why]" in answer
        assert not await labels(bench)


class TestLabels:
    async def test_owners_and_admins_list_them_newest_first(self, bench: Family) -> None:
        await bench.say(",rate 2 Late.", MEMBER)
        await bench.say(",rate 4", OWNER)
        await bench.say(",rate 5", OWNER)
        (text,) = await bench.say(",labels", OWNER)
        (answer,) = answers_of(await bench.entries())
        marks = [line.split(" ", 1)[1] for line in text.splitlines()]
        newest = max(label.entry for label in await labels(bench))
        assert marks == [
            f"#{answer}: quality 5, by tg:1",
            f"#{answer}: quality 4, by tg:1 – replaced by #{newest}",
            f"#{answer}: quality 2, by tg:5 (Late.)",
        ]

    async def test_members_do_not(self, bench: Family) -> None:
        (text,) = await bench.say(",labels", MEMBER)
        assert "for an admin" in text or "admin" in text

    async def test_none_yet(self, bench: Family) -> None:
        assert await bench.say(",labels") == ["Nobody has judged an answer here yet. ,rate 4 does."]


class TestShell:
    async def test_an_entry_is_labelled_and_listed(self, bench: Family) -> None:
        (answer,) = answers_of(await bench.entries())
        done = await run_shell("judge label", shell_of(bench), HERE, f"#{answer}", "", 4.0, "good", "to the point")
        assert done.text == (
            f"Judged: quality of #{answer} in {HERE}. It is entry #{len(await bench.entries())}; no model is shown it.\n"
        )
        listed = await run_shell("judge list", shell_of(bench), HERE)
        assert listed.text.endswith(f"#{answer}: quality 4 good, by stdin:0 (to the point)\n")
        assert listed.data is not None
        assert listed.data["labels"][0]["score"] == 4.0

    async def test_a_judgement_that_says_nothing_is_refused(self, bench: Family) -> None:
        with refused("a judgement needs a score, a label or a reason"):
            await run_shell("judge label", shell_of(bench), HERE, "1")
        with refused("the score nan is not a number"):
            await run_shell("judge label", shell_of(bench), HERE, "1", "", float("nan"))

    @pytest.mark.parametrize(
        ("target", "problem"),
        [
            ("900", "there is no entry 900 that could be judged: this tape has entries 1 to"),
            ("0", "there is no entry 0"),
            ("3-900", "there is no entry 900"),
            ("4-2", "there is no entry 2"),
            ("ffffffff", "ffffffff names nothing on this tape"),
            ("abc", "abc names nothing on this tape"),
            ("no..where", "nothing stands between an anchor no and a later anchor where"),
        ],
    )
    async def test_what_names_nothing_is_refused(self, bench: Family, target: str, problem: str) -> None:
        with refused(problem):
            await run_shell("judge label", shell_of(bench), HERE, target, "", 1.0)

    async def test_entries_slices_anchors_and_turns_are_found(self, bench: Family) -> None:
        await bench.say(",handoff plan")
        await bench.say("and the bus?", MEMBER)
        await bench.say(",handoff done")
        tape, entries = bench.daemon.bot.tape(HERE), await bench.entries()
        (start, end) = [entry.id for entry in entries if entry.name in ("turn/start", "turn/end")][:2]
        turn = str(entries[start - 1].meta["turn"])
        assert await find_target(tape, turn[:8]) == JudgedTarget("turn", ((start, end),), turn)
        assert await find_target(tape, " 2 - #5 ") == JudgedTarget("slice", ((2, 5),))
        assert await find_target(tape, "#7") == JudgedTarget("entry", ((7, 7),))
        anchors = {entry.name: entry.id for entry in entries if entry.kind == Kind.ANCHOR}
        between = await find_target(tape, "plan..done")
        assert between == JudgedTarget("slice", ((anchors["plan"] + 1, anchors["done"] - 1),), "plan..done")
        assert format_target(between) == f"plan..done (#{anchors['plan'] + 1}-#{anchors['done'] - 1})"


class TestShow:
    async def test_the_decision_comes_first(self, bench: Family) -> None:
        await bench.say("and the bus?", MEMBER)
        answer = answers_of(await bench.entries())[-1]
        shown = (await run_shell("judge show", shell_of(bench), HERE, str(answer))).text
        places = [shown.index(text) for text in ("and the bus?", "It chose, in", "At ten.", "Nothing is shown")]
        assert places == sorted(places)
        assert "when does the train leave?" in shown

    async def test_judges_are_shown_only_after_the_person_has_judged(self, bench: Family) -> None:
        (answer,) = answers_of(await bench.entries())
        target = JudgedTarget("entry", ((answer, answer),))
        fact = Judgement(target, "quality", 0.25, "", "seldom right", Annotator("model", "judge-1"))
        await bench.daemon.bot.tape(HERE).append([fact.to_entry()])
        await bench.say(",rate 1", MEMBER)  # another person does not count
        before = (await run_shell("judge show", shell_of(bench), HERE, str(answer))).text
        assert "seldom right" not in before
        assert "A judge has judged it, too: judge it yourself first" in before
        frank = JudgeSettings(offer_after_look=False)
        assert "seldom right" in (await run_shell("judge show", shell_of(bench, frank), HERE, str(answer))).text
        await run_shell("judge label", shell_of(bench), HERE, str(answer), "", 3.0)
        assert "seldom right" in (await run_shell("judge show", shell_of(bench), HERE, str(answer))).text

    async def test_branches_are_what_else_was_possible_and_can_be_judged(self, tmp_path: Path) -> None:
        script = {"rules": [{"when": "brief", "steps": [says("Ten.")]}], "default": [says("At ten o'clock sharp.")]}
        async with family(tmp_path, ScriptedModel(script), agents={}) as bench:
            await bench.say("hello", OWNER)
            await bench.say(',branch prompts="be brief | give reasons" When does the bus leave?', OWNER)
            ended = await bench.facts("branch/ended")
            await bench.say(",branch.choose 2")
            chosen = answers_of([e for e in await bench.entries() if not e.meta.get("fork")])[-1]
            shown = (await run_shell("judge show", shell_of(bench), HERE, str(chosen))).text
            assert all(f"({fact['fork']})" in shown for fact in ended)
            fork = ended[0]["fork"]
            await run_shell("judge label", shell_of(bench), HERE, str(fork), "", 2.0)
            (label,) = await labels(bench)
            assert (label.judgement.target.kind, label.judgement.target.name) == ("branch", fork)
            of_branch = (await run_shell("judge show", shell_of(bench), HERE, str(fork))).text
            assert f"branch {fork}: quality 2, by stdin:0" in of_branch


async def test_a_job_can_neither_judge_nor_list(bench: Family) -> None:
    await bench.say(',remind in 1 minute command=",labels"', OWNER)
    facts: list[Any] = await bench.facts("command")
    assert all("by tg" not in fact["output"] for fact in facts)
    assert told(await labels(bench)) == []


class TestDecision:
    async def test_of_a_long_slice_the_newest_entries_are_read(self, memory_store: InMemoryStore) -> None:
        tape = TapeService(memory_store, "chat", now=lambda: datetime.now(UTC), new_id=str)
        await tape.append([make.message("assistant", f"answer {number}") for number in range(2 * MAX_READ)])
        decision = await tape.read(DecisionView(JudgedTarget("slice", ((1, 2 * MAX_READ),))))
        assert decision.chosen == tuple(f"answer {number}" for number in range(MAX_READ, 2 * MAX_READ))
