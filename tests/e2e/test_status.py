"""How the bot is, asked from outside: a real daemon that talks, is refused, stands still, or is not there at all."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bubbot.home import Home, WriterLock
from tests.docs.pages import ROOT
from tests.e2e import anthropic_server, bot, forked, inside, openai_server, provider_server
from tests.e2e.bot import sentence
from tests.e2e.daemon import WAIT, Daemon, configure, configured, running
from tests.e2e.openai_server import fails, says
from tests.e2e.platforms import OnTelegram
from tests.e2e.test_control import until
from tests.fakes.botapi.server import Server
from tests.unit.test_log import spellings, traces

SCRIPT = {
    "rules": [{"when": "wait", "steps": [{"text": "late", "delay": 60}]}],
    "default": [{"text": "You said: {text}"}],
}
HOLDS_LITELLM = """
import pathlib, sys, time
from bubbot.cli.main import main

def hold(event, arguments):
    while event == "import" and arguments[0].startswith("litellm.") and not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.01)

sys.addaudithook(hold)
sys.exit(main(["run"]))
"""
"""`bubbot run` that imports the modules of litellm only once a file is there."""
WATCHED = {"BUBBOT_HEALTH__PORT": "0", "BUBBOT_LOG__FORMAT": "json"}
REFUSED = "4243:pl4nted-c4n4ry"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None, conflict_pause=0.1) as found:
        yield found


async def status(home: Path, *options: str) -> tuple[int, str]:
    """The exit code of `bubbot status` and what it prints."""
    done = await asyncio.to_thread(bot.run, home, "status", *options)
    assert done.stderr == b""
    return done.returncode, done.stdout.decode()


async def snapshot(home: Path) -> dict[str, Any]:
    """What `bubbot status --json` prints."""
    found: dict[str, Any] = json.loads((await status(home, "--json"))[1])
    return found


class Door:
    """The HTTP door of a daemon."""

    def __init__(self, daemon: Daemon) -> None:
        records = [json.loads(line) for line in daemon.errors.splitlines()]
        (port,) = [one["port"] for one in records if one["action"] == "health.listening"]
        self._address = f"http://127.0.0.1:{port}"

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        async with httpx.AsyncClient() as client:
            told = await client.get(f"{self._address}{path}")
            return told.status_code, told.text

    async def numbers(self) -> Mapping[str, float]:
        """Every sample by its name and the values of its labels."""
        code, text = await self.get("/metrics")
        assert code == 200
        return {
            f"{one.name}{{{','.join(value for _, value in sorted(one.labels.items()))}}}": one.value
            for family in text_string_to_metric_families(text)
            for one in family.samples
        }


async def test_after_so_many_messages_every_number_is_that_and_no_secret_is_told(server: Server, home: Path) -> None:
    platform = OnTelegram(server)
    people = [platform.person(f"Ada{number}") for number in range(6)]
    configured(home, server, SCRIPT, members=[*map(int, people)], debounce=0, live=False)
    async with running(home, env=WATCHED) as daemon:
        for person in people:
            platform.say(person, "platypus")
        await server.until(lambda: all(platform.answers(person) for person in people), 60)
        await daemon.quiet(server)
        door = Door(daemon)
        found = await door.numbers()
        counted = {
            "bubbot_messages_accepted_total{telegram}",
            "bubbot_turns_total{telegram,answered}",
            "bubbot_deliveries_total{telegram,sent}",
            "bubbot_turn_duration_seconds_count{telegram}",
            "bubbot_model_calls_total{scripted,answered}",
        }
        assert {name: found[name] for name in counted} == dict.fromkeys(counted, len(people))
        nothing = {
            "bubbot_deliveries_total{telegram,failed}", "bubbot_turns_total{telegram,failed}", "bubbot_turns_running{}",
            "bubbot_open_deliveries{telegram}", "bubbot_messages_waiting{}", "bubbot_log_records_total{error}",
        }  # fmt: skip
        assert {name: found[name] for name in nothing} == dict.fromkeys(nothing, 0)
        assert found["bubbot_channel_ready{telegram}"] == 1
        assert found["bubbot_store_commits_total{}"] > len(people)
        assert found["bubbot_event_loop_lag_seconds_count{}"] > 0
        told = await snapshot(home)
        assert (told["running"], told["healthy"], told["load"]["sessions"]) == (True, True, len(people))
        assert found["bubbot_entries{}"] == told["database"]["entries"]
        everything = [(await door.get(path))[1] for path in ("/metrics", "/ready", "/live")]
        everything += [(await status(home))[1], json.dumps(told), daemon.errors]
        assert all(json.loads(line)["level"] for line in daemon.errors.splitlines())
        for text in everything:
            secret = server.bot.token.partition(":")[2]
            assert not any(spelled in text for spelled in (*spellings(secret).values(), server.bot.token))
        assert not any(word in everything[0] for word in ("platypus", "Ada", *people))


async def test_in_the_middle_of_a_turn_and_after_a_kill(server: Server, home: Path) -> None:
    platform = OnTelegram(server)
    ada, bob = platform.person("Ada"), platform.person("Bob")
    configured(home, server, SCRIPT, owners=[int(ada)], members=[int(bob)], debounce=0, live=False)
    async with running(home, env=WATCHED) as daemon:
        for person in (ada, bob):
            platform.say(person, "wait for me")
        await server.until(
            lambda: len({call.params.get("chat_id") for call in server.calls("sendChatAction")} - {None}) == 2, 20
        )
        code, text = await status(home)
        assert code == 0
        assert re.search(r"^work +turns under way: 2; messages waiting: 0; ", text, re.MULTILINE)
        assert re.search(r"^channels +telegram: receiving; last sign of life .* ago\)\.$", text, re.MULTILINE)
        assert (await Door(daemon).numbers())["bubbot_turns_running{}"] == 2
        assert await Door(daemon).get("/ready") == (200, '{"ready": true, "channels": {}}')
        for person in (ada, bob):
            platform.say(person, "/status")
            await server.until(lambda: platform.answers(person), 60)  # noqa: B023
        (to_owner,), (to_member,) = platform.answers(ada), platform.answers(bob)
        assert re.match(r"I am answering \(asking the model, \d+ seconds? so far\); nothing waits behind", to_owner)
        assert "\nwork: turns under way: 2; messages waiting: 0;" in to_owner
        assert "\n" not in to_member
        await daemon.kill()
    code, text = await status(home)
    assert code == 1
    assert text.startswith("No bot runs for this home")
    assert "messages that nobody has answered yet: 2" in text
    assert await status(home, "--quiet") == (1, "")


async def test_a_refused_channel_is_named_everywhere_and_its_token_nowhere(server: Server, home: Path) -> None:
    table = {**OnTelegram(server).table(), "owners": [42]}
    configure(home, {"telegram": table, "work": {**table, "kind": "telegram", "token": REFUSED}})
    async with running(home, env=WATCHED) as daemon:
        await server.until(lambda: "channel.refused" in daemon.errors, 60)
        await daemon.quiet(server)
        code, text = await status(home)
        assert code == 1
        assert text.startswith("In trouble: nothing is received from work.\n")
        assert re.search(r"^ +work: refused, and not tried again \(.+\)\.$", text, re.MULTILINE)
        assert re.search(r"^ .* error channel\.refused: channel work refused", text, re.MULTILINE)
        assert await status(home, "--quiet") == (1, "")
        code, told = await Door(daemon).get("/ready")
        assert (code, json.loads(told)["channels"]["work"]["state"]) == (503, "refused")
        found = await Door(daemon).numbers()
        assert (found["bubbot_channel_ready{telegram}"], found["bubbot_channel_ready{work}"]) == (1, 0)
        assert found["bubbot_log_records_total{error}"] == 1
        for everything in (text, told, daemon.errors, json.dumps(await snapshot(home))):
            assert not traces(REFUSED, everything)


async def test_a_bot_that_stands_still_gives_no_answer_and_one_that_goes_on_does(home: Path) -> None:
    configure(home, {})
    async with running(home) as daemon:
        await asyncio.to_thread(until, lambda: "run.started" in daemon.errors)
        assert await status(home, "--quiet") == (0, "")
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            code, text = await status(home, "--wait", "0.3")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert code == 1
        assert text.startswith(f"Process {daemon.process.pid} holds this home and gave no answer within 0.3 seconds")
        assert "newest backup" in text
        assert (await status(home))[0] == 0


def test_where_nobody_ever_talked_that_is_said_and_nothing_is_made(home: Path) -> None:
    home.mkdir()
    done = bot.run(home, "status")
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.startswith(b"No bot runs for this home")
    assert b"there is none yet" in done.stdout
    assert json.loads(bot.run(home, "status", "--json").stdout)["running"] is False
    assert [*home.iterdir()] == []


def test_a_holder_of_the_lock_that_is_no_daemon_is_told_apart(home: Path) -> None:
    home.mkdir()
    with WriterLock(Home(home)):
        done = bot.run(home, "status")
    assert done.returncode == 1
    assert done.stdout.decode().startswith(f"Process {os.getpid()} is writing to this home but is not the daemon")


@pytest.mark.parametrize("given", ["0", "-1", "nan", "soon"])
def test_a_wait_that_is_none_is_refused(home: Path, given: str) -> None:
    assert inside.run(home, "status", f"--wait={given}").returncode == 2


def test_a_port_that_is_taken_is_one_sentence(home: Path) -> None:
    home.mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = bot.run(home, "run", env={"BUBBOT_HEALTH__PORT": port})
    assert done.returncode == 1, "it may be free at the next try, which systemd makes"
    assert f"[health] host and port: 127.0.0.1:{port} cannot be listened on" in sentence(done)


@pytest.mark.proof
def test_what_is_not_asked_for_is_not_loaded() -> None:
    code = (
        "import sys, bubbot.cli.run.command, bubbot.cli.status;"
        "sys.exit(bool({'aiohttp', 'prometheus_client'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_bot_that_runs_is_asked_without_loading_one() -> None:
    code = (
        "import sys, bubbot.cli.status;"
        "heavy = {'bubbot.app.features', 'bubbot.app.bot', 'bubbot.runtime.app', 'bubbot.stores.sqlite.store'};"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.proof  # test_planted_failures.py asks the same of a wrong key each time
async def test_while_no_answer_succeeds_everything_names_the_model_since_when_and_why(
    server: Server, home: Path
) -> None:
    platform = OnTelegram(server)
    ada, bob = platform.person("Ada"), platform.person("Bob")
    configured(home, server, SCRIPT, owners=[int(bob)], members=[int(ada)], debounce=0, live=False)
    async with openai_server.serving(*[fails(401, "no such key")] * 2, says("here I am")) as provider:
        asks = {
            "BUBBOT_MODEL__NAME": "openai/test",
            "BUBBOT_MODEL__API_BASE": provider.address,
            "BUBBOT_MODEL__RETRIES": "0",
        }
        async with running(home, env=WATCHED | asks) as daemon:
            await daemon.quiet(server)
            door = Door(daemon)
            assert (await door.get("/ready"))[1] == '{"ready": true, "channels": {}}'
            assert (await status(home))[1].startswith("Ready: no turn since the start.\n")
            platform.say(bob, "/help")
            await server.until(lambda: platform.answers(bob), WAIT)
            for number in range(2):
                platform.say(ada, f"hello {number}")
                await daemon.quiet(server)
            await server.until(lambda: len(platform.answers(ada)) == 2, WAIT)
            await daemon.quiet(server)
            code, told = await status(home)
            assert code == 1
            verdict = re.compile(
                r"Not answering: the last 2 of 3 turns failed; no answer comes from openai/test since 20.*: it refuses the "
                r"key\."
            )
            assert verdict.fullmatch(told.splitlines()[0])
            notice = "No answer comes from openai/test: it refuses the key. Nobody gets an answer until"
            await server.until(lambda: len(platform.answers(bob)) == 2, WAIT)
            assert platform.answers(bob)[1].startswith(notice)  # the owner hears of it once
            assert re.search(
                r"^models +openai/test has not answered since 20.*: it refuses the key", told, re.MULTILINE
            )
            found = await snapshot(home)
            assert (found["healthy"], found["warnings"]) == (False, 3)
            assert verdict.fullmatch(found["verdict"])  # a moment later, so "N seconds ago" may differ
            failed = [one for one in map(json.loads, daemon.errors.splitlines()) if one["action"] == "turn.failed"]
            assert [one["level"] for one in failed] == ["warning", "warning"]
            http, body = await door.get("/ready")
            assert http == 200
            assert json.loads(body)["models"]["openai/test"]["why"] == "it refuses the key"
            done = await asyncio.to_thread(bot.run, home, "doctor", "--offline", "--json", env=asks)
            (problem,) = [one for one in json.loads(done.stdout)["findings"] if one["id"] == "model.failing"]
            assert (done.returncode, problem["level"], problem["fix"]) == (1, "problem", "bubbot ask hello")
            assert problem["cause"].startswith("openai/test has not answered since 20")
            asked = await asyncio.to_thread(bot.run, home, "ask", "hello")  # the command that the doctor names
            assert asked.stdout == b"here I am\n"
            assert (await snapshot(home))["healthy"] is True
            assert len(platform.answers(bob)) == 2
            assert (await door.get("/ready"))[1] == '{"ready": true, "channels": {}}'
            done = await asyncio.to_thread(bot.run, home, "doctor", "--offline", "--json", env=asks)
            assert "model.failing" not in done.stdout.decode()


@pytest.mark.proof
async def test_a_model_that_still_loads_is_named_until_it_is_there(server: Server, home: Path) -> None:
    platform = OnTelegram(server)
    ada = platform.person("Ada")
    configured(home, server, SCRIPT, members=[int(ada)], debounce=0, live=False)
    answer, release = anthropic_server.says(anthropic_server.text("here I am")), home / "release"
    async with provider_server.serving(anthropic_server.AnthropicServer([answer])) as provider:
        name = f"anthropic/{anthropic_server.MODEL}"
        asks = {"BUBBOT_MODEL__NAME": name, "BUBBOT_MODEL__API_BASE": provider.address, "BUBBOT_MODEL__API_KEY": "sk-1"}
        held = {"target": forked.PROGRAM, "arguments": (HOLDS_LITELLM, str(release))}
        async with running(home, env=WATCHED | asks, **held) as daemon:
            await daemon.quiet(server)
            platform.say(ada, "hello")
            await server.until(lambda: server.calls("sendChatAction"), WAIT)  # its turn has begun
            sentence_of_it = f"{name} is still loading; its first answer waits for that"
            code, told = await status(home)
            assert (code, f"models          {sentence_of_it}" in told.splitlines()) == (0, True), told
            found = await snapshot(home)
            assert (found["healthy"], found["loading"]) == (True, [name])
            http, body = await Door(daemon).get("/ready")
            assert (http, json.loads(body)) == (200, {"ready": True, "channels": {}, "loading": [sentence_of_it]})
            assert platform.answers(ada) == []
            release.touch()
            await server.until(lambda: platform.answers(ada), 3 * WAIT)  # litellm takes seconds
            assert platform.answers(ada) == ["here I am"]
            assert "still loading" not in (await status(home))[1]
            assert (await Door(daemon).get("/ready"))[1] == '{"ready": true, "channels": {}}'
            assert (await snapshot(home))["loading"] == []
