"""Cards on the test servers of both platforms, with the real clients: answers, wrong people, late ones, restarts, kills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bubbot.texts import Texts
from tests.approving import card_ids
from tests.e2e import inside, on_discord
from tests.e2e.approval_daemon import CHILD
from tests.e2e.daemon import Daemon, configured, running, started
from tests.e2e.kill_harness import KILLED, damage, entries_of
from tests.e2e.test_buttons import keys, said
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.botapi.world import User
from tests.fakes.discordapi.server import Server as DiscordServer
from tests.fakes.effect_server import EffectServer

SAY = Texts(command_prefix="/").say
ACCESS = "bubbot/access"
ANSWERED = "answerCallbackQuery"
SENT = ("post", "bob: hello")
POST = {"calls": [{"name": "post_send", "arguments": {"to": "bob"}}]}
POST_TO_EVE = {"calls": [{"name": "post_send", "arguments": {"to": "eve"}}]}
SCRIPT: dict[str, Any] = {
    "rules": [
        {"when": r"Approval \w+: allowed", "steps": [{"text": "?"}, {"text": "It is sent."}]},
        {"when": r"Approval \w+: denied", "steps": [{"text": "Left undone."}]},
        {"when": "cut off", "steps": [{"text": "It was cut off."}]},
        {"when": "send to both", "steps": [POST, POST_TO_EVE, {"text": "I asked."}]},
        {"when": "send", "steps": [POST, {"text": "I asked."}]},
        {
            "when": "look up",
            "steps": [
                {"calls": [{"name": "page_read", "arguments": {"address": "http://x.org/?q=secret"}}]},
                {"text": "I asked."},
            ],
        },
    ],
    "default": [{"text": "You said: {text}"}],
}


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(limits=None, conflict_pause=0.1, longest_poll=0.3) as found:
        yield found


@pytest.fixture
def ada(server: TelegramServer) -> User:
    return server.user("Ada")


def set_up(home: Path, server: TelegramServer, approvals: str = "", **keys_of_channel: Any) -> None:
    """Write the configuration, with lines of `[approvals]`."""
    configured(home, server, SCRIPT, debounce=0, live=False, **keys_of_channel)
    with (home / "config.toml").open("a") as file:
        file.write(f"[approvals]\n{approvals}\n")


def bot(home: Path, point: str = "") -> AbstractAsyncContextManager[Daemon]:
    """The daemon for a block."""
    return running(home, target=CHILD, arguments=[str(home), point, ""])


async def card_in(server: TelegramServer, room: Gathering) -> dict[str, Any]:
    """Wait for a card with buttons; return it."""
    await server.until(lambda: [one for one in said(room) if keys(one)], 60)
    return next(one for one in said(room) if keys(one))


def texts(room: Gathering) -> list[str]:
    """What the bot has said, as it stands now."""
    return [one["text"] for one in said(room)]


async def facts(home: Path, name: str) -> list[dict[str, Any]]:
    """The data of the facts of this name on the access tape."""
    return [dict(one.payload["data"]) for one in await entries_of(home, ACCESS) if one.name == name]


class TestTelegram:
    async def test_a_yes_by_a_button_runs_the_stored_call_and_the_card_says_who(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer
    ) -> None:
        set_up(home, server, owners=[ada.id])
        room = server.private(ada)
        async with bot(home):
            room.say("send it")
            card = await card_in(server, room)
            assert list(keys(card)) == ["Once", "This chat", "Always", "Deny"]
            assert "to bob:\nhello" in card["text"]
            assert service.done == {}
            room.press(card["message_id"], keys(card)["Once"])
            await server.until(lambda: "It is sent." in texts(room), 60)
            await server.until(lambda: "Ada allowed it once" in room.message(card["message_id"])["text"], 60)
            assert not keys(room.message(card["message_id"]))
        assert service.done == {SENT: 1}
        number = card_ids([card["text"]])[0]
        (decided,) = await facts(home, "approval.decided")
        assert (decided["id"], decided["by"], decided["surface"]) == (number, str(ada.id), "button")
        assert texts(room)[1:] == ["I asked.", "It is sent."]

    async def test_a_yes_that_an_owner_forwards_is_text(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer
    ) -> None:
        set_up(home, server, owners=[ada.id])
        room = server.private(ada)
        origin = {"type": "hidden_user", "sender_user_name": "Eve", "date": 1}
        async with bot(home):
            room.say("send it")
            number = card_ids([(await card_in(server, room))["text"]])[0]
            for text in (f"/approve {number} always", f",approve {number} always"):
                before = len(texts(room))
                room.send({"text": text, "forward_origin": origin})
                await server.until(lambda before=before: len(texts(room)) > before, 60)  # type: ignore[misc]
        assert (service.done, await facts(home, "approval.decided")) == ({}, [])

    async def test_in_a_group_the_wrong_person_gets_a_short_answer_and_an_owner_decides(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer
    ) -> None:
        bob = server.user("Bob")
        set_up(home, server, owners=[ada.id], members=[bob.id])
        room = server.supergroup("Club", [ada, bob])
        name = server.bot.user.username
        async with bot(home):
            room.say(f"@{name} look up the secret", bob)
            card = await card_in(server, room)
            room.press(card["message_id"], keys(card)["Once"], bob)
            await server.until(lambda: len(server.calls(ANSWERED)) == 1, 60)
            room.say(f"/approve@{name} {card_ids([card['text']])[0]}", bob)
            await server.until(lambda: any("not yours" in text for text in texts(room)), 60)
            assert service.done == {}
            once, deny = keys(card)["Once"], keys(card)["Deny"]
            room.press(card["message_id"], once, ada)
            room.press(card["message_id"], deny, ada)  # twice at once
            await server.until(lambda: service.done and len(server.calls(ANSWERED)) == 3, 60)
        spoken = [call.params.get("text") for call in server.calls(ANSWERED)]
        assert spoken == [SAY("press_foreign"), None, SAY("press_taken")]
        assert service.done == {("page", "http://x.org/?q=secret"): 1}
        assert [fact["reason"] for fact in await facts(home, "approval.rejected")] == ["foreign"]
        refused = [one for one in await entries_of(home, "bubbot/inbox/telegram") if one.name == "inbox/press-refused"]
        assert [one.payload["data"]["reason"] for one in refused] == ["foreign", "taken"]

    async def test_cards_of_groups_go_to_the_chat_that_the_settings_name(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer
    ) -> None:
        bob = server.user("Bob")
        direct = server.private(ada)
        set_up(home, server, f'to = "telegram:{direct.id}"', owners=[ada.id], members=[bob.id])
        room = server.supergroup("Club", [ada, bob])
        async with bot(home):
            room.say(f"@{server.bot.user.username} look up the secret", bob)
            card = await card_in(server, direct)
            await server.until(lambda: "I asked." in texts(room), 60)
            assert not [one for one in said(room) if keys(one)]
            direct.press(card["message_id"], keys(card)["Deny"])
            await server.until(lambda: "Left undone." in texts(room), 60)
            await server.until(lambda: "Ada refused it" in direct.message(card["message_id"])["text"], 60)
        assert service.done == {}

    async def test_a_late_press_gets_a_short_answer(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer
    ) -> None:
        set_up(home, server, "hours = 0.000001", owners=[ada.id])
        room = server.private(ada)
        async with bot(home):
            room.say("send it")
            card = await card_in(server, room)
            room.press(card["message_id"], keys(card)["Once"])
            await server.until(lambda: len(server.calls(ANSWERED)) == 1, 60)
            room.say(f"/approve {card_ids([card['text']])[0]}")
            await server.until(lambda: any("has expired" in text for text in texts(room)), 60)
        assert server.calls(ANSWERED)[0].params.get("text") == SAY("press_expired")
        assert service.done == {}
        assert [fact["reason"] for fact in await facts(home, "approval.rejected")] == ["expired"]

    async def test_a_card_of_before_a_restart_counts_after_it(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer
    ) -> None:
        set_up(home, server, owners=[ada.id])
        room = server.private(ada)
        async with bot(home):
            room.say("send it")
            card = await card_in(server, room)
            await server.until(lambda: "I asked." in texts(room), 60)
        room.press(card["message_id"], keys(card)["This chat"])
        async with bot(home):
            await server.until(lambda: "It is sent." in texts(room), 60)
            room.say("send it again")
            await server.until(lambda: service.done[SENT] == 2, 60)
        assert len(card_ids(texts(room))) == 1

    async def test_a_job_has_nobody_there(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer
    ) -> None:
        set_up(home, server, owners=[ada.id])
        room = server.private(ada)
        async with bot(home) as daemon:
            room.say('/schedule when="at 23:59" prompt="send it" name=plain')
            room.say('/schedule when="at 23:58" prompt="send it" name=allowed allow="post.send:bob"')
            room.say('/schedule when="at 23:57" prompt="send it" name=other allow="post.send:eve"')
            await server.until(lambda: len(said(room)) == 3, 60)
            for name in ("plain", "plain", "other", "allowed"):
                count = len(texts(room)) + 2
                room.say(f"/schedule_run {name}")
                await server.until(partial(self._has, room, count), 60)
            await daemon.quiet(server)
        assert service.done == {SENT: 1}
        refused = [text for text in texts(room) if "may not use post.send" in text]
        assert len(refused) == 1
        assert not [one for one in said(room) if "Once" in keys(one)]

    async def test_by_choice_what_a_job_may_not_do_is_asked(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer
    ) -> None:
        set_up(home, server, 'jobs = "ask"', owners=[ada.id])
        room = server.private(ada)
        async with bot(home):
            room.say('/schedule when="at 23:59" prompt="send it" name=plain')
            await server.until(lambda: len(said(room)) == 1, 60)
            room.say("/schedule_run plain")
            await server.until(lambda: [one for one in said(room) if "Once" in keys(one)], 60)
            card = next(one for one in said(room) if "Once" in keys(one))
            assert list(keys(card)) == ["Once", "Deny"]  # a job has grants of its own
            room.press(card["message_id"], keys(card)["Once"])
            await server.until(lambda: "It is sent." in texts(room), 60)
        assert service.done == {SENT: 1}

    @staticmethod
    def _has(room: Gathering, count: int) -> bool:
        return len(texts(room)) >= count


KILLS = [
    pytest.param("extend-fork:after#2", marks=pytest.mark.proof),  # asked, and nothing merged
    "merge:after#1",  # asked and merged, the card not sent
    pytest.param("merge:before#1", marks=pytest.mark.proof),
    pytest.param("send:before#1", marks=pytest.mark.proof),
    pytest.param("send:after#1", marks=pytest.mark.proof),  # sent, without a receipt
    pytest.param("receive:before#2", marks=pytest.mark.proof),  # the press is nowhere kept
    pytest.param("append-inbox:before#3", marks=pytest.mark.proof),
    "append-inbox:after#3",  # decided, and the inbound that goes on is stored with it
    pytest.param("open-fork:after#2", marks=pytest.mark.proof),
    pytest.param("act:before", marks=pytest.mark.proof),
    "act:after",  # begun, not ended: nobody knows
    pytest.param("merge:before#2", marks=pytest.mark.proof),
    pytest.param("merge:after#2", marks=pytest.mark.proof),
]


class TestKills:
    @pytest.mark.parametrize("point", KILLS)
    async def test_no_card_is_lost_and_nothing_happens_twice(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer, point: str
    ) -> None:
        set_up(home, server, owners=[ada.id])
        room = server.private(ada)
        daemon = await started(home, target=CHILD, arguments=[str(home), point, ""])
        room.say("send it")
        ended = asyncio.ensure_future(daemon.ended())
        await self._press_until(server, room, ended.done)
        assert await ended == KILLED, daemon.errors
        async with bot(home) as again:
            await self._press_until(server, room, lambda: service.done or "not known" in str(texts(room)))
            await server.until(lambda: "It is sent." in str(texts(room)) or "not known" in str(texts(room)), 60)
            await again.quiet(server)
        opened = [fact["id"] for fact in await facts(home, "approval.opened")]
        decided = [fact["id"] for fact in await facts(home, "approval.decided")]
        assert service.done[SENT] <= 1
        if point.startswith("act"):
            assert len(opened) == 2  # the second asks whether to run again what was cut off
            assert "not known" in str(texts(room))
        else:
            assert service.done[SENT] == 1
            assert opened == decided
        assert len(set(opened)) == len(opened)
        assert {number for number in opened if number in str(texts(room))} == set(opened)
        assert await damage(home) == []

    @pytest.mark.parametrize(
        "point",
        [
            "extend-fork:after#4",  # the second step has asked, too
            *(
                pytest.param(point, marks=pytest.mark.proof)
                for point in ("extend-fork:after#2", "merge:before#1", "merge:after#1")
            ),
        ],
    )
    async def test_what_two_steps_ask_is_one_card(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer, point: str
    ) -> None:
        set_up(home, server, owners=[ada.id])
        room = server.private(ada)
        daemon = await started(home, target=CHILD, arguments=[str(home), point, ""])
        room.say("send to both")
        assert await daemon.ended() == KILLED, daemon.errors
        async with bot(home) as again:
            await self._press_until(server, room, lambda: "It is sent." in texts(room))
            await again.quiet(server)
        assert service.done == {SENT: 1, ("post", "eve: hello"): 1}
        assert len(await facts(home, "approval.opened")) == 1
        assert await damage(home) == []

    @staticmethod
    async def _press_until(server: TelegramServer, room: Gathering, is_done: Any) -> None:
        """Press the first button of each card as soon as it is there, until something holds.

        Telegram shows a card twice if the bot was killed before it knew that the first one had arrived.
        """
        pressed: set[int] = set()

        def step() -> object:
            for card in said(room):
                if "Once" in keys(card) and card["message_id"] not in pressed:
                    pressed.add(card["message_id"])
                    room.press(card["message_id"], keys(card)["Once"])
            return is_done()

        await server.until(step, 40)


class TestDiscord:
    async def test_a_member_may_not_and_the_first_press_of_an_owner_counts(
        self, home: Path, service: EffectServer
    ) -> None:
        async with DiscordServer(limits=None) as server:
            ada, bob = server.user("Ada"), server.user("Bob")
            room = server.guild("Club", ada, [bob]).text("general")
            on_discord.configured(home, server, SCRIPT, owners=[ada.id], members=[bob.id])
            async with on_discord.connected(home, server, target=CHILD, arguments=[str(home), "", ""]):
                room.say(bob, f"{server.bot.mention} look up the secret")
                await server.until(lambda: [one for one in on_discord.said(server, room) if one.components], 60)
                card = next(one for one in on_discord.said(server, room) if one.components)
                labels = {part["label"]: part["custom_id"] for row in card.components for part in row["components"]}
                assert list(labels) == ["Once", "This chat", "Always", "Deny"]
                foreign = server.press(room, bob, card, labels["Once"])
                await server.until(lambda: foreign.acknowledged, 60)
                assert (foreign.text, service.done) == (SAY("press_foreign"), {})
                first = server.press(room, ada, card, labels["Always"])
                second = server.press(room, ada, card, labels["Deny"])
                await server.until(lambda: first.acknowledged and second.acknowledged, 60)
                assert second.text == SAY("press_taken")
                await server.until(lambda: "Ada allowed it always" in card.content, 60)
                assert not card.components
                await server.until(lambda: "It is sent." in on_discord.texts(server, room), 60)
            assert service.done == {("page", "http://x.org/?q=secret"): 1}
            grants = on_discord.named(home, ACCESS, "approval.granted")
            assert [(grant["kind"], grant["value"]) for grant in grants] == [("domain", "x.org")]

    async def test_a_no_in_a_direct_chat(self, home: Path, service: EffectServer) -> None:
        async with DiscordServer(limits=None) as server:
            ada = server.user("Ada")
            room = server.dm(ada)
            on_discord.configured(home, server, SCRIPT, owners=[ada.id])
            async with on_discord.connected(home, server, target=CHILD, arguments=[str(home), "", ""]):
                room.say(ada, "send it")
                await server.until(lambda: [one for one in on_discord.said(server, room) if one.components], 60)
                card = next(one for one in on_discord.said(server, room) if one.components)
                room.say(ada, f"/deny {card_ids([card.content])[0]} not today")
                await server.until(lambda: "Left undone." in on_discord.texts(server, room), 60)
                await server.until(lambda: "Ada refused it" in card.content, 60)
            assert service.done == {}


SLOW: dict[str, Any] = {
    **SCRIPT,
    "rules": [{"when": "be slow", "steps": [{"text": "Slow.", "delay": 60}]}, *SCRIPT["rules"]],
}


class TestAtOnce:
    """A press waits for no turn, and what it decided survives everything."""

    async def test_on_telegram_it_is_decided_while_a_turn_runs_and_after_a_kill(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer
    ) -> None:
        configured(home, server, SLOW, debounce=0, live=False, owners=[ada.id])
        room = server.private(ada)
        async with bot(home) as daemon:
            room.say("send it")
            card = await card_in(server, room)
            await server.until(lambda: "I asked." in texts(room), 60)
            room.say("be slow")
            await daemon.quiet(server)
            room.press(card["message_id"], keys(card)["Once"])
            await server.until(lambda: "Ada allowed it once" in room.message(card["message_id"])["text"], 60)
            assert not keys(room.message(card["message_id"]))
            assert len(await facts(home, "approval.decided")) == 1
            assert service.done == {}  # what it allowed runs in its place
            await daemon.kill()
        async with bot(home):
            room.say("/stop")  # the slow turn
            await server.until(lambda: "It is sent." in texts(room), 60)
        assert service.done == {SENT: 1}

    async def test_a_card_says_so_if_what_was_allowed_did_not_run(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer
    ) -> None:
        configured(home, server, SLOW, debounce=0, live=False, owners=[ada.id])
        room = server.private(ada)
        async with bot(home) as daemon:
            room.say("send it")
            card = await card_in(server, room)
            await server.until(lambda: "I asked." in texts(room), 60)
            room.say("be slow")
            await daemon.quiet(server)
            room.press(card["message_id"], keys(card)["Once"])
            await server.until(lambda: "Ada allowed it once" in room.message(card["message_id"])["text"], 60)
            await daemon.kill()
        with (home / "config.toml").open("a") as file:
            file.write("[approvals]\nhours = 0.000001\n")  # as if the bot had been away for a day
        async with bot(home):
            room.say("/stop")
            await server.until(lambda: "It did not run" in room.message(card["message_id"])["text"], 60)
            await server.until(lambda: "Nothing was done." in str(texts(room)), 60)
        assert "Ada allowed it once" in room.message(card["message_id"])["text"]
        assert service.done == {}

    @pytest.mark.proof
    async def test_an_answer_in_a_shell_while_no_bot_ran_is_shown_on_the_card_at_the_next_start(
        self, server: TelegramServer, ada: User, home: Path, service: EffectServer
    ) -> None:
        set_up(home, server, owners=[ada.id])
        room = server.private(ada)
        async with bot(home):
            room.say("send it")
            card = await card_in(server, room)
            await server.until(lambda: "I asked." in texts(room), 60)
        said = await asyncio.to_thread(inside.run, home, "approvals", "approve", card_ids([card["text"]])[0])
        assert said.returncode == 0, said.stderr
        async with bot(home):
            await server.until(lambda: "terminal allowed it once" in room.message(card["message_id"])["text"], 60)
            await server.until(lambda: "It is sent." in texts(room), 60)
        assert not keys(room.message(card["message_id"]))
        assert service.done == {SENT: 1}

    @pytest.mark.proof
    async def test_on_discord_it_is_decided_while_a_turn_runs(self, home: Path, service: EffectServer) -> None:
        async with DiscordServer(limits=None) as server:
            ada = server.user("Ada")
            room = server.dm(ada)
            on_discord.configured(home, server, SLOW, owners=[ada.id])
            async with on_discord.connected(home, server, target=CHILD, arguments=[str(home), "", ""]):
                room.say(ada, "send it")
                await server.until(lambda: [one for one in on_discord.said(server, room) if one.components], 60)
                card = next(one for one in on_discord.said(server, room) if one.components)
                await server.until(lambda: "I asked." in on_discord.texts(server, room), 60)
                room.say(ada, "be slow")
                labels = {part["label"]: part["custom_id"] for row in card.components for part in row["components"]}
                server.press(room, ada, card, labels["Deny"])
                await server.until(lambda: "Ada refused it" in card.content, 60)
                assert not card.components
                assert [fact["verdict"] for fact in on_discord.named(home, ACCESS, "approval.decided")] == ["denied"]
                room.say(ada, "/stop")
                await server.until(lambda: "Left undone." in on_discord.texts(server, room), 60)
