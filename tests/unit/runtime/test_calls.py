"""Tool calls: what a model is told of each, whatever the tool does."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from bubbot.arguments.fields import Args, NoArguments
from bubbot.errors import StoreFull, ToolFailed, ToolRetry
from bubbot.formatting import clean
from bubbot.ports.channel import Role
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ToolCall
from bubbot.ports.turn import Turn
from bubbot.runtime.calls import ToolLimits, shorten
from bubbot.runtime.runner import RunnerSettings
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import Kind
from bubbot.tape.store import TapeStore
from bubbot.tool import INSIDE, READS_OWN, Effect, Tool, tool
from tests.raw import tamper
from tests.turns import HOME, WAIT, Bench, Options, Played, Replying, calls, replying, running, says

MAX_ARGUMENTS_CHARS = 80
PARALLEL_CALLS = 4
NOT_RUN = "not run: the turn was cut off before this call began"
OUTCOME_UNKNOWN = "outcome unknown: the bot stopped before this call was finished; it may or may not have happened"


def giving(output: object) -> Tool:
    """A tool that gives this back, or raises it."""

    @tool("odd.tool")
    async def odd(turn: Turn, args: NoArguments) -> str:
        """Does something odd."""
        if isinstance(output, BaseException):
            raise output
        return output  # type: ignore[return-value]

    return odd


async def results(bench: Bench) -> list[dict[str, Any]]:
    """Every result on the home tape."""
    return [
        dict(result)
        for entry in await bench.entries()
        if entry.kind == Kind.TOOL_RESULT
        for result in entry.payload["results"]
    ]


async def told(store: TapeStore, step: dict[str, Any], options: Options | None = None) -> dict[str, Any]:
    """What the model is told of the one call of this step."""
    async with running(store, Played(step, says("ok")), options) as bench:
        assert (await bench.say("do it")).text == "ok"
        (result,) = await results(bench)
        return result


class TestWhatAModelIsTold:
    async def test_the_output_with_the_id_of_the_call(self, memory_store: InMemoryStore) -> None:
        result = await told(memory_store, calls("odd_tool", call_id="c9"), Options(tools=[giving("fine")]))
        assert result["tool_call_id"] == "c9"
        assert result["content"] == "fine"

    async def test_of_an_unknown_tool_the_closest_ones(self, memory_store: InMemoryStore) -> None:
        result = await told(memory_store, calls("tape_serch"))
        assert result["is_error"] is True
        assert "there is no tape_serch; did you mean" in result["content"]
        assert "tape_search" in result["content"]

    @pytest.mark.parametrize(
        ("arguments", "why"),
        [("{", "not JSON"), ("[" * 9000, "not JSON"), ("[1]", "JSON object"), ('"x"', "JSON object"), ('{"query": 1}', "query is 1"), ("{}", "query is missing"), ('{"q":1, "query":"x"}', "there is no q")],
    )  # fmt: skip
    async def test_of_arguments_that_do_not_fit_what_is_wrong_with_them(
        self, memory_store: InMemoryStore, arguments: str, why: str
    ) -> None:
        step = {"calls": [{"name": "tape_search", "arguments": arguments}]}
        result = await told(memory_store, step)
        assert (result["is_error"], why in result["content"]) == (True, True), result["content"]

    async def test_no_arguments_at_all_are_none_given(self, memory_store: InMemoryStore) -> None:
        result = await told(memory_store, {"calls": [{"name": "tape_info", "arguments": ""}]})
        assert "is_error" not in result

    @pytest.mark.parametrize(
        ("raised", "content"),
        [
            (ValueError("no such day"), "odd_tool failed: ValueError: no such day"),
            (ToolRetry("give a day"), "give a day"),
            (ToolFailed("cannot be done"), "cannot be done"),
            (StoreFull("the disk is full"), "the disk is full"),
            (TimeoutError("the site is slow"), "odd_tool failed: TimeoutError: the site is slow"),
            (RecursionError("too deep"), "odd_tool failed: RecursionError: too deep"),
        ],
    )
    async def test_of_a_tool_that_raised_its_error(
        self, memory_store: InMemoryStore, raised: Exception, content: str
    ) -> None:
        result = await told(memory_store, calls("odd_tool"), Options(tools=[giving(raised)]))
        assert (result["content"], result["is_error"]) == (content, True)

    @pytest.mark.parametrize("output", [None, 7, {"a": 1}])
    async def test_of_a_tool_that_gave_no_text_that_it_did_not(
        self, memory_store: InMemoryStore, output: object
    ) -> None:
        result = await told(memory_store, calls("odd_tool"), Options(tools=[giving(output)]))
        assert "instead of text" in result["content"]

    async def test_of_a_tool_that_hangs_that_it_was_stopped(self, memory_store: InMemoryStore) -> None:
        @tool("long.wait")
        async def long_wait(turn: Turn, args: NoArguments) -> str:
            """Waits."""
            await asyncio.sleep(60)
            return "never"

        options = Options(tools=[long_wait], calls=ToolLimits(timeout=0.05))
        result = await told(memory_store, calls("long_wait"), options)
        text = "long.wait was stopped after 0.05 seconds; it may have happened all the same"
        assert (result["content"], result["is_error"]) == (text, True)

    async def test_half_a_character_in_the_output_is_replaced(self, memory_store: InMemoryStore) -> None:
        result = await told(memory_store, calls("odd_tool"), Options(tools=[giving("a\ud800b")]))
        assert result["content"] == "a\N{REPLACEMENT CHARACTER}b"

    async def test_of_a_command_that_is_not_for_models_that_it_is_not_available(
        self, memory_store: InMemoryStore
    ) -> None:
        result = await told(memory_store, calls("session_reset", how="erase"))
        assert result["content"] == "session.reset is not available here"

    async def test_of_a_tool_above_the_senders_role_that_it_is_not_available(self, memory_store: InMemoryStore) -> None:
        @tool("danger.zone", role=Role.OWNER)
        async def danger(turn: Turn, args: NoArguments) -> str:
            """Dangerous."""
            raise AssertionError("it ran")

        result = await told(memory_store, calls("danger_zone"), Options(tools=[danger], role=Role.MEMBER))
        assert result["content"] == "danger.zone is not available here"


POINTER = re.compile(r"offset=(\d+)(?:, limit=(\d+))?")
HANDLE = re.compile(r'handle="(\w+)"')


def reading_on(request: ModelRequest) -> ModelReply:
    """Calls the odd tool, and reads on for as long as the newest result points further."""
    newest = request.messages[-1]
    if newest["role"] == "user":
        return ModelReply("", (ToolCall("c", "odd_tool", "{}"),))
    mark = newest["content"].rpartition("\n… [")[2].partition("]")[0]
    pointer = POINTER.search(mark)
    if pointer is None:
        return ModelReply("read")
    handle = next(found[1] for message in request.messages if (found := HANDLE.search(str(message["content"]))))
    arguments = {"handle": handle, "offset": int(pointer[1])} | ({"limit": int(pointer[2])} if pointer[2] else {})
    return ModelReply("", (ToolCall("c", "result_read", json.dumps(arguments)),))


class TestLongResults:
    @pytest.mark.parametrize(("limit", "lines"), [(100, 100), (1_000, 2_000), (16_000, 20_000)])
    async def test_a_model_that_follows_the_pointers_reads_all_of_it(
        self, memory_store: InMemoryStore, limit: int, lines: int
    ) -> None:
        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            yield reading_on(request)

        long = "".join(f"{number:07d}\n" for number in range(lines))
        options = Options([giving(long)], calls=ToolLimits(result_limit=limit), run=RunnerSettings(max_steps=300))
        async with running(memory_store, Replying(stream), options) as bench:
            assert (await bench.say("do it")).text == "read"
            first, *pages = [result["content"] for result in await results(bench)]
            assert all(len(page) <= limit for page in pages)
            read = [page.rpartition("\n")[0] for page in pages]
            head, _, rest = first.partition("\n… [cut:")
            tail = rest.partition("]\n")[2]
            assert head + "".join(read) == long
            assert tail
            assert long.endswith(tail)
            if limit > 200:  # a smaller one does not even hold the pointer
                assert limit - 10 < len(first) <= limit

    async def test_the_limit_is_used_up(self, memory_store: InMemoryStore) -> None:
        """To the character if the pointer's offset has as many digits as the length of the text."""
        options = Options(tools=[giving("x" * 5_000)], calls=ToolLimits(result_limit=2_000))
        assert len((await told(memory_store, calls("odd_tool"), options))["content"]) == 2_000

    async def test_it_is_kept_whole_beside_the_tape(self, store: TapeStore) -> None:
        long = "long " * 200_000
        result = await told(store, calls("odd_tool"), Options(tools=[giving(long)]))
        found = HANDLE.search(result["content"])
        assert found is not None
        assert (await store.get_blob(HOME, found[1])).decode() == long
        assert 15_900 < len(result["content"]) <= 16_000

    @pytest.mark.parametrize("then", ["ok", "stopped"])
    async def test_its_entry_names_the_full_text_that_the_audit_misses(
        self, sqlite_store: SqliteStore, then: str
    ) -> None:
        """Also if the next call of the step ends the turn."""
        odd = {"name": "odd_tool", "arguments": {}}
        step = {"calls": [odd, odd, odd, odd] if then == "stopped" else [odd]}
        options = Options(tools=[replace(giving("x" * 50_000), effect=READS_OWN)])
        async with running(sqlite_store, Played(step, says("ok")), options) as bench:
            await bench.say("do it")
            (entry,) = [entry for entry in await bench.entries() if entry.kind == Kind.TOOL_RESULT]
        digest = blob_digest(b"x" * 50_000)
        assert set(entry.payload["blobs"]) == {digest}
        assert (await sqlite_store.audit()).damage == ()
        tamper(sqlite_store.path, "DELETE FROM blobs WHERE digest = ?", [digest])
        (finding,) = (await sqlite_store.audit()).damage
        assert (finding.id, finding.problem) == (entry.id, "missing")

    async def test_a_text_that_looks_cut_is_not_missed(self, sqlite_store: SqliteStore) -> None:
        text = f'\n… [cut: 9 characters in all; read on with result_read(handle="{"0" * 64}", offset=0)]'
        async with running(sqlite_store, Played(calls("odd_tool"), says("ok")), Options(tools=[giving(text)])) as bench:
            await bench.say("do it")
            (entry,) = [entry for entry in await bench.entries() if entry.kind == Kind.TOOL_RESULT]
        assert entry.payload["blobs"] == ()
        assert (await sqlite_store.audit()).damage == ()

    async def test_a_handle_that_does_not_exist_is_sent_back(self, memory_store: InMemoryStore) -> None:
        result = await told(memory_store, calls("result_read", handle="nonsense"))
        assert result["content"].startswith("there is no result nonsense")

    async def test_a_long_error_is_cut_too(self, memory_store: InMemoryStore) -> None:
        options = Options(tools=[giving(ToolFailed("x" * 50_000))])
        assert len((await told(memory_store, calls("odd_tool"), options))["content"]) <= 16_000


