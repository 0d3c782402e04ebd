"""The rules that change a request so that its model takes it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.errors import ConfigError
from bubbot.ports.model import ModelRequest, ToolSpec
from bubbot.runtime.request_rules import RULE_ORDER, apply_rule, apply_rules
from bubbot.tape.entry import canonical

TOOL = ToolSpec("memory_show", "shows", {"type": "object", "properties": {}})
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def called(*ids: str, text: Any = "", **more: Any) -> dict[str, Any]:
    calls = [{"id": each, "type": "function", "function": {"name": "memory_show", "arguments": "{}"}} for each in ids]
    return said(text, tool_calls=calls, **more)


def result(call: str, text: str = "an apple") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text}


def request(
    *messages: dict[str, Any], system: str = "Be brief.", tools: bool = True, **parameters: Any
) -> ModelRequest:
    texts = tuple(canonical(message).encode() for message in messages)
    return ModelRequest(system, messages, (TOOL,) if tools else (), parameters, texts)


def after(rule: str, *messages: dict[str, Any], **options: Any) -> list[Any]:
    changed = apply_rule(rule, request(*messages, **options))
    assert [json.loads(text) for text in changed.texts] == [json.loads(canonical(each)) for each in changed.messages]
    return list(changed.messages)


class TestRoles:
    def test_neighbours_of_one_side_are_joined(self) -> None:
        assert after("alternate@1", user("one"), user("two"), said("a"), said("b"), user("three")) == [
            user("one\n\ntwo"),
            said("a\n\nb"),
            user("three"),
        ]

    def test_images_and_texts_are_joined_as_parts(self) -> None:
        assert after("alternate@1", user([IMAGE]), user("two", name="ann")) == [
            user([IMAGE, {"type": "text", "text": "two"}])
        ]

    def test_calls_and_their_results_stay_apart(self) -> None:
        messages = [user("one"), called("a", "b"), result("a"), result("b"), said("done")]
        assert after("alternate@1", *messages) == messages
        assert after("alternate@1", user("one"), said("I look"), called("a"), result("a")) == [
            user("one"),
            {**called("a"), "content": "I look"},
            result("a"),
        ]

    def test_a_failed_turn_and_an_anchor_leave_sides_that_alternate(self) -> None:
        window = [said("[anchor]"), user("one"), called("a"), result("a"), user("two"), user("three")]
        assert [each["role"] for each in after("alternate@1", *window)] == [
            "user", "assistant", "tool", "assistant", "user",
        ]  # fmt: skip

    def test_a_conversation_begins_with_the_user(self) -> None:
        assert after("first_user@1", said("[anchor]"), user("one")) == [user("[anchor]"), user("one")]
        assert after("first_user@1", called("a"), result("a"))[0]["role"] == "user"
        assert after("first_user@1", user("one")) == [user("one")]

    def test_the_system_prompt_rides_on_the_first_message(self) -> None:
        changed = apply_rule("no_system@1", request(user("one"), said("a")))
        assert (changed.system, changed.messages) == ("", (user("Be brief.\n\none"), said("a")))
        assert apply_rule("no_system@1", request(said("a"))).messages == (user("Be brief."), said("a"))

    def test_the_assistant_speaks_between_a_result_and_a_message(self) -> None:
        assert [
            each["role"] for each in after("answer_results@1", user("one"), called("a"), result("a"), user("two"))
        ] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
        ]


class TestIds:
    @pytest.mark.parametrize(
        ("form", "pattern"), [("mistral", "[A-Za-z0-9]{9}"), ("openai", ".{1,40}"), ("word", "[A-Za-z0-9_-]{1,64}")]
    )
    @given(ids=st.lists(st.text(min_size=1, max_size=80), unique=True, min_size=1, max_size=5))
    def test_each_id_has_the_form_and_still_pairs(self, form: str, pattern: str, ids: list[str]) -> None:
        changed = after(f"ids:{form}@1", user("one"), called(*ids), *map(result, ids))
        new = [call["id"] for call in changed[1]["tool_calls"]]
        assert [message["tool_call_id"] for message in changed[2:]] == new
        assert len(set(new)) == len(ids)
        assert all(re.fullmatch(pattern, each, re.DOTALL) for each in new)

    def test_an_id_of_the_form_stays(self) -> None:
        before = request(user("one"), called("abcdefgh1"), result("abcdefgh1"))
        assert apply_rule("ids:mistral@1", before) is before


def test_equal_calls_of_one_message_are_sent_as_one() -> None:
    other = {"id": "c", "type": "function", "function": {"name": "memory_show", "arguments": '{"a":1}'}}
    both = called("a", "b")
    both["tool_calls"].append(other)
    before = [user("one"), both, result("a"), result("b", "the same call"), result("c", "x"), called("a"), result("a")]
    changed = after("equal_calls@1", *before)
    assert [call["id"] for call in changed[1]["tool_calls"]] == ["a", "c"]
    assert changed[2:4] == [result("a", "an apple\n\nthe same call"), result("c", "x")]
    assert changed[4:] == before[5:]
    signed = called("a", "b", replay={"provider": "gemini", "calls": [{"x": 1}, {}]})
    assert after("equal_calls@1", signed, result("a"), result("b")) == [
        called("a", replay={"provider": "gemini", "calls": [{"x": 1}]}),
        result("a"),
    ]


class TestReasoning:
    def test_every_call_carries_some(self) -> None:
        own = called("b", replay={"provider": "deepseek", "reasoning_content": "so"})
        foreign = called("c", replay={"provider": "anthropic", "thinking_blocks": []})
        changed = after("reasoning@1", user("one"), called("a"), own, foreign, said("a"))
        assert [each.get("reasoning_content") for each in changed] == [None, "", "", "", None]

    def test_none_is_sent(self) -> None:
        replay = {"provider": "x", "reasoning_content": "so", "calls": [{"signed": 1}]}
        assert after("no_reasoning@1", called("a", replay=replay, reasoning_content="so")) == [
            called("a", replay={"provider": "x", "calls": [{"signed": 1}]})
        ]


class TestContents:
    def test_an_image_becomes_words(self) -> None:
        parts = [{"type": "text", "text": "[image, a.png]"}, IMAGE]
        assert after("no_images@1", user(parts)) == [user("[image, a.png]\n\n[an image that this model cannot see]")]

    def test_without_tools_calls_and_results_become_words_of_nobody(self) -> None:
        changed = apply_rule("no_tools@1", request(user("one"), called("a", "b", text="wait"), result("a", "x\nAnn: y"), result("b"), said("ok")))  # fmt: skip
        assert changed.tools == ()
        assert [each["role"] for each in changed.messages] == ["user", "assistant", "user", "assistant"]
        assert "\n> Ann: y" in changed.messages[2]["content"]
        assert not any("tool_calls" in each for each in changed.messages)

    def test_texts_beside_calls(self) -> None:
        blanks: list[Any] = ["", " \n", []]
        for blank in blanks:
            assert after("no_empty_text@1", called("a", text=blank))[0]["content"] is None
        assert after("some_text@1", called("a", text=None))[0]["content"]
        assert after("plain_text@1", user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])) == [
            user("ab")
        ]
        assert after("no_names@1", user("one", name="ann")) == [user("one")]


def test_parameters_are_left_out_or_renamed() -> None:
    before = request(user("one"), max_tokens=5, top_p=1)
    assert apply_rule("without:top_p@1", before).parameters == {"max_tokens": 5}
    renamed = apply_rule("rename:max_tokens:max_completion_tokens@1", before)
    assert renamed.parameters == {"max_completion_tokens": 5, "top_p": 1}
    assert apply_rule("without:seed@1", before) is before


ALL = [
    "no_tools@1", "no_images@1", "no_system@1", "alternate@1", "first_user@1", "answer_results@1", "ids:mistral@1", "ids:word@1", "equal_calls@1",
    "reasoning@1", "no_reasoning@1", "no_names@1", "plain_text@1", "no_empty_text@1", "some_text@1", "without:top_p@1",
    "rename:max_tokens:max_completion_tokens@1",
]  # fmt: skip
MESSAGES = st.lists(
    st.sampled_from(
        [user("one"), user("two", name="ann"), user([{"type": "text", "text": "see"}, IMAGE]), said("a"), said("b")]
    )
    | st.sampled_from(["c1", "call.2/x"]).map(lambda call: [called(call), result(call)]),
    max_size=8,
)


@given(MESSAGES, st.sampled_from(ALL))
def test_a_rule_that_was_applied_changes_nothing_more(messages: list[Any], rule: str) -> None:
    """And no words get lost, but those of a system prompt that moved."""
    flat = [each for item in messages for each in (item if isinstance(item, list) else [item])]
    once = apply_rule(rule, request(*flat, max_tokens=5, top_p=1))
    assert apply_rule(rule, once) is once
    assert [json.loads(text) for text in once.texts] == [json.loads(canonical(each)) for each in once.messages]
    words = canonical({"messages": [dict(each) for each in once.messages]})
    assert all(word in words for each in flat for word in ("one", "two", "see") if word in canonical(each))


def test_every_rule_has_an_order_and_an_unknown_one_is_told() -> None:
    assert {re.split("[:@]", rule)[0] for rule in ALL} == set(RULE_ORDER)
    with pytest.raises(ConfigError, match="no_tools@9"):
        apply_rules(["no_tools@9"], request(user("one")))
