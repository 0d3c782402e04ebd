"""No window is refused: what people and models do in a chat, drawn from seeds, before servers as strict as the providers.

Refused is a turn that ends in a refusal, and a request that breaks again the rule that its model has refused before.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import provider_rules as rules
from tests.e2e.model_paths import Way, model_path  # noqa: F401 - a fixture among them
from tests.e2e.provider_server import serving_apart
from tests.e2e.strict_server import StrictServer
from tests.e2e.strict_talk import addresses
from tests.e2e.window_player import NAMES, Window, play, show_table
from tests.provider_rules import Dialect

# Warnings of pydantic about litellm's own code: not ours to mend.
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")]

SEEDS = 2
STEPS = 4
"""Steps of a short window."""
PROOF_SEEDS = 200
"""Windows of a provider on a path."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, no_settings_from_outside: None) -> Iterator[StrictServer]:
    """Every provider, on loopback."""
    with serving_apart(StrictServer()) as strict:
        for name, value in addresses(strict).items():
            monkeypatch.setenv(name, value)
        yield strict


def assert_taken(window: Window) -> None:
    """Fails with the steps of the window, and the command that plays it again."""
    assert not window.complaints, "\n".join([window.command, *window.told])


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("model_path")
@pytest.mark.parametrize("provider", NAMES)
async def test_no_window_is_refused(tmp_path: Path, server: StrictServer, provider: str) -> None:
    for seed in range(SEEDS):
        assert_taken(await play(seed, Way.path, provider, tmp_path / str(seed), server, steps=STEPS))


@pytest.mark.proof
@pytest.mark.usefixtures("model_path", "loaded_litellm")
@pytest.mark.parametrize("provider", NAMES)
async def test_no_window_of_hundreds_is_refused(
    tmp_path: Path, server: StrictServer, provider: str, capsys: pytest.CaptureFixture[str]
) -> None:
    windows: list[Window] = []
    for seed in range(PROOF_SEEDS):
        windows.append(await play(seed, Way.path, provider, tmp_path / "home", server))
        shutil.rmtree(tmp_path / "home")
    with capsys.disabled():
        print(f"\n{show_table(windows)}")
    wrong = [window for window in windows if window.complaints]
    assert not wrong, "\n".join(f"{window.command}\n  {window.complaints[0]}" for window in wrong)


# Each rule refuses what breaks it, and a window as its provider wants it breaks none.


