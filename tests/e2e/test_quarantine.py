"""Whoever talks in the terminal with a restored bot is told that it is in quarantine, until it is released."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.e2e import bot
from tests.e2e.inside import run, said
from tests.e2e.key_server import KEY, KeyServer
from tests.e2e.terminal import ENTER, Terminal
from tests.e2e.test_control import daemon
from tests.unit.ops.doctor.test_model import provider

LINE = "This home was restored from copy ("


def test_terminal_and_status_say_it_until_the_release(tmp_path: Path) -> None:
    home, other, copy = tmp_path / "home", tmp_path / "other", tmp_path / "copy"
    said(home, "hello")
    assert run(home, "backup", str(copy)).returncode == 0
    assert run(other, "restore", str(copy)).returncode == 0
    for done in (bot.run(other, "chat", lines="hi\n"), run(other, "ask", "hi")):
        assert (done.returncode, done.stdout) == (0, b"You said: hi\n")
        told = [one for one in done.stderr.decode().splitlines() if one.startswith(LINE)]
        assert len(told) == 1
        assert told[0].endswith("`bubbot restore --release`.")
    status = run(other, "status", "--json")
    assert (status.returncode, json.loads(status.stdout)["quarantine"]["name"]) == (1, "copy")

    assert run(other, "restore", "--release").returncode == 0
    assert LINE not in run(other, "ask", "hi").stderr.decode()
    assert "quarantine" not in json.loads(run(other, "status", "--json").stdout)


KEY_OF_ANOTHER = {"BUBBOT_MODEL__NAME": "openai/gpt-4.9-turbo", "BUBBOT_MODEL__API_KEY": KEY}


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[tuple[Path, KeyServer]]:
    """A home of a backup that brought the address of a provider."""
    home, other, copy = tmp_path / "home", tmp_path / "other", tmp_path / "copy"
    said(home, "hello")
    with provider() as server:
        table = f'[model]\nname = "openai/gpt-4.9-turbo"\napi_base = "{server.base}"\n'
        (home / "config.toml").write_text(table)
        assert run(home, "backup", str(copy)).returncode == 0
        assert run(other, "restore", str(copy)).returncode == 0
        yield other, server


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_daemon", [False, True])
def test_no_key_goes_to_an_address_of_the_backup_before_the_release(
    restored: tuple[Path, KeyServer], tmp_path: Path, *, is_daemon: bool
) -> None:
    home, server = restored
    (tmp_path / "question.ogg").write_bytes(b"OggS")
    env = {**KEY_OF_ANOTHER, "BUBBOT_ATTACHMENTS__TRANSCRIPTION": "openai/whisper-1"}
    with tempfile.TemporaryDirectory() as sockets, daemon(home, Path(sockets), **env) if is_daemon else nullcontext():
        asked = bot.run(home, "ask", "hi", "-a", str(tmp_path / "question.ogg"), env=env)
        other = bot.run(home, "ask", "-m", "openai/gpt-5-mini", "hi", env=env)
        chat = bot.run(home, "chat", lines="hi\n", env=env)
    assert (asked.returncode, other.returncode, chat.returncode) == (1, 1, 0)
    for name, told in (("4.9-turbo", asked.stderr), ("5-mini", other.stderr), ("4.9-turbo", chat.stdout)):
        sentence = f"openai/gpt-{name} is not called: [model] api_base came with the backup that this home was restored"
        assert sentence in told.decode()
        assert "until `bubbot restore --release` no key is sent there." in told.decode()
    assert server.requests == []
    assert run(home, "restore", "--release", env=env).returncode == 0
    # Nobody asked the model: the refusals say nothing of it.
    assert "model.failing" not in run(home, "doctor", "--offline", env=env).stdout.decode()
    assert run(home, "ask", "hi", env=env).stdout == b"OK\n"
    assert server.requests != []


def test_what_calls_no_address_of_the_backup_answers_before_the_release(restored: tuple[Path, KeyServer]) -> None:
    home, server = restored
    assert run(home, "ask", "hi", env={"BUBBOT_MODEL__NAME": "scripted"}).stdout == b"You said: hi\n"
    from_here = {**KEY_OF_ANOTHER, "BUBBOT_MODEL__API_BASE": server.base}
    assert run(home, "ask", "hi", env=from_here).stdout == b"OK\n"
    assert server.requests != []


def test_a_refusal_in_quarantine_is_no_failure_of_the_model(restored: tuple[Path, KeyServer]) -> None:
    home, _ = restored
    env = {**KEY_OF_ANOTHER, "BUBBOT_MODEL__CONTEXT_TOKENS": "128000"}
    for _ in range(2):  # one failure is none yet
        assert b"is not called" in run(home, "ask", "hi", env=env).stderr
    assert run(home, "restore", "--release", env=env).returncode == 0
    found = json.loads(run(home, "doctor", "--offline", "--json", env=env).stdout)["findings"]
    assert not [one for one in found if one["id"].startswith("model.") and one["level"] != "ok"]


def test_init_gives_no_first_answer_before_the_release(restored: tuple[Path, KeyServer]) -> None:
    home, server = restored
    env = {"PATH": "/nowhere", "BUBBOT_MODEL__NAME": ""}
    (home.parent / "key").write_text(KEY)
    with Terminal(home, "init", "--api-key-file", "key", first="[bubbot]: ", script=None, **env) as init:
        for prompt in ("Number [1]: ", "Time zone [", "Number [1]: ", "Enter for none", "Enter for none"):
            init.type(ENTER)
            init.expect(prompt)
        init.type(ENTER)
        init.expect("Try it now?")
        init.expect("[model] api_base came with the backup")
        init.expect("Next:")
        assert init.ended() == 0
    assert server.requests == []
