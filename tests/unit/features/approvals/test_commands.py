"""What a shell shows of cards and grants, in each language; who takes a grant back; and facts of later versions."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.command import Caller
from bubbot.errors import CommandRefused, ConfigError, TapeCorrupt
from bubbot.features.approvals.commands import ApprovalCommands
from bubbot.features.approvals.decider import Decider
from bubbot.features.approvals.facts import ApprovalAsked, CallChecked
from bubbot.features.approvals.state import ApprovalState
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.ports.turn import AcceptedInbound
from bubbot.shell_command import CommandContext, CommandResult
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event
from bubbot.texts import Texts
from bubbot.tool import GrantKind, GrantTarget
from tests.approval_facts import ServiceBench, make_asked, make_call, make_grant
from tests.callers import run_shell
from tests.doubles import CountingIds, SteppingClock

OWNER = Decider("telegram", "1", "Ann", Role.OWNER, "telegram:1", has_power=True, surface="command")


@pytest.fixture
def bench(memory_store: InMemoryStore, clock: SteppingClock) -> ServiceBench:
    return ServiceBench(memory_store, clock)


class TestShell:
    @staticmethod
    async def run(
        bench: ServiceBench, store: InMemoryStore, words: str, language: str = "en", **args: Any
    ) -> CommandResult:
        """Carry out a command as the running bot does."""
        context = CommandContext(
            store, "", bench.clock, CountingIds("n"), services=(bench.service,), texts=Texts(language)
        )
        return await run_shell(f"approvals {words}", context, **args)

    @pytest.mark.parametrize(
        ("language", "until", "always", "none"),
        [
            ("en", "until 2026-", "always", "Nothing waits for an answer.\n"),
            ("de", "bis 2026-", "immer", "Nichts wartet auf eine Antwort.\n"),
            ("zh", "到 UTC 2026-", "始终", "没有等待回答的内容。\n"),
        ],
    )
    async def test_it_lists_what_waits_and_what_runs(
        self, bench: ServiceBench, memory_store: InMemoryStore, language: str, until: str, always: str, none: str
    ) -> None:
        assert (await self.run(bench, memory_store, "list", language)).text == none
        await bench.ask()
        ((number, session, tools, moment),) = (await self.run(bench, memory_store, "list", language)).rows
        assert (number, session, tools) == ("AAAAA", "telegram:-9", "post.send")
        assert moment.startswith(until)
        await self.run(bench, memory_store, "approve", language, id="aaaaa", scope="always")
        ((_, tool, covered, scope),) = (await self.run(bench, memory_store, "grants", language)).rows
        assert (tool, covered, scope) == ("post.send", "recipient bob", always)

    async def test_a_grant_of_a_chat_is_listed_with_it(self, bench: ServiceBench, memory_store: InMemoryStore) -> None:
        await bench.ask()
        await self.run(bench, memory_store, "approve", id="AAAAA", scope="chat")
        listed = await self.run(bench, memory_store, "grants")
        assert listed.rows[0][-1] == "in telegram:-9"
        assert listed.data is not None
        assert listed.data["grants"][0]["session"] == "telegram:-9"

    async def test_it_shows_exactly_what_a_card_asks_for(
        self, bench: ServiceBench, memory_store: InMemoryStore
    ) -> None:
        await bench.ask()
        shown = await self.run(bench, memory_store, "show", "de", id="aaa aa")
        assert shown.text == "AAAAA in telegram:-9, für telegram:2\n\npage.read\nread it\n"
        with pytest.raises(ConfigError, match="keine Karte 'BBBBB' wartet"):
            await self.run(bench, memory_store, "show", "de", id="BBBBB")

    async def test_what_does_not_count_is_told_in_its_language(
        self, bench: ServiceBench, memory_store: InMemoryStore
    ) -> None:
        await bench.ask(scopes=("once",))
        with pytest.raises(ConfigError, match="AAAAA lässt sich nur einmal erlauben"):
            await self.run(bench, memory_store, "approve", "de", id="AAAAA", scope="chat")
        denied = await self.run(bench, memory_store, "deny", "de", id="AAAAA", reason="no")
        assert denied.text == "AAAAA ist abgelehnt. Im Chat geht es weiter, wenn der Bot dort läuft.\n"
        with pytest.raises(ConfigError, match="AAAAA ist schon abgelehnt, von terminal"):
            await self.run(bench, memory_store, "approve", "de", id="AAAAA")
        with pytest.raises(ConfigError, match="es gibt keine Freigabe 99"):
            await self.run(bench, memory_store, "revoke", "de", number=99)


class TestTakingBack:
    """In a chat: who may allow there takes back what counts there, and an owner in a direct chat everything."""

    @pytest.mark.parametrize(
        ("session", "role", "is_allowed"),
        [
            ("telegram:-9", Role.OWNER, True),
            ("telegram:-9", Role.ADMIN, False),
            ("telegram:-8", Role.OWNER, False),
            ("telegram:1", Role.OWNER, True),
        ],
    )
    async def test_who_may(
        self, bench: ServiceBench, begin: Any, session: str, role: Role, *, is_allowed: bool
    ) -> None:
        await bench.ask()
        commands = ApprovalCommands(bench.service)
        await bench.service.load()
        await bench.service.answer("AAAAA", "approved", OWNER, scope="chat")
        (number,) = bench.service.state.by_number
        chat, person = session.partition(":")[2], Sender("1")
        inbound = Inbound("telegram", "e1", chat, person, ",approvals", "2026-11-21T20:21:00+00:00", direct=chat == "1")
        turn = await begin(
            session=session, sender=person, role=role, runs_command=True, inbounds=[AcceptedInbound(1, inbound)]
        )
        if is_allowed:
            assert await commands.take_back(Caller.of_turn(turn), number, session) == f"Grant {number} is taken back."
        else:
            with pytest.raises(CommandRefused):
                await commands.take_back(Caller.of_turn(turn), number, session)
        assert (len(bench.service.state.grants), "approval.revoked" in await bench.names()) == (
            not is_allowed, is_allowed,
        )  # fmt: skip


class TestLaterVersions:
    def test_a_target_that_is_not_known_covers_nothing(self) -> None:
        known = make_call(target=GrantTarget(GrantKind.FOLDER, "/srv"))
        data = make_asked(known, make_call(id="approved1")).payload()
        data["calls"][1]["target"] = {"kind": "galaxy", "value": "m31"}
        calls = ApprovalAsked.of(event("approval.asked", data)).calls
        assert [call.target for call in calls] == [known.target, None]

    def test_a_card_of_another_shape_is_damaged(self) -> None:
        with pytest.raises(TapeCorrupt):
            ApprovalAsked.of(event("approval.asked", {**make_asked().payload(), "calls": ["x"]}))

    def test_a_grant_of_a_kind_that_is_not_known_covers_nothing(self) -> None:
        facts = [make_grant(kind="galaxy"), make_grant()]
        state = ApprovalState().apply([fact.to_entry().with_id(number) for number, fact in enumerate(facts, 1)])
        assert [grant.id for grant in state.grants] == [2]
        assert list(state.find_grants("post.send", GrantTarget(GrantKind.RECIPIENT, "bob")))


@pytest.mark.parametrize(
    ("changes", "bits"),
    [({}, 3.5), ({"verdict": "ask"}, 0.0), ({"grant": 4}, 0.0), ({"approval": "7KQ2M"}, 0.0), ({"bits": 0.0}, 0.0)],
)
def test_only_a_choice_that_nobody_allowed_tells_anything(changes: dict[str, Any], bits: float) -> None:
    data = {
        "call": "c1", "tool": "page.read", "digest": "d", "verdict": "run", "effect": "read", "row": "reads_world",
        "columns": ["tainted"], "role": "owner", "place": "direct", "tainted_by": [["chat", 1]], "bits": 3.5,
    }  # fmt: skip
    assert CallChecked.of(event("approval.checked", {**data, **changes})).told_bits == bits
