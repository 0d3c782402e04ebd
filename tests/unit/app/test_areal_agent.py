"""bubbot as AReaL's agent: one turn from a given history, several at once, and nothing of it in the home."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bubbot import BubbotAgent
from bubbot.app import areal_agent
from bubbot.errors import ConfigError, ModelError
from bubbot.tape.entry import Kind
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.query import TapeQuery
from tests.fakes.rl_proxy import RlProxy, Session, call, serving

PERSONA = "You are Zq, who knows the harbour."


@dataclass
class Request:
    """The fields of AReaL's `AgentRequest`."""

    message: str
    session_key: str = "s1"
    run_id: str = "run-1"
    history: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Events:
    """An emitter that keeps what it gets."""

    events: list[tuple[str, ...]] = field(default_factory=list)

    async def emit_delta(self, text: str) -> None:
        self.events.append(("delta", text))

    async def emit_tool_call(self, name: str, args: str) -> None:
        self.events.append(("call", name, args))

    async def emit_tool_result(self, name: str, result: str) -> None:
        self.events.append(("result", name, result))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "config.toml").write_text(f'[model]\nname = "scripted"\n[bot]\npersona = "{PERSONA}"\n')
    return folder


@pytest.fixture
async def agent(home: Path) -> AsyncIterator[BubbotAgent]:
    found = BubbotAgent(str(home))
    yield found
    await found.close_all_sessions()


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def routed(proxy: RlProxy, session: str = "sk-sess-1") -> dict[str, Any]:
    """What AReaL puts into a request: the server, and the key of a session that was begun there."""
    if not any(each.key == session for each in proxy.sessions):
        proxy.sessions.append(Session(session, session))
    return {"areal_inference": {"base_url": proxy.url, "api_key": session, "model": "policy"}}


