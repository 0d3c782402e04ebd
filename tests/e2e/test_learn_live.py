"""A daemon whose chats a proxy records: consent of everybody, reactions as rewards, and kills at the worst places."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.features.people.consent import CONSENT_TAPE, GIVEN
from bubbot.gateway.inbox import inbox_tape
from tests.e2e.bot import run
from tests.e2e.daemon import WAIT, Daemon, configured, running
from tests.e2e.kill_harness import KILLED, damage, entries_of
from tests.e2e.kill_talk import Talk, has_open
from tests.e2e.platforms import OnTelegram
from tests.e2e.test_telegram import said, texts
from tests.fakes.botapi.server import Server
from tests.fakes.rl_proxy import ADMIN_KEY, Interaction, RlProxy, call, serving

OWN = "The own model answers."
SCRIPT: dict[str, Any] = {"default": [{"text": OWN}]}


def recorded(home: Path, proxy: RlProxy, *chats: str) -> None:
    """Let the proxy record these chats."""
    listed = ", ".join(f'"{chat}"' for chat in chats)
    with (home / "config.toml").open("a") as file:
        file.write(f'[learn]\nendpoint = "{proxy.url}"\nendpoint_key = "{ADMIN_KEY}"\nendpoint_sessions = [{listed}]\n')


def words_at(proxy: RlProxy) -> str:
    """Everything that the proxy was ever shown."""
    return "\n".join(str(body["messages"]) for body in proxy.bodies)


@asynccontextmanager
async def on_telegram() -> AsyncIterator[tuple[Server, RlProxy]]:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server, serving(RlProxy()) as proxy:
        yield server, proxy


async def test_nothing_of_a_turn_reaches_the_proxy_before_its_people_allow_it_and_after_they_take_it_back(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with on_telegram() as (server, proxy):
        ada = server.user("Ada")
        configured(home, server, SCRIPT, owners=[ada.id])
        recorded(home, proxy, f"telegram:{ada.id}")
        async with running(home):
            room = server.private(ada)

            async def ask(text: str, count: int) -> str:
                room.say(text)
                await server.until(lambda: len(texts(room)) == count, 60)
                return texts(room)[-1]

            assert await ask("zq1 hello", 1) == OWN
            assert proxy.bodies == []
            await ask("/consent training yes", 2)
            assert (await ask("zq2 hello", 3)).startswith("answer")
            room.react(said(room)[-1], "👍")
            await server.until(lambda: [each.reward for each in proxy.sessions[0].calls] == [1.0], 60)
            await ask("/consent training no", 4)
            assert await ask("zq3 hello", 5) == OWN
            assert "zq2" in words_at(proxy)
            assert "zq3" not in words_at(proxy)
            status = await asyncio.to_thread(run, home, "status")
            assert b"calls recorded: 1" in status.stdout, status.stdout


async def test_a_group_is_recorded_only_while_everybody_in_the_window_allows_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with on_telegram() as (server, proxy):
        ada, bob = server.user("Ada"), server.user("Bob")
        configured(home, server, SCRIPT, owners=[ada.id], members=[bob.id], debounce=0)
        group = server.group("Family", [bob, ada])
        recorded(home, proxy, f"telegram:{group.id}")
        async with running(home):
            direct, bobs = server.private(ada), server.private(bob)
            direct.say("/consent training yes")
            await server.until(lambda: len(texts(direct)) == 1, 60)

            async def ask(text: str, who: Any, count: int) -> str:
                group.say(f"@bubbot_bot {text}", who)
                await server.until(lambda: len(texts(group)) == count, 60)
                return texts(group)[-1]

            assert (await ask("zq1 hello", ada, 1)).startswith("answer")
            assert await ask("zq2 hello", bob, 2) == OWN
            assert await ask("zq3 what did Bob say?", ada, 3) == OWN, "the window has words of Bob"
            bobs.say("/consent training yes")
            await server.until(lambda: len(texts(bobs)) == 1, 60)
            assert (await ask("zq4 and now?", ada, 4)).startswith("answer")
        (session,) = proxy.sessions
        assert session.is_chain, "what was said meanwhile came between, and the second request goes on from the first"
        before, after = (str(call.messages) for call in session.calls)
        assert "zq1" in before
        assert "zq2" not in before
        assert all(word in after for word in ("zq2", "zq3", "zq4"))


async def test_words_from_before_the_window_reach_the_proxy_only_if_their_people_allow_it(tmp_path: Path) -> None:
    def answer(messages: Any) -> Any:
        is_asked = "garden" in str(messages[-1]["content"]) and messages[-1]["role"] == "user"
        return [call("tape_search", '{"query": "garden"}')] if is_asked else "answer"

    home = tmp_path / "home"
    async with on_telegram() as (server, proxy):
        proxy.answer = answer
        ada, bob = server.user("Ada"), server.user("Bob")
        configured(home, server, SCRIPT, owners=[ada.id], members=[bob.id], debounce=0)
        group = server.group("Family", [bob, ada])
        recorded(home, proxy, f"telegram:{group.id}")
        async with running(home):
            direct = server.private(ada)
            direct.say("/consent training yes")
            await server.until(lambda: len(texts(direct)) == 1, 60)
            for count, (who, text) in enumerate(
                [(bob, "the garden is zq2"), (ada, "/new"), (ada, "how is the garden?")], 1
            ):
                group.say(text if text.startswith("/") else f"@bubbot_bot {text}", who)
                await server.until(lambda count=count: len(texts(group)) == count, 60)  # type: ignore[misc]
            assert proxy.bodies == [], "the window began with a command, and nobody knows whose words that repeats"
            assert texts(group)[-1] == OWN
            bobs = server.private(bob)
            bobs.say("/consent training yes")
            await server.until(lambda: len(texts(bobs)) == 1, 60)
            group.say("@bubbot_bot what is in the garden?", ada)
            await server.until(lambda: len(texts(group)) == 4, 60)
        assert texts(group)[-1] == "answer"
        assert "zq2" in words_at(proxy), "the search found what Bob said before the window"


class RecordedTalk(Talk):
    """People who allow training, and rate every answer as soon as they have it."""

    def record(self, proxy: RlProxy) -> None:
        recorded(self.home, proxy, *(f"telegram:{person.id}" for person in self.people))


@dataclass
class Figures:
    """What came of the ratings.

    Attributes:
        sessions: recorded sessions.
        chains: how many of them are chains.
        rated: turns that were rated and recorded.
        rewarded: of these, those whose last call has the reward.
        late: those that were counted as too late.
        wrong: rewards of calls that are no turn's last one, or that are another value.
        facts: facts that a reward was sent.
    """

    sessions: int = 0
    chains: int = 0
    rated: int = 0
    rewarded: int = 0
    late: int = 0
    wrong: int = 0
    facts: int = 0


async def figures(home: Path, proxy: RlProxy) -> Figures:
    """Compare the proxy with the tapes."""
    facts = await entries_of(home, LEARN_TAPE)
    found = Figures(len(proxy.sessions), sum(each.is_chain for each in proxy.sessions))
    calls: dict[str, Interaction] = {call.id: call for each in proxy.sessions for call in each.calls}
    last: dict[str, str] = {}
    for entry in facts:
        if entry.name == "learn/rl_call_ended":
            last[entry.data["turn"]] = entry.data["completion"]
    sent = {entry.data["turn"]: entry.data for entry in facts if entry.name == "learn/rl_reward_sent"}
    late = {entry.data["turn"] for entry in facts if entry.name == "learn/rl_reward_late"}
    found.facts = len([entry for entry in facts if entry.name == "learn/rl_reward_sent"])
    found.late = len(late)
    found.rated = len({*sent, *late})
    found.rewarded = sum(calls[last[turn]].reward == data["reward"] for turn, data in sent.items())
    owed = {last[turn] for turn in sent}
    found.wrong = sum(call.reward is not None and call.id not in owed for call in calls.values())
    return found


async def has_fact(home: Path, name: str, count: int = 1) -> None:
    """Wait until so many facts of a name are on the tape of the recording."""
    async with asyncio.timeout(WAIT):
        while [entry.name for entry in await entries_of(home, LEARN_TAPE)].count(name) < count:  # noqa: ASYNC110 - elsewhere
            await asyncio.sleep(0.05)


async def allow(talk: RecordedTalk) -> None:
    """Let everybody allow training."""
    daemon = await talk.run()
    for person in talk.people:
        person.platform.say(person.id, "/consent training yes")
    await talk.platforms[0].quiet()
    async with asyncio.timeout(WAIT):
        while (  # noqa: ASYNC110 - elsewhere
            [entry.name for entry in await entries_of(talk.home, CONSENT_TAPE)].count(GIVEN) < len(talk.people)
        ):
            await asyncio.sleep(0.05)
    assert await daemon.end() == 0, daemon.errors


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("point", "what"),
    [
        ("append-learn:before#1", "a session began at the proxy, and no fact says so"),
        ("append-learn:after#2", "a call is about to be sent"),
        ("append-learn:before#3", "the proxy has recorded a call, and no fact says so"),
        ("append-learn:after#3", "the answer is a fact of the recording, and not yet of the chat"),
        ("merge:before#1", "the turn is not merged"),
    ],
)
async def test_a_turn_that_is_killed_is_answered_and_every_session_stays_a_chain(
    tmp_path: Path, point: str, what: str
) -> None:
    async with on_telegram() as (server, proxy):
        talk = RecordedTalk(tmp_path / "home", [OnTelegram(server)])
        proxy.answer = lambda messages: f"answer to <{messages[-1]['content'].rpartition('] ')[2].rpartition(': ')[2]}>"
        talk.open(1)
        talk.record(proxy)
        await allow(talk)
        daemon = await talk.start(point)
        talk.say(talk.people[0], "hello")
        assert await daemon.ended() == KILLED, what
        talk.say(talk.people[0], "again")
        await talk.settle()
        assert await damage(talk.home) == []
        found = await figures(talk.home, proxy)
    assert found.sessions == found.chains > 0, what


async def test_a_kill_between_a_reward_and_its_fact_sends_the_same_again_and_one_that_is_owed_is_sent(
    tmp_path: Path,
) -> None:
    async with on_telegram() as (server, proxy):
        talk = RecordedTalk(tmp_path / "home", [OnTelegram(server)])
        talk.open(1)
        talk.record(proxy)
        await allow(talk)
        platform, (person,) = talk.platforms[0], talk.people
        daemon = await talk.start("append-learn:before#4")
        platform.say(person.id, "hello")
        await has_fact(talk.home, "learn/rl_call_ended")
        platform.say(person.id, "/rate 5")
        assert await daemon.ended() == KILLED
        assert [call.reward for call in proxy.sessions[0].calls] == [1.0]
        assert (await figures(talk.home, proxy)).facts == 0

        daemon = await talk.run()
        await has_fact(talk.home, "learn/rl_reward_sent")
        proxy.before_reward = daemon.process.kill
        platform.say(person.id, "/rate 2")  # killed on the way: the rating is on the tape, the reward is not sent
        await daemon.ended()
        proxy.before_reward = lambda: None
        proxy.sessions[0].calls[0].reward = 1.0
        daemon = await talk.run()
        await has_fact(talk.home, "learn/rl_reward_sent", 2)
        assert await daemon.end() == 0, daemon.errors
        assert [call.reward for call in proxy.sessions[0].calls] == [-0.5]
        found = await figures(talk.home, proxy)
        assert (found.chains, found.rewarded, found.wrong, found.late) == (1, 1, 0, 0)
        assert proxy.sessions[0].is_ended


@pytest.mark.sampled(3)
@pytest.mark.parametrize("point", ["append-learn:before#1", "append-learn:after#1", "append-learn:before#2"])
async def test_a_kill_around_the_end_ends_the_session_once_more(tmp_path: Path, point: str) -> None:
    async with on_telegram() as (server, proxy):
        talk = RecordedTalk(tmp_path / "home", [OnTelegram(server)])
        talk.open(1)
        talk.record(proxy)
        await allow(talk)
        platform, (person,) = talk.platforms[0], talk.people
        daemon = await talk.run()
        platform.say(person.id, "hello")
        await has_fact(talk.home, "learn/rl_call_ended")
        await daemon.kill()
        daemon = await talk.start(point)
        platform.say(person.id, "/new")
        assert await daemon.ended() == KILLED
        daemon = await talk.run()
        assert await daemon.end() == 0, (
            daemon.errors
        )  # a session that is open still, or closed and not ended, ends with the bot
        assert proxy.sessions[0].is_ended
        assert [entry.name for entry in await entries_of(talk.home, LEARN_TAPE)].count("learn/rl_ended") == 1


async def kills(home: Path, *, seed: int, lives: int) -> tuple[Figures, int]:
    """Kills around the facts of the recording and at random instants while people talk and rate: the figures once all is quiet,
    and how often the bot ended itself at a fact."""
    rng, at_facts = random.Random(seed), 0
    async with on_telegram() as (server, proxy):
        talk = RecordedTalk(home, [OnTelegram(server)])
        talk.open(2)
        talk.record(proxy)
        await allow(talk)
        for life in range(lives):
            side = rng.choice(("before", "after"))
            point = f"append-learn:{side}#{rng.randint(1, 4)}" if life % 3 else ""
            daemon: Daemon = await talk.start(point)
            for number in range(3):
                person = rng.choice(talk.people)
                person.platform.say(person.id, f"{life}-{number}")
                person.platform.say(person.id, f"/rate {rng.randint(1, 5)}")
            with suppress(TimeoutError):
                async with asyncio.timeout(8.0 if point else 1.0 + 3.0 * rng.random()):
                    at_facts += await daemon.process.ended() == KILLED
            if daemon.process.returncode is None:
                await daemon.kill()
        daemon = await talk.run()
        await talk.platforms[0].quiet()
        async with asyncio.timeout(120):
            while not await _is_settled(home):  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(0.2)
        assert await daemon.end() == 0, daemon.errors
        assert await damage(home) == []
        return await figures(home, proxy), at_facts


async def _is_settled(home: Path) -> bool:
    """Whether every message is done, and every rated turn of the recording has its reward or is counted."""
    if has_open(await entries_of(home, inbox_tape("telegram"))):
        return False
    before = len(await entries_of(home, LEARN_TAPE))
    await asyncio.sleep(6.0)  # longer than between two looks
    return len(await entries_of(home, LEARN_TAPE)) == before


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(3))
async def test_kills_at_random_break_no_chain_and_double_or_lose_no_reward(tmp_path: Path, seed: int) -> None:
    found, at_facts = await kills(tmp_path / "home", seed=seed, lives=12)
    print(f"killed at facts {at_facts}: {found}")
    assert at_facts >= 2
    assert found.sessions > 2, "some kills left a call without an outcome"
    assert (found.chains, found.wrong) == (found.sessions, 0)
    assert found.rewarded + found.late == found.rated > 0
