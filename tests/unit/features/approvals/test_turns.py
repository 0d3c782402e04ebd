"""What needs a yes waits for one, runs as it was stored, and no turn waits for a person."""

from __future__ import annotations

import asyncio
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.bot import Bot
from bubbot.app.panels import load_panels, open_boundary
from bubbot.arguments.fields import Args, NoArguments
from bubbot.errors import ToolRetry
from bubbot.features.approvals.commands import ApprovalCommands, approval_tools
from bubbot.features.approvals.gate import ApprovedCalls
from bubbot.panel import PanelQuery
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.ports.model import ToolCall
from bubbot.ports.turn import AcceptedInbound, Turn
from bubbot.settings.loader import Settings
from bubbot.tape.boundary import OWNER
from bubbot.tape.entry import timestamp
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts
from bubbot.tool import CallPlan, Effect, tool
from tests.approval_facts import make_asked, make_call
from tests.approving import approving
from tests.e2e import inside
from tests.e2e.test_json import check
from tests.turns import Played, calls, says
from tests.unit.runtime.test_recovery import Gate

POST: dict[str, Any] = calls("post_send", to="bob", text="hello")
SENT = [("post.send", "bob: hello")]


class ActArgs(Args, frozen=True):
    """The arguments of a tool that says nothing of what it acts on."""

    word: str


