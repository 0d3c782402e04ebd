"""Evaluations in a real bot: cases, setups, tools, judges, slices of chats, budgets, and what erasures reach."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.events import OWN_REFERENCES
from bubbot.arguments.fields import NoArguments
from bubbot.errors import ValueInvalid
from bubbot.features.budget.settings import BudgetSettings
from bubbot.features.judge.evals.panels import PANELS
from bubbot.features.judge.evals.report import find_evaluation, format_report, read_report, render_report
from bubbot.features.people.facts import Consent
from bubbot.models.scripted import ScriptedModel
from bubbot.panel import PanelQuery, PanelReader
from bubbot.ports.model import ModelEvent, ModelRequest
from bubbot.ports.turn import Turn
from bubbot.settings.loader import BotSettings
from bubbot.tape.boundary import OWNER as SEES_ALL
from bubbot.tape.boundary import TapeBoundary, Viewer
from bubbot.tape.discard import DiscardingStore
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import Batch, ForkRecord, ResetBatch, TapeStore
from bubbot.texts import Texts
from bubbot.tool import INSIDE, tool
from tests.evals import EvalBench, calls, eval_bench, script
from tests.family import GROUP, MEMBER, OWNER, family
from tests.traced import until

ONE = """
[setups.one]
script = "good.json"
[cases.hello]
message = "hello"
expect = "Hi."
[[judges]]
kind = "exact"
"""
SLICE = """
[setups.other]
model = "scripted/other"
[cases.chat]
chat = "default"
[[judges]]
kind = "regex"
pattern = "Else"
"""
RUBRIC = """
[[judges]]
kind = "model"
name = "tone"
model = "scripted/judge"
rubric = "friendly"
anchors = [{ score = 1, label = "rude", meaning = "rude" }, { score = 5, label = "kind", meaning = "kind" }]
"""
ALSO = '[[judges]]\nkind = "regex"\nname = "end"\npattern = "x"\n'


async def state(bench: EvalBench) -> list[tuple[str, int, str]]:
    """The tapes of chats but that of evaluations, and the open forks."""
    asking = bench.bot.tape("stdin:eval").name
    tapes = [(tape.name, tape.head, tape.hash) for tape in await bench.bot.store.tapes()]
    kept = [each for each in tapes if not each[0].startswith("bubbot/") and each[0] != asking]
    return [*kept, *((fork.tape, 0, fork.id) for fork in await bench.bot.store.forks())]


async def test_a_made_case_is_answered_with_its_history_and_judged(tmp_path: Path) -> None:
    toml = """
    [setups.one]
    [cases.train]
    history = [{ who = "Ann", text = "The train leaves at 18:40.", days_ago = 30 }, { who = "bot", text = "Noted." }]
    message = "When does it leave?"
    expect = "At 18:40."
    [[judges]]
    kind = "exact"
    weight = 3
    [[judges]]
    kind = "regex"
    pattern = "19:55"
    """
    async with eval_bench(tmp_path, scripts={"scripted": script(leave="At 18:40.")}) as bench:
        bench.write(toml)
        before = await state(bench)
        report = await bench.run()
        assert await state(bench) == before, "the talk is thrown away"
        (result,) = await bench.results()
        assert (result.answer, result.score, result.has_passed) == ("At 18:40.", 0.75, False)
        assert [(each.name, each.points) for each in result.scores] == [("exact", 1.0), ("regex", 0.0)]
        shown = [str(message["content"]) for message in bench.models["scripted"].requests[0].messages]
        (dated,) = [text for text in shown if "18:40" in text]
        assert dated < f"[{datetime.now(UTC):%Y-%m-%d}", "it was said a month ago"
        assert (report.state, report.exit_code, report.setups[0].mean) == ("complete", 0, 0.75)


async def test_setups_choose_persona_strategy_and_memory(tmp_path: Path) -> None:
    toml = """
    [setups.plain]
    [setups.pirate]
    persona = "You are a pirate."
    strategy = "full"
    memory = "zones"
    [cases.hello]
    message = "hello"
    [[judges]]
    kind = "regex"
    pattern = "."
    """
    async with eval_bench(tmp_path) as bench:
        await bench.say(",memory.daily scope=workspace The cat is called Mia.", "eval")
        bench.write(toml)
        await bench.run()
        plain, pirate = (request.system for request in bench.models["scripted"].requests)
        assert (plain.startswith("You are a pirate."), pirate.startswith("You are a pirate.")) == (False, True)
        assert ("Mia" in plain, "Mia" in pirate) == (False, True)
        bench.write(toml.replace('"full"', '"ful"'))
        assert "there is no context strategy 'ful'; did you mean 'full'?" in await bench.say(",eval.run try", "eval")


async def test_tools_answer_with_the_results_of_the_case_and_do_nothing(tmp_path: Path) -> None:
    toml = """
    [setups.one]
    script = "good.json"
    [setups.no]
    script = "good.json"
    tools = "refused"
    [setups.live]
    script = "good.json"
    tools = "live"
    [cases.job]
    history = [{ who = "Ann", text = "The sauna is hot." }]
    message = "job"
    results = { "schedule.add" = ["error: too late", "Job 7."] }
    [[judges]]
    kind = "used_tools"
    calls = ["schedule.add"]
    """
    add = calls("schedule_add", when="in 2 hours", text="tea")
    steps = [add, add, calls("memory_daily", content="x"), calls("tape_search", query="sauna"), {"text": "Done."}]
    async with eval_bench(tmp_path) as bench:
        bench.write(toml, good=script(job=steps))
        before = await state(bench)
        await bench.run()
        assert await state(bench) == before
        by_setup = {each.setup: each for each in await bench.results()}
        assert by_setup["one"].calls == ("schedule.add", "schedule.add", "memory.daily", "tape.search")
        assert {name: each.not_run for name, each in by_setup.items()} == {"one": 2, "no": 4, "live": 1}
        assert {name: each.has_passed for name, each in by_setup.items()} == {"one": True, "no": False, "live": True}


@pytest.mark.parametrize("mode", ["record", "refused", "live"])
async def test_a_tool_that_acts_never_runs(tmp_path: Path, mode: str) -> None:
    acted: list[str] = []

    @tool("test.act", effect=INSIDE)
    async def act(turn: Turn, args: NoArguments) -> str:
        """Act."""
        acted.append(turn.id)
        return "acted"

    toml = ONE.replace("[cases.hello]", f'tools = "{mode}"\n[cases.hello]')
    async with eval_bench(
        tmp_path, scripts={"scripted": script(act=[calls("test_act"), {"text": "x"}])}, tools=(act,)
    ) as bench:
        await bench.say("act")
        assert len(acted) == 1
        bench.write(toml, good=script(hello=[calls("test_act"), {"text": "Hi."}]))
        await bench.run()
        bench.write(SLICE.replace('model = "scripted/other"', f'model = "scripted"\ntools = "{mode}"'), "slice")
        await bench.run("slice")
        assert [each.calls for each in await bench.results()] == [("test.act",)] * 2
        assert len(acted) == 1


async def test_a_judge_that_fails_is_a_failure_and_never_a_score(tmp_path: Path) -> None:
    toml = ONE + '\n[[judges]]\nkind = "cost"\nmost = 1\n[[judges]]\nkind = "regex"\npattern = "(a|a)+$"\n'
    async with eval_bench(tmp_path) as bench:
        bench.write(toml, good=script(hello=f"{'a' * 60}b"))
        report = await bench.run()
        (result,) = await bench.results()
        assert [bool(each.failure) for each in result.scores][2], result.scores
        assert (result.score, result.has_passed) == (None, None)
        summary = report.setups[0]
        assert (summary.mean, summary.pass_rate, summary.judge_failures, summary.failures) == (None, None, 1, 0)


async def test_a_model_that_fails_does_not_pass(tmp_path: Path) -> None:
    async with eval_bench(tmp_path) as bench:
        bench.write(ONE, good=script(hello=[{"error": "refused"}]))
        report = await bench.run()
        (result,) = await bench.results()
        assert "scripted refused" in result.failure
        assert (result.score, result.has_passed, result.scores) == (0.0, False, ())
        assert (report.setups[0].mean, report.setups[0].pass_rate) == (0.0, 0.0)


async def test_a_model_judges_without_tools_and_its_tokens_count(tmp_path: Path) -> None:
    reply = '{"rationale": "It greets.", "score": 4}'
    async with eval_bench(tmp_path, scripts={"scripted/judge": {"default": [{"text": reply}]}}) as bench:
        bench.write(ONE + RUBRIC, good=script(hello="Hi."))
        await bench.run()
        (result,) = await bench.results()
        tone = result.scores[1]
        assert (tone.score, tone.points, tone.rationale[:10]) == (4.0, 0.75, "It greets.")
        assert result.judge_tokens > 0
        (request,) = bench.models["scripted/judge"].requests
        assert request.tools == ()
        steps = [entry.data for entry in await entries(bench, "eval") if entry.name == "loop.step"]
        assert [step["purpose"] for step in steps] == ["evaluation", "evaluation"], "what it cost stays a fact"
        assert "Hi." not in str([entry.payload for entry in await entries(bench, "eval")]), "only the fact quotes"


async def entries(bench: EvalBench, chat: str) -> Sequence[Any]:
    """What is on the tape of a chat."""
    tape = bench.bot.tape(f"stdin:{chat}")
    return (await tape.fetch([TapeQuery(tape.name)]))[0]


async def test_turns_of_a_chat_run_again_with_recorded_results_and_change_nothing(tmp_path: Path) -> None:
    look = [calls("tape_search", query="sauna"), {"text": "There is a sauna."}]
    else_ = [calls("tape_search", query="sauna"), calls("memory_daily", content="x"), {"text": "Else: a sauna."}]
    scripts = {"scripted": script(Look=look), "scripted/other": script(Look=else_, hotel="Else.")}
    async with eval_bench(tmp_path, scripts=scripts) as bench:
        await bench.say("The hotel has a sauna.")
        await bench.say("Look it up")
        before = await state(bench)
        bench.write(SLICE)
        await bench.run()
        assert await state(bench) == before
        first, second = await bench.results()
        assert (first.answer, second.answer) == ("Else.", "Else: a sauna.")
        assert (second.calls, second.not_run) == (("tape.search", "memory.daily"), 1)
        results = [each for each in bench.models["scripted/other"].requests[-1].messages if each["role"] == "tool"]
        assert "sauna" in str(results[0]["content"])
        tape = bench.bot.tape("stdin:default").name
        assert (second.tape, second.session, second.chat) == (tape, "stdin:default", "default")
        ((name, spans),) = second.rests_on
        assert (name, spans[-1][0] <= second.entry <= spans[-1][1]) == (tape, True)
        assert [each.question for each in (first, second)] == ["The hotel has a sauna.", "Look it up"]


async def test_cases_with_words_of_people_who_did_not_allow_evaluation_are_left_out_and_counted(tmp_path: Path) -> None:
    async with eval_bench(tmp_path, scripts={"scripted/other": {"default": [{"text": "Else"}]}}) as bench:
        await bench.say("the owner speaks")
        await bench.say("eve speaks", person="7")
        await bench.say("the owner again")
        bench.write(SLICE)
        report = await bench.run()
        assert (len(report.results), len(report.left_out)) == (1, 2)
        assert "eve speaks" not in str(bench.models["scripted/other"].requests)
        assert "has not allowed it: 2" in format_report(report, Texts(), with_words=True)
        access, consent = bench.bot.channel_factory.open_tape("bubbot/access"), Consent("stdin", "7", "evaluation")
        await access.append([consent.to_entry()])
        report = await bench.run()
        assert (len(report.results), report.left_out) == (3, ())


async def test_a_consent_that_is_withdrawn_while_it_runs_holds_for_the_next_case(tmp_path: Path) -> None:
    consent = Consent("stdin", "7", "evaluation")

    class Withdrawing(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            await access.append([consent.to_entry(Consent.EVENTS[1])])
            async for part in super().stream(request):
                yield part

    async with eval_bench(tmp_path) as bench:
        access = bench.bot.channel_factory.open_tape("bubbot/access")
        await access.append([consent.to_entry()])
        await bench.say("eve speaks", person="7")
        await bench.say("eve again", person="7")
        bench.models["scripted/other"] = Withdrawing(name="scripted/other")
        bench.write(f"parallel = 1\n{SLICE}")
        report = await bench.run()
        assert (len(report.results), len(report.left_out)) == (1, 1)


async def test_no_model_is_shown_what_came_out(tmp_path: Path) -> None:
    look = [calls("tape_search", query="complete", kinds=["event"]), calls("tape_read", ids=["1-40"]), {"text": "x"}]
    async with eval_bench(tmp_path, scripts={"scripted": script(came=look)}) as bench:
        bench.write(ONE, good=script(hello="Hi."))
        report = await bench.run()
        await bench.say("What came out?", "eval")
        await bench.say(",eval.run nowhere", "eval")
        await bench.say("And now?", "eval")
        shown = str([request.messages for request in bench.models["scripted"].requests])
        assert "And now?" in shown
        assert report.id not in shown
        assert "passed" not in shown
        assert "There is no evaluation" not in shown


async def test_an_erased_chat_takes_its_results_along(tmp_path: Path) -> None:
    async with eval_bench(tmp_path, scripts={"scripted/other": {"default": [{"text": "Else: {text}"}]}}) as bench:
        await bench.say("the secret is a fig")
        bench.write(SLICE)
        report = await bench.run()
        assert "fig" in report.results[0].answer
        await bench.say(",reset erase")
        assert "fig" not in str([entry.payload for entry in await bench.facts()])
        fetch = bench.bot.store.fetch
        after = await read_report(fetch, await find_evaluation(fetch, report.id))
        assert (after.results, after.erased) == ((), 1)


async def test_a_chat_that_is_erased_while_it_is_evaluated_leaves_no_result(tmp_path: Path) -> None:
    class Erasing(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            await bench.say(",reset erase")
            async for part in super().stream(request):
                yield part

    async with eval_bench(tmp_path) as bench:
        await bench.say("a fig")
        bench.models["scripted/other"] = Erasing(name="scripted/other")
        bench.write(SLICE)
        report = await bench.run()
        assert (report.results, len(report.gone)) == ((), 1)
        assert "fig" not in str([entry.payload for entry in await bench.facts()])


async def test_its_tokens_end_an_evaluation_and_no_case_is_half(tmp_path: Path) -> None:
    cases = "".join(f'[cases.c{number}]\nmessage = "hello {number}"\n' for number in range(6))
    toml = f'tokens = 9000\n[setups.one]\n{cases}[[judges]]\nkind = "regex"\npattern = "."\n'
    async with eval_bench(tmp_path) as bench:
        bench.write(toml)
        report = await bench.run()
        assert (report.state, report.exit_code) == ("budget", 1)
        assert 0 < len(report.results) < 6
        assert all(each.answer for each in report.results)
        assert sum(each.tokens for each in report.results) <= 9_000
        assert "tokens are left" in report.problem


async def test_cases_that_run_at_once_do_not_write_more_than_its_tokens(tmp_path: Path) -> None:
    cases = "".join(f'[cases.c{number}]\nmessage = "hello {number}"\n' for number in range(8))
    toml = f'tokens = 24000\nparallel = 8\n[setups.one]\n{cases}[[judges]]\nkind = "regex"\npattern = "."\n'
    long = {"default": [{"text": "word " * 3_000}]}
    async with eval_bench(tmp_path, scripts={"scripted": long}) as bench:
        bench.write(toml)
        report = await bench.run()
        assert report.state == "budget"
        assert [each.failure for each in report.results] == [""] * len(report.results)
        assert len(report.results) > 1
        assert sum(each.tokens for each in report.results) <= 24_000


async def test_judges_read_the_beginning_of_an_answer_without_an_end(tmp_path: Path) -> None:
    async with eval_bench(tmp_path) as bench:
        bench.write(ONE + ALSO, good=script(hello="Hi." * 100_000))
        report = await bench.run()
        (result,) = report.results
        assert (len(result.answer), result.cut) == (64_000, 236_000)
        assert [each.has_passed for each in result.scores] == [False, False]
        assert "236000 more characters of this answer were not judged" in format_report(
            report, Texts(), with_words=True
        )


async def test_without_a_case_in_common_nothing_is_compared(tmp_path: Path) -> None:
    async with eval_bench(tmp_path) as bench:
        bench.write(ONE, good=script(hello="Hi."))
        bench.write(ONE.replace("cases.hello", "cases.other"), "two")
        await bench.run()
        await bench.run("two")
        with pytest.raises(ValueInvalid, match="eval_nothing_common"):
            await bench.compare("try", "two")


async def test_an_answer_that_failed_counts_the_same_in_a_report_and_a_comparison(tmp_path: Path) -> None:
    toml = (
        '[setups.good]\nscript = "good.json"\n[setups.bad]\nscript = "bad.json"\n[cases.a]\nmessage = "a"\n'
        '[cases.b]\nmessage = "b"\n[[judges]]\nkind = "regex"\npattern = "Hi"\n'
    )
    async with eval_bench(tmp_path) as bench:
        bench.write(toml, good=script(a="Hi.", b="Hi."), bad=script(a="Hi.", b=[{"error": "refused"}]))
        await bench.run()
        found = await bench.compare("try:good", "try:bad")
        assert (found.before.summary.mean, found.after.summary.mean, found.difference) == (1.0, 0.5, -0.5)


PAIR = """
[setups.old]
script = "old.json"
[setups.new]
script = "new.json"
[cases.a]
message = "a"
[cases.b]
message = "b"
[[judges]]
kind = "regex"
pattern = "."
[[judges]]
kind = "model"
name = "kinder"
model = "scripted/judge"
rubric = "Which is kinder?"
pairwise = true
"""
PREFERS_HI = {
    "rules": [
        {"when": when, "steps": [{"text": json.dumps({"rationale": "Kinder.", "better": better})}]}
        for when, better in (
            (r'"first": .\s+"answer": "same', "first"),
            (r'"first": .\s+"answer": "hi', "first"),
            (r'"second": .\s+"answer": "hi', "second"),
        )
    ]
}


async def test_a_model_compares_the_answers_of_two_setups_in_both_orders(tmp_path: Path) -> None:
    async with eval_bench(tmp_path, scripts={"scripted/judge": PREFERS_HI}) as bench:
        bench.write(PAIR, old=script(a="Ho.", b="same"), new=script(a="Hi.", b="same"))
        report = await bench.run()
        assert len(bench.models["scripted/judge"].requests) == 4, "each case in both orders"
        old, new = report.setups
        assert old.preferences == ()
        (said,) = new.preferences
        assert (said.judge, said.better, said.worse, said.ties, said.failures) == ("kinder", 1, 0, 1, 0)
        assert (old.mean, new.mean) == (1.0, 1.0), "a preference is no score"
        by_case = {each.case: each for each in report.results if each.setup == "new"}
        (kinder,) = by_case["a"].preferences
        assert (kinder.score, kinder.label, kinder.rationale, kinder.has_passed) == (1.0, "better", "Kinder.", None)
        (tie,) = by_case["b"].preferences
        assert (tie.label, "the two orders disagree" in tie.rationale) == ("tie", True)
        steps = [entry.data for entry in await entries(bench, "eval") if entry.name == "loop.step"]
        assert len(steps) == 8, "what it cost stays a fact"
        assert "by kinder: better in 1 cases, worse in 0, equal in 1" in format_report(
            report, Texts(), with_words=False
        )
        found = await bench.compare("try:old", "try:new")
        assert found.after.summary.preferences == new.preferences


async def test_a_comparison_of_two_answers_keeps_to_the_tokens_and_goes_on(tmp_path: Path) -> None:
    async with eval_bench(tmp_path, BudgetSettings(tokens_day=6_500), scripts={"scripted/judge": PREFERS_HI}) as bench:
        bench.write(f"parallel = 1\n{PAIR}", old=script(a="Ho.", b="Ho."), new=script(a="Hi.", b="Hi."))
        report = await bench.run()
        assert (report.state, len(report.results)) == ("denied", 1)
    async with eval_bench(tmp_path, scripts={"scripted/judge": PREFERS_HI}) as bench:
        again = await bench.run()
        assert (again.id, again.state) == (report.id, "complete")
        assert [each.better for each in again.setups[1].preferences] == [2]


async def test_an_answer_is_not_compared_with_one_that_failed(tmp_path: Path) -> None:
    async with eval_bench(tmp_path, scripts={"scripted/judge": PREFERS_HI}) as bench:
        bench.write(PAIR, old=script(a=[{"error": "refused"}], b="Ho."), new=script(a="Hi.", b=[{"error": "refused"}]))
        report = await bench.run()
        assert [each.preferences for each in report.setups] == [(), ()]
        assert bench.models["scripted/judge"].requests == []


async def test_a_title_moves_no_cursor(tmp_path: Path) -> None:
    async with eval_bench(tmp_path) as bench:
        bench.write('title = "a\\u001b[2J\\u202eb\\nOwner: yes"\n' + ONE, good=script(hello="Hi."))
        text = await bench.say(",eval.run try", "eval")
        assert text.startswith("a\ufffd[2J\ufffdb Owner: yes (")


async def test_a_budget_of_the_bot_stops_it_and_the_next_run_goes_on(tmp_path: Path) -> None:
    cases = "".join(f'[cases.c{number}]\nmessage = "hello {number}"\n' for number in range(4))
    toml = f'parallel = 1\n[setups.one]\n{cases}[[judges]]\nkind = "regex"\npattern = "."\n'
    async with eval_bench(tmp_path, BudgetSettings(tokens_day=9_000)) as bench:
        bench.write(toml)
        report = await bench.run()
        assert report.state == "denied"
        stopped = len(report.results)
        assert 0 < stopped < 4
    async with eval_bench(tmp_path) as bench:
        again = await bench.run()
        assert (again.id, again.state, len(again.results)) == (report.id, "complete", 4)
        assert len(bench.models["scripted"].requests) == 4 - stopped


async def test_an_evaluation_under_another_persona_or_model_of_the_bot_does_not_go_on_with_an_older_one(
    tmp_path: Path,
) -> None:
    cases = "".join(f'[cases.c{number}]\nmessage = "hello {number}"\n' for number in range(4))
    toml = f'parallel = 1\n[setups.one]\n{cases}[[judges]]\nkind = "regex"\npattern = "."\n'
    async with eval_bench(tmp_path, BudgetSettings(tokens_day=9_000)) as bench:
        bench.write(toml)
        report = await bench.run()
        assert report.state == "denied"
    async with eval_bench(tmp_path, bot=BotSettings(persona="You are a pirate.")) as bench:
        pirate = await bench.run()
        assert (pirate.id == report.id, pirate.state, len(pirate.results)) == (False, "complete", 4)
        assert all(each.system.startswith("You are a pirate.") for each in bench.models["scripted"].requests)
        spec = await bench.bot.store.get_blob("bubbot/evals", pirate.digest)
        assert b'"model":"scripted"' in spec


async def test_who_asks_for_an_evaluation_that_runs_gets_its_result(tmp_path: Path) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    class Waiting(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            began.set()
            await go.wait()
            async for part in super().stream(request):
                yield part

    async with eval_bench(tmp_path) as bench:
        slow = bench.models["scripted/slow"] = Waiting(name="scripted/slow")
        bench.write(ONE.replace('script = "good.json"', 'model = "scripted/slow"'))
        first = asyncio.ensure_future(bench.say(",eval.run try", "eval"))
        await began.wait()
        second = asyncio.ensure_future(bench.say(",eval.run try", "other"))
        inbox = bench.bot.channel_factory.open_tape("bubbot/inbox/stdin")

        async def has_come() -> bool:
            return len((await inbox.fetch([TapeQuery(inbox.name, names=("inbox/received",))]))[0]) == 2

        await until(has_come)
        go.set()
        assert await first == await second
        assert [entry.name for entry in await bench.facts()] == [
            "eval/started",
            "eval/case",
            "eval/ended",
            "eval/ended",
        ]
        assert len(slow.requests) == 1
        await bench.run()
        assert len(slow.requests) == 2, "who asks later gets a new one"


@pytest.mark.parametrize(
    ("key", "name", "problem"),
    [
        ("model", "nowhere/model", "setups.one.model"),
        ("memory", "zonez", "setups.one.memory: there is no memory view 'zonez'; did you mean 'zones'?"),
        ("strategy", "ful", "setups.one.strategy: there is no context strategy 'ful'; did you mean 'full'?"),
        ("script", "good.json", "good.json: the script cannot be used"),
        ("script", "text.json", "text is 3; it has to be a text"),
        ("script", "calls.json", "calls is 7; it has to be a list of objects with a name"),
        ("script", "deep.json", "deep.json: the script cannot be used (it is nested too deep"),
    ],
)
async def test_what_a_setup_names_is_looked_up_before_anything_is_asked(
    tmp_path: Path, key: str, name: str, problem: str
) -> None:
    async with eval_bench(tmp_path) as bench:
        bench.write(
            ONE.replace('script = "good.json"', f'{key} = "{name}"'),
            good={"rules": 3},
            text={"default": [{"text": 3}]},
            calls={"default": [{"calls": 7}]},
        )
        (tmp_path / "evals/deep.json").write_text("[" * 100_000)
        assert problem in await bench.say(",eval.run try", "eval")
        assert await bench.facts() == []


async def test_the_model_of_a_judge_is_looked_up_before_anything_is_asked(tmp_path: Path) -> None:
    async with eval_bench(tmp_path) as bench:
        bench.write(f"{ONE}{RUBRIC.replace('scripted/judge', 'nowhere/judge')}", good=script(hello="Hi."))
        assert "judges[1].model" in await bench.say(",eval.run try", "eval")
        assert await bench.facts() == []


async def test_a_finished_evaluation_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with eval_bench(tmp_path) as bench:
        bench.write(ONE, good=script(hello="Hi."))
        first, second = await bench.run(), await bench.run()
        assert first.id != second.id
        ended = [entry for entry in await bench.facts() if entry.name == "eval/ended"]
        assert len(ended) == 2
        assert (await bench.compare(first.id, second.id)).verdict == "no difference"


async def test_cases_run_at_the_same_time_up_to_the_limit(tmp_path: Path) -> None:
    running, most, together = 0, 0, asyncio.Barrier(3)

    class Counting(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await together.wait()
            running -= 1
            async for part in super().stream(request):
                yield part

    cases = "".join(f'[cases.c{number}]\nmessage = "hello {number}"\n' for number in range(9))
    toml = f'parallel = 3\n[setups.one]\nmodel = "scripted/slow"\n{cases}[[judges]]\nkind = "regex"\npattern = "."\n'
    async with eval_bench(tmp_path) as bench:
        bench.models["scripted/slow"] = Counting(name="scripted/slow")
        bench.write(toml)
        report = await bench.run()
        assert (len(report.results), most) == (9, 3)


async def test_only_an_owner_evaluates_and_only_where_nobody_reads_along(tmp_path: Path) -> None:
    async with family(tmp_path, ScriptedModel()) as bot:
        for sender, chat in ((MEMBER, MEMBER), (OWNER, GROUP)):
            (text,) = await bot.say(",eval.run everyday", sender, chat)
            assert "complete" not in text
            assert not await bot.entries("bubbot/evals")
        (text,) = await bot.say(",eval.run everyday", OWNER, OWNER)
        assert "10 of 10 results, complete" in text


async def test_what_is_unknown_is_named(tmp_path: Path) -> None:
    async with eval_bench(tmp_path) as bench:
        bench.write(ONE, good=script(hello="Hi."))
        assert (await bench.say(",eval.run tri", "eval")).startswith("There is no evaluation tri; did you mean 'try'?")
        assert "there is no setup 'on'; did you mean 'one'?" in await bench.say(",eval.run try setup=on", "eval")
        assert await bench.facts() == []


async def test_a_model_is_asked_in_every_setup(tmp_path: Path) -> None:
    async with eval_bench(tmp_path, scripts={"scripted/other": {"default": [{"text": "Hi."}]}}) as bench:
        bench.write(ONE, good=script(hello="Ho."))
        report = await bench.run(arguments="model=scripted/other")
        assert (report.setups[0].model, report.setups[0].mean) == ("scripted/other", 1.0)


async def test_two_setups_are_compared_case_by_case(tmp_path: Path) -> None:
    cases = "".join(f'[cases.c{number}]\nmessage = "{number % 10}: hello"\nexpect = "Hi."\n' for number in range(20))
    toml = (
        f'[setups.good]\nscript = "good.json"\n[setups.bad]\nscript = "bad.json"\n{cases}[[judges]]\nkind = "exact"\n'
    )
    async with eval_bench(tmp_path) as bench:
        bench.write(toml, good=script(hello="Hi."), bad=script(**{"^[0-4]": "Ho.", "hello": "Hi."}))
        await bench.run()
        found = await bench.compare("try:good", "try:bad")
        assert (found.verdict, found.exit_code, found.cases, found.lost, found.gained) == ("regression", 1, 20, 10, 0)
        assert found.difference == pytest.approx(-0.5)
        assert found.high is not None
        assert found.high < 0
        assert {(each.before.answer, each.after.answer) for each in found.flipped} == {("Hi.", "Ho.")}
        back = await bench.compare("try:bad", "try:good")
        assert (back.verdict, back.exit_code) == ("improvement", 0)


async def test_the_page_needs_nothing_else_and_escapes_what_models_write(tmp_path: Path) -> None:
    evil = "<script src='https://evil.example/x.js'></script>"
    async with eval_bench(tmp_path) as bench:
        bench.write(ONE, good=script(hello=evil))
        page = render_report(await bench.run(), Texts()).decode()
        assert "<script" not in page
        assert "&lt;script" in page
        assert re.findall(r"""(?:src|href|url)\s*[=(]""", page.replace("src=&#39;", "")) == []


async def test_the_trace_page_shows_evaluations_to_who_may_see_the_chat(tmp_path: Path) -> None:
    async with eval_bench(tmp_path, scripts={"scripted/other": {"default": [{"text": "Else"}]}}) as bench:
        await bench.say("hello")
        bench.write(SLICE)
        report = await bench.run()

        async def read(sessions: set[str] | None) -> Any:
            viewer = SEES_ALL if sessions is None else Viewer("anna", frozenset(sessions))
            tapes = TapeBoundary(
                bench.bot.base_store,
                viewer,
                workspace=bench.bot.workspace,
                references=OWN_REFERENCES,
                shared=PANELS[0].shared,
            )
            reader = PanelReader(tapes, None, UTC, datetime.now(UTC), Texts())
            return await PANELS[0].read(reader, PanelQuery(params={"eval": report.id}))

        page = await read(None)
        assert [(each.id, each.name) for each in page.evaluations] == [(report.id, "try")]
        assert [each.answer for each in page.results] == ["Else"]
        assert (await read({"telegram:42"})).results == ()


async def test_with_a_store_that_keeps_forks_an_evaluation_leaves_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KeepingStore(DiscardingStore):
        def __init__(self, store: TapeStore) -> None:
            super().__init__(store)
            self.store = store

        async def open_fork(self, record: ForkRecord, *, expect_head: bool = True) -> None:
            await self.store.open_fork(record, expect_head=expect_head)

        async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
            await self.store.extend_fork(fork, staged, reset)

    monkeypatch.setattr("bubbot.tape.discard.DiscardingStore", KeepingStore)
    async with eval_bench(tmp_path) as bench:
        bench.write(ONE, good=script(hello="Hi."))
        before = await state(bench)
        await bench.run()
        assert await state(bench) != before
