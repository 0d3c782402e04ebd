"""What becomes of a message that a program wants to send, decided by the facts alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bubbot.features.mcp.serve.facts import CLIENTS_TAPE, SendAsked, SendEnded, SendShown
from bubbot.features.mcp.serve.results import MessageState
from bubbot.features.mcp.serve.sending import MAX_OPEN, MCP_ORIGIN, SendTurns
from bubbot.features.mcp.serve.service import McpClients
from bubbot.features.mcp.serve.state import CLIENTS_PROJECTION
from bubbot.gateway.facts import HomeRestored
from bubbot.ports.approvals import ApprovalAnswer
from bubbot.ports.channel import Inbound, Outbound
from bubbot.ports.turn import TurnOutcome
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.projection import read_projection
from bubbot.tape.service import TapeService
from tests.callers import by, refused, run
from tests.doubles import CountingIds, SteppingClock
from tests.kernels import make_kernel
from tests.tapes import whole

OWNER, CHAT = by("terminal"), "telegram:1"


class Stage:
    """Programs of a bot that accepts, and whose cards are answered as a test says."""

    def __init__(self, store: InMemoryStore) -> None:
        self.store, self.accepted, self.answers = store, list[Inbound](), dict[str, ApprovalAnswer]()
        self.staged = list[str]()
        self.clock = SteppingClock()
        numbers = iter(range(1, 1_000))
        self.kernel = make_kernel(
            open_tape=self.open_tape,
            accept=self.accept,
            now=self.clock,
            new_id=lambda: f"{next(numbers):032x}"[::-1],
            ask=self.ask,
            find_answer=self.find_answer,
            stage=self.stage,
            find_owner=self.find_owner,
        )
        self.clients = McpClients(self.open_tape(CLIENTS_TAPE), lambda: "token", kernel=self.kernel)

    def open_tape(self, name: str) -> TapeService:
        return TapeService(self.store, name, now=self.clock, new_id=CountingIds(name), session="")

    async def accept(self, inbound: Inbound, facts: Mapping[str, Sequence[TapeEntry]]) -> bool:
        self.accepted.append(inbound)
        for tape, entries in facts.items():
            await self.open_tape(tape).append(entries)
        return True

    async def ask(self, *_: Any) -> str:
        raise AssertionError("no turn runs here")

    def stage(self, _turn: object, _key: str, message: Outbound) -> bool:
        self.staged.append(message.text)
        return True

    async def find_owner(self) -> None:
        """Nobody is an owner in person."""

    async def find_answer(self, number: str) -> ApprovalAnswer | None:
        return self.answers.get(number)

    async def send(self, number: str = "n1", text: str = "hello", session: str = CHAT) -> MessageState:
        found: MessageState = await run(self.clients.ask_to_send, OWNER, "editor", session, number, text)
        return found

    async def write(self, *facts: TapeEntry) -> None:
        await self.open_tape(CLIENTS_TAPE).append(facts)


@pytest.fixture
async def stage(memory_store: InMemoryStore) -> Stage:
    made = Stage(memory_store)
    await run(made.clients.add_client, OWNER, "editor", CHAT, True)
    return made


async def test_a_wish_is_a_fact_with_an_inbound_that_holds_no_word_of_it(stage: Stage) -> None:
    assert (await stage.send()).status == "waiting"
    (inbound,) = stage.accepted
    assert (inbound.origin, inbound.session, inbound.sender.name) == (MCP_ORIGIN, CHAT, "")
    assert "hello" not in str(inbound)
    entry = (await whole(stage.store, CLIENTS_TAPE))[-1]
    assert SendAsked.of(entry).text == "hello"
    assert "n1" not in (entry.key or "")


async def test_the_same_id_asks_once_and_another_text_is_refused(stage: Stage) -> None:
    first = await stage.send()
    assert await stage.send() == first
    with refused("the id n1 was used for another message"):
        await stage.send(text="bye")
    assert len(stage.accepted) == 1


async def test_what_may_not_be_asked_is_refused_in_words(stage: Stage) -> None:
    await run(stage.clients.add_client, OWNER, "editor", "telegram:2")
    with refused("editor may not ask to send to telegram:2"):
        await stage.send(session="telegram:2")
    for number in range(MAX_OPEN):
        await stage.send(f"n{number}")
    with refused(f"editor has {MAX_OPEN} messages that wait"):
        await stage.send("more")


async def test_a_copy_in_quarantine_asks_nobody(stage: Stage) -> None:
    restored = HomeRestored(backup="2026-11-01", created="2026-11-01T00:00:00", head="", bubbot="1")
    await stage.open_tape("bubbot/home").append([restored.to_entry()])
    with refused("was restored from a backup"):
        await stage.send()
    assert stage.accepted == []


async def test_without_a_bot_nothing_is_asked(memory_store: InMemoryStore) -> None:
    tape = TapeService(memory_store, CLIENTS_TAPE, now=SteppingClock(), new_id=CountingIds("c"), session="")
    with refused("no bot runs"):
        await run(McpClients(tape, lambda: "token").ask_to_send, OWNER, "editor", CHAT, "n1", "hello")


@pytest.mark.parametrize("status", ["sent", "declined", "expired", "failed"])
async def test_it_ends_as_its_fact_says_and_makes_room(stage: Stage, status: Any) -> None:
    await stage.send()
    number = stage.accepted[0].external_id.removeprefix("mcp:")
    await stage.write(SendShown(number, "AAAAA").to_entry(), SendEnded(number, status).to_entry(key=f"ended:{number}"))
    assert (await stage.send()).status == status
    state = await read_projection(CLIENTS_PROJECTION, stage.open_tape(CLIENTS_TAPE))
    assert (len(state.asked), len(state.shown)) == (0, 0)


async def test_after_a_day_without_an_answer_it_has_expired_and_that_is_a_fact(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.send()
    await stage.send("n2")
    answered = stage.accepted[1].external_id.removeprefix("mcp:")
    await stage.write(SendShown(answered, "AAAAA").to_entry())
    stage.answers["AAAAA"] = ApprovalAnswer(is_yes=True, by="1", date="2026-11-21T20:21:00+00:00")
    monkeypatch.setattr("bubbot.features.mcp.serve.sending.ANSWER_TIME", stage.clock() - stage.clock())
    assert (await stage.send()).status == "expired"
    assert (await stage.send("n2")).status == "waiting"  # its turn decides
    ended = [entry.data for entry in await whole(stage.store, CLIENTS_TAPE) if entry.name == "mcp/send_ended"]
    assert [data["status"] for data in ended] == ["expired"]


@pytest.mark.parametrize(("change", "status"), [("", "sent"), ("late", "expired"), ("taken back", "declined")])
async def test_a_yes_counts_for_a_day_and_as_long_as_the_program_may_send(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, change: str, status: str
) -> None:
    await stage.send()
    number = stage.accepted[0].external_id.removeprefix("mcp:")
    await stage.write(SendShown(number, "AAAAA").to_entry())
    stage.answers["AAAAA"] = ApprovalAnswer(is_yes=True, by="1", date=stage.clock().isoformat())
    if change == "late":
        monkeypatch.setattr("bubbot.features.mcp.serve.sending.ANSWER_TIME", stage.clock() - stage.clock())
    if change == "taken back":
        await run(stage.clients.remove_client, OWNER, "editor")
    ended, tape = list[TapeEntry](), stage.open_tape("chat")
    root = SimpleNamespace(tape=SimpleNamespace(stage=lambda _, entries, **__: ended.extend(entries)))
    turn: Any = SimpleNamespace(session=CHAT, is_typed=False, origin=MCP_ORIGIN, tape=tape, root=root)
    assert stage.clients.wishes is not None
    await stage.clients.wishes.go_on(turn, number)
    assert [SendEnded.of(entry).status for entry in ended] == [status]
    said = [entry.payload["content"] for entry in await whole(stage.store, "chat")]
    assert (said, stage.staged) == ((["hello"], ["hello"]) if status == "sent" else ([], []))


async def test_a_turn_that_failed_ends_the_message_in_silence(stage: Stage) -> None:
    await stage.send()
    (inbound,) = stage.accepted
    source, turn = SendTurns(), type("T", (), {})()
    assert source.build_reply(turn, inbound, TurnOutcome("answered", "words")).text == ""
    failed = source.build_reply(turn, inbound, TurnOutcome("failed", "words"))
    assert (failed.text, failed.target) == ("", None)
    await stage.write(*failed.entries[CLIENTS_TAPE])
    assert (await stage.send()).status == "failed"


async def test_many_calls_at_once_ask_once(stage: Stage) -> None:
    states = await asyncio.gather(*[stage.send() for _ in range(20)])
    assert {state.status for state in states} == {"waiting"}
    assert len(stage.accepted) == 1


async def test_the_right_to_ask_is_part_of_a_grant_and_ends_with_it(stage: Stage) -> None:
    assert (await run(stage.clients.add_client, OWNER, "editor", CHAT)).targets == (
        CHAT,
    )  # a plain grant takes nothing back
    change = await run(stage.clients.remove_client, OWNER, "editor")
    assert change.targets == ()
    with refused("editor may not ask to send"):
        await stage.send()