def same(times: int) -> list[dict[str, Any]]:
    """Steps that call the same tool in the same way."""
    return [calls("tape_search", query="x") for _ in range(times)]


class TestTheSameCallAgain:
    async def test_the_third_in_a_row_is_refused(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played(*same(3), says("I see"))) as bench:
            assert (await bench.say("search")).text == "I see"
            refused = ["was not run" in result["content"] for result in await results(bench)]
            assert refused == [False, False, True]

    @pytest.mark.law("T14")
    async def test_the_fourth_ends_the_turn(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played(*same(4), says("never"))) as bench:
            result = await bench.say("search")
            assert result.status == "failed"
            assert "kept calling tape_search with the same arguments" in result.text
            assert len(bench.requests) == 4

    async def test_another_call_in_between_starts_the_count_anew(self, memory_store: InMemoryStore) -> None:
        steps = [*same(2), calls("tape_info"), *same(2), says("done")]
        async with running(memory_store, Played(*steps)) as bench:
            assert (await bench.say("search")).text == "done"

    async def test_a_new_turn_starts_the_count_anew(self, memory_store: InMemoryStore) -> None:
        steps = [*same(2), says("a"), *same(2), says("b")]
        async with running(memory_store, Played(*steps)) as bench:
            await bench.say("search")
            assert (await bench.say("search")).text == "b"

    @pytest.mark.law("T14")
    async def test_what_ran_before_it_in_the_same_step_keeps_its_result(self, memory_store: InMemoryStore) -> None:
        many = [ToolCall(f"c{place}", "tape_info", "{}") for place in range(4)]
        model = replying(ModelReply("", (ToolCall("first", "memory_show", "{}"), *many)))
        async with running(memory_store, model) as bench:
            assert (await bench.say("go")).status == "failed"
            found = await results(bench)
            assert [result["tool_call_id"] for result in found] == ["first", "c0", "c1", "c2", "c3"]
            assert [result["content"] for result in found][-1] == NOT_RUN