async def bubbot(home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command of the shell beside this event loop."""
    return await asyncio.to_thread(inside.run, home, *arguments)


class TestAsking:
    async def test_a_call_that_acts_outside_is_asked_and_its_turn_ends(self, tmp_path: Path) -> None:
        model = Played(POST, says("I asked."))
        async with approving(tmp_path, model) as bench:
            answer = await bench.say("send it")
            assert (answer.status, answer.text, bench.done) == ("answered", "I asked.", [])
            (asked,) = await bench.facts("approval.asked")
            (opened,) = await bench.facts("approval.opened", "bubbot/access")
            assert bench.cards == [asked["id"]] == [opened["id"]]
            (call,) = asked["calls"]
            assert (call["tool"], call["details"]) == ("post.send", "to bob:\nhello")
            assert "to bob:\nhello" in bench.channel.texts[0]
            tape = bench.app.tape("stdin:default")
            names = [entry.name or str(entry.kind) for entry in (await tape.fetch([TapeQuery(tape.name)]))[0]]
            assert names[-2:] == ["approval.asked", "turn/end"]

    async def test_a_check_that_cannot_be_read_holds_up_no_call(self, tmp_path: Path) -> None:
        pages = ["https://one.example/a", "https://two.example/b"]
        model = Played(*(play for page in pages for play in (calls("page_read", address=page), says("I read it."))))
        async with approving(tmp_path, model) as bench:
            for page in pages:
                await bench.say(f"read {page}")
                await bench.app.tape("stdin:default").append_event("approval.checked", {"call": 5})
            assert bench.done == [("page.read", page) for page in pages]

    @pytest.mark.law("T21")
    async def test_a_yes_runs_the_stored_call_and_the_model_goes_on_from_its_result(self, tmp_path: Path) -> None:
        model = Played(POST, says("I asked."), says("It is sent."))
        async with approving(tmp_path, model) as bench:
            await bench.say("send it")
            await bench.say(f",approve {bench.card}")
            assert (bench.done, bench.channel.texts[-1]) == (SENT, "It is sent.")
            assert (await bench.results())[-1] == "sent to bob"
            assert len(model.requests) == 3

    async def test_what_each_decision_rests_on_is_written_down_and_nothing_of_calls_that_only_read(
        self, tmp_path: Path
    ) -> None:
        look = calls("tape_info")
        model = Played(look, POST, says("I asked."), says("It is sent."), POST, says("And again."))
        async with approving(tmp_path, model) as bench:
            await bench.say("send it")
            await bench.say(f",approve {bench.card} chat")
            await bench.say("send it again")
            assert bench.done == SENT * 2
            asked, allowed, standing = await bench.facts("approval.checked")
            same = {
                key: asked[key] for key in ("tool", "digest", "effect", "row", "columns", "role", "place", "tainted_by")
            }
            assert (same["tool"], same["role"], same["tainted_by"]) == ("post.send", "owner", ())
            (grant,) = await bench.events("approval.granted", "bubbot/access")
            assert [asked, allowed, standing] == [
                {"call": asked["call"], **same, "verdict": "ask", "approval": bench.cards[0]},
                {"call": allowed["call"], **same, "verdict": "run", "approval": bench.cards[0]},
                {"call": standing["call"], **same, "verdict": "run", "grant": standing["grant"]},
            ]
            assert (grant.id, allowed["call"]) == (standing["grant"], f"approved{bench.cards[0]}0")

    async def test_a_no_runs_nothing_and_the_model_is_told_why(self, tmp_path: Path) -> None:
        model = Played(POST, says("I asked."), says("Left undone."))
        async with approving(tmp_path, model) as bench:
            await bench.say("send it")
            await bench.say(f",deny {bench.card} not today")
            assert (bench.done, bench.channel.texts[-1]) == ([], "Left undone.")
            assert "denied" in str(model.requests[-1].messages[-1])
            assert "not today" in str(model.requests[-1].messages[-1])

    async def test_calls_of_one_step_share_a_card(self, tmp_path: Path) -> None:
        both = {"calls": [*POST["calls"], *calls("post_send", to="eve")["calls"]]}
        async with approving(tmp_path, Played(both, says("I asked."), says("done"))) as bench:
            await bench.say("send both")
            assert len(bench.cards) == 1
            await bench.say(f",approve {bench.card}")
            assert bench.done == [*SENT, ("post.send", "eve: hello")]

    async def test_a_card_that_would_name_too_much_offers_no_grant(self, tmp_path: Path) -> None:
        many = {"calls": [call for number in range(6) for call in calls("post_send", to=f"p{number}")["calls"]]}
        async with approving(tmp_path, Played(many, says("I asked."))) as bench:
            await bench.say("send them")
            assert [asked["scopes"] for asked in await bench.facts("approval.asked")] == [("once",)]

    async def test_the_same_call_is_asked_once(self, tmp_path: Path) -> None:
        async with approving(tmp_path, Played(POST, POST, says("I asked."), POST, says("Again."))) as bench:
            await bench.say("send it")
            await bench.say("and now?")
            assert (len(bench.cards), bench.done) == (1, [])
            assert ["asked before" in result for result in await bench.results()] == [False, True, True]

    async def test_the_first_answer_counts(self, tmp_path: Path) -> None:
        async with approving(tmp_path, Played(POST, says("I asked."), says("done"))) as bench:
            await bench.say("send it")
            await bench.say(f",approve {bench.card}")
            late = await bench.say(f",deny {bench.card}")
            assert late.text == f"{bench.card} was allowed before, by Ann."
            assert bench.done == SENT
            (fact,) = await bench.facts("approval.rejected", "bubbot/access")
            assert fact["reason"] == "decided"

    async def test_an_unknown_id_is_no_card(self, tmp_path: Path) -> None:
        async with approving(tmp_path, Played(says("hi"))) as bench:
            assert (await bench.say(",approve 22222")).text == "There is no card 22222."

    async def test_what_needs_a_confirmation_waits_for_the_person_who_asks(self, tmp_path: Path) -> None:
        model = Played(
            calls("memory_save", content="nuts"), calls("memory_clear", confirm=True), says("?"), says("gone")
        )
        async with approving(tmp_path, model) as bench:
            await bench.say("forget all of it")
            (asked,) = await bench.facts("approval.asked")
            assert (asked["verdict"], asked["scopes"]) == ("confirm", ("once",))
            await bench.say(f",approve {bench.card}")
            assert "empt" in (await bench.results())[-1].lower() or "clear" in (await bench.results())[-1].lower()

    @pytest.mark.parametrize(
        "job", [{"when": "in 1 minute", "command": ",post.send eve"}, {"when": "in 1 minute: ,post.send eve"}]
    )
    async def test_a_job_that_would_type_a_command_is_asked(self, tmp_path: Path, job: dict[str, str]) -> None:
        async with approving(tmp_path, Played(calls("schedule_add", **job), says("I asked."))) as bench:
            await bench.say("later, please")
            (asked,) = await bench.facts("approval.asked")
            assert (asked["verdict"], ",post.send eve" in asked["calls"][0]["details"]) == ("confirm", True)
            assert not await bench.facts("schedule/added", "bubbot/schedule")

    async def test_a_model_that_writes_the_command_has_written_words(self, tmp_path: Path) -> None:
        async with approving(tmp_path, Played(POST, says(",approve 22222"), says("done"))) as bench:
            await bench.say("send it")
            assert bench.done == []
            assert await bench.facts("approval.decided", "bubbot/access") == []

    async def test_an_answer_that_somebody_only_forwards_is_text(self, tmp_path: Path) -> None:
        async with approving(tmp_path, Played(POST, says("I asked."), says("A command, it seems."))) as bench:
            await bench.say("send it")
            said = await bench.say(f",approve {bench.card} always", provenance="world")
            assert (said.text, bench.done) == ("A command, it seems.", [])
            assert await bench.facts("approval.decided", "bubbot/access") == []

    async def test_what_it_rests_on_has_changed_since(self, tmp_path: Path) -> None:
        state = ["1"]

        async def plan(_turn: Turn, _args: NoArguments) -> CallPlan:
            return CallPlan(Effect(), "write the file", state=state[0])

        @tool("draft.write", plan=plan)
        async def draft_write(turn: Turn, args: NoArguments) -> str:
            """Write a draft."""
            state.append("written")
            return "written"

        model = Played(calls("draft_write"), says("I asked."), says("It changed."))
        async with approving(tmp_path, model, tools=[draft_write]) as bench:
            await bench.say("write it")
            state[0] = "2"
            await bench.say(f",approve {bench.card}")
            assert state == ["2"]
            assert "has changed since" in (await bench.results())[-1]

    async def test_details_that_are_long_go_as_a_file_whole(self, tmp_path: Path) -> None:
        long = "x" * 5_000 + "end"
        async with approving(tmp_path, Played(calls("post_send", to="bob", text=long), says("I asked."))) as bench:
            await bench.say("send it")
            (text,) = bench.channel.received.values()
            assert long in text.decode()
            assert max(map(len, bench.channel.texts)) < 2_000

    async def test_each_call_says_what_it_rests_on(self, tmp_path: Path) -> None:
        async with approving(tmp_path, Played(POST, says("I asked."), says("done"))) as bench:
            await bench.say("send it")
            said = (await bench.say(",why")).text
            assert f"call of post.send: asked for a yes, {bench.card} (acts outside; owner, direct chat, clean)" in said
            await bench.say(f",approve {bench.card}")
            assert (
                f"call of post.send: ran (acts outside; owner, direct chat, clean, allowed by {bench.card})"
                in (await bench.say(",why")).text
            )


class TestScopes:
    async def test_in_a_chat_it_counts_until_a_new_conversation_begins(self, tmp_path: Path) -> None:
        model = Played(POST, says("I asked."), says("1"), POST, says("2"), POST, says("I asked again."))
        async with approving(tmp_path, model) as bench:
            await bench.say("send it")
            await bench.say(f",approve {bench.card} chat")
            await bench.say("again")
            assert (bench.done, len(bench.cards)) == ([*SENT, *SENT], 1)
            await bench.say(",new")
            await bench.say("again")
            assert (bench.done, len(bench.cards)) == ([*SENT, *SENT], 2)

    async def test_another_recipient_asks(self, tmp_path: Path) -> None:
        model = Played(POST, says("I asked."), says("1"), calls("post_send", to="eve"), says("I asked."))
        async with approving(tmp_path, model) as bench:
            await bench.say("send it")
            await bench.say(f",approve {bench.card} always")
            await bench.say("to eve")
            assert (bench.done, len(bench.cards)) == (SENT, 2)

    async def test_always_counts_in_every_chat_until_it_is_taken_back(self, tmp_path: Path) -> None:
        model = Played(POST, says("I asked."), says("1"), POST, says("2"), POST, says("I asked."))
        async with approving(tmp_path, model) as bench:
            await bench.say("send it")
            await bench.say(f",approve {bench.card} always")
            await bench.say("again", session="other")
            assert bench.done == [*SENT, *SENT]
            listed = (await bench.say(",approvals")).text
            number = listed.splitlines()[-1].partition(":")[0]
            assert listed.splitlines()[-1] == f"{number}: post.send, for `bob`, always"
            assert (await bench.say(f",approvals revoke {number}")).text == f"Grant {number} is taken back."
            await bench.say("again")
            assert (bench.done, len(bench.cards)) == ([*SENT, *SENT], 2)

    async def test_a_grant_for_exact_arguments_is_listed_with_them(self, tmp_path: Path) -> None:
        async def act(turn: Turn, args: ActArgs) -> str:
            """Act."""
            return "done"

        acting = tool("test.act")(act)
        model = Played(calls("test_act", word="tulips"), says("I asked."), says("1"))
        async with approving(tmp_path / "home", model, tools=[acting]) as bench:
            await bench.say("do it")
            await bench.say(f",approve {bench.card} always")
            listed = (await bench.say(",approvals")).text.splitlines()[-1]
        assert 'test.act, with exactly the arguments `{ "word": "tulips" }`, always' in listed
        assert "tulips" in (await bubbot(tmp_path / "home", "approvals", "grants")).stdout.decode()
        (found,) = check("approvals grants", await bubbot(tmp_path / "home", "approvals", "grants", "--json"))
        assert "tulips" in found["grants"][0]["arguments"]

    async def test_a_grant_that_is_taken_back_counts_no_more_in_mid_turn(self, tmp_path: Path) -> None:
        async def revoke(turn: Turn, args: NoArguments) -> str:
            """Take every grant back."""
            for number in list(service.state.by_number):
                await service.revoke(number, "1", "stdin")
            return "done"

        both = {"calls": [*POST["calls"], *calls("test_revoke")["calls"], *POST["calls"]]}
        taking = tool("test.revoke", effect=Effect(kind="inside"))(revoke)  # type: ignore[arg-type]
        model = Played(POST, says("I asked."), says("1"), both, says("I asked."))
        async with approving(tmp_path, model, tools=[taking]) as bench:
            assert bench.app.features.approvals is not None
            service = bench.app.features.approvals.service
            await bench.say("send it")
            await bench.say(f",approve {bench.card} always")
            await bench.say("again")
            assert (bench.done, len(bench.cards)) == ([*SENT, *SENT], 2)

    async def test_what_names_nothing_is_allowed_once_only(self, tmp_path: Path) -> None:
        model = Played(calls("sandbox_run", command="make; rm -rf x"), says("I asked."), says("done"))
        async with approving(tmp_path, model) as bench:
            await bench.say("build")
            assert (await bench.facts("approval.asked"))[0]["scopes"] == ("once",)
            late = await bench.say(f",approve {bench.card} always")
            assert "can only be allowed once" in late.text
            assert bench.done == []
            await bench.say(f",approve {bench.card}")
            assert bench.done == [("sandbox.run", "make; rm -rf x")]


class TestRestarts:
    async def test_a_restart_changes_nothing(self, tmp_path: Path) -> None:
        done: list[tuple[str, str]] = []
        async with approving(tmp_path, Played(POST, says("I asked.")), done=done) as bench:
            await bench.say("send it")
            card = bench.card
        async with approving(tmp_path, Played(says("It is sent.")), done=done) as bench:
            await bench.say(f",approve {card}")
            assert (done, bench.channel.texts[-1]) == (SENT, "It is sent.")

    async def test_an_answer_that_was_given_while_no_bot_ran_counts_at_the_next_start(self, tmp_path: Path) -> None:
        done: list[tuple[str, str]] = []
        async with approving(tmp_path / "home", Played(POST, says("I asked.")), done=done) as bench:
            await bench.say("send it")
            card = bench.card
        listed = await bubbot(tmp_path / "home", "approvals", "list")
        assert listed.stdout.decode().split()[:3] == [card, "stdin:default", "post.send"]
        for action in (["list"], ["show", card]):
            printed = await bubbot(tmp_path / "home", "approvals", *action, "--json")
            assert card in str(check(" ".join(["approvals", action[0]]), printed))
        said = await bubbot(tmp_path / "home", "approvals", "approve", card, "chat")
        assert said.stdout.decode() == f"{card} is allowed. Its chat goes on when the bot runs there.\n"
        assert (await bubbot(tmp_path / "home", "approvals", "deny", card)).returncode != 0
        async with approving(tmp_path / "home", Played(says("It is sent.")), done=done) as bench:
            await bench.settle()
            assert (done, bench.channel.texts[-1]) == (SENT, "It is sent.")
        (granted,) = check("approvals grants", await bubbot(tmp_path / "home", "approvals", "grants", "--json"))
        number = str(granted["grants"][0]["number"])
        taken = check("approvals revoke", await bubbot(tmp_path / "home", "approvals", "revoke", number, "--json"))
        assert taken == [{"grants": []}]

    async def test_a_yes_that_no_bot_followed_in_time_runs_nothing(self, tmp_path: Path) -> None:
        done: list[tuple[str, str]] = []
        async with approving(tmp_path / "home", Played(POST, says("I asked.")), done=done) as bench:
            await bench.say("send it")
            card = bench.card
        assert (await bubbot(tmp_path / "home", "approvals", "approve", card)).returncode == 0
        async with approving(tmp_path / "home", Played(says("never")), done=done, hours=1e-6) as bench:
            await bench.settle()
            assert (done, f"{card} was allowed on" in bench.channel.texts[-1]) == ([], True)

    @pytest.mark.parametrize("verb", ["approve", "deny"])
    async def test_an_answer_in_a_shell_is_printed_for_programs(self, tmp_path: Path, verb: str) -> None:
        async with approving(tmp_path / "home", Played(POST, says("I asked."))) as bench:
            await bench.say("send it")
        (answer,) = check(f"approvals {verb}", await bubbot(tmp_path / "home", "approvals", verb, bench.card, "--json"))
        assert answer == {
            "id": bench.card,
            "verdict": f"{verb}d" if verb == "approve" else "denied",
            "is_waiting": True,
        }


class TestErasure:
    async def test_a_reset_reaches_what_was_asked_here(self, tmp_path: Path) -> None:
        async with approving(tmp_path, Played(POST, says("I asked."), says("?"))) as bench:
            await bench.say("send it")
            card = bench.card
            await bench.say(",reset erase")
            store = bench.app.tape("stdin:default")
            every = (await store.fetch([TapeQuery("bubbot/access")]))[0]
            assert [entry.erased for entry in every if entry.key == f"opened:{card}"] == [True]
            await bench.say(f",approve {card}")
            assert bench.done == []

    @pytest.mark.parametrize(("kind", "is_known"), [("archive", True), ("erase", False)])
    async def test_a_yes_whose_turn_comes_after_a_reset_runs_nothing_and_asks_no_model(
        self, tmp_path: Path, kind: str, is_known: bool
    ) -> None:
        """The erasure takes the decision, too, and all that names the message with the card."""
        gate = Gate()
        model = Played(POST, says("I asked."), calls("wait_here"), says("waited"), says("It is sent."))
        async with approving(tmp_path, model, tools=[gate.tool()]) as bench:
            await bench.say("send it")
            card = bench.card
            turns = [asyncio.ensure_future(bench.say("wait"))]
            await gate.entered.wait()
            turns.append(asyncio.ensure_future(bench.say(f",reset {kind}")))
            while not bench.app.runtime.session_activity("stdin:default")[1]:  # noqa: ASYNC110 - a queue tells nobody
                await asyncio.sleep(0.01)
            now = timestamp(datetime.now(UTC))
            press = Inbound("stdin", "c1", "default", Sender("1", "Ann"), f",approve {card} once", now)
            assert await bench.app.features.decide_press(press, {}) == ""
            gate.opened.set()
            await asyncio.gather(*turns)
            assert bench.channel.texts[-1] == f"What {card} asked for is no longer there."
            assert (bench.done, len(model.requests)) == ([], 4)
            edits = [data["parts"][0]["text"] for data in await bench.facts("outbox/intent", "bubbot/outbox/stdin")]
            assert (f"What {card} asked for is no longer there." in edits[:-1]) == is_known

    async def test_a_card_of_before_a_reset_waits_no_more_and_the_same_call_is_asked_again(
        self, tmp_path: Path
    ) -> None:
        model = Played(POST, says("I asked."), POST, says("I asked."))
        async with approving(tmp_path, model) as bench:
            await bench.say("send it")
            old = bench.card
            assert old in (await bench.say(",approvals")).text
            assert await _cards_on_page(bench.app) == [old]
            await bench.say(",reset archive")
            assert old not in (await bench.say(",approvals")).text
            assert await _cards_on_page(bench.app) == []
            await bench.say("send it")
            assert len(bench.cards) == 2


async def _cards_on_page(app: Bot) -> list[str]:
    """The cards that wait, as the owner's trace page shows them."""
    panel = next(each for each in load_panels(Settings()) if each.panel.name == "approvals")
    boundary = open_boundary(app.store, OWNER, "", (panel,))
    page: Any = await panel.read(boundary, PanelQuery(), zone=UTC, now=datetime.now(UTC), texts=Texts())
    return [card.fact.id for card in page.cards]


class TestWords:
    @pytest.mark.parametrize("place", range(2))
    async def test_a_turn_that_nobody_typed_cannot_answer(self, begin: Any, place: int) -> None:
        unused: Any = None
        answering = approval_tools(ApprovalCommands(unused))[place]
        inbound = Inbound("stdin", "e1", "default", Sender("1"), ",approve 22222", "2026-11-21T20:21:00+00:00")
        turn = await begin(
            role=Role.OWNER, origin="schedule", runs_command=True, inbounds=[AcceptedInbound(1, inbound)]
        )
        with pytest.raises(ToolRetry, match="Only a person"):
            await answering.run(turn, answering.validate({"id": "22222"}))

    def test_a_stored_call_is_taken_once_and_as_it_was_stored(self) -> None:
        approved = ApprovedCalls(make_asked(make_call(id="approved1", digest="a")))
        call = ToolCall("approved1", "post_send", "{}")
        assert approved.take(call, "b") is None
        assert [approved.take(call, "a"), approved.take(call, "a")] == [*approved.asked.calls, None]
