"""A question beside the conversation as a person meets it: asked in a shell, then read back in every way."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.bot import open_app
from bubbot.home import Home
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.tape.entry import event, thaw
from bubbot.texts import OUTCOME_UNKNOWN
from tests.e2e import bot
from tests.e2e.test_control import until
from tests.e2e.test_trace import GIVE_UP, Browser, tape_of
from tests.tapes import whole

FORKED = ",fork is there a sauna?"


def told(home: Path, *arguments: str) -> str:
    """What `bubbot ARGUMENTS` prints; fails where it does not end well."""
    done = bot.run(home, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def step_pages(home: Path) -> list[str]:
    """The pages of all model calls, as the trace page shows them."""
    with bot.opened(home, "trace", "--no-browser") as opened:
        link = opened.stdout.readline().decode().strip()
        base, browser = link.partition("/?token=")[0], Browser()
        assert browser.get(link)[0] == 200
        tape = tape_of(home, "default")
        pages = []
        for step in [entry for entry in bot.entries(home) if entry.get("payload", {}).get("name") == "loop.step"]:  # type: ignore[attr-defined]
            status, page = browser.get(f"{base}/session/{tape}/step/{step['id']}")
            assert status == 200, page
            pages.append(page)
        opened.process.send_signal(signal.SIGINT)
        assert opened.process.wait(GIVE_UP) == 0
    return pages


def test_a_question_beside_the_conversation_is_replayed_and_explained(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert told(home, "ask", "the hotel has a sauna") == "You said: the hotel has a sauna\n"
    assert told(home, "ask", FORKED).startswith("You said: is there a sauna?\n")
    assert told(home, "replay", "default") == "Requests built again: 2; different today: 0.\n"
    why = told(home, "ask", ",why")
    assert "agent:fork: step 1" in why
    assert re.search(r"shown entries 1, \d+", why), why
    request = told(home, "ask", ",why yes")
    assert "the hotel has a sauna" in request
    assert "equal to the recorded one, byte for byte" in request
    pages = step_pages(home)
    assert ["byte for byte what was recorded" in page for page in pages] == [True, True]


async def write_earlier_steps(home: Path) -> None:
    """Write the steps of a discarded sub-task as earlier versions left them."""
    async with open_app(Settings(model=ModelSettings(name="scripted")), Home(home), hold=True) as opened:
        tape = opened.tape("stdin:default")
        turn = [
            entry
            for entry in await whole(opened.store, tape.name)
            if entry.name in ("turn/start", "loop.step", "turn/end")
        ]
        start, step, end = (dict[str, Any](thaw(entry.data)) for entry in turn[-3:])
        del step["messages"]
        facts = (event("turn/start", start), event("loop.step", {**step, "shown": []}), event("turn/end", end))
        await tape.append([entry.with_meta({"turn": "f" * 32}, "") for entry in facts])


async def test_a_question_that_an_earlier_version_asked_is_named_as_not_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    told(home, "ask", "the hotel has a sauna")
    told(home, "ask", FORKED)
    await write_earlier_steps(home)
    done = bot.run(home, "replay", "default")
    assert done.returncode == 1
    assert re.fullmatch(r"Requests built again: 3; different today: 1\.\n#\d+: not kept\n", done.stdout.decode())
    assert "agent:fork: step 1" in told(home, "ask", ",why ffffffff")
    pages = step_pages(home)
    assert "was not kept" in pages[-1]


def has_ended(home: Path) -> bool:
    """Whether the open fork of a turn holds the end of a sub-task, on the disk."""
    with closing(sqlite3.connect(home / "bubbot.db")) as database, suppress(sqlite3.OperationalError):
        return any("agent/ended" in text for (text,) in database.execute("SELECT entries FROM fork_batches"))
    return False  # the bot has not made its tables yet


def test_a_sub_task_that_ended_before_a_kill_is_told_with_its_result(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    tasks = [{"name": "agent_run", "arguments": {"task": task}} for task in ("dig here", "be slow")]
    rules = [
        {"when": "be slow", "steps": [{"text": "late", "delay": 60}]},
        {"when": "dig here", "steps": [{"text": "gold"}]},
        {"when": "go", "steps": [{"calls": tasks}, {"text": "done"}]},
    ]
    (home / "script.json").write_text(json.dumps({"rules": rules, "default": [{"text": "hm"}]}))
    env = {"BUBBOT_MODEL__SCRIPT": str(home / "script.json")}
    with bot.opened(home, "chat", **env) as chat:
        chat.type("go")
        until(lambda: (home / "bubbot.db").exists() and has_ended(home))
        chat.process.send_signal(signal.SIGKILL)
        assert chat.process.wait(GIVE_UP) != 0
    rules[2] = {"when": "go", "steps": [{"text": "done"}]}
    (home / "script.json").write_text(json.dumps({"rules": rules, "default": [{"text": "hm"}]}))
    assert "done" in bot.said(home, "hello", env=env)
    (results,) = [entry["payload"]["results"] for entry in bot.entries(home) if entry["kind"] == "tool_result"]  # type: ignore[index]
    told = {result["tool_call_id"]: result["content"] for result in results}
    (ended,) = [entry["payload"]["data"] for entry in bot.entries(home) if "agent/ended" in str(entry)]  # type: ignore[index]
    assert told.pop(ended["call_id"]) == "gold"
    assert [*told.values()] == [OUTCOME_UNKNOWN]


@pytest.mark.parametrize("place", ["ask", "chat"])
def test_a_command_that_fails_asks_the_model_in_a_chat_only(tmp_path: Path, place: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "script.json").write_text(
        json.dumps(
            {
                "rules": [{"when": "be slow", "steps": [{"text": "late", "delay": 30}]}],
                "default": [{"text": "I see: {text}"}],
            }
        )
    )
    env = {"BUBBOT_MODEL__SCRIPT": str(home / "script.json"), "BUBBOT_AGENTS__TIMEOUT": "0.05"}
    if place == "chat":
        assert "I see: <command name=" in "\n".join(bot.said(home, ",fork be slow", env=env))
    else:
        done = bot.run(home, "ask", ",fork be slow", env=env)
        assert (done.returncode, done.stdout) == (1, b"")
        assert "agent.fork was stopped after 0.05 seconds" in bot.sentence(done)
        names = [str(entry) for entry in bot.entries(home)]
        assert not any("I see" in entry for entry in names)
