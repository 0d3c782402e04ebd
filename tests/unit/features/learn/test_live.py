"""Chats that a proxy records: one chain in each session, rewards where they belong, and answers whatever happens to the proxy."""

from __future__ import annotations

import asyncio
import json
import re
import stat
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bubbot.app.bot import Bot
from bubbot.errors import RlProxyFailed
from bubbot.features.learn.live.client import RlClient
from bubbot.features.learn.live.keys import KEYS_FILE, RlKeys
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.gateway.facts import HomeRestored
from bubbot.ports.judgements import Annotator, JudgedTarget, Judgement
from bubbot.runtime.compose import rebuild_sent
from bubbot.settings.loader import ModelSettings
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.events import STEP_EVENT, ModelSwitched
from bubbot.tape.query import TapeQuery
from tests.fakes.rl_proxy import ADMIN_KEY, RlProxy, call, serving
from tests.learn.recording import CHAT, OWN, learn_facts, recorded_by, recorder_of, recording, until
from tests.made_settings import make_settings


def names(entries: list[Any]) -> list[str]:
    return [entry.name for entry in entries]


def reasons(entries: list[Any]) -> list[str]:
    return [entry.data["reason"] for entry in entries if entry.name == "learn/rl_closed"]


async def steps_of(app: Bot) -> tuple[TapeEntry, ...]:
    tape = app.tape(CHAT)
    return (await tape.fetch([TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(STEP_EVENT,))]))[0]


async def test_turns_of_a_window_are_one_chain_and_a_rating_is_the_reward_of_its_turn(tmp_path: Path) -> None:
    async with serving(RlProxy()) as proxy:
        async with recording(tmp_path / "home", recorded_by(proxy)) as app:
            assert (await app.say("hello")).text == "answer 1"
            await app.say(",rate 5")
            assert (await app.say("and again")).text == "answer 2"
            await app.say(",rate 1 It is wrong")
            await until(lambda: [each.reward for each in proxy.sessions[0].calls] == [1.0, -1.0])
            await recorder_of(app).look()  # behind the one that sent it, which may still write that down
        (session,) = proxy.sessions
        assert session.is_chain
        assert session.is_ended, "the bot ended, and the proxy was there"
        assert session.asked_rewards == 2
        assert all(each.reward is not None for each in session.calls)