def user(content: Any = "hello", **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: Any = "hi", *ids: str, name: str = "f", **more: Any) -> dict[str, Any]:
    calls = [{"id": each, "type": "function", "function": {"name": name, "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {}), **more}


def result(call_id: str, content: str = "r") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def body(*messages: Mapping[str, Any], **keys: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": list(messages), **keys}


IMAGE = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
SYSTEM = {"role": "system", "content": "Be kind."}
SIGNED = {"extra_content": {"google": {"thought_signature": "abc"}}}


def used(content: Any = "see", call_id: str = "call_1", **more: Any) -> list[dict[str, Any]]:
    """A whole turn with a call, and the next message."""
    return [user(), assistant(content, call_id, **more), result(call_id), assistant("done"), user("next")]


BROKEN: Mapping[str, tuple[Dialect, Mapping[str, dict[str, Any]]]] = {
    "openai": (
        rules.OPENAI_REASONING,
        {
            "known_keys": body(user(), top_k=3),
            "ids_of_40": body(*used(call_id="x" * 41)),
            "names": body(*used(name="a.b")),
            "calls_answered": body(user(), assistant("", "a", "b"), result("a"), user()),
            "newer_limit": body(user(), max_tokens=5),
        },
    ),
    "deepseek": (
        rules.DEEPSEEK,
        {
            "text_only": body(user(IMAGE)),
            "reasoning_back": body(*used()),
            "calls_answered": body(user(), assistant("", "a", reasoning_content=""), user()),
        },
    ),
    "mistral": (
        rules.MISTRAL,
        {
            "known_keys": body(user(), assistant(reasoning_content="x"), user()),
            "ids_of_9": body(*used()),
            "order": body(user(), assistant("", "abcdefghi"), result("abcdefghi"), user()),
            "last": body(user(), assistant()),
            "no_empty": body(user(), assistant(""), user()),
            "calls_answered": body(user(), assistant("", "abcdefghi"), assistant(), user()),
        },
    ),
    "anthropic": (
        rules.ANTHROPIC_PROXY,
        {
            "first_user": body(assistant(), user()),
            "no_empty": body(*used("")),
            "no_blank": body(*used(" \n")),
            "ids_of_words": body(*used(call_id="a.b")),
            "calls_answered": body(user(), assistant("see", "a"), user()),
            "no_prefill": body(user(), assistant()),
        },
    ),
    "gemini": (
        rules.GEMINI_3_COMPATIBLE,
        {
            "first_user": body(assistant(), user()),
            "no_empty": body(user(), assistant(""), user()),
            "order": body(user(), assistant(), assistant("see", "a"), result("a")),
            "last": body(user(), assistant()),
            "signatures": body(user(), assistant("see", "a"), result("a")),
        },
    ),
    "llama.cpp": (rules.LLAMA_CPP, {"alternation": body(user(), user())}),
    "llama.cpp of text": (rules.LLAMA_CPP_TEXT, {"no_images": body(user(IMAGE))}),
    "vllm": (
        rules.VLLM_GEMMA,
        {
            "no_tools": body(user(), tools=TOOLS),
            "no_system": body(SYSTEM, user()),
            "alternation": body(user(), assistant("see", "a"), result("a")),
        },
    ),
    "older vllm": (rules.VLLM_OLD, {"no_stream_options": body(user(), stream_options={"include_usage": True})}),
    "plain": (rules.PLAIN, {"plain_text": body(user([{"type": "text", "text": "a"}]))}),
    "ollama": (rules.OLLAMA, {"no_tools": body(user(), tools=TOOLS), "no_images": body(user(IMAGE))}),
}
WANTED: Mapping[str, dict[str, Any]] = {
    "openai": body(SYSTEM, user(IMAGE), *used(), tools=TOOLS, stream_options={"include_usage": True}),
    "deepseek": body(SYSTEM, *used(reasoning_content=""), tools=TOOLS, stream_options={"include_usage": True}),
    "mistral": body(SYSTEM, user(IMAGE), *used(call_id="abcdefghi"), tools=TOOLS),
    "anthropic": body(SYSTEM, user(IMAGE), *used(), tools=TOOLS, top_k=3),
    "gemini": body(SYSTEM, user(IMAGE), *used(), tools=TOOLS),
    "llama.cpp": body(SYSTEM, *used(), tools=TOOLS, stream_options={"include_usage": True}),
    "llama.cpp of text": body(SYSTEM, user(), user()),
    "vllm": body(user(), assistant(), user(IMAGE)),
    "older vllm": body(SYSTEM, user(), *used(), tools=TOOLS),
    "plain": body(SYSTEM, user(), *used(), tools=TOOLS),
    "ollama": body(SYSTEM, user(), *used(), stream_options={"include_usage": True}),
}
RULES = [
    pytest.param(dialect, rule.name, broken.get(rule.name), id=f"{name} {rule.name}")
    for name, (dialect, broken) in BROKEN.items()
    for rule in dialect.rules
]


@pytest.mark.parametrize(("dialect", "rule", "broken"), RULES)
def test_each_rule_refuses_what_breaks_it(dialect: Dialect, rule: str, broken: dict[str, Any] | None) -> None:
    assert broken is not None, "no request here breaks it"
    found = rules.find_broken(dialect, broken)
    assert found is not None
    assert (found[0].name, bool(found[1])) == (rule, True)
    assert re.fullmatch(r"https://[\w./-]+", found[0].source)
    assert str(dialect.envelope(found[1], found[0]))


@pytest.mark.parametrize("name", WANTED)
def test_a_window_as_its_provider_wants_it_is_taken(name: str) -> None:
    assert rules.find_broken(BROKEN[name][0], WANTED[name]) is None