@pytest.mark.law("T14")
async def test_a_stop_between_two_calls_keeps_the_result_of_the_first(memory_store: InMemoryStore) -> None:
    entered = asyncio.Event()

    @tool("stand.still")
    async def stand_still(turn: Turn, args: NoArguments) -> str:
        """Stands still."""
        entered.set()
        await asyncio.Event().wait()
        return "never"

    step = {"calls": [{"name": "tape_info", "id": "a"}, {"name": "stand_still", "id": "b"}]}
    async with running(memory_store, Played(step, says("next")), Options(tools=[stand_still])) as bench:
        waiting = await bench.post("go")
        async with asyncio.timeout(WAIT):
            await entered.wait()
            assert bench.app.stop(HOME)
            assert (await waiting).status == "stopped"
        assert [result["tool_call_id"] for result in await results(bench)] == ["a"]
        await bench.say("and now?")
        shown = [message["content"] for message in bench.requests[1].messages if message["role"] == "tool"]
        assert (len(shown), shown[1]) == (2, OUTCOME_UNKNOWN)


@pytest.mark.parametrize(
    ("text", "stored"),
    [("plain é 漢 😀", "plain é 漢 😀"), ("\ud83d\ude00", "😀"), ("\ud83dx", "\ufffdx"), ("\ude00\ud83d", "\ufffd\ufffd"), ("", "")],
)  # fmt: skip
def test_text_is_made_fit_to_be_stored(text: str, stored: str) -> None:
    assert clean(text) == stored