async def test_the_calls_of_a_turn_with_tools_are_one_chain_and_the_last_one_gets_the_reward(tmp_path: Path) -> None:
    def answer(messages: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return "it is done"
        return (
            [call("topics_list", "{}", 1), call("memory_show", "{ }", 2)] if "do" in messages[-1]["content"] else "no"
        )

    async with serving(RlProxy(answer)) as proxy:
        async with recording(tmp_path / "home", recorded_by(proxy)) as app:
            assert (await app.say("do it")).text == "it is done"
            assert (await app.say("well")).text == "no"
            await app.say(",rate 4")
            await until(lambda: proxy.sessions[0].calls[-1].reward == 0.5)
        (session,) = proxy.sessions
        assert (len(session.calls), session.is_chain) == (3, True)
        assert [each.reward for each in session.calls] == [None, None, 0.5]


@pytest.mark.parametrize("words", [",new", ",remember the day is Monday"])
async def test_what_breaks_the_prefix_begins_another_session(tmp_path: Path, words: str) -> None:
    async with serving(RlProxy()) as proxy:
        async with recording(tmp_path / "home", recorded_by(proxy)) as app:
            await app.say("hello")
            await app.say(",rate 5")
            await app.say(words)
            await app.say("hello again")
            facts = await learn_facts(app)
        first, second = proxy.sessions
        assert first.key == second.key, "the key is used again, once its session has ended"
        assert (first.is_chain, second.is_chain) == (True, True)
        assert [each.reward for each in first.calls] == [1.0], "what was owed came before the end"
        assert reasons(facts)[0] in ("window", "prefix")
        paths = [path for path, _ in proxy.log]
        assert paths[:5] == [
            "/rl/start_session", "/chat/completions", "/rl/set_reward", "/rl/end_session", "/rl/start_session"
        ]  # fmt: skip


async def test_a_correction_of_what_was_shown_begins_another_session(tmp_path: Path) -> None:
    async with serving(RlProxy()) as proxy:
        async with recording(tmp_path / "home", recorded_by(proxy), is_run=False) as app:
            await app.say("the train leaves at nine")
            tape = app.tape(CHAT)
            (messages,) = await tape.fetch([TapeQuery(tape.name)])
            number = next(each.id for each in messages if each.payload.get("role") == "user")
            await app.say(f",correct {number} the train leaves at ten")
            await app.say("when?")
        assert [each.is_chain for each in proxy.sessions] == [True] * len(proxy.sessions)
        assert sum(len(each.calls) for each in proxy.sessions) == 2


async def test_an_answer_that_is_remembered_in_another_form_breaks_no_chain(tmp_path: Path) -> None:
    thinking = "<think>they want a greeting</think>Hello!"
    async with serving(RlProxy(lambda _: thinking)) as proxy:
        async with recording(tmp_path / "home", recorded_by(proxy)) as app:
            assert (await app.say("hello")).text == "Hello!"
            assert (await app.say("hello")).text == "Hello!"
        assert [(len(each.calls), each.is_chain) for each in proxy.sessions] == [(1, True), (1, True)]


async def test_a_rating_after_the_end_is_counted_and_sent_nowhere(tmp_path: Path) -> None:
    async with serving(RlProxy()) as proxy:
        async with recording(tmp_path / "home", recorded_by(proxy)) as app:
            await app.say("hello")
            await app.say(",new")
            await until(lambda: proxy.sessions[0].is_ended)
            tape = app.tape(CHAT)
            (messages,) = await tape.fetch([TapeQuery(tape.name)])
            number = next(each.id for each in messages if each.payload.get("role") == "assistant")
            recorder = recorder_of(app)
            await _label(app, number)
            await recorder.look()
            await recorder.look()
            facts = await learn_facts(app)
            assert recorder.health.late == 1
        assert names(facts).count("learn/rl_reward_late") == 1
        assert proxy.sessions[0].asked_rewards == 0


async def _label(app: Any, number: int) -> None:
    target = JudgedTarget("entry", ((number, number),))
    fact = Judgement(target, "quality", 5.0, "", "", Annotator("human", "0", "stdin"))
    await app.tape(CHAT).append([fact.to_entry()])


async def test_a_reward_that_changes_is_sent_again_and_one_that_stays_is_not(tmp_path: Path) -> None:
    async with serving(RlProxy()) as proxy:
        async with recording(tmp_path / "home", recorded_by(proxy)) as app:
            await app.say("hello")
            for score, reward in (("5", 1.0), ("2", -0.5), ("2", -0.5)):
                await app.say(f",rate {score}")
                await until(lambda reward=reward: proxy.sessions[0].calls[0].reward == reward)  # type: ignore[misc]
            await recorder_of(app).look()
        assert proxy.sessions[0].asked_rewards == 2


async def test_a_reward_is_owed_until_the_proxy_is_there_again(tmp_path: Path) -> None:
    proxy = RlProxy()
    async with AsyncExitStack() as stack:
        async with serving(proxy):
            app = await stack.enter_async_context(recording(tmp_path / "home", recorded_by(proxy), is_run=False))
            await app.say("hello")
        await app.say(",rate 5")
        recorder = recorder_of(app)
        for _ in range(4):
            recorder.retry_at = 0.0
            await recorder.look()
        assert recorder.health.outage.error
        async with serving(proxy, port=int(proxy.url.rpartition(":")[2])):
            recorder.retry_at = 0.0
            await recorder.look()
            assert proxy.sessions[0].calls[0].reward == 1.0
            await stack.aclose()
    assert proxy.sessions[0].is_ended


async def test_without_the_proxy_the_own_model_answers_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = RlProxy()
    async with serving(proxy):
        settings = recorded_by(proxy)
    async with recording(tmp_path / "home", settings) as app:
        assert [(await app.say(text)).text for text in ("one", "two")] == [OWN, OWN]
        recorder = recorder_of(app)
        recorder.retry_at = 0.0
        assert (await app.say("three")).text == OWN
        assert "cannot be reached" in recorder.health.outage.error
        said = [each for each in caplog.records if getattr(each, "action", "") == "learn.not_recording"]
        assert len(said) == 1
        async with serving(proxy, port=int(proxy.url.rpartition(":")[2])):
            recorder.retry_at = 0.0
            assert (await app.say("four")).text.startswith("answer")
            assert not recorder.health.outage.error


async def test_without_room_the_own_model_answers(tmp_path: Path) -> None:
    async with serving(RlProxy(capacity=0)) as proxy, recording(tmp_path / "home", recorded_by(proxy)) as app:
        assert (await app.say("hello")).text == OWN
        assert "429" in recorder_of(app).health.outage.error
        assert await learn_facts(app) == []


@pytest.mark.parametrize("failure", [(500, "before"), (429, "before"), (410, "before"), (200, "middle")])
async def test_a_call_that_fails_ends_its_session_and_the_own_model_answers(
    tmp_path: Path, failure: tuple[int, str]
) -> None:
    async with serving(RlProxy()) as proxy:
        async with recording(tmp_path / "home", recorded_by(proxy)) as app:
            assert (await app.say("one")).text == "answer 1"
            proxy.failures = [failure]
            assert (await app.say("two")).text == OWN
            recorder_of(app).retry_at = 0.0
            assert (await app.say("three")).text.startswith("answer")
            facts = await learn_facts(app)
            steps = await steps_of(app)
            rebuilt = [await rebuild_sent(step.data, app.tape(CHAT)) for step in steps]
        assert all(each.is_equal for each in rebuilt), "what was sent can be built again"
        assert reasons(facts)[0] == "failed"
        assert all(each.is_chain for each in proxy.sessions)
        assert len(proxy.sessions) == 2
        attempts = [each["status"] for step in steps for each in step.data["attempts"]]
        assert attempts == ["ok", "failed", "ok", "ok"]
        assert steps[0].data["response_id"] == proxy.sessions[0].calls[0].id


async def test_an_end_that_a_proxy_takes_says_nothing_of_its_model_which_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(RlProxy()) as proxy:
        proxy.failures = [(500, "before")] * 3
        async with recording(tmp_path / "home", recorded_by(proxy), is_run=False) as app:
            recorder = recorder_of(app)
            for times in (1, 2, 3):
                recorder.retry_at = 0.0
                assert (await app.say("hello")).text == OWN
                recorder.retry_at = 0.0
                await recorder.look()
                assert proxy.sessions[-1].is_ended
                assert recorder._failures == times, "it is asked again later and later"
            recorder.retry_at = 0.0
            assert (await app.say("hello")).text == "answer 4"
            assert recorder._failures == 0
    said = [getattr(each, "action", "") for each in caplog.records if each.name.endswith("live.recorder")]
    assert said.count("learn.not_recording") == 1


async def test_only_answers_of_listed_chats_go_to_the_proxy(tmp_path: Path) -> None:
    async with serving(RlProxy()) as proxy:
        async with recording(tmp_path / "home", recorded_by(proxy, endpoint_sessions=["telegram:42"])) as app:
            assert (await app.say("hello")).text == OWN
        assert proxy.log == []


async def test_keys_are_in_a_file_of_their_own_and_on_no_tape(tmp_path: Path) -> None:
    async with serving(RlProxy()) as proxy:
        home = tmp_path / "home"
        async with recording(home, recorded_by(proxy)) as app:
            await app.say("hello")
            file = home / KEYS_FILE
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert "key-0" in json.loads(file.read_text()).values()
            page = await app.base_store.read_after(0, 10_000)  # type: ignore[attr-defined]
            words = json.dumps([dict(one.entry.payload) for one in page], default=dict)
            assert not re.search(f"key-0|{ADMIN_KEY}", words)


async def test_what_is_idle_ends(tmp_path: Path) -> None:
    async with serving(RlProxy()) as proxy, recording(tmp_path / "home", recorded_by(proxy), is_run=False) as app:
        await app.say("hello")
        recorder = recorder_of(app)
        await recorder.look()
        assert not proxy.sessions[0].is_ended
        recorder.settings = recorder.settings.model_copy(update={"endpoint_idle": -1.0})
        await recorder.look()
        assert proxy.sessions[0].is_ended
        assert reasons(await learn_facts(app)) == ["idle"]


async def test_an_open_session_goes_on_after_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with serving(RlProxy()) as proxy:
        settings = recorded_by(proxy)
        async with recording(home, settings) as app:
            await app.say("one")
            recorder_of(app).retry_at = float("inf")  # as if the proxy were away when the bot ends
        assert not proxy.sessions[0].is_ended
        async with recording(home, settings) as app:
            await app.say("two")
            await app.say(",rate 5")
            await until(lambda: proxy.sessions[0].calls[-1].reward == 1.0)
        (session,) = proxy.sessions
        assert (len(session.calls), session.is_chain) == (2, True)


async def test_the_second_service_is_spoken_to_as_well(tmp_path: Path) -> None:
    async with serving(RlProxy(second=True)) as proxy:
        async with recording(tmp_path / "home", recorded_by(proxy)) as app:
            await app.say("one")
            await app.say("two")
            await app.say(",rate 5")
            await until(lambda: len(proxy.sessions[0].trajectories) == 2)
            await app.say("three")
            await app.say(",new")
            await until(lambda: proxy.count("/rl/end_session") == 1)
            await app.say("four")
            facts = await learn_facts(app)
        first, second = proxy.sessions
        assert [[each.reward for each in part] for part in first.trajectories] == [[None, 1.0], [None]]
        assert (first.is_chain, second.is_chain) == (True, True)
        assert first.key != second.key
        assert "learn/rl_ended" in names(facts)


async def test_switched_off_it_ends_what_is_recorded(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with serving(RlProxy()) as proxy, recording(home, recorded_by(proxy), is_run=False) as app:
        await app.say("hello")
        await app.say(",rate 5")
        off = recorded_by(proxy, endpoint_sessions=[])
        (feature,) = [each for each in app.features.lasting if each.name == "learn.live"]
        assert feature.lifecycle.prepare is not None
        (await feature.lifecycle.prepare(off))()
        await recorder_of(app).look()
        assert proxy.sessions[0].is_ended
        assert proxy.sessions[0].calls[0].reward == 1.0
        assert reasons(await learn_facts(app)) == ["settings"]
        assert LEARN_TAPE in feature.traces


async def test_a_restored_home_asks_no_proxy_until_its_release(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with serving(RlProxy()) as proxy:
        async with recording(home, recorded_by(proxy), is_run=False) as app:
            await app.say("hello")
            await app.say(",rate 5")
            recorder_of(app).retry_at = float("inf")  # its session stays open
            restored = HomeRestored(backup="2026-11-01", created="2026-11-01T00:00:00", head="", bubbot="1")
            await app.features._kernel.open_tape(HOME_TAPE).append([restored.to_entry()])
        before = [*proxy.log]
        async with recording(home, recorded_by(proxy)) as app:
            assert (await app.say("and now?")).text == OWN
            await recorder_of(app).look()
            facts = await learn_facts(app)
        assert proxy.log == before, "the other bot may go on with that session"
        assert names(facts).count("learn/rl_began") == 1


@pytest.mark.parametrize("is_killed", [False, True])
async def test_an_erased_chat_leaves_no_session_at_the_proxy_and_no_name_or_key_in_the_home(
    tmp_path: Path, *, is_killed: bool
) -> None:
    home = tmp_path / "home"
    async with serving(RlProxy()) as proxy:
        async with recording(home, recorded_by(proxy), is_run=not is_killed) as app:
            await app.say("hello")
            assert CHAT not in (home / KEYS_FILE).read_text()
            await app.say(",reset erase")
            if is_killed:
                recorder_of(app).retry_at = float("inf")  # nothing is told to the proxy when this bot ends
            else:
                await until(lambda: proxy.sessions[0].is_ended)
            assert recorder_of(app)._projected.state.sessions == []
        assert proxy.sessions[0].is_ended is not is_killed
        async with recording(home, recorded_by(proxy)) as app:
            await until(lambda: proxy.sessions[0].is_ended)
            await until(lambda: "rl " not in (home / KEYS_FILE).read_text())
            assert (await app.say("hello")).text == "answer 1"
            recorded = [each for each in await learn_facts(app) if not each.erased]
        assert {each.data["rl"] for each in recorded} == {proxy.sessions[1].id}


@pytest.mark.parametrize("body", ["<html>Sign in</html>", "[" * 50_000, "[]", '"yes"'])
async def test_what_is_no_proxy_gets_no_words_and_no_reward_counts_as_sent(tmp_path: Path, body: str) -> None:
    client, asked = RlClient(), list[str]()

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text=body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        url = str(server.make_url(""))
        async with recording(tmp_path / "home", recorded_by(RlProxy(url=url))) as bot:
            assert (await bot.say("hello")).text == OWN
            assert asked == ["/rl/start_session"]
        with pytest.raises(RlProxyFailed, match="JSON"):
            await client.set_reward(url, "key", "call", 1.0)
        await client.aclose()


async def test_a_proxy_that_gives_two_chats_one_session_mixes_up_none(tmp_path: Path) -> None:
    async with serving(RlProxy()) as proxy:
        begin = RlProxy._start

        async def start(request: web.Request) -> web.Response:
            response = await begin(proxy, request)
            proxy.sessions[-1].id = "always-the-same"
            return web.json_response({**json.loads(response.text or ""), "session_id": "always-the-same"})

        proxy._start = start  # type: ignore[method-assign]
        async with (
            serving(proxy),
            recording(tmp_path / "home", recorded_by(proxy, endpoint_sessions=[CHAT, "stdin:other"])) as app,
        ):
            assert (await app.say("hello")).text == "answer 1"
            assert (await app.say("hello", chat="other")).text == OWN
            facts = await learn_facts(app)
            assert "answered before" in recorder_of(app).health.outage.error
            recorder_of(app).retry_at = 0.0
            assert (await app.say("well")).text == "answer 2"
        assert names(facts).count("learn/rl_began") == 1


async def test_keys_that_change_at_the_same_time_are_all_there(tmp_path: Path) -> None:
    keys = RlKeys(tmp_path)
    names_of = [f"rl {number}" for number in range(40)]
    await asyncio.gather(*(asyncio.to_thread(keys.change, put={name: "key"}) for name in names_of))
    assert sorted(RlKeys(tmp_path).list_sessions()) == sorted(name.removeprefix("rl ") for name in names_of)


async def test_a_model_that_a_person_chose_for_the_chat_answers(tmp_path: Path) -> None:
    async with serving(RlProxy()) as proxy, recording(tmp_path / "home", recorded_by(proxy)) as app:
        assert (await app.say("hello")).text == "answer 1"
        chosen = ModelSwitched("scripted", "hosted_vllm/default")
        await app.tape(CHAT).append([chosen.to_entry()])
        assert (await app.say("and now?")).text == OWN
        by_rule = ModelSwitched("scripted", "scripted", weights=f"sha256:{'ab' * 32}", accepted=3)
        await app.tape(CHAT).append([by_rule.to_entry()])
        recorder_of(app).retry_at = 0.0
        assert (await app.say("and now?")).text.startswith("answer")


async def test_a_turn_that_waits_while_recording_is_switched_off_is_answered(tmp_path: Path) -> None:
    async with serving(RlProxy()) as proxy, recording(tmp_path / "home", recorded_by(proxy), is_run=False) as app:
        recorder = recorder_of(app)
        (feature,) = [each for each in app.features.lasting if each.name == "learn.live"]
        assert feature.lifecycle.prepare is not None
        async with recorder._locks[CHAT]:  # a session of the chat is about to end, and the proxy takes its time
            waiting = asyncio.create_task(app.say("hello"))
            await until(lambda: bool(recorder._locks[CHAT]._waiters))
            (await feature.lifecycle.prepare(make_settings(LearnSettings(), model=ModelSettings(name="scripted"))))()
        assert (await waiting).text == OWN
        assert proxy.log == []
