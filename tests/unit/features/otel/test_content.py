"""What a receiver never sees: nothing that anybody wrote with `off`, no secret and no name of anybody with `redacted`.

Each guard is taken away once, and its canaries are seen.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bubbot.features.otel.content import Exposure
from bubbot.features.otel.people import PeopleRedactor
from bubbot.features.otel.settings import OtelSettings
from bubbot.ports.model import ToolCall
from bubbot.settings.loader import ModelSettings
from tests.fakes.otlp_server import receiver
from tests.made_settings import make_settings
from tests.traced import say, settings_for, traced, written

SECRET = 'canary"secret\\k3y-77'
TOKEN = "canary-token-of-the-receiver"
CHAT, PERSON, NAME = "81450001", "81450002", "Canaria Namington"
WORDS = (
    "canaryask",
    "canaryargument",
    "canaryresult",
    "canaryanswer",
    "canarytool",
    "canaryerror",
    "canarytask",
    "canarylabel",
)
SCRIPT = {
    "rules": [
        {
            "when": "canaryask",
            "steps": [
                {
                    "text": "canaryanswer first",
                    "calls": [
                        {
                            "name": "memory_save",
                            "arguments": {"content": f"canaryargument {SECRET}", "of": int(PERSON)},
                        },
                        {"name": "memory_recall", "arguments": {"query": "canaryargument"}},
                        {"name": "canarytool", "arguments": {"canaryargument": SECRET}},
                        {"name": "agent_run", "arguments": {"task": "canarytask", "name": "canarylabel"}},
                        {
                            "name": "agent_run",
                            "arguments": {"task": "canarytask", "mode": "result", "name": "canarylabel"},
                        },
                    ],
                },
                {"text": f"canaryanswer {SECRET} {base64.b64encode(SECRET.encode()).decode()}"},
            ],
        },
        {"when": "canarytask", "steps": [{"text": f"canaryresult {SECRET}"}]},
        {"when": "canaryerror", "steps": [{"error": "refused"}]},
    ]
}
FORMS = (
    SECRET,
    json.dumps(SECRET)[1:-1],
    json.dumps(json.dumps(SECRET))[3:-3],
    base64.b64encode(SECRET.encode()).decode()[:20],
    TOKEN,
)
"""A secret as it is, in JSON, in JSON within JSON, and in base64."""
PEOPLE = (CHAT, PERSON, NAME, "Canaria")
INSIDE = ("81450003", "@canaria_n", "canaria@example.org", "170 5550123", f"stdin:{CHAT}")
"""Ids of people inside texts: of somebody else, and addresses. A script has the number of the sender as a number."""


async def sent(home: Path, content: str) -> str:
    """Everything that a receiver gets of two turns full of canaries, as text."""
    async with receiver() as taken:
        settings = settings_for(
            home, SCRIPT, endpoint=taken.url, content=content, headers=f"authorization=Bearer {TOKEN}"
        )
        model = ModelSettings(**{**settings.model.model_dump(), "api_key": SECRET})
        settings = make_settings(settings.section(OtelSettings), model=model, server={"port": 0, "token": "t" * 16})
        async with traced(settings, home) as bot:
            await bot.recover(f"stdin:{CHAT}", deliver=False)
            about = (
                f"{NAME} ({PERSON}) of stdin:{CHAT} asks for 81450003, @canaria_n, canaria@example.org, +49 170 5550123"
            )
            for text in (f"canaryask {SECRET} {TOKEN} {about}", f"canaryerror {SECRET}"):
                await say(bot, text, chat=CHAT, sender=PERSON, name=NAME, direct=False)
            await taken.turns(2)
            await written(bot, "otel/exported")
    body = b"".join(taken.bodies)
    assert body.count(b"gen_ai.operation.name") > 10
    return body.decode(errors="replace")


def found(text: str, canaries: tuple[str, ...]) -> list[str]:
    return [canary for canary in canaries if canary in text]


async def test_off_sends_nothing_that_anybody_wrote(tmp_path: Path) -> None:
    text = await sent(tmp_path, "off")
    assert found(text, (*WORDS, *FORMS, *PEOPLE)) == []


async def test_redacted_sends_words_without_secrets_and_without_names_of_people(tmp_path: Path) -> None:
    text = await sent(tmp_path, "redacted")
    assert found(text, (*FORMS, *PEOPLE, *INSIDE)) == []
    assert "[redacted]" in text
    assert "asks for [person " in text
    assert set(found(text, WORDS)) == set(WORDS)


async def test_full_sends_everything_as_it_is(tmp_path: Path) -> None:
    text = await sent(tmp_path, "full")
    everything = {*WORDS, *INSIDE, CHAT, PERSON, TOKEN}
    assert set(found(text, tuple(everything))) == everything
    assert found(text, FORMS[1:4])


def _open_tools(self: Exposure, name: str) -> str:
    return name


def _open_names(self: Exposure, what: str, name: str) -> str:
    return name


def _open_agents(self: Exposure, name: str) -> str:
    return name


def _open_text(self: object, text: str) -> str:
    return text


@pytest.mark.proof
@pytest.mark.parametrize(
    ("content", "owner", "guard", "without", "seen"),
    [
        ("off", Exposure, "has_content", property(lambda _: True), "canaryanswer"),
        ("off", Exposure, "tool", _open_tools, "canarytool"),
        ("off", Exposure, "sub_agent", _open_agents, "canarylabel"),
        ("off", Exposure, "identify", _open_names, CHAT),
        ("off", Exposure, "error", _open_text, "canarytool"),
        ("redacted", Exposure, "identify", _open_names, PERSON),
        ("redacted", PeopleRedactor, "__call__", _open_text, "canaria@example.org"),
        ("redacted", Exposure, "label", _open_text, TOKEN),
    ],
)
async def test_without_a_guard_its_canary_is_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str,
    owner: type,
    guard: str,
    without: Callable[..., Any] | property,
    seen: str,
) -> None:
    monkeypatch.setattr(owner, guard, without)
    assert found(await sent(tmp_path, content), (seen,)) == [seen]


def test_a_long_text_and_a_long_list_are_cut_and_say_so() -> None:
    exposure = Exposure("full", str, b"key")
    assert exposure.text("x" * 20_007).endswith("x… [7 more characters]")
    messages = [exposure.message("user", "x" * 20_000) for _ in range(40)]
    text = exposure.write_messages(messages)
    assert len(text) < 401_000
    first, *rest = json.loads(text)
    assert first["parts"][0]["content"] == f"[{len(messages) - len(rest)} older messages left out]"
    assert exposure.arguments(ToolCall("", "", "{broken")) == "{broken"


def test_an_attachment_goes_out_without_its_name_unless_everything_does() -> None:
    part = {"type": "file", "name": "diagnosis.pdf", "media_type": "application/pdf", "digest": "ab"}
    redacted, full = (Exposure(content, str, b"key").message("user", [part]) for content in ("redacted", "full"))
    assert redacted["parts"] == [{"type": "file"}]
    assert full["parts"][0]["name"] == "diagnosis.pdf"
