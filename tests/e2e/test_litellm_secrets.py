"""A planted key is nowhere afterwards: not in logs, output, the database or errors, plain or encoded."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e import inside
from tests.e2e.bot import entries, run
from tests.e2e.openai_server import Step, calls, fails, says, serving

IN_CONFIG = "sk-planted/in+config==7f3a"
IN_ENVIRONMENT = "sk-planted/in+environ==9c1d"
CONFIG = """
[model]
name = "openai/test"
api_base = "{address}"
api_key = "{key}"
retries = 1
retry_wait = 0.01
first_token_timeout = 0.5
fallback = ["anthropic/claude-haiku-4-5"]

[log]
level = "debug"
"""


def forms(secret: str) -> list[bytes]:
    """The secret as it is, percent-encoded, JSON-escaped, and in base64 at each place it can have in longer data."""
    found = [secret, quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1]]
    for before in range(3):
        coded = base64.b64encode(b"x" * before + secret.encode()).decode()
        found.append(coded[4 if before else 0 : -4])
    return [form.encode() for form in found]


def traces(home: Path, *outputs: bytes) -> list[str]:
    """Where a planted key was found."""
    places = {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file() and path.name != "config.toml"}
    places |= {f"output {number}": output for number, output in enumerate(outputs)}
    secrets = [form for secret in (IN_CONFIG, IN_ENVIRONMENT) for form in forms(secret)]
    return [place for place, data in places.items() if any(form in data for form in secrets)]


def test_the_search_finds_what_it_is_meant_to_find(tmp_path: Path) -> None:
    for form in forms(IN_CONFIG):
        assert traces(tmp_path, b"..." + form + b"...") == ["output 0"]


@pytest.mark.usefixtures("loaded_litellm")
@pytest.mark.parametrize(
    ("via", "anew"),
    [
        ("auto", False),
        pytest.param("auto", True, marks=pytest.mark.proof),
        pytest.param("litellm", True, marks=pytest.mark.proof),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
async def test_a_run_with_every_kind_of_failure_shows_no_key(tmp_path: Path, via: str, anew: bool) -> None:
    """Its fallback goes through litellm in either case; a process of its own loads that for seconds."""
    home = tmp_path / "home"
    home.mkdir()
    echoed = f"Incorrect API key provided: {IN_CONFIG}, {quote(IN_CONFIG, safe='')}, {IN_ENVIRONMENT}"
    coded = base64.b64encode(IN_CONFIG.encode()).decode()
    steps = (
        fails(401, echoed),
        fails(400, f"header was {coded}"),
        fails(500, echoed, retry_after="0.01"),
        fails(500, echoed),
        says("half an", cut=True),
        says("half an", finish=None),
        Step(drop=True),
        Step(drop=True),
        fails(400, echoed, code="context_length_exceeded"),
        fails(413, echoed),
        says("never", first=5.0),
        says("never", first=5.0),
        calls(("a", "no_such_tool", '{"x": ')),
        says("All is well."),
    )
    async with serving(*steps) as server:
        (home / "config.toml").write_text(CONFIG.format(address=server.address, key=IN_CONFIG))
        env = {
            "BUBBOT_MODEL__NAME": "openai/test",
            "BUBBOT_MODEL__VIA": via,
            "ANTHROPIC_API_KEY": IN_ENVIRONMENT,
            "ANTHROPIC_API_BASE": server.address.removesuffix("/v1"),
        }
        lines = [*(f"question {number}" for number in range(8)), ",why"]
        if anew:
            ran = [await asyncio.to_thread(run, home, "chat", lines=lines, env=env)]
        else:
            ran = [await asyncio.to_thread(inside.run, home, "ask", line, env=env) for line in lines]
        shown = await asyncio.to_thread(entries, home)
    assert f"Bearer {IN_CONFIG}" in server.keys  # the key was really used
    printed = [part for done in ran for part in (done.stdout, done.stderr)]
    said = b"".join(printed).decode()
    assert said.count("I could not answer this") >= 5, said
    assert "[redacted]" in said
    assert traces(home, *printed, json.dumps(shown).encode()) == []
