"""Files that are sent with an answer while a daemon runs: its clients save them and say where."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.e2e import bot
from tests.e2e.daemon import running
from tests.e2e.test_control import until


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
