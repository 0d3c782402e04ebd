"""Tasks in a whole bot: running, asking, refusing, stopping, going on, and running again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bubbot.arguments.fields import Args
from bubbot.features.tasks.commands import MAX_LISTED_RUNS
from bubbot.features.tasks.state import TASKS_PROJECTION
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.turn import Turn
from bubbot.tape.projection import read_projection
from bubbot.tape.provenance import Source, source_of
from bubbot.tool import READS_OWN, Effect, EffectKind, Repeat, tool
from tests.family import GROUP, MEMBER, OWNER
from tests.tasks import model_of, tasks, write_task
from tests.turns import WAIT, calls, says

LINE = """
title = "Line"
[nodes.first]
prompt = "FIRST"
artifact = { type = "object", required = ["count"], properties = { count = { type = "integer" } } }
retries = 0
[nodes.second]
after = ["first"]
prompt = "SECOND"
retries = 0
"""
GATE = """
title = "Gate"
[nodes.draft]
prompt = "DRAFT"
[nodes.ok]
after = ["draft"]
confirm = "Publish it?"
[nodes.publish]
after = ["ok", "draft"]
prompt = "PUBLISH"
tools = ["shop.buy"]
retries = 0
"""
KEPT = Effect(EffectKind.INSIDE)


class NoteArgs(Args, frozen=True):
    text: str = ""


class Shop:
    """A tool that acts, and one that waits to be let go."""

    def __init__(self, wanted: int = 1) -> None:
        self.wanted = wanted
        self.bought: list[str] = []
        self.here = 0
        self.arrived = asyncio.Event()
        self.let_go = asyncio.Event()

        @tool("shop.buy", effect=Effect(EffectKind.INSIDE, once=Repeat.KEY))
        async def buy(turn: Turn, args: NoteArgs) -> str:
            """Buy something."""
            self.bought.append(args.text)
            return f"bought {args.text}"

        @tool("shop.wait", effect=READS_OWN)
        async def wait(turn: Turn, args: NoteArgs) -> str:
            """Wait for somebody."""
            self.here += 1
            if self.here >= self.wanted:
                self.arrived.set()
            await self.let_go.wait()
            return "here"

        self.tools = (buy, wait)


class TestRunning:
    async def test_a_run_ends_with_the_artifact_of_its_last_node(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE)
        async with tasks(tmp_path, model_of(first='{"count": 3}', second="Three it is.")) as bench:
            sent = await bench.say(",task.run line about cats")
            assert sent[-1] == "Three it is."
            assert bench.run.status == "succeeded"
            assert [node.status for node in bench.run.nodes] == ["succeeded", "succeeded"]
            assert await bench.starts() == ["first", "second"]

    async def test_its_chat_can_be_asked_about_the_result(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE)
        async with tasks(tmp_path, model_of(first='{"count": 3}', second="Three it is.")) as bench:
            await bench.say(",task.run line")
            await bench.say("What was it?")
            shown = str(bench.bot.model.requests[-1].messages)
            assert "Three it is." in shown
            assert "FIRST" not in shown

    async def test_a_node_is_shown_the_four_sources_and_the_artifacts_of_its_parents(self, tmp_path: Path) -> None:
        harness = '  Scenario: calm\n    Then tool "shop.buy" is not called\n'
        write_task(tmp_path, "line", LINE, harness, 'tone = "calm"\n')
        async with tasks(tmp_path, model_of(first='{"count": 3}', second="Done.")) as bench:
            await bench.say(",task.run line about cats")
            shown = [str(message["content"]) for message in bench.bot.model.requests[-1].messages]
            for words in ("The task: Line", 'tone = "calm"', "about cats", "Scenario: calm", '"count": 3', "SECOND"):
                assert any(words in text for text in shown), words

    async def test_independent_nodes_run_at_the_same_time(self, tmp_path: Path) -> None:
        schema = '[nodes.a]\nprompt = "A"\ntools = ["shop.wait"]\n[nodes.b]\nprompt = "B"\ntools = ["shop.wait"]\n'
        write_task(tmp_path, "two", schema)
        shop, steps = Shop(2), [calls("shop.wait"), says("ok")]
        async with tasks(tmp_path, model_of(a=steps, b=steps), tools=shop.tools) as bench:
            run = asyncio.create_task(bench.say(",task.run two"))
            async with asyncio.timeout(WAIT):
                await shop.arrived.wait()
            shop.let_go.set()
            await run
            assert bench.run.status == "succeeded"

    async def test_people_are_heard_between_two_nodes(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE)
        shop = Shop()
        model = model_of(first=[calls("shop.wait"), says('{"count": 1}')], second="Over.")
        write = LINE.replace('prompt = "FIRST"', 'prompt = "FIRST"\ntools = ["shop.wait"]')
        (tmp_path / "tasks" / "line" / "task.toml").write_text(write)
        async with tasks(tmp_path, model, tools=shop.tools) as bench:
            run = asyncio.create_task(bench.say(",task.run line"))
            await shop.arrived.wait()
            other = asyncio.create_task(bench.say("Hello?"))
            await asyncio.sleep(0.05)
            shop.let_go.set()
            await run
            await other
            texts = bench.bot.channel.texts
            assert texts.index("You said: Hello?") < texts.index("Over.")

    async def test_a_task_that_cannot_run_says_everything_that_is_wrong(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE.replace('after = ["first"]', 'after = ["frist"]\ntools = ["shop.by"]'))
        async with tasks(tmp_path, model_of(), tools=Shop().tools) as bench:
            (sent,) = await bench.say(",task.run line")
            assert "frist" in sent
            assert "first" in sent
            assert "shop.by" in sent
            assert not bench.runs.state.runs

    async def test_an_agent_that_there_is_not_is_named_before_anything_runs(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE.replace('prompt = "FIRST"', 'prompt = "FIRST"\nagent = "lia"'))
        async with tasks(tmp_path, model_of(), agents={"lisa": {}}) as bench:
            (sent,) = await bench.say(",task.run line")
            assert "lia" in sent

    async def test_a_node_is_done_by_the_agent_that_it_names(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE.replace('prompt = "FIRST"', 'prompt = "FIRST"\nagent = "lisa"'))
        model = model_of(first='{"count": 3}', second="Done.")
        async with tasks(tmp_path, model, agents={"lisa": {"prompt": "You are Lisa."}}) as bench:
            await bench.say(",task.run line")
            assert [("You are Lisa." in request.system) for request in model.requests] == [True, False]

    async def test_an_unknown_task_names_the_nearest_one(self, tmp_path: Path) -> None:
        write_task(tmp_path, "digest", LINE)
        async with tasks(tmp_path, model_of()) as bench:
            (sent,) = await bench.say(",task.run digets")
            assert "digest" in sent

    async def test_the_rebuilt_projection_equals_the_live_one(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE)
        async with tasks(tmp_path, model_of(first='{"count": 3}', second="Done.")) as bench:
            await bench.say(",task.run line")
            rebuilt = await read_projection(TASKS_PROJECTION, bench.runs.tape)
            assert rebuilt.runs == bench.runs.state.runs


class TestArtifacts:
    async def test_an_invalid_artifact_goes_back_with_the_words_of_the_validator(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE)
        model = ScriptedModel(
            {
                "rules": [
                    {"when": r"\AFIRST", "steps": [says('{"count": "many"}')]},
                    {"when": "does not fit its contract", "steps": [says('{"count": 2}')]},
                    {"when": r"\ASECOND", "steps": [says("Done.")]},
                ]
            }
        )
        async with tasks(tmp_path, model) as bench:
            await bench.say(",task.run line")
            assert bench.run.status == "succeeded"
            asked = [str(request.messages[-1]["content"]) for request in model.requests]
            assert any("'many' is not of type 'integer'" in text for text in asked)
            made = await bench.facts("task/artifact")
            assert made[0]["artifact"] == {"count": 2}

    async def test_a_node_that_hands_in_nothing_that_fits_fails_and_so_does_its_run(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE)
        async with tasks(tmp_path, model_of(first="no JSON", second="Done.")) as bench:
            sent = await bench.say(",task.run line")
            assert bench.run.status == "failed"
            assert bench.node("second").status == "queued"
            assert "failed" in sent[-1]
            (status,) = await bench.say(f",task.status {bench.run.run}")
            assert "does not fit its contract" in status

    async def test_a_failed_node_waits_for_its_next_attempt(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE.replace("retries = 0", "retries = 1\nbackoff = 60"))
        async with tasks(tmp_path, model_of(first="no JSON", second="Done.")) as bench:
            await bench.say(",task.run line")
            assert (bench.run.status, bench.node("first").status) == ("waiting", "waiting")
            await bench.runs.take_up_due()
            await bench.bot.quiet()
            assert bench.node("first").attempt == 1

    async def test_a_failed_node_without_a_pause_is_tried_again_at_once(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE.replace("retries = 0", "retries = 1\nbackoff = 0"))
        async with tasks(tmp_path, model_of(first="no JSON", second="Done.")) as bench:
            await bench.say(",task.run line")
            assert (bench.node("first").attempt, bench.run.status) == (2, "failed")


class TestGates:
    async def test_a_yes_goes_on(self, tmp_path: Path) -> None:
        write_task(tmp_path, "gate", GATE)
        shop = Shop()
        model = model_of(draft="the draft", publish=[calls("shop.buy", text="paper"), says("Published.")])
        async with tasks(tmp_path, model, tools=shop.tools) as bench:
            asked = await bench.say(",task.run gate")
            assert "the draft" in asked[-1]
            assert bench.run.status == "waiting"
            sent = await bench.answer()
            assert sent[-1] == "Published."
            assert shop.bought == ["paper"]

    async def test_a_no_ends_the_run(self, tmp_path: Path) -> None:
        write_task(tmp_path, "gate", GATE)
        async with tasks(tmp_path, model_of(draft="the draft", publish="Published."), tools=Shop().tools) as bench:
            await bench.say(",task.run gate")
            await bench.answer("deny")
            assert (bench.run.status, bench.node("ok").reason) == ("failed", "task_denied")
            assert "Published." not in bench.bot.channel.texts

    async def test_no_answer_in_time_means_no(self, tmp_path: Path) -> None:
        write_task(tmp_path, "gate", GATE.replace('Publish it?"', 'Publish it?"\nhours = 0.0000001'))
        async with tasks(tmp_path, model_of(draft="the draft", publish="Published."), tools=Shop().tools) as bench:
            await bench.say(",task.run gate")
            await bench.runs.take_up_due()
            await bench.bot.quiet()
            assert (bench.run.status, bench.node("ok").reason) == ("failed", "task_unanswered")


class TestHarness:
    FORBIDDEN = '  Scenario: nothing is bought\n    When tool "shop.buy" is called\n    Then it is refused\n'
    DUTY = '  Scenario: something is bought\n    Then tool "shop.buy" is called at least 1 time\n'
    SCHEMA = '[nodes.only]\nprompt = "ONLY"\ntools = ["shop.buy"]\n'

    async def test_a_forbidden_call_does_not_run(self, tmp_path: Path) -> None:
        write_task(tmp_path, "one", self.SCHEMA, self.FORBIDDEN)
        shop = Shop()
        model = model_of(only=[calls("shop.buy", text="paper"), says("Without it.")])
        async with tasks(tmp_path, model, tools=shop.tools) as bench:
            sent = await bench.say(",task.run one")
            assert (shop.bought, sent[-1], bench.run.status) == ([], "Without it.", "succeeded")
            (refused,) = await bench.facts("task/refused")
            assert refused["tool"] == "shop.buy"
            assert "rules.feature:4" in json.dumps(str(bench.bot.model.requests[-1].messages))

    @pytest.mark.parametrize("verb", ["matches", "does not match"])
    async def test_a_call_that_is_slow_to_search_does_not_run_and_the_task_goes_on(
        self, tmp_path: Path, verb: str
    ) -> None:
        harness = f"  Scenario: safe\n    When tool shop.buy is called\n    Then its text {verb} '^(a|aa)+$'\n"
        write_task(tmp_path, "one", self.SCHEMA, harness)
        slow, shop = "a" * 90 + "!", Shop()
        text = "aaa" if verb == "matches" else "paper"
        model = model_of(only=[calls("shop.buy", text=slow), calls("shop.buy", text=text), says("Bought.")])
        async with tasks(tmp_path, model, tools=shop.tools) as bench:
            sent = await bench.say(",task.run one")
            assert (shop.bought, sent[-1], bench.run.status) == ([text], "Bought.", "succeeded")
            assert len(await bench.facts("task/refused")) == 1
            shown = str(bench.bot.model.requests[-1].messages)
            assert "rules.feature:4" in shown
            assert "takes too long: write a shorter one" in shown

    async def test_an_artifact_that_is_slow_to_search_goes_back(self, tmp_path: Path) -> None:
        harness = "  Scenario: safe\n    When the artifact of only is delivered\n    Then its value does not match '^(a|aa)+$'\n"
        write_task(tmp_path, "one", self.SCHEMA, harness)
        async with tasks(tmp_path, model_of(only="a" * 90 + "!"), tools=Shop().tools) as bench:
            await bench.say(",task.run one")
            assert bench.run.status == "succeeded"
            assert "takes too long: write a shorter one" in str(bench.bot.model.requests[-1].messages)

    async def test_a_run_whose_duties_are_not_met_cannot_succeed(self, tmp_path: Path) -> None:
        write_task(tmp_path, "one", self.SCHEMA, self.DUTY)
        async with tasks(tmp_path, model_of(only="Nothing bought."), tools=Shop().tools) as bench:
            await bench.say(",task.run one")
            assert (bench.run.status, bench.run.reason) == ("failed", "task_duties_left")
            (verdict,) = await bench.facts("task/verdict")
            assert verdict["status"] == "violated"

    async def test_a_verdict_cites_the_entries_that_it_rests_on(self, tmp_path: Path) -> None:
        write_task(tmp_path, "one", self.SCHEMA, self.DUTY)
        model = model_of(only=[calls("shop.buy", text="paper"), says("Bought.")])
        async with tasks(tmp_path, model, tools=Shop().tools) as bench:
            await bench.say(",task.run one")
            assert bench.run.status == "succeeded"
            (verdict,) = await bench.facts("task/verdict")
            entries = {entry.id: entry for entry in await bench.bot.entries(OWNER)}
            cited = [entries[low] for low, _ in verdict["cites"]]
            assert [(entry.data["kind"], entry.data["name"]) for entry in cited] == [("call", "shop.buy")]


class TestStopping:
    SCHEMA = '[nodes.only]\nprompt = "ONLY"\ntools = ["shop.*"]\n'
    STEPS = (calls("shop.buy", text="paper"), calls("shop.wait"), says("Over."))

    async def test_a_stopped_run_stands_still_and_goes_on_without_doing_anything_twice(self, tmp_path: Path) -> None:
        write_task(tmp_path, "one", self.SCHEMA)
        shop = Shop()
        async with tasks(tmp_path, model_of(only=self.STEPS), tools=shop.tools) as bench:
            run = asyncio.create_task(bench.say(",task.run one"))
            await shop.arrived.wait()
            await bench.say(",stop")
            await run
            assert (bench.run.status, bench.node("only").status) == ("blocked", "running")
            assert len(bench.node("only").forks) == 1
            used = bench.run.tokens
            assert used > 0  # what it used counts, however often somebody stops it
            assert ",task.resume" in bench.bot.channel.texts[-1]
            shop.let_go.set()
            sent = await bench.say(f",task.resume {bench.run.run}")
            assert (sent[-1], bench.run.status, bench.node("only").attempt) == ("Over.", "succeeded", 1)
            assert shop.bought == ["paper"]
            assert bench.run.tokens > 1.5 * used

    async def test_the_time_of_a_run_ends_a_node_that_has_more(self, tmp_path: Path) -> None:
        write_task(tmp_path, "one", f"timeout = 1\n{self.SCHEMA}timeout = 600\nretries = 0\n")
        async with tasks(tmp_path, model_of(only=[calls("shop.wait")]), tools=Shop().tools) as bench:
            await bench.say(",task.run one")
            assert (bench.run.status, bench.node("only").reason) == ("failed", "task_node_too_slow")

    async def test_a_run_is_cancelled_from_elsewhere_while_a_node_works(self, tmp_path: Path) -> None:
        write_task(tmp_path, "one", self.SCHEMA)
        shop = Shop()
        async with tasks(tmp_path, model_of(only=self.STEPS), tools=shop.tools) as bench:
            run = asyncio.create_task(bench.say(",task.run one"))
            await shop.arrived.wait()
            state = await bench.runs.cancel(bench.run.run)
            await run
            assert state.status == bench.run.status == "cancelled"
            assert "Over." not in bench.bot.channel.texts
            (sent,) = await bench.say(f",task.resume {bench.run.run}")
            assert "cancelled" in sent

    async def test_a_run_is_cancelled_from_its_own_chat_while_a_node_works(self, tmp_path: Path) -> None:
        write_task(tmp_path, "one", self.SCHEMA)
        shop = Shop()
        async with tasks(tmp_path, model_of(only=self.STEPS), tools=shop.tools) as bench:
            run = asyncio.create_task(bench.say(",task.run one"))
            await shop.arrived.wait()
            async with asyncio.timeout(WAIT):
                await bench.say(f",task.cancel {bench.run.run}")
            await run
            assert bench.run.status == "cancelled"
            assert "Over." not in bench.bot.channel.texts

    async def test_a_run_is_lost_with_the_tape_of_its_chat(self, tmp_path: Path) -> None:
        write_task(tmp_path, "gate", GATE)
        async with tasks(tmp_path, model_of(draft="the draft", publish="Published."), tools=Shop().tools) as bench:
            await bench.say(",task.run gate")
            await bench.say(",reset archive")
            sent = await bench.say(f",task.resume {bench.run.run}")
            assert "not on the tape" in sent[-1] or "no run" in sent[-1], sent

    async def test_a_new_conversation_leaves_a_run_alone(self, tmp_path: Path) -> None:
        write_task(tmp_path, "gate", GATE)
        async with tasks(tmp_path, model_of(draft="the draft", publish="Published."), tools=Shop().tools) as bench:
            await bench.say(",task.run gate")
            await bench.say(",new")
            assert (await bench.answer())[-1] == "Published."


class TestAgain:
    async def test_a_part_runs_again_beside_the_first_run(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE.replace('"SECOND"', '"SECOND {tone}"'), config='tone = "calm"\n')
        model = ScriptedModel(
            {
                "rules": [
                    {"when": r"\AFIRST", "steps": [says('{"count": 3}')]},
                    {"when": "SECOND calm", "steps": [says("Calm.")]},
                    {"when": "SECOND loud", "steps": [says("LOUD.")]},
                ]
            }
        )
        async with tasks(tmp_path, model) as bench:
            await bench.say(",task.run line")
            first = bench.run
            sent = await bench.say(f',task.rerun {first.run} from=second with="tone=loud"')
            assert sent[-1] == "LOUD."
            assert bench.run.queued.fact.source == first.run
            assert [node.status for node in bench.run.nodes] == ["succeeded", "succeeded"]
            assert await bench.starts() == ["first", "second", "second"]
            (status,) = await bench.say(f",task.status {bench.run.run}")
            assert first.run in status

    async def test_a_part_that_runs_again_is_told_its_description_as_foreign_as_it_was(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE)
        model = model_of(first='{"count": 3}', second="Done.")
        async with tasks(tmp_path, model) as bench:
            await bench.say(",task.run line about cats", sender=MEMBER, chat=GROUP)
            await bench.say(f",task.rerun {bench.run.run} from=second", sender=OWNER, chat=GROUP)
            entries = await bench.bot.entries(GROUP)
            opened = [source_of(entry) for entry in entries if entry.name == "task/opened"]
            shown = [source_of(entry) for entry in entries if entry.meta.get("part") == "description"]
            assert opened == [Source.PEOPLE] * 2
            assert shown == [Source.PEOPLE] * 3

    async def test_a_value_that_the_config_lacks_is_refused(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE, config='tone = "calm"\n')
        async with tasks(tmp_path, model_of()) as bench:
            (sent,) = await bench.say(',task.run line with="tune=loud"')
            assert "tone" in sent


class TestList:
    async def test_what_is_under_way_comes_last_however_much_has_ended(self, tmp_path: Path) -> None:
        write_task(tmp_path, "gate", GATE)
        write_task(tmp_path, "one", '[nodes.only]\nprompt = "ONLY"\n')
        model = model_of(draft="the draft", publish="Published.", only="Done.")
        async with tasks(tmp_path, model, tools=Shop().tools) as bench:
            await bench.say(",task.run gate")
            waiting = bench.run.run
            for _ in range(MAX_LISTED_RUNS):
                await bench.say(",task.run one")
            (sent,) = await bench.say(",tasks")
            assert waiting in sent.splitlines()[-1]

    async def test_a_folder_that_cannot_be_read_is_named_and_the_bot_runs(self, tmp_path: Path) -> None:
        (tmp_path / "tasks").symlink_to("tasks")
        async with tasks(tmp_path, model_of()) as bench:
            for line in (",tasks", ",task.run one", ",task.check one", ",task.new one"):
                (sent,) = await bench.say(line)
                assert str(tmp_path / "tasks") in sent, line

    async def test_one_task_that_cannot_be_read_hides_no_other(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", LINE)
        (tmp_path / "tasks" / "config.toml").write_bytes(b"tone = \xff")
        async with tasks(tmp_path, model_of()) as bench:
            (sent,) = await bench.say(",tasks")
            assert "tasks/config.toml:1" in sent


class TestPeople:
    async def test_a_member_runs_a_task_and_sees_no_run_of_another_chat(self, tmp_path: Path) -> None:
        write_task(tmp_path, "gate", GATE)
        async with tasks(tmp_path, model_of(draft="the draft", publish="Published."), tools=Shop().tools) as bench:
            await bench.say(",task.run gate")
            (sent,) = await bench.bot.say(f",task.status {bench.run.run}", MEMBER, MEMBER)
            assert "no run" in sent

    async def test_somebody_else_cannot_go_on_with_a_run_or_end_it(self, tmp_path: Path) -> None:
        write_task(tmp_path, "gate", GATE)
        async with tasks(tmp_path, model_of(draft="the draft", publish="Published."), tools=Shop().tools) as bench:
            await bench.bot.say(",task.run gate", OWNER, GROUP)
            for line in ("resume {}", "cancel {}", "rerun {} from=draft"):
                (sent,) = await bench.bot.say(f",task.{line.format(bench.run.run)}", MEMBER, GROUP)
                assert "somebody else" in sent
            assert bench.run.status == "waiting"

    async def test_a_task_for_admins_is_refused_to_a_member(self, tmp_path: Path) -> None:
        write_task(tmp_path, "line", f'role = "admin"\n{LINE}')
        async with tasks(tmp_path, model_of()) as bench:
            (sent,) = await bench.bot.say(",task.run line", MEMBER, MEMBER)
            assert "admin" in sent


class TestRights:
    SCHEMA = '[nodes.only]\nprompt = "ONLY"\ntools = ["post.send"]\n'
    STEPS = (calls("post_send", to="bob", text="hello"), says("Tried."))

    @pytest.mark.parametrize(
        ("allow", "sender", "done"),
        [
            ("", OWNER, []),
            ('allow = ["post.send:bob"]\n', OWNER, [("post.send", "bob: hello")]),
            ('allow = ["post.send"]\n', OWNER, [("post.send", "bob: hello")]),
            ('allow = ["post.send:eve"]\n', OWNER, []),
            ('allow = ["post.send:bob"]\n', MEMBER, []),
        ],
    )
    async def test_a_node_acts_outside_only_as_its_task_allows_and_its_person_may(
        self, tmp_path: Path, allow: str, sender: str, done: list[tuple[str, str]]
    ) -> None:
        write_task(tmp_path, "one", self.SCHEMA + allow)
        async with tasks(tmp_path, model_of(only=self.STEPS)) as bench:
            await bench.bot.say(",task.run one", sender, sender)
            assert bench.bot.done == done
            assert bench.run.status == "succeeded"

    async def test_what_a_node_may_do_without_the_tool_is_a_mistake(self, tmp_path: Path) -> None:
        write_task(tmp_path, "one", self.SCHEMA + 'allow = ["post.sent:bob"]\n')
        async with tasks(tmp_path, model_of(only=self.STEPS)) as bench:
            (sent,) = await bench.say(",task.check one")
            assert "post.send" in sent
            assert "cannot run" in sent


class TestWriting:
    FILES = json.dumps({"files": {"task.toml": '[nodes.hello]\nprompt = "HELLO"\n'}})

    async def test_what_the_bot_wrote_is_a_task_only_after_a_yes(self, tmp_path: Path) -> None:
        model = ScriptedModel({"rules": [{"when": "Write the task", "steps": [says(self.FILES)]}]})
        async with tasks(tmp_path, model) as bench:
            sent = await bench.say(",task.new hello Say hello.")
            assert any("[nodes.hello]" in text for text in sent), sent
            assert not (tmp_path / "tasks" / "hello").exists()
            await bench.answer()
            assert (tmp_path / "tasks" / "hello" / "task.toml").read_text() == '[nodes.hello]\nprompt = "HELLO"\n'

    async def test_what_was_confirmed_does_not_count_as_written_if_another_task_has_its_name_by_now(
        self, tmp_path: Path
    ) -> None:
        model = ScriptedModel({"rules": [{"when": "Write the task", "steps": [says(self.FILES)]}]})
        async with tasks(tmp_path, model) as bench:
            await bench.say(",task.new hello Say hello.")
            write_task(tmp_path, "hello", LINE)
            assert "there is a task hello already" in (await bench.answer())[-1]
            assert (tmp_path / "tasks" / "hello" / "task.toml").read_text() == LINE
            (tmp_path / "tasks" / "hello" / "task.toml").write_text(json.loads(self.FILES)["files"]["task.toml"])
            assert "there is a task" not in (await bench.say(",task.keep hello"))[-1]

    async def test_a_no_leaves_nothing(self, tmp_path: Path) -> None:
        model = ScriptedModel({"rules": [{"when": "Write the task", "steps": [says(self.FILES)]}]})
        async with tasks(tmp_path, model) as bench:
            await bench.say(",task.new hello Say hello.")
            await bench.answer("deny")
            assert not (tmp_path / "tasks" / "hello").exists()

    async def test_without_a_description_an_example_is_written_that_can_run(self, tmp_path: Path) -> None:
        async with tasks(tmp_path, model_of()) as bench:
            await bench.say(",task.new mine")
            (sent,) = await bench.say(",task.check mine")
            assert sent == "mine can run: 2 steps, 1 rule."


async def test_a_job_runs_a_task(tmp_path: Path) -> None:
    write_task(tmp_path, "line", LINE)
    async with tasks(tmp_path, model_of(first='{"count": 3}', second="Three it is.")) as bench:
        sent = await bench.say(",schedule.add every monday at 8:00 do ,task.run line")
        jobs = await bench.bot.facts("schedule/added", "bubbot/schedule")
        assert jobs, sent
