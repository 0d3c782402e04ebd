"""Why the last answer is what it is: told from facts, without asking a model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bubbot.features.why.view import find_explained
from bubbot.models.scripted import ScriptedModel
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.runtime.context import view as context
from bubbot.shell_command import CommandContext, CommandResult
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from tests.callers import run_shell
from tests.doubles import SteppingClock
from tests.turns import Bench, Played, calls, running, says
from tests.unit.runtime.test_recovery import cut_off


async def explain(bench: Bench, trace: str = "") -> CommandResult:
    """What a shell is told of the last answer, or of the turn whose id begins so."""
    context = CommandContext(bench.store, "w", SteppingClock(), bench.new_id)
    return await run_shell("why", context, session=bench.tape().name, trace=trace)


async def read_explanation(bench: Bench, trace: str = "") -> Mapping[str, Any]:
    """The explanation for programs."""
    told = await explain(bench, trace)
    assert told.data is not None
    return told.data


class TestTheExplanation:
    async def test_it_names_turn_status_entries_tools_and_answer(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played(calls("tape_info"), calls("memory_show"), says("ok"))) as bench:
            result = await bench.say("hello")
            found = await read_explanation(bench)
            entries = {entry.id: entry for entry in result.merged_entries}
            assert (found["turn"], found["status"]) == (result.turn_id, "answered")
            assert [entries[found[end]].name for end in ("first", "last")] == ["turn/start", "turn/end"]
            assert [call["name"] for call in found["tools"]] == ["tape_info", "memory_show"]
            assert [step["status"] for step in found["steps"]] == ["tool_calls", "tool_calls", "ok"]
            assert entries[found["answer"]].payload["content"] == "ok"

    async def test_a_turn_of_commands_has_nothing_to_explain(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say(",tape.info")
            told = await explain(bench)
            assert (told.code, told.data and told.data["turn"]) == (1, "")

    async def test_a_failed_turn_is_explained_with_its_error(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played({"error": "refused", "message": "no such key"})) as bench:
            await bench.say("hello")
            told = await explain(bench)
            assert told.data is not None
            assert (told.data["status"], told.data["answer"]) == ("failed", None)
            assert "no such key" in told.text

    async def test_an_interrupted_turn_is_explained_as_one(self, memory_store: InMemoryStore) -> None:
        await cut_off(memory_store)
        async with running(memory_store, ScriptedModel(), life="second") as bench:
            await bench.recover()
            found = await read_explanation(bench)
            assert (found["status"], [call["name"] for call in found["tools"]]) == ("interrupted", ["wait_here"])

    async def test_of_turns_with_equal_beginnings_of_their_ids_it_is_the_newest(
        self, memory_store: InMemoryStore
    ) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            told = [await bench.say(text) for text in ("one", "two", "three")]
            common = told[0].turn_id[:2]
            assert all(each.turn_id.startswith(common) for each in told)
            assert (await read_explanation(bench, common))["turn"] == told[-1].turn_id

    async def test_the_cost_does_not_grow_with_the_turns_since(
        self, memory_store: InMemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            answered = await bench.say("hello")
            read = list[int]()
            for _ in range(2):
                for _ in range(20):
                    await bench.say(",tape.info")
                tape, fetched = bench.tape(), list[int]()
                fetch = tape.fetch

                async def count(
                    queries: Sequence[TapeQuery], fetch: Any = fetch, fetched: list[int] = fetched
                ) -> list[tuple[TapeEntry, ...]]:
                    answers: list[tuple[TapeEntry, ...]] = await fetch(queries)
                    fetched.append(sum(map(len, answers)))
                    return answers

                monkeypatch.setattr(tape, "fetch", count)
                found = await find_explained(tape)
                assert found is not None
                assert found.id == answered.turn_id
                read.append(sum(fetched) - len(found.entries))
            assert read == [3, 3]  # besides the turn: a step, a start, an end

    async def test_what_ran_in_no_finished_turn_is_passed_over(self, tape: TapeService) -> None:
        step = event("loop.step", {"step": 1, "status": "ok"})
        start, end = event("turn/start", {}), event("turn/end", {"status": "answered"})
        assert await find_explained(tape) is None
        await tape.append([step, start.with_meta({"turn": "a"}, ""), step])  # cut off: nothing ended it
        assert await find_explained(tape) is None
        stored = await tape.append([each.with_meta({"turn": "b"}, "") for each in (start, step, end)])
        await tape.append([step, start.with_meta({"turn": "c"}, ""), step])  # imported, and the running turn
        found = await find_explained(tape)
        assert found is not None
        assert (found.id, [step.id for step in found.steps]) == ("b", [stored[1].id])

    @pytest.mark.law("T8")
    async def test_looking_writes_nothing(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("hello")
            before = [await memory_store.fetch([TapeQuery(tape.name)]) for tape in await memory_store.tapes()]
            await explain(bench)
            assert before == [await memory_store.fetch([TapeQuery(tape.name)]) for tape in await memory_store.tapes()]


class TestTheCommand:
    async def test_before_any_answer_it_says_so(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            assert (await bench.say(",why")).text == "No model has answered here yet."

    async def test_it_looks_past_commands_to_the_last_answer(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            answered = await bench.say("hello")
            for _ in range(3):
                await bench.say(",tape.info")
            assert (await bench.say(",why")).text.startswith(f"turn {answered.turn_id} (entries ")

    async def test_it_asks_no_model(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("hello")
            await bench.say(",why")
            assert len(bench.requests) == 1

    async def test_it_tells_what_was_shown_and_used(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played(calls("tape_info"), says("ok"))) as bench:
            await bench.say("hello")
            first, step, *_, tool, hint = (await bench.say(",why")).text.splitlines()
            assert ": answered, answer" in first.replace(", entry", ", answer entry") or "answered, entry" in first
            assert "shown entries 1, 3; request " in step
            assert tool.startswith("tool tape_info (entry ")
            assert hint == ",why yes prints the last request as bubbot made it"

    @pytest.mark.law("T8")
    async def test_the_request_is_printed_as_it_was_made_and_says_so(self, memory_store: InMemoryStore) -> None:
        model = Played(says("a"), calls("memory_save", content="Likes tea."), says("b"))
        async with running(memory_store, model) as bench:
            await bench.say("one")
            await bench.say("two")
            await bench.say(",new")
            text, verdict = (await bench.say(",why yes")).text.rsplit("\n", 1)
            assert text.encode() == bench.requests[-1].as_bytes()
            assert verdict == (
                "[the request to scripted before its translation for the provider, keys sorted: "
                "equal to the recorded one, byte for byte]"
            )
            assert json.loads(text)["messages"][0]["content"] == bench.requests[-1].system

    async def test_a_request_of_an_earlier_version_is_not_called_altered(
        self, memory_store: InMemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            with monkeypatch.context() as earlier:
                earlier.setattr(context, "CONTEXT_VERSION", 1)
                earlier.setattr("bubbot.runtime.context.selectors.escape_people_text", lambda text, indent="": text)
                await bench.say("[x] one")
            for entry in await bench.entries():
                entry.cache.clear()
            assert "cannot be compared]" in (await bench.say(",why yes")).text

    async def test_a_failed_step_shows_its_error(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played({"error": "unavailable", "message": "it rains"})) as bench:
            await bench.say("hello")
            told = (await bench.say(",why")).text
            assert re.search(r"^  scripted failed after \d+ ms: it rains$", told, re.MULTILINE)

    async def test_without_a_model_it_can_still_be_asked(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, UnconfiguredModel()) as bench:
            await bench.say("hello")
            assert (await bench.say(",why")).status == "answered"


class TestByTrace:
    async def test_an_earlier_turn_is_explained_also_one_that_asked_no_model(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played(says("one"), {"error": "refused", "message": "no such key"})) as bench:
            first, failed = await bench.say("hello"), await bench.say("and now")
            command = await bench.say(",tape.info")
            assert (await bench.say(f",why turn={first.turn_id}")).text.startswith(
                f"turn {first.turn_id} (entries 2 to "
            )
            told = (await bench.say(f",why turn={failed.turn_id}")).text
            assert re.search(r"^error model_refused \(entry \d+\): no such key$", told, re.MULTILINE)
            assert (await bench.say(f",why turn={command.turn_id}")).text.startswith(
                f"turn {command.turn_id} (entries "
            )

    async def test_it_looks_at_more_than_the_recent_turns(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            for _ in range(3):  # an id with two digits begins none of the later ones
                await bench.say(",tape.info")
            first = await bench.say("hello")
            for _ in range(21):
                await bench.say(",tape.info")
            assert (await bench.say(",why")).text.startswith(f"turn {first.turn_id} (")
            assert (await bench.say(f",why turn={first.turn_id}")).text.startswith(f"turn {first.turn_id} (")

    async def test_a_trace_of_no_turn_is_refused(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("hello")
            assert (await bench.say(",why 1a2b3c4d")).text == (
                "no turn on this tape has the trace 1a2b3c4d; the log says in which session it was"
            )

    @pytest.mark.parametrize("word", ["yes", "true", "f", "1", "on"])
    async def test_a_yes_or_no_is_no_trace(self, memory_store: InMemoryStore, word: str) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("hello")
            assert "no turn on this tape" not in (await bench.say(f",why {word}")).text
