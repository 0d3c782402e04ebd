"""What shares a card: all that a turn asks of the same people, however the turn ends; and what a yes to it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bubbot.arguments.fields import NoArguments
from bubbot.errors import ToolFailed, ToolRetry
from bubbot.features.approvals.decision import Decision, EffectRow, Verdict
from bubbot.features.approvals.gate import WaitingCall, find_card_key
from bubbot.ports.channel import Role
from bubbot.ports.model import ModelEvent, ModelRequest
from bubbot.ports.turn import Turn
from bubbot.tape.provenance import Source, source_of
from bubbot.tool import CallPlan, Effect, tool
from tests.approval_facts import make_call
from tests.approving import ApprovalBench, PostArgs, approving
from tests.turns import Played, calls, says

POST: dict[str, Any] = calls("post_send", to="bob", text="hello")
EVE: dict[str, Any] = calls("post_send", to="eve", text="hello")
READ = calls("page_read", address="http://x.org/")
SENT, SENT_TO_EVE = ("post.send", "bob: hello"), ("post.send", "eve: hello")
STUCK: dict[str, Any] = {"text": "", "stuck": True}


class Sticking(Played):
    """A model that gets stuck at the step `STUCK`; `is_stuck` is set then."""

    def __init__(self, *steps: Mapping[str, Any]) -> None:
        super().__init__(*steps)
        self.is_stuck = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        if self._steps[0] is STUCK:
            self.is_stuck.set()
            await asyncio.Event().wait()
        async for item in super().stream(request):
            yield item


async def asked_calls(bench: ApprovalBench) -> list[list[str]]:
    """What the calls of each card would do."""
    return [[call["details"] for call in asked["calls"]] for asked in await bench.facts("approval.asked")]


async def cut_off(home: Path, *steps: Mapping[str, Any], text: str = "", **settings: Any) -> None:
    """Run a bot that is stopped while its model is stuck in the last of these steps."""
    model = Sticking(*steps, STUCK)
    async with approving(home, model, **settings) as bench:
        saying = asyncio.ensure_future(bench.say(text)) if text else None
        async with asyncio.timeout(60):
            await model.is_stuck.wait()
        await bench.app.runtime.cancel()
    if saying is not None:
        saying.cancel()
        await asyncio.gather(saying, return_exceptions=True)


async def _plan(details: str) -> CallPlan:
    return CallPlan(Effect(), details)


class TestLanguage:
    async def test_a_card_speaks_to_who_answers_it(self, tmp_path: Path) -> None:
        async with approving(tmp_path, Played(POST, says("I asked."))) as bench:
            await bench.say("send it", language="zh")
            assert "没有回答就是不同意" in bench.channel.texts[0]

    async def test_in_another_chat_it_speaks_to_who_wrote_there_last(self, tmp_path: Path) -> None:
        model = Played(says("Hello."), POST, says("I asked."))
        async with approving(tmp_path, model, to="stdin:other") as bench:
            await bench.say("hello", session="other", language="zh")
            await bench.say("send it", language="en", direct=False)
            (card,) = [sent for sent in bench.channel.sent if "post" in sent.text]
            assert (card.chat, "没有回答就是不同意" in card.text) == ("other", True)


class TestOneCard:
    async def test_calls_of_several_steps_share_it_and_run_in_their_order(self, tmp_path: Path) -> None:
        model = Played(POST, calls("tape_info"), EVE, says("I asked."), says("Both are sent."))
        async with approving(tmp_path, model) as bench:
            await bench.say("send both")
            assert (await asked_calls(bench), bench.done) == ([["to bob:\nhello", "to eve:\nhello"]], [])
            assert bench.channel.texts[-1] == "I asked."  # the card stands above the answer
            await bench.say(f",approve {bench.card}")
            assert (bench.done, bench.channel.texts[-1]) == ([SENT, SENT_TO_EVE], "Both are sent.")

    async def test_a_turn_that_fails_later_has_asked(self, tmp_path: Path) -> None:
        async with approving(tmp_path, Played(POST, {"error": "down"}, says("It is sent."))) as bench:
            answer = await bench.say("send it")
            assert (answer.status, len(bench.cards)) == ("failed", 1)
            await bench.say(f",approve {bench.card}")
            assert bench.done == [SENT]

    async def test_a_turn_that_is_stopped_later_has_asked(self, tmp_path: Path) -> None:
        model = Sticking(POST, STUCK)
        async with approving(tmp_path, model) as bench:
            saying = asyncio.ensure_future(bench.say("send it"))
            await model.is_stuck.wait()
            bench.app.runtime.stop("stdin:default")
            assert ((await saying).status, len(bench.cards)) == ("stopped", 1)

    async def test_a_yes_for_the_chat_counts_in_the_window_in_which_the_turn_ended(self, tmp_path: Path) -> None:
        handoff = calls("tape_handoff", name="phase/two", summary="all that matters")
        model = Played(POST, handoff, says("I asked."), says("1"), POST, says("2"))
        async with approving(tmp_path, model) as bench:
            await bench.say("send it")
            await bench.say(f",approve {bench.card} chat")
            await bench.say("again")
            assert (bench.done, len(bench.cards)) == ([SENT, SENT], 1)

    @pytest.mark.parametrize(("role", "are_apart"), [(Role.OWNER, False), (Role.ADMIN, True), (Role.MEMBER, True)])
    async def test_what_the_asker_may_confirm_waits_for_nobody_else(
        self, begin: Any, role: Role, *, are_apart: bool
    ) -> None:
        turn: Turn = await begin(role=role)
        keys = {
            find_card_key(turn, WaitingCall(make_call(), Decision(verdict, EffectRow.OUTSIDE, ())), Role.OWNER)
            for verdict in (Verdict.CONFIRM, Verdict.ASK)
        }
        assert len(keys) == (2 if are_apart else 1)


class TestOneYes:
    async def test_always_covers_what_names_something_and_the_rest_once(self, tmp_path: Path) -> None:
        run = calls("sandbox_run", command="make")
        model = Played(POST, run, says("I asked."), says("1"), POST, run, says("2"))
        async with approving(tmp_path, model) as bench:
            await bench.say("send and make")
            assert "allow `post.send` for `bob`" in bench.channel.texts[0]
            assert "What else this card holds is allowed once only: `sandbox.run`." in bench.channel.texts[0]
            await bench.say(f",approve {bench.card} always")
            assert bench.done == [SENT, ("sandbox.run", "make")]
            await bench.say("again")
            assert bench.done[2:] == [SENT]
            assert (await asked_calls(bench))[1:] == [["make"]]

    async def test_what_comes_after_a_call_that_failed_does_not_run(self, tmp_path: Path) -> None:
        @tool("draft.write", plan=lambda _turn, _args: _plan("write it"))
        async def draft_write(turn: Turn, args: NoArguments) -> str:
            """Write a draft."""
            raise ToolFailed("the disk is full")

        model = Played(POST, calls("draft_write"), READ, EVE, says("I asked."), says("It failed."), EVE, says("?"))
        async with approving(tmp_path, model, tools=[draft_write]) as bench:
            await bench.say("send it, write it, send it")
            bench.done.clear()  # the page was read at once
            await bench.say(f",approve {bench.card}")
            assert bench.done == [SENT]
            *_, failed, left = await bench.results()
            assert failed == "the disk is full"
            assert "a call before it failed" in left
            await bench.say("try again")
            assert (await asked_calls(bench))[1:] == [["to eve:\nhello"]]

    async def test_what_was_to_follow_a_change_that_has_become_impossible_does_not_run(self, tmp_path: Path) -> None:
        is_possible = [True]

        async def plan(_turn: Turn, _args: NoArguments) -> CallPlan:
            if not is_possible[0]:
                raise ToolRetry("somebody has changed the script: read it again")
            return CallPlan(Effect(), "write the script")

        @tool("script.write", plan=plan)
        async def script_write(turn: Turn, args: NoArguments) -> str:
            """Write a script."""
            return "written"

        model = Played(calls("script_write"), calls("sandbox_run", command="sh script"), says("I asked."), says("?"))
        async with approving(tmp_path, model, tools=[script_write]) as bench:
            await bench.say("write it and run it")
            is_possible[0] = False
            await bench.say(f",approve {bench.card}")
            assert bench.done == []


class TestInterruptions:
    async def test_the_attempt_that_runs_again_writes_the_card_with_what_both_have_asked(self, tmp_path: Path) -> None:
        await cut_off(tmp_path, POST, text="send it to both")
        async with approving(tmp_path, Played(EVE, says("I asked."), says("Both are sent."))) as bench:
            await bench.settle()
            assert await asked_calls(bench) == [["to bob:\nhello", "to eve:\nhello"]]
            asked = [result for result in await bench.results() if result.startswith("asked (")]
            assert [result[7:12] for result in asked] == bench.cards * 2, "both attempts name the one card"
            await bench.say(f",approve {bench.card}")
            assert bench.done == [SENT, SENT_TO_EVE]

    async def test_what_the_first_attempt_asked_is_asked_when_the_bot_gives_up(self, tmp_path: Path) -> None:
        await cut_off(tmp_path, READ, POST, text="read it, then send it")
        await cut_off(tmp_path)
        async with approving(tmp_path, Played(says("It is sent."))) as bench:
            await bench.settle()
            assert await asked_calls(bench) == [["to bob:\nhello"]]
            (fact,) = await bench.events("approval.asked")
            assert source_of(fact) is Source.WORLD, "words of a page have led to it"
            await bench.say(f",approve {bench.card}")
            assert bench.done == [SENT]

    async def test_what_ran_under_a_grant_before_is_not_asked_about(self, tmp_path: Path) -> None:
        async with approving(tmp_path, Played(POST, says("I asked."), says("It is sent."))) as bench:
            await bench.say("send it")
            await bench.say(f",approve {bench.card} always")
        await cut_off(tmp_path, POST, text="again")
        async with approving(tmp_path, Played(says("Both are sent."))) as bench:
            await bench.settle()
            assert len(await bench.facts("approval.asked")) == 1
            assert bench.channel.texts[-1] == "Both are sent."

    async def test_after_a_call_that_was_cut_off_the_rest_of_its_card_does_not_run(self, tmp_path: Path) -> None:
        is_sending, done = asyncio.Event(), list[tuple[str, str]]()

        @tool("parcel.send", plan=lambda _turn, args: _plan(f"to {args.to}"))
        async def parcel_send(turn: Turn, args: PostArgs) -> str:
            """Send a parcel."""
            is_sending.set()
            await asyncio.Event().wait()
            return "sent"

        model = Played(calls("parcel_send", to="ann"), POST, says("I asked."))
        async with approving(tmp_path, model, tools=[parcel_send], done=done) as bench:
            await bench.say("send a parcel, then tell bob")
            answering = asyncio.ensure_future(bench.say(f",approve {bench.card}"))
            await is_sending.wait()
            await bench.app.runtime.cancel()
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
        model = Sticking(calls("parcel_send", to="bea"), STUCK)
        async with approving(tmp_path, model, tools=[parcel_send], done=done) as bench:
            await model.is_stuck.wait()
            await bench.app.runtime.cancel()
        async with approving(tmp_path, Played(says("?")), tools=[parcel_send], done=done) as bench:
            await bench.settle()  # it gives up
            *_, unknown, left, _asked = await bench.results()
            assert "its outcome is unknown" in unknown
            assert "a call before it failed" in left
            whys = [asked["why"] for asked in await bench.facts("approval.asked")]
            assert whys[1:] == [("cut_off",), ("outside", "used_before")]
            assert (await asked_calls(bench))[2] == ["to bea"]
            assert done == []

    async def test_what_a_sub_task_asked_is_asked_though_its_turn_keeps_only_its_result(self, tmp_path: Path) -> None:
        order = calls("agent_run", task="look it up", tools=["page.read"], mode="result")
        page = calls("page_read", address="http://y.org/")
        await cut_off(tmp_path, READ, order, page, says("It was asked."), text="look it up", jobs="ask")
        async with approving(tmp_path, Played(says("I asked.")), jobs="ask") as bench:
            await bench.settle()
            assert await asked_calls(bench) == [["http://y.org/"]]
            assert len(bench.cards) == 1
