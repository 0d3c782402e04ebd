"""Which rules a model's requests follow, and what refusals teach."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbot.errors import ModelRefused
from bubbot.models.fit import ModelFit
from bubbot.models.openai.providers import find_server, resolve_endpoint
from bubbot.models.openai.request import encode_request
from bubbot.ports.model import SIZE_RULES, Lesson, ModelRequest
from bubbot.runtime.request_rules import apply_rule
from tests.unit.runtime.test_request_rules import IMAGE, called, request, result, user

OWN = "http://user:secret@127.0.0.1:8080/v1"
SERVER = "127.0.0.1:8080"
FULL = request(
    user([{"type": "text", "text": "see"}, IMAGE]),
    user("two", name="ann"),
    called("call_1"),
    result("call_1"),
    user([{"type": "text", "text": "three"}]),
    max_tokens=5,
    temperature=0.2,
    stream_options={"include_usage": True},
)


class Known:
    """Lessons that a test knows."""

    def __init__(self, *lessons: Lesson) -> None:
        self.lessons = lessons

    def find(self, model: str, server: str) -> list[Lesson]:
        return [lesson for lesson in self.lessons if (lesson.model, lesson.server) == (model, server)]


def taught(words: str, status: int | None = 400, asked: ModelRequest = FULL, name: str = "openai/x") -> str | None:
    error = ModelRefused("refused")
    error.status, error.words = status, words
    lesson = ModelFit(name, server=SERVER).read_refusal(error, asked)
    return lesson.rule if lesson else None


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("registry.ollama.ai/library/gemma3:4b does not support tools", "no_tools@1"),
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', "no_tools@1"),
        ("No endpoints found that support tool use.", "no_tools@1"),
        ("`tools` is not supported in this model", "no_tools@1"),
        ("Function calling is not enabled for models/gemma-3-27b-it", "no_tools@1"),
        ("At most 0 image(s) may be provided in one request.", "no_images@1"),
        ("messages[2]: unknown variant `image_url`, expected `text` at line 1", "no_images@1"),
        ("image input is not supported - hint: you may need to provide the mmproj", "no_images@1"),
        ("No endpoints found that support image input", "no_images@1"),
        ("this model is missing data required for image input", "no_images@1"),
        ("openai/x is not a multimodal model", "no_images@1"),
        ("messages[2]: invalid type: sequence, expected a string", "no_images@1"),
        ("JSON format issue: expected string at field messages.content got instead array", "no_images@1"),
        ('Failed to parse messages: Unsupported content part type: "image_url"', "no_images@1"),
        ("Conversation roles must alternate user/assistant/user/assistant/...", "alternate@1"),
        ("System role not supported", "no_system@1"),
        ("Developer instruction is not enabled for models/gemma-3-27b-it: invalid system instruction", "no_system@1"),
        ("Unexpected role 'user' after role 'tool'", "answer_results@1"),
        ("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.", "ids:mistral@1"),
        ("The `reasoning_content` in the thinking mode must be passed back to the API.", "reasoning@1"),
        ("Missing `reasoning_content` field in the assistant message at message index 2.", "reasoning@1"),
        ("property 'messages.1.name' is unsupported", "no_names@1"),
        ("messages.2.content: text content blocks must be non-empty", "no_empty_text@1"),
        ("messages: text content blocks must contain non-whitespace text", "no_empty_text@1"),
        ("messages[2].content: Input should be a valid string, got null", "some_text@1"),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "rename:max_tokens:max_completion_tokens@1"),
        ("max_tokens is too large: 5", "without:max_tokens@1"),
        ("stream_options: Extra inputs are not permitted", "without:stream_options@1"),
        ("Unsupported value: 'temperature' does not support 0.2 with this model.", "without:temperature@1"),
    ],
)  # fmt: skip
def test_a_refusal_names_what_to_change(words: str, rule: str) -> None:
    asked = FULL
    if rule == "some_text@1":  # a server that wants one text says the same of an image
        asked = apply_rule("no_images@1", FULL)
    assert taught(words, asked=asked) == rule


@pytest.mark.parametrize(
    "words",
    [
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
        "Invalid schema for function 'memory_show': not valid under any of the given schemas",
        "Invalid type for 'tools[0].function.strict': expected a boolean",
        "The model `x` does not exist",
        "Your organization must be verified to stream this model",
        "a passing trouble",
        "",
    ],
)
def test_other_refusals_teach_nothing(words: str) -> None:
    assert taught(words) is None


@pytest.mark.parametrize("status", [401, 402, 403, 407, 429])
def test_a_refused_key_or_an_empty_account_teaches_nothing(status: int) -> None:
    assert taught("does not support tools", status) is None


def test_an_id_that_is_too_long_costs_neither_tools_nor_images() -> None:
    asked = request(user([{"type": "text", "text": "see"}, IMAGE]), called("x" * 65), result("x" * 65))
    words = (
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got 65."
    )
    assert taught(words, asked=asked) == "ids:openai@1"


def test_a_server_that_takes_one_text_gets_one_if_no_image_is_to_blame() -> None:
    asked = request(user([{"type": "text", "text": "see"}]), tools=False, system="")
    assert taught("messages[2]: invalid type: sequence, expected a string", asked=asked) == "plain_text@1"


def test_what_the_request_does_not_hold_is_not_to_blame() -> None:
    bare = request(user("one"), tools=False, system="")
    for words in (
        "does not support tools",
        "image input is not supported",
        "roles must alternate",
        "stream_options: Extra",
    ):
        assert taught(words, asked=bare) is None


def fitted(name: str, *lessons: Lesson, server: str = "", **parameters: Any) -> list[str]:
    fit = ModelFit(name, Known(*lessons), server=server, parameters=parameters).fit(FULL)[1]
    return [rule for rule, _ in fit.rules] if fit else []


@pytest.mark.parametrize(
    ("name", "address", "rules"),
    [
        ("openai/gpt-4o", None, []),
        ("openai/mine", OWN, []),
        ("openai/deepseek-chat", "https://api.deepseek.com/v1", ["reasoning@1", "plain_text@1"]),
        ("deepseek/deepseek-chat", None, ["reasoning@1", "plain_text@1"]),
        ("mistral/mistral-small-latest", None, ["answer_results@1", "ids:mistral@1"]),
        ("xai/grok-4", None, ["no_names@1"]),
        ("anthropic/claude-sonnet-4-5", None, []),
    ],
)
def test_each_provider_has_its_rules(name: str, address: str | None, rules: list[str]) -> None:
    assert fitted(name, server=find_server(name, api_base=address, variables={})) == rules


def test_a_lesson_holds_for_its_model_at_its_server() -> None:
    lesson = Lesson("openai/mine", "127.0.0.1:8080", "no_tools@1", ("bubbot/models", 7))
    fit = ModelFit("openai/mine", Known(lesson), server=SERVER)
    sent, changed = fit.fit(FULL)
    assert (sent.tools, changed and changed.as_json()) == (
        (),
        {
            "rules": [{"rule": "no_tools@1", "learned": ["bubbot/models", 7]}],
            "parameters": FULL.parameters,
            "request": sent.digest(),
        },
    )
    assert fitted("openai/mine", lesson, server="127.0.0.1:9") == fitted("openai/other", lesson, server=SERVER) == []


def test_what_is_known_of_the_size_of_a_context_changes_no_request() -> None:
    sizes = [Lesson.of_size("mistral/m", "", name, 8_192) for name in SIZE_RULES]
    assert fitted("mistral/m", *sizes, Lesson("mistral/m", "", "no_images@1")) == fitted(
        "mistral/m", Lesson("mistral/m", "", "no_images@1")
    )
    assert [lesson.find_tokens("context") for lesson in sizes] == [8_192, 0, 0]


@pytest.mark.parametrize("rule", ["no_tools@2", "juggle@1", "ids:odd@1", "ids@1", "", "context:8192@1"])
def test_what_a_newer_version_has_learned_ends_no_turn(rule: str) -> None:
    """After a downgrade; `replay` says that it does not know the rule."""
    lessons = [Lesson("openai/mine", SERVER, each) for each in (rule, "no_tools@1")]
    assert fitted("openai/mine", *lessons, server=SERVER) == ["no_tools@1"]


def test_tools_become_text_before_neighbours_are_joined() -> None:
    """In whatever order a model taught it."""
    server = SERVER
    lessons = [Lesson("openai/mine", server, rule) for rule in ("alternate@1", "no_tools@1")]
    sent, _ = ModelFit("openai/mine", Known(*lessons), server=SERVER).fit(FULL)
    assert [message["role"] for message in sent.messages] == ["user", "assistant", "user"]


def test_messages_that_a_rule_makes_are_joined_too() -> None:
    """A window that opens with the anchor, before people in a row: an alternating template takes it after both rules."""
    window = request({"role": "assistant", "content": "[Anchor created: session/new]"}, user("one"), user("two"))
    lessons = [Lesson("openai/mine", SERVER, rule) for rule in ("alternate@1", "first_user@1")]
    sent, _ = ModelFit("openai/mine", Known(*lessons), server=SERVER).fit(window)
    assert list(sent.messages) == [user("[Anchor created: session/new]\n\none\n\ntwo")]


def test_nothing_is_recorded_where_nothing_was_changed() -> None:
    plain = request(user("one"), called("abcdefgh1", text="x"), result("abcdefgh1"))
    sent, changed = ModelFit("mistral/m", parameters={"max_tokens": 7}).fit(plain)
    assert changed is None
    assert (sent.parameters, sent.messages) == ({"max_tokens": 7}, plain.messages)


@pytest.mark.parametrize(
    ("name", "address", "variables", "server"),
    [
        ("openai/x", None, {}, ""),
        ("openai/x", OWN, {}, SERVER),
        ("openai/x", "127.0.0.1:8080/v1", {}, SERVER),
        ("openai/x", None, {"OPENAI_BASE_URL": OWN}, SERVER),
        ("openai/x", "https://api.openai.com/v1/", {}, ""),
        ("ollama/x", None, {"OLLAMA_API_BASE": "http://Box:11434"}, "box:11434"),
        ("deepseek/x", None, {"OPENAI_BASE_URL": OWN}, ""),
        ("anthropic/x", OWN, {}, SERVER),
        ("anthropic/x", None, {}, ""),
    ],
)
def test_a_server_is_named_by_settings_or_environment_without_credentials(
    name: str, address: str | None, variables: dict[str, str], server: str
) -> None:
    assert find_server(name, api_base=address, variables=variables) == server


def test_a_server_of_the_environment_is_not_taken_for_openai() -> None:
    """Servers of one's own refuse what OpenAI wants, such as no text at all beside calls."""
    endpoint = resolve_endpoint("openai/qwen", api_base=None, api_key="k", variables={"OPENAI_BASE_URL": OWN})
    body = json.loads(
        encode_request(request(called("x" * 50), result("x" * 50)), "qwen", "openai/qwen", endpoint.server)
    )
    assert body["messages"][1]["content"] == ""
    assert fitted("openai/qwen", server=endpoint.server) == []
