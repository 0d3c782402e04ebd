"""OpenAI's own client against a real daemon, and strangers who get nowhere."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import pytest

from tests.e2e import bot, inside
from tests.e2e.bot import sentence
from tests.e2e.test_control import daemon, entries, named, until

if TYPE_CHECKING:
    import openai

TOKEN = "0123456789abcdef-token"
WAIT = 60.0
SCRIPT = {
    "rules": [
        {"when": "slow", "steps": [{"delay": 3, "text": "late"}]},
        {"when": "endless", "steps": [{"delay": 60, "text": "never"}]},
        {"when": "down", "steps": [{"error": "unavailable", "message": "the provider is down"}]},
        {"when": "look", "steps": [{"text": "Let me look.", "calls": [{"name": "tape_info"}]}, {"text": "Here."}]},
    ]
}


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@contextmanager
def serving(home: Path) -> Iterator[int]:
    """The port of a daemon that speaks the protocol; it has to live to the end of the block."""
    script = home.with_name("script.json")
    script.write_text(json.dumps(SCRIPT))
    number = free_port()
    env = {
        "BUBBOT_MODEL__SCRIPT": str(script),
        "BUBBOT_SERVER__PORT": str(number),
        "BUBBOT_SERVER__TOKEN": TOKEN,
        "BUBBOT_SERVER__OPENAI": "true",
        "BUBBOT_SERVER__COMMANDS": "true",
    }
    with TemporaryDirectory() as sockets, daemon(home, Path(sockets), **env) as process:
        yield number
        assert process.returncode is None, "the daemon has ended"


def connected(port: int) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=TOKEN, timeout=WAIT)


@pytest.fixture
def port(home: Path) -> Iterator[int]:
    with serving(home) as number:
        yield number


@pytest.fixture(scope="module")
def loaded_openai() -> None:
    """openai's client, which takes seconds to load: only in a process whose tests use it, and outside of their waits."""
    import openai.resources.chat.completions  # noqa: F401


@pytest.fixture
def client(loaded_openai: None, port: int) -> Iterator[openai.OpenAI]:
    with connected(port) as made:
        yield made