def test_arguments_are_shown_on_one_short_line() -> None:
    assert shorten('{"a":\n 1}') == '{"a": 1}'
    assert len(shorten("x" * 10_000)) == MAX_ARGUMENTS_CHARS
    assert len(shorten(" " * 10_000 + "x")) == 1


class NumberArgs(Args, frozen=True):
    number: int
    wait: float = 0.01
    after: int = 0


def meeting(name: str, effect: Effect, together: list[int], log: list[str], **options: Any) -> Tool:
    """A tool that notes how many of its calls run at once, and ends when all of `together` have begun."""
    running = [0]

    @tool(name, effect=effect, **options)
    async def meet(turn: Turn, args: NumberArgs) -> str:
        """Meet."""
        running[0] += 1
        together.append(running[0])
        log.append(f"{name} {args.number} begins")
        try:
            await asyncio.sleep(args.wait)
            while args.after and f"{name} {args.after} ends" not in log:  # noqa: ASYNC110 - a list is all there is
                await asyncio.sleep(0)
        finally:
            log.append(f"{name} {args.number} ends")
            running[0] -= 1
        return f"{name} {args.number}"

    return meet


def several(*pairs: tuple[str, int], wait: float = 0.01) -> dict[str, Any]:
    """A step with several calls."""
    return {"calls": [{"name": name, "arguments": {"number": number, "wait": wait}} for name, number in pairs]}


