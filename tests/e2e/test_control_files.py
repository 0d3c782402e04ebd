"""Files that go with an answer or a question while a daemon runs: clients save the ones, the bot keeps the others."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from tests.e2e import bot
from tests.e2e.daemon import running, started
from tests.e2e.kill_daemon import RUNNING
from tests.e2e.kill_harness import KILLED
from tests.e2e.test_control import entries, named, until


def script(path: Path, *last: str) -> dict[str, str]:
    """The environment of a model that sends two files and then says these texts, one a turn."""
    files = [{"name": "file_send", "arguments": {"name": f"{name}.md", "text": f"# {name}"}} for name in ("a", "b")]
    rules = [
        {"when": text, "steps": [{"calls": files}, {"text": "[SILENT]" if text == "Silence" else text}]}
        for text in last
    ]
    path.write_text(json.dumps({"rules": rules}), encoding="utf-8")
    return {"BUBBOT_MODEL__SCRIPT": str(path)}


async def test_the_clients_of_a_daemon_save_the_files_of_an_answer(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    env = script(tmp_path / "script.json", "Here", "Silence")
    async with running(home, env=env):
        await asyncio.to_thread(until, (home / "daemon.lock").exists)
        chat = await asyncio.to_thread(bot.said, home, "Here", env=env)
        asked = await asyncio.to_thread(bot.run, home, "ask", "Here", env=env)
        silent = await asyncio.to_thread(bot.run, home, "ask", "Silence", env=env)
        as_json = await asyncio.to_thread(bot.run, home, "ask", "Here", "--json", env=env)
    assert chat[0] == "Here"
    paths = [
        Path(line.removeprefix(f"The file {name}.md is saved as ")) for name, line in zip("ab", chat[1:], strict=True)
    ]
    assert [(path.parent, path.read_text(encoding="utf-8")) for path in paths] == [
        (home / "exports", "# a"),
        (home / "exports", "# b"),
    ]
    assert (asked.returncode, asked.stdout.decode().splitlines()) == (0, chat)
    assert (silent.returncode, silent.stdout.decode().splitlines()) == (0, chat[1:])
    assert json.loads(as_json.stdout)["text"] == "Here"
    assert as_json.stderr.decode().splitlines() == chat[1:]
    assert [path.name for path in (home / "exports").iterdir() if path.suffix != ".md"] == []


async def ask_and_kill(home: Path, file: Path) -> None:
    """Asks a bot that ends itself once the question is on its inbox tape."""
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket has to be short
        arguments, env = [str(home), "append-inbox:after"], {"KILL_SOCKET": f"{folder}/s"}
        killed = await started(home, target="tests.e2e.kill_daemon:run", arguments=arguments, env=env)
        await asyncio.to_thread(until, lambda: RUNNING in killed.errors)
        asked = await asyncio.to_thread(bot.run, home, "ask", "read this", "-a", str(file))
        assert (asked.returncode, asked.stdout, await killed.ended()) == (1, b"", KILLED)


def test_a_bot_that_is_killed_before_its_turn_has_the_file_of_the_question_in_its_next_life(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "notes.txt"
    home.mkdir(mode=0o700)
    file.write_text("buy milk\n")
    asyncio.run(ask_and_kill(home, file))
    file.unlink()
    assert len(named(home, "inbox/received")) == 1
    assert entries(home) == []  # no turn was opened
    said = bot.said(home, "hello")
    assert (said[0], said[-1]) == ("You said: read this", "You said: hello")
    assert "buy milk" in said
