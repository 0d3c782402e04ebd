"""Why no answer comes, in each place where somebody looks: a real daemon whose provider refuses, or is not there."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import bot
from tests.e2e.daemon import WAIT, Daemon, configured, running
from tests.e2e.key_server import KEY, WRONG_KEY, KeyServer, key_server
from tests.e2e.platforms import OnTelegram
from tests.e2e.test_status import WATCHED, Door, status
from tests.fakes.botapi.server import Server

NAME = "openai/gpt-4.9-turbo"
NOTHING_LISTENS = "http://127.0.0.1:9/v1"


@dataclass(frozen=True, slots=True)
class PlantedFailure:
    """A failure, and what is to be seen of it.

    Attributes:
        kind: that of the error, in the log.
        why: the reason in the first line of `bubbot status`, in `/ready` and in the notice to the owner.
        chat: the message in the chat and on standard error of `bubbot ask`, without the trace.
        findings: the problems and warnings of `bubbot doctor` about the model; `bubbot doctor --offline` has the first alone.
        is_told: the owner gets a notice, because waiting does not help.
        settings: those of `[model]` that differ from the right ones; None leaves one out.
        status: what the provider answers a call with.
        error: the provider's own words.
    """

    kind: str
    why: str
    chat: str
    findings: tuple[str, ...]
    is_told: bool = True
    settings: Mapping[str, str | None] = field(default_factory=dict)
    status: int = 200
    error: Mapping[str, str] = field(default_factory=dict)


FAILURES = {
    "a wrong key": PlantedFailure(
        "model_refused",
        "it refuses the key",
        "I could not answer this: openai/gpt-4.9-turbo refused the credentials ([model] api_key): Incorrect API key provided: "
        "[redacted].",
        ("model.failing", "model.key_refused"),
        settings={"api_key": WRONG_KEY},
    ),
    "no credit": PlantedFailure(
        "model_refused",
        "its provider wants money: the credit or the quota of the account is used up",
        "I could not answer this: openai/gpt-4.9-turbo refused the request: Insufficient credits.",
        ("model.failing",),
        status=402,
        error={"message": "Insufficient credits"},
    ),
    "a quota that is used up": PlantedFailure(
        "model_refused",
        "its provider wants money: the credit or the quota of the account is used up",
        "I could not answer this: openai/gpt-4.9-turbo refused the request: You exceeded your current quota.",
        ("model.failing",),
        status=429,
        error={"message": "You exceeded your current quota.", "code": "insufficient_quota"},
    ),
    "a retired model": PlantedFailure(
        "model_refused",
        "its provider has no such model, or its address is wrong",
        "I could not answer this: openai/gpt-4-retired refused the request: This model is retired.",
        ("model.failing", "model.refused"),
        settings={"name": "openai/gpt-4-retired"},
        status=404,
        error={"message": "This model is retired.", "code": "model_not_found"},
    ),
    "nothing listens": PlantedFailure(
        "model_unavailable",
        "it cannot be reached, breaks off or falls silent",
        "I could not answer this: openai/gpt-4.9-turbo could not be reached or failed: nothing listens at its address.",
        ("model.failing", "model.unreachable"),
        is_told=False,  # a bot without network cannot tell anybody, and it ends by itself
        settings={"api_base": NOTHING_LISTENS},
    ),
    "no key": PlantedFailure(
        "model_key_missing",
        "it needs a key, and none is set",
        "openai/gpt-4.9-turbo needs a key, and neither [model] api_key nor OPENAI_API_KEY is set here.",
        ("model.failing", "secret.no_key"),
        settings={"api_key": None, "api_base": None},
    ),
}

EVERY_TIME = ("a wrong key",)
"""The rest waits for the proof: unit tests tell their reasons apart."""


def write_model(home: Path, server: KeyServer, settings: Mapping[str, str | None]) -> None:
    """Write `[model]` of the configuration, with what is right except for these settings."""
    values: dict[str, Any] = {
        "name": NAME,
        "api_base": server.base,
        "api_key": KEY,
        "retries": 0,
        "context_tokens": 128_000,
        **settings,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
    text = (home / "config.toml").read_text()
    (home / "config.toml").write_text("\n".join(["[model]", *lines, text[text.index("[channels.") :]]))
    (home / "config.toml").chmod(0o600)
    home.chmod(0o700)


async def command(home: Path, *arguments: str) -> tuple[int, str, str]:
    """Run a command with the model of the configuration; give its exit code, output and errors."""
    done = await asyncio.to_thread(bot.run, home, *arguments, env={"BUBBOT_MODEL__NAME": ""})
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def model_findings(home: Path, *options: str) -> tuple[int, tuple[str, ...]]:
    """Return the exit code of `bubbot doctor`, and what it finds wrong with the model."""
    code, out, _ = await command(home, "doctor", "--json", *options)
    found = [one["id"] for one in json.loads(out)["findings"] if one["level"] != "ok"]
    return code, tuple(name for name in found if name.startswith(("model.", "secret.")))


def log_lines(daemon: Daemon) -> list[tuple[str, str, str]]:
    """Return level, action and kind of each warning and error that was logged."""
    records = [json.loads(line) for line in daemon.errors.splitlines()]
    return [
        (one["level"], one["action"], one.get("kind", "")) for one in records if one["level"] in ("warning", "error")
    ]


@pytest.mark.parametrize(
    "name", [name if name in EVERY_TIME else pytest.param(name, marks=pytest.mark.proof) for name in FAILURES]
)
async def test_a_failure_of_the_model_is_named_everywhere_until_an_answer_succeeds(home: Path, name: str) -> None:
    planted = FAILURES[name]
    model = planted.settings.get("name") or NAME
    async with Server(limits=None, conflict_pause=0.1) as server, key_server() as provider:
        provider.call_status, provider.call_error = planted.status, planted.error
        platform = OnTelegram(server)
        ada, owner = platform.person("Ada"), platform.person("Bob")
        configured(home, server, owners=[int(owner)], members=[int(ada)], debounce=0, live=False)
        write_model(home, provider, planted.settings)

        async def say(text: str) -> str:
            before = len(platform.answers(ada))
            platform.say(ada, text)
            await server.until(lambda: len(platform.answers(ada)) > before, WAIT)
            return platform.answers(ada)[before]

        async with running(home, env=WATCHED | {"BUBBOT_MODEL__NAME": ""}) as daemon:
            await daemon.quiet(server)
            platform.say(owner, "/help")  # a chat in which the bot may write to the owner
            await server.until(lambda: platform.answers(owner), WAIT)
            for text in ("one", "two", "three"):
                answer = await say(text)
            trace = r" \(trace [0-9a-f]{8}\)"
            assert re.fullmatch(re.escape(planted.chat) + trace, answer), answer
            await daemon.quiet(server)
            notices = [f"No answer comes from {model}: {planted.why}. Nobody gets an answer until that is repaired;"]
            told = platform.answers(owner)[1:]
            assert [text.partition(" bubbot doctor ")[0] for text in told] == (notices if planted.is_told else [])

            failed = ("warning", "turn.failed", planted.kind)
            outage = [("warning", "budget/outage", "")] if planted.is_told else []
            assert sorted(log_lines(daemon)) == sorted([failed] * 3 + outage)

            door = Door(daemon)
            code, body = await door.get("/ready")
            assert (code, json.loads(body)["ready"], json.loads(body)["models"][model]["why"]) == (
                200,
                True,
                planted.why,
            )
            numbers = await door.numbers()
            assert numbers[f"bubbot_model_calls_total{{{model},failed}}"] == 3
            assert numbers["bubbot_turns_total{telegram,failed}"] == 3

            code, text = await status(home)
            reason = rf"no answer comes from {model} since 20\S+ \S+ \(.+ ago\): {re.escape(planted.why)}"
            assert re.match(rf"Not answering: the last 3 of 4 turns failed; {reason}\.\n", text), text
            assert code == 1
            assert await model_findings(home) == (1, planted.findings)
            assert await model_findings(home, "--offline") == (
                1, tuple(one for one in planted.findings if one in ("model.failing", "secret.no_key")),
            )  # fmt: skip
            code, out, errors = await command(home, "ask", "hello")
            assert (code, out) == (1, "")
            assert re.fullmatch(f"bubbot: {re.escape(planted.chat)}{trace}\n", errors), errors

            provider.call_status = 200
            write_model(home, provider, {})
            assert (await command(home, "reload"))[0] == 0
            assert await say("four") == "OK"
            await daemon.quiet(server)
            code, text = await status(home)
            assert (code, text.splitlines()[0]) == (0, "Answering: no turn failed lately.")
            assert (await door.get("/ready"))[1] == '{"ready": true, "channels": {}}'
            assert await model_findings(home) == (0, ())
            assert (await command(home, "ask", "hello"))[:2] == (0, "OK\n")
            assert len(platform.answers(owner)) == (2 if planted.is_told else 1)  # the owner heard of it once
