"""`bubbot init` and a model: the providers, a trial of the key with a real server, and the first answer."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from bubbot.errors import ModelUnavailable
from bubbot.models.local import model as local
from tests.e2e import bot, inside
from tests.e2e.key_server import KEY, WRONG_KEY, KeyServer, key_server
from tests.e2e.terminal import CTRL_C, ENTER, Terminal
from tests.e2e.test_init import fine, settings_in

HERE = ["", "", ""]
"""Name, language and time zone as they are."""
NO_ACCOUNTS = ["", ""]
NEEDS_NO_SYSTEMD = {"PATH": "/nowhere"}


def at(server: KeyServer) -> dict[str, str]:
    return {"OPENAI_BASE_URL": server.base}


async def by_questions(home: Path, lines: list[str], env: dict[str, str]) -> str:
    return await asyncio.to_thread(fine, home, lines=[*HERE, *lines, *NO_ACCOUNTS], env={**NEEDS_NO_SYSTEMD, **env})


async def test_a_key_is_tried_and_models_of_the_providers_own_list_are_suggested(home: Path) -> None:
    async with key_server() as server:
        told = await by_questions(home, ["openai", KEY, "yes", "2"], at(server))
    assert server.paths == ["/v1/models", "/v1/chat/completions"]
    assert server.requests[1].body["model"] == "gpt-4.9-turbo"
    assert server.requests[1].body["max_tokens"] == 64
    assert "1  gpt-5-mini: reads " in told
    assert "for a million tokens" in told
    assert "text-embedding-4" not in told
    assert "2  gpt-4.9-turbo\n" in told
    assert "It answered." in told
    assert KEY not in told
    assert 'name = "openai/gpt-4.9-turbo"' in settings_in(home)
    assert (home / "secrets" / "model-api-key").read_text() == f"{KEY}\n"


async def test_a_refused_key_is_said_in_a_sentence_and_typed_again(home: Path) -> None:
    async with key_server() as server:
        told = await by_questions(home, ["openai", WRONG_KEY, "yes", "key", KEY, "gpt-5"], at(server))
    assert server.paths == ["/v1/models", "/v1/models", "/v1/chat/completions"]
    assert "OpenAI refused the credentials ([model] api_key): Incorrect API key provided" in told
    assert WRONG_KEY not in told
    assert "OpenAI does not list it." in told
    assert 'name = "openai/gpt-5"' in settings_in(home)
    assert (home / "secrets" / "model-api-key").read_text() == f"{KEY}\n"


async def test_a_refused_key_can_be_kept_and_a_trial_declined(home: Path, tmp_path: Path) -> None:
    async with key_server() as server:
        told = await by_questions(home, ["openai", WRONG_KEY, "yes", "keep", ""], at(server))
        assert server.paths == ["/v1/models"]
        assert "1  gpt-5-mini: reads " in told  # what bubbot itself knows
        assert 'name = "openai/gpt-5-mini"' in settings_in(home)
        assert (home / "secrets" / "model-api-key").read_text() == f"{WRONG_KEY}\n"
        await by_questions(tmp_path / "other", ["openai", WRONG_KEY, "no", "gpt-5"], at(server))
        assert server.paths == ["/v1/models"]
    assert 'name = "openai/gpt-5"' in settings_in(tmp_path / "other")


async def test_enter_at_another_key_keeps_the_one_that_was_typed(home: Path) -> None:
    async with key_server(KeyServer(call_status=402)) as server:
        told = await by_questions(home, ["openai", KEY, "yes", "", "key", "", "keep"], at(server))
    assert "Enter keeps the one you typed" in told
    assert [asked.headers["authorization"] for asked in server.requests] == [f"Bearer {KEY}"] * 3
    assert (home / "secrets" / "model-api-key").read_text() == f"{KEY}\n"


def test_a_typed_key_is_hidden_in_the_log_from_then_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def log_and_fail(*_: object, **__: object) -> None:
        logging.getLogger("some.library").warning("asked with %s", KEY)
        raise ModelUnavailable("not there")

    monkeypatch.setattr("bubbot.ops.onboarding.model.list_models", log_and_fail)
    lines = "\n".join([*HERE, "openai", KEY, "yes", "keep", "gpt-5", *NO_ACCOUNTS, ""])
    done = inside.run(home, "init", lines=lines, env=NEEDS_NO_SYSTEMD)
    assert done.returncode == 0
    assert "asked with " in done.stderr.decode()
    assert KEY not in done.stderr.decode() + done.stdout.decode()


async def test_a_model_that_does_not_answer_can_be_exchanged_or_kept(home: Path) -> None:
    async with key_server(KeyServer(call_status=402)) as server:
        told = await by_questions(home, ["openai", KEY, "yes", "", "model", "2", "again", "keep"], at(server))
    assert told.count("refused the request: You have no credit left.") == 3
    assert [asked.body["model"] for asked in server.requests[1:]] == ["gpt-5-mini", "gpt-4.9-turbo", "gpt-4.9-turbo"]
    assert 'name = "openai/gpt-4.9-turbo"' in settings_in(home)


async def test_a_server_of_ones_own_needs_an_address_and_perhaps_a_key_or_a_list(home: Path) -> None:
    async with key_server(KeyServer(models=None)) as server:
        told = await by_questions(home, ["server", server.base, KEY, "yes", "qwen3"], {})
        assert server.paths == ["/v1/models", "/v1/chat/completions"]
        assert f"Try it with {server.address}?" in told
        assert {'name = "openai/qwen3"', f'api_base = "{server.base}"'} <= {*settings_in(home)}
        # Another provider gets neither that address nor that key.
        lines = [*HERE, "other", "groq", "", "openai/gpt-oss-20b", *NO_ACCOUNTS]
        await asyncio.to_thread(fine, home, lines=lines, env=NEEDS_NO_SYSTEMD)
        assert {'name = "groq/openai/gpt-oss-20b"', 'api_base = ""', 'api_key_file = ""'} <= {*settings_in(home)}
    told = bot.run(home, "ask", "hello", env={"BUBBOT_MODEL__NAME": "groq/openai/gpt-oss-20b"}).stderr.decode()
    assert "bubbot: groq/openai/gpt-oss-20b needs a key" in told


async def test_an_ollama_that_is_not_there_is_said_and_can_be_set_up_anyway(home: Path) -> None:
    told = await by_questions(home, ["ollama", "http://127.0.0.1:9", "yes", "again", "keep", "qwen3"], {})
    assert told.count("Ollama could not be reached: nothing listens at its address.") == 2
    assert {'name = "ollama_chat/qwen3"', 'api_base = "http://127.0.0.1:9"'} <= {*settings_in(home)}


def test_a_bare_name_is_completed_and_languages_and_steps_are_named(home: Path) -> None:
    told = fine(home, "--model", "gpt-5", lines=["", "中文", "", "", ""], env=NEEDS_NO_SYSTEMD)
    assert {'name = "openai/gpt-5"', 'language = "zh"'} <= {*settings_in(home)}
    for heading in ("1 of 5  Name", "2 of 5  Language", "3/5  时区", "4/5  Telegram", "5/5  Discord"):
        assert f"\n{heading}" in told
    assert "  1  English\n  2  Deutsch\n  3  中文\n" in told


def test_chat_and_ask_say_at_once_that_the_key_is_missing(home: Path) -> None:
    env = {"BUBBOT_MODEL__NAME": "openai/gpt-5"}
    for arguments in (("ask", "hello"), ("chat",)):
        done = bot.run(home, *arguments, lines="hello\n", env=env)
        assert "openai/gpt-5 needs a key" in done.stdout.decode() + done.stderr.decode()
        assert "retry" not in done.stderr.decode()


class TestFirstAnswer:
    @pytest.mark.proof
    def test_it_takes_eight_keys_at_most(self, home: Path) -> None:
        """With a service to choose it would be eight; here systemd is not asked."""
        options = [] if local.is_available() else ["--model", "scripted"]
        keys = 0
        with Terminal(home, "init", *options, first="[bubbot]: ", PATH="/nowhere", BUBBOT_MODEL__NAME="") as init:
            for prompt in ("Number [1]: ", "Time zone [", *(["Number [1]: "] if not options else [])):
                init.type(ENTER)
                init.expect(prompt)
                keys += 1
            for prompt in ("Enter for none", "Enter for none", "Say something to it, or no [Hello!]: "):
                init.type(ENTER)
                init.expect(prompt)
                keys += 1
            init.type(ENTER)
            keys += 1
            init.expect("Next:")
            assert init.ended() == 0
        assert keys <= 8
        [asked, *_] = [one for one in bot.entries(home) if one["kind"] == "message"]
        assert asked["payload"]["content"] == "Hello!"  # type: ignore[index]
        assert [one for one in bot.entries(home) if one["kind"] == "message"][1]["payload"]["role"] == "assistant"  # type: ignore[index]

    @pytest.mark.parametrize("keys", ["no" + ENTER, CTRL_C])
    def test_it_can_be_declined_when_everything_is_written(self, home: Path, keys: str) -> None:
        with Terminal(home, "init", "--model", "scripted", first="[bubbot]: ", PATH="/nowhere") as init:
            init.type(ENTER * 5)
            init.expect("Say something to it")
            init.type(keys)
            init.expect("Next:")
            assert init.ended() == 0
        assert (home / "config.toml").exists()
        assert not (home / "bubbot.db").exists()

    def test_a_model_without_its_key_is_not_asked(self, home: Path) -> None:
        env = {"PATH": "/nowhere", "BUBBOT_MODEL__NAME": "openai/gpt-5"}
        with Terminal(home, "init", "--model", "gpt-5", first="[bubbot]: ", script=None, **env) as init:
            init.type(ENTER * 5)
            init.expect("It cannot answer yet.")
            init.expect("openai/gpt-5 needs a key")
            assert init.ended() == 0
