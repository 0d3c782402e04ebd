"""The scripted model: what it says depends on the request alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bubbot.errors import ConfigError, ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.models.scripted import ScriptedModel, create
from bubbot.ports.model import ModelOptions, ModelReply, ModelRequest, TextDelta


def request(*messages: tuple[str, str]) -> ModelRequest:
    return ModelRequest("system", tuple({"role": role, "content": content} for role, content in messages))


async def reply(model: ScriptedModel, *messages: tuple[str, str]) -> ModelReply:
    """The end of the stream."""
    items = [item async for item in model.stream(request(*messages))]
    assert isinstance(items[-1], ModelReply)
    assert "".join(item.text for item in items[:-1] if isinstance(item, TextDelta)) == items[-1].text
    return items[-1]


async def test_without_a_script_it_says_what_it_was_told() -> None:
    assert (await reply(ScriptedModel(), ("user", "hello"))).text == "You said: hello"


async def test_the_time_before_a_message_is_not_part_of_it() -> None:
    assert (await reply(ScriptedModel(), ("user", "[2026-11-21 20:21] hello"))).text == "You said: hello"


async def test_the_first_rule_that_is_found_in_the_last_user_message_answers() -> None:
    rules = [{"when": "^tea$", "steps": [{"text": "a"}]}, {"when": "TEA", "steps": [{"text": "b"}]}]
    model = ScriptedModel({"rules": rules, "default": [{"text": "c"}]})
    said = [(await reply(model, ("user", "tea"), ("user", text))).text for text in ("tea", "some tea", "coffee")]
    assert said == ["a", "b", "c"]


async def test_the_step_is_the_number_of_answers_since_the_message() -> None:
    model = ScriptedModel({"default": [{"text": "first"}, {"text": "second"}]})
    asked = ("user", "x")
    assert (await reply(model, asked)).text == "first"
    assert (await reply(model, asked, ("assistant", ""), ("tool", "r"))).text == "second"
    assert (await reply(model, asked, ("assistant", ""), ("assistant", ""), ("assistant", ""))).text == "second"
    assert (await reply(model, ("assistant", "before"), asked)).text == "first"


async def test_the_same_request_gives_the_same_answer_in_another_process() -> None:
    script = {"default": [{"text": "first"}, {"text": "second"}]}
    asked = (("user", "x"), ("assistant", ""))
    assert (await reply(ScriptedModel(script), *asked)).text == (await reply(ScriptedModel(script), *asked)).text


async def test_calls_come_with_their_arguments_as_text() -> None:
    steps: list[dict[str, Any]] = [
        {"calls": [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "id": "mine", "arguments": "{"}]}
    ]
    found = await reply(ScriptedModel({"default": steps}), ("user", "x"))
    assert [(call.name, call.arguments) for call in found.calls] == [("f", '{"a": 1}'), ("g", "{")]
    assert (found.calls[1].id, found.finish) == ("mine", "tool_calls")
    assert len({call.id for call in found.calls}) == 2


@pytest.mark.parametrize(
    ("word", "raised"),
    [("overflow", ModelOverflow), ("rate_limited", ModelRateLimited), ("refused", ModelRefused), ("unavailable", ModelUnavailable)],
)  # fmt: skip
async def test_an_error_is_raised_as_what_it_is(word: str, raised: type[ModelError]) -> None:
    model = ScriptedModel({"default": [{"error": word, "message": "because"}]})
    with pytest.raises(raised, match="because"):
        await reply(model, ("user", "x"))


async def test_without_a_user_message_it_still_answers() -> None:
    assert (await reply(ScriptedModel(), ("assistant", "hi"))).text == "You said: "


async def test_a_text_that_takes_no_time_comes_in_one_piece() -> None:
    quick = ScriptedModel({"default": [{"text": "one two"}]})
    slow = ScriptedModel({"default": [{"text": "one two", "pace": 0.001}]})
    asked = request(("user", "hi"))
    assert [item.text async for item in quick.stream(asked) if isinstance(item, TextDelta)] == ["one two"]
    assert [item.text async for item in slow.stream(asked) if isinstance(item, TextDelta)] == ["one ", "two"]


async def test_the_requests_are_kept() -> None:
    model = ScriptedModel()
    await reply(model, ("user", "a"))
    await reply(model, ("user", "b"))
    assert [one.messages[0]["content"] for one in model.requests] == ["a", "b"]


class TestTheScriptFile:
    def make(self, path: Path, text: str) -> ScriptedModel:
        path.write_text(text, encoding="utf-8")
        return create(ModelOptions("scripted", path.parent, {"script": str(path)}))

    async def test_it_is_read(self, tmp_path: Path) -> None:
        script = {"rules": [{"when": "tea", "steps": [{"text": "é"}]}]}
        model = self.make(tmp_path / "script.json", json.dumps(script))
        assert (await reply(model, ("user", "tea"))).text == "é"

    async def test_a_bot_does_not_keep_the_requests(self, tmp_path: Path) -> None:
        model = create(ModelOptions("scripted", tmp_path))
        await reply(model, ("user", "x"))
        assert model.requests == []

    async def test_none_is_needed(self, tmp_path: Path) -> None:
        assert (await reply(create(ModelOptions("scripted", tmp_path)), ("user", "x"))).text == "You said: x"

    @pytest.mark.parametrize(
        "text",
        ["", "{", "[1]", '{"rules": [{}]}', '{"rules": [{"when": "("}]}', '{"rules": [{"when": "x"}]}', '{"default": []}',
         '{"rules": [{"when": "x", "steps": []}]}', '{"default": [{"error": "typo"}]}', '{"default": {"text": "x"}}'],
    )  # fmt: skip
    def test_one_that_cannot_be_used_is_named(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "script.json"
        with pytest.raises(ConfigError, match=r"script .*script\.json cannot be used"):
            self.make(path, text)

    def test_one_that_is_missing_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"missing\.json cannot be used"):
            create(ModelOptions("scripted", tmp_path, {"script": str(tmp_path / "missing.json")}))


async def test_the_head_of_a_message_in_parts_belongs_to_its_first_words() -> None:
    parts = [{"type": "text", "text": text} for text in ("[2026-11-21 20:21] Ann (#1):", "hello", "there")]
    messages = ({"role": "user", "content": parts},)
    items = [item async for item in ScriptedModel().stream(ModelRequest("system", messages))]
    assert isinstance(items[-1], ModelReply)
    assert items[-1].text == "You said: hello\nthere"