class TestCallsOfOneStep:
    async def test_calls_that_only_read_run_together_and_results_keep_the_order(
        self, memory_store: InMemoryStore
    ) -> None:
        together, log = list[int](), list[str]()
        step = {
            "calls": [
                {"name": "look_up", "arguments": {"number": number, "wait": 0, "after": after}}
                for number, after in ((1, 3), (2, 0), (3, 2))
            ]
        }
        options = Options(tools=[meeting("look.up", READS_OWN, together, log)])
        async with running(memory_store, Played(step, says("ok")), options) as bench:
            await bench.say("look")
            found = await results(bench)
        assert max(together) == 3
        assert log[-1] == "look.up 1 ends"
        assert [result["content"] for result in found] == ["look.up 1", "look.up 2", "look.up 3"]

    async def test_a_call_that_does_more_is_a_barrier(self, memory_store: InMemoryStore) -> None:
        log = list[str]()
        tools = [meeting("look.up", READS_OWN, [], log), meeting("write.down", INSIDE, [], log)]
        step = several(("look_up", 1), ("look_up", 2), ("write_down", 3), ("write_down", 4), ("look_up", 5))
        async with running(memory_store, Played(step, says("ok")), Options(tools=tools)) as bench:
            await bench.say("look")
        assert log[4:] == [
            "write.down 3 begins",
            "write.down 3 ends",
            "write.down 4 begins",
            "write.down 4 ends",
            "look.up 5 begins",
            "look.up 5 ends",
        ]

    async def test_an_undeclared_tool_runs_alone(self, memory_store: InMemoryStore) -> None:
        together = list[int]()
        options = Options(tools=[meeting("odd.one", Effect(), together, [])])
        step = several(("odd_one", 1), ("odd_one", 2))
        async with running(memory_store, Played(step, says("ok")), options) as bench:
            await bench.say("look")
        assert together == [1, 1]

    async def test_no_more_run_at_once_than_the_limit(self, memory_store: InMemoryStore) -> None:
        together = list[int]()
        options = Options(tools=[meeting("look.up", READS_OWN, together, [])])
        step = several(*[("look_up", number) for number in range(3 * PARALLEL_CALLS)])
        async with running(memory_store, Played(step, says("ok")), options) as bench:
            await bench.say("look")
            assert len(await results(bench)) == 3 * PARALLEL_CALLS
        assert max(together) == PARALLEL_CALLS

    async def test_each_result_says_when_its_call_began_and_how_long_it_took(self, memory_store: InMemoryStore) -> None:
        options = Options(tools=[meeting("look.up", READS_OWN, [], []), meeting("write.down", INSIDE, [], [])])
        step = several(("look_up", 1), ("look_up", 2), ("write_down", 3), wait=0.02)
        async with running(memory_store, Played(step, says("ok")), options) as bench:
            await bench.say("look")
            found = await results(bench)
        assert all(result["elapsed_ms"] >= 15 for result in found)
        assert [result["started"] for result in found] == sorted(result["started"] for result in found)
        assert found[0]["started"].startswith("2026-11-21T20:21:")

    async def test_a_stop_ends_all_of_them_and_keeps_the_results_so_far(self, memory_store: InMemoryStore) -> None:
        log = list[str]()
        begun = asyncio.Event()

        @tool("look.long", effect=READS_OWN)
        async def look_long(turn: Turn, args: NumberArgs) -> str:
            """Look for long."""
            if args.number == 1:
                return "short"
            try:
                begun.set()
                await asyncio.sleep(60)
            finally:
                log.append(f"ended {args.number}")
            return ""

        step = {"calls": [{"name": "look_long", "arguments": {"number": number}} for number in (1, 2, 3)]}
        async with running(memory_store, Played(step, says("ok")), Options(tools=[look_long])) as bench:
            answer = await bench.post("look")
            await asyncio.wait_for(begun.wait(), WAIT)
            bench.app.stop(HOME)
            assert (await asyncio.wait_for(answer, WAIT)).status == "stopped"
            assert sorted(log) == ["ended 2", "ended 3"]
            assert [result["content"] for result in await results(bench)] == ["short"]

    async def test_the_third_equal_call_of_a_step_is_not_run_and_the_fourth_ends_the_turn(
        self, memory_store: InMemoryStore
    ) -> None:
        log = list[str]()
        options = Options(tools=[meeting("look.up", READS_OWN, [], log)])
        step = several(*[("look_up", 1)] * 4)
        async with running(memory_store, Played(step, says("ok")), options) as bench:
            assert (await bench.say("look")).status == "failed"
            found = await results(bench)
        assert log.count("look.up 1 begins") == 2
        assert [result["content"][:22] for result in found[:3]] == ["look.up 1", "look.up 1", "this is the same call "]
        assert [result["content"] for result in found[3:]] == [NOT_RUN]

    async def test_a_tool_has_its_own_time_limit(self, memory_store: InMemoryStore) -> None:
        options = Options(tools=[meeting("look.up", READS_OWN, [], [], timeout=0.01)])
        result = await told(memory_store, several(("look_up", 1), wait=30), options)
        assert (result["content"], result["is_error"]) == ("look.up was stopped after 0.01 seconds", True)