@pytest.fixture(scope="module")
def silent_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a daemon to which nothing is said: each of its tests is refused."""
    return tmp_path_factory.mktemp("silent") / "home"


@pytest.fixture(scope="module")
def silent_port(silent_home: Path) -> Iterator[int]:
    with serving(silent_home) as number:
        yield number


@pytest.fixture
def refused_client(loaded_openai: None, silent_port: int) -> Iterator[openai.OpenAI]:
    with connected(silent_port) as made:
        yield made


def user(text: str) -> list[Any]:
    """A conversation as a program keeps it; only its last message is said."""
    return [
        {"role": "system", "content": "You are somebody else."},
        {"role": "user", "content": "earlier"},
        {"role": "assistant", "content": "earlier answer"},
        {"role": "user", "content": text},
    ]


def said(client: openai.OpenAI, text: str, *, stream: bool) -> Iterator[Any]:
    """What comes of a message: the pieces of a stream, or one answer."""
    answer: Any = client.chat.completions.create(model="x", messages=user(text), stream=stream)
    yield from answer if stream else [answer]


def text_of(piece: Any) -> str:
    """The text of an answer, or of a piece of one."""
    choice = piece.choices[0]
    return (choice.delta if hasattr(choice, "delta") else choice.message).content or ""


def test_openais_own_client_talks_to_the_bot(client: openai.OpenAI, home: Path) -> None:
    assert [model.id for model in client.models.list()] == ["bubbot"]
    answer = client.chat.completions.create(model="bubbot", messages=user("hello"), temperature=0.3)
    assert answer.choices[0].message.content == "You said: hello"
    assert answer.choices[0].finish_reason == "stop"
    pieces = client.chat.completions.create(model="any", messages=user("again"), stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == "You said: again"
    looked = client.chat.completions.create(model="bubbot", messages=user("look"), stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in looked) == "Let me look.\n\nHere."
    assert client.chat.completions.create(model="bubbot", messages=user("look")).choices[0].message.content == "Here."
    received = [one["text"] for one in named(home, "inbox/received")]
    assert received == ["hello", "again", "look", "look"]
    assert len(named(home, "outbox/receipt")) == 4
    assert bot.said(home) == []  # nothing is left to deliver


def test_a_session_has_its_own_tape_and_parts_of_text_are_one_message(client: openai.OpenAI, home: Path) -> None:
    parts: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    client.chat.completions.create(model="x", messages=parts, extra_headers={"X-Bubbot-Session": "work"})
    assert entries(home) == []
    spoken = [one["payload"]["content"] for one in entries(home, "stdin:work") if one["kind"] == "message"]
    assert spoken == ["a\nb", "You said: a\nb"]


def test_a_message_that_is_sent_again_is_said_once(client: openai.OpenAI, home: Path) -> None:
    import openai

    once = {"Idempotency-Key": "k1"}
    client.chat.completions.create(model="x", messages=user("hello"), extra_headers=once)
    with pytest.raises(openai.BadRequestError, match="was accepted before"):
        client.chat.completions.create(model="x", messages=user("hello"), extra_headers=once)
    assert len(named(home, "inbox/received")) == 1


def test_who_repeats_a_message_while_it_is_answered_takes_the_answer_from_nobody(
    client: openai.OpenAI, home: Path
) -> None:
    import openai

    once = {"Idempotency-Key": "k1"}
    with ThreadPoolExecutor() as pool:
        first = pool.submit(client.chat.completions.create, model="x", messages=user("slow"), extra_headers=once)
        until(lambda: len(named(home, "inbox/received")) == 1)
        for text in ("slow", "another"):
            with pytest.raises(openai.BadRequestError, match="was accepted before"):
                client.chat.completions.create(model="x", messages=user(text), extra_headers=once)
        assert first.result(WAIT).choices[0].message.content == "late"
    assert len(named(home, "outbox/receipt")) == 1
    assert bot.said(home) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("stream", [False, True])
def test_stop_and_status_do_not_wait_for_the_turn_that_runs(client: openai.OpenAI, home: Path, stream: bool) -> None:
    with ThreadPoolExecutor() as pool:
        running = pool.submit(lambda: list(said(client, "endless", stream=True)))
        until(lambda: b"answering" in inside.run(home, "ask", ",status").stdout)
        asked = list(said(client, ",status", stream=stream))
        assert "answering" in "".join(text_of(piece) for piece in asked)
        assert "".join(text_of(piece) for piece in said(client, ",stop", stream=stream)) == ""
        assert "never" not in "".join(text_of(piece) for piece in running.result(WAIT))
    assert bot.said(home) == []


@pytest.mark.parametrize("name", ["telegram:42", "stdin:a:b", ":"])
def test_a_session_of_another_channel_is_refused_and_not_imitated(
    refused_client: openai.OpenAI, silent_home: Path, name: str
) -> None:
    import openai

    with pytest.raises(openai.BadRequestError, match="without a colon"):
        refused_client.chat.completions.create(
            model="x", messages=user("hello"), extra_headers={"X-Bubbot-Session": name}
        )
    assert named(silent_home, "inbox/received") == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_failed_is_an_error_and_is_not_repeated(client: openai.OpenAI, home: Path, stream: bool) -> None:
    import openai

    with pytest.raises(openai.APIError, match="the provider is down"):
        list(said(client, "down", stream=stream))
    assert len(named(home, "inbox/received")) == 1


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize(
    ("request_fields", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE]}]},
            "messages[0].content[1]",
        ),
        ({"messages": [{"role": "user", "content": "x"}], "n": 2}, "n"),
        (
            {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}},
            "response_format",
        ),
    ],
)
def test_what_the_bot_cannot_do_is_an_error_that_names_the_field(
    refused_client: openai.OpenAI, silent_home: Path, request_fields: dict[str, Any], field: str
) -> None:
    import openai

    with pytest.raises(openai.BadRequestError) as refused:
        refused_client.chat.completions.create(model="x", **request_fields)
    assert (refused.value.param, refused.value.type) == (field, "invalid_request_error")
    assert entries(silent_home) == []


def test_a_client_that_leaves_is_owed_its_answer(client: openai.OpenAI, home: Path) -> None:
    import openai

    for stream in (False, True):
        impatient = client.with_options(timeout=0.5, max_retries=0)
        with pytest.raises((openai.APITimeoutError, httpx.ReadTimeout)):  # before the answer begins, or within it
            list(said(impatient, "slow", stream=stream))
    assert sorted(bot.said(home)) == ["late", "late"]


def test_without_the_token_nothing_is_said(silent_port: int, silent_home: Path) -> None:
    import openai

    stranger = openai.OpenAI(base_url=f"http://127.0.0.1:{silent_port}/v1", api_key="0123456789abcdef", timeout=WAIT)
    with stranger, pytest.raises(openai.AuthenticationError, match="token is missing or wrong"):
        stranger.chat.completions.create(model="x", messages=user("hello"))
    assert entries(silent_home) == []


async def test_strangers_are_refused_within_seconds_and_hold_nobody_up(port: int) -> None:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    right = f"{head}Authorization: Bearer {TOKEN}\r\n"
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
    whole = f"Content-Length: {len(body)}\r\n\r\n{body}"
    evil = right.replace(f"127.0.0.1:{port}", "evil.example")
    refusals = [
        (f"{evil}{whole}", "421"),
        (f"{right}Origin: http://evil.example\r\n{whole}", "403"),
        (f"{head}Authorization: Bearer wrong\r\n{whole}", "401"),
        (f"{head}Authorization: Bearer \xe9\r\nContent-Length: 99999999999\r\n\r\n", "401"),
        (f"{head}{whole}", "401"),
        (f"{right}Content-Length: 99999999999\r\n\r\n", "413"),
        (f"{right}X-Long: {'y' * 100_000}\r\n\r\n", "400"),
        (f"{right}{'X-More: z' * 1}\r\n" + "X-More: z\r\n" * 5000 + "\r\n", "400"),
        (right.replace("/v1/chat/completions", "/api/do/status") + "Content-Length: 2\r\n\r\n{}", "400"),
        (f"GET /live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n", "404"),
        (f"{right}Content-Length: 500\r\n\r\n{{", ""),  # half a request
        ("POST /v1/ch", ""),
        ("", ""),
    ]

    async def answer(text: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(text.encode("latin-1"))
            return (await reader.readline()).decode().partition(" ")[2]
        except ConnectionError:
            return ""
        finally:
            writer.transport.abort()

    async with asyncio.timeout(WAIT):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(80)]  # more than are allowed
        refused = [asyncio.create_task(answer(text)) for text, _ in refusals]
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
            began = time.monotonic()
            question = {"messages": [{"role": "user", "content": "hello"}]}
            async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=question) as fine:
                assert (await fine.json())["choices"][0]["message"]["content"] == "You said: hello"
            assert time.monotonic() - began < 10
        for (text, status), one in zip(refusals, refused, strict=True):
            assert (await one).startswith(status), text[:300]
        for _, writer in silent:
            writer.transport.abort()


def test_commands_reach_the_bot_over_the_network_too(silent_port: int) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Bubbot-Protocol": "3"}

    async def ask() -> Any:
        address = f"http://127.0.0.1:{silent_port}/api/do/status"
        async with aiohttp.ClientSession(headers=headers) as session, session.post(address, json={}) as answer:
            return await answer.json()

    assert asyncio.run(ask())["snapshot"]["pid"]


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"BUBBOT_SERVER__OPENAI": "true"}, "there is no port"),
        ({"BUBBOT_SERVER__PORT": "0"}, "port is set, but not token"),
        ({"BUBBOT_SERVER__PORT": "0", "BUBBOT_SERVER__TOKEN": "short"}, "at least 16 characters"),
    ],
)
def test_a_server_that_would_be_open_or_closed_to_all_is_not_started(
    tmp_path: Path, env: dict[str, str], told: str
) -> None:
    (tmp_path / "home").mkdir()
    done = bot.run(tmp_path / "home", "run", env=env)
    assert (done.returncode, told in sentence(done)) == (2, True)
    assert not re.search("short", sentence(done))