async def test_a_turn_answers_a_message_after_a_history_with_the_prompt_of_the_home(
    agent: BubbotAgent, home: Path
) -> None:
    before = files_in(home)
    async with serving(RlProxy(lambda messages: f"heard {messages[-1]['content'].rpartition(' ')[2]}")) as proxy:
        history: list[dict[str, Any]] = [
            {"role": "user", "content": "the ship is blue"},
            {"role": "assistant", "content": None, "tool_calls": [call("memory_show", "{}")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "nothing"},
            {"role": "assistant", "content": "noted"},
        ]
        events = Events()
        response = await agent.run(Request("really?", history=history, metadata=routed(proxy)), emitter=events)
    assert (response.summary, response.metadata["api_calls"]) == ("heard really?", 1)
    assert events.events == [("delta", "heard really?")]
    (body,) = proxy.bodies
    system, *messages = body["messages"]
    assert PERSONA in system["content"]
    assert body["model"] == "policy"
    assert [each["role"] for each in messages] == ["user", "user", "assistant", "tool", "assistant", "user"]
    assert messages[1]["content"].endswith("00:00] the ship is blue")
    assert messages[-1]["content"].endswith("00:00] really?")
    assert files_in(home) == before


async def test_tools_that_read_run_and_others_are_refused_and_each_call_comes_with_its_result(
    agent: BubbotAgent,
) -> None:
    def answer(messages: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return "done"
        return [call("memory_show", "{}", 1), call("memory_save", '{"content": "kept"}', 2)]

    async with serving(RlProxy(answer)) as proxy:
        events = Events()
        response = await agent.run(Request("remember it", metadata=routed(proxy)), emitter=events)
    kinds = [event[0] for event in events.events]
    assert kinds == ["call", "result", "call", "result", "delta"]
    results = {event[1]: event[2] for event in events.events if event[0] == "result"}
    assert areal_agent.NOT_RUN in results["memory_save"]
    assert areal_agent.NOT_RUN not in results["memory_show"]
    assert response.metadata["tool_calls"][0] == {"name": "memory_show", "input": "{}"}
    assert proxy.sessions[0].is_chain


async def test_all_tools_run_if_that_is_wanted_and_the_home_stays_as_it_is(home: Path) -> None:
    agent = BubbotAgent(str(home), tools="all")
    before = files_in(home)

    def answer(messages: Any) -> Any:
        return "done" if messages[-1]["role"] == "tool" else [call("memory_save", '{"content": "kept"}')]

    async with serving(RlProxy(answer)) as proxy:
        events = Events()
        await agent.run(Request("remember it", metadata=routed(proxy)), emitter=events)
        await agent.close_all_sessions()
    assert areal_agent.NOT_RUN not in events.events[1][2]
    assert files_in(home) == before


async def test_turns_at_once_mix_nothing_up(agent: BubbotAgent) -> None:
    async with serving(RlProxy(lambda messages: messages[-1]["content"].rpartition("] ")[2].upper())) as proxy:
        requests = [Request(f"word {number}", metadata=routed(proxy, f"sk-{number}")) for number in range(8)]
        heard = [Events() for _ in requests]
        responses = await asyncio.gather(
            *(agent.run(each, emitter=events) for each, events in zip(requests, heard, strict=True))
        )
    assert [each.summary for each in responses] == [f"WORD {number}" for number in range(8)]
    assert [events.events for events in heard] == [[("delta", f"WORD {number}")] for number in range(8)]
    for number, session in enumerate(sorted(proxy.sessions, key=lambda each: each.key)):
        assert f"word {number}" in str(session.calls[0].messages)


async def test_turns_of_one_session_are_one_chain(agent: BubbotAgent) -> None:
    async with serving(RlProxy()) as proxy:
        history: list[dict[str, Any]] = []
        for text in ("one", "two", "three"):
            response = await agent.run(Request(text, history=history, metadata=routed(proxy)), emitter=Events())
            history += [{"role": "user", "content": text}, {"role": "assistant", "content": response.summary}]
    (session,) = proxy.sessions
    assert (len(session.calls), session.is_chain) == (3, True)


async def test_a_turn_that_nobody_waits_for_any_more_ends(agent: BubbotAgent) -> None:
    told = asyncio.Event()

    class Waiting(Events):
        async def emit_tool_result(self, name: str, result: str) -> None:
            told.set()
            await asyncio.sleep(1)

    def answer(messages: Any) -> Any:
        return "done" if messages[-1]["role"] == "tool" else [call("memory_show", "{}")]

    async with serving(RlProxy(answer)) as proxy, asyncio.timeout(20):
        running = asyncio.create_task(agent.run(Request("do it", metadata=routed(proxy)), emitter=Waiting()))
        await told.wait()
        (session,) = agent._runs
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert agent._bot is not None
        bot = await agent._bot.ready
        while bot.runtime.session_activity(session)[0]:  # noqa: ASYNC110 - a turn that is merged is no event
            await asyncio.sleep(0.01)
        tape = bot.tape(session)
        (steps,) = await tape.fetch([TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(STEP_EVENT,))])
        assert len(steps) == len(proxy.bodies) == 1, "the model of the home was not asked for the rest"


async def test_without_a_server_the_model_of_the_home_answers(agent: BubbotAgent) -> None:
    response = await agent.run(Request("hello"), emitter=Events())
    assert "hello" in response.summary


async def test_a_model_that_fails_is_an_error_of_the_turn(agent: BubbotAgent) -> None:
    async with serving(RlProxy(failures=[(401, "before")])) as proxy:
        with pytest.raises(ModelError):
            await agent.run(Request("hello", metadata=routed(proxy)), emitter=Events())


async def test_the_home_that_is_thrown_away_is_replaced_after_many_turns_and_removed(
    agent: BubbotAgent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(areal_agent, "MAX_RUNS", 2)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for _ in range(5):
        await agent.run(Request("hello"), emitter=Events())
    await agent.close_all_sessions()
    assert not any(name.startswith("bubbot-agent-") for name in files_in(tmp_path))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(" "), "message is empty"),
        (Request("a", history=[{"role": "robot", "content": "x"}]), r"history\[0\].role"),
        (Request("a", history=["x"]), r"history\[0\] has to be an object"),  # type: ignore[list-item]
        (Request("a", history=[{"role": "user", "content": 5}]), r"history\[0\].content"),
        (Request("a", history=[{"role": "tool", "content": "x"}]), r"history\[0\].tool_call_id"),
        (Request("a", history=[{"role": "assistant", "tool_calls": [{"id": "1"}]}]), r"history\[0\].tool_calls"),
        (Request("a", metadata={"areal_inference": "x"}), "areal_inference"),
        (Request("a", metadata={"areal_inference": {"base_url": "ftp://x", "api_key": "k"}}), "base_url"),
        (Request("a", metadata={"areal_inference": {"base_url": "http://[::1", "api_key": "k"}}), "base_url"),
    ],
)
async def test_what_is_wrong_in_a_request_is_named(agent: BubbotAgent, request_: Request, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        await agent.run(request_, emitter=Events())


def test_what_is_wrong_in_the_arguments_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        BubbotAgent(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="reading or all"):
        BubbotAgent(tools="some")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("memory_save", {"content": "zq7", "scope": "user"}),
        ("memory_save", {"content": "zq7", "scope": "workspace"}),
        ("schedule_add", {"when": "tomorrow at 9", "text": "zq7"}),
    ],
)
async def test_with_all_tools_a_turn_finds_nothing_that_an_earlier_one_left(
    home: Path, tool: str, arguments: dict[str, str]
) -> None:
    agent = BubbotAgent(str(home), tools="all")

    def answer(messages: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return "done"
        looks = [call("memory_show", "{}", 1), call("schedule_list", '{"every": true}', 2)]
        return looks if "look" in messages[-1]["content"] else [call(tool, json.dumps(arguments))]

    async with serving(RlProxy(answer)) as proxy:
        await agent.run(Request("keep it", metadata=routed(proxy, "sk-1")), emitter=Events())
        assert "zq7" in str(proxy.bodies)
        proxy.bodies.clear()
        await agent.run(Request("look", metadata=routed(proxy, "sk-2")), emitter=Events())
        assert len(proxy.bodies) == 2
        await agent.close_all_sessions()
    assert "zq7" not in str(proxy.bodies)
