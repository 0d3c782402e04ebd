"""From entries to chat messages: what each kind becomes, and what is left out."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bubbot.runtime.context.selectors import (
    ContextMessage,
    MessageStyle,
    format_anchor_line,
    prepend_opening,
    select_messages,
)
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import JsonObject, TapeEntry, error, event, message, system, tool_call, tool_result

OUTCOME_UNKNOWN = "outcome unknown: the bot stopped before this call was finished; it may or may not have happened"

AT = "2026-11-21T23:30:00.000000+00:00"


def entries(*made: TapeEntry) -> list[TapeEntry]:
    return [entry.with_id(place) for place, entry in enumerate(made, 1)]


def shown(*made: TapeEntry, **style: Any) -> list[JsonObject]:
    return [one.message for one in select_messages(entries(*made), MessageStyle(**style))]


def call(call_id: str | None = "c", name: object = "f", arguments: object = "{}") -> dict[str, Any]:
    found: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return found if call_id is None else {"id": call_id, **found}


def result(call_id: str | None, content: object = "r") -> dict[str, Any]:
    return {"content": content} if call_id is None else {"tool_call_id": call_id, "content": content}


def pairs(messages: list[JsonObject]) -> list[tuple[str, str]]:
    """The results as id and content."""
    return [(one["tool_call_id"], one["content"]) for one in messages if one["role"] == "tool"]


class TestMessages:
    def test_a_message_is_shown_as_it_is(self) -> None:
        assert shown(message("user", "hello"), message("assistant", "hi")) == [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "hi"},
        ]

    def test_content_in_parts_stays_in_parts(self) -> None:
        parts: list[dict[str, Any]] = [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:,x"}},
        ]
        assert shown(message("user", parts)) == [{"role": "user", "content": parts}]

    def test_parts_without_anything_to_read_are_left_out(self) -> None:
        parts = [{"type": "text", "text": " "}, {"type": "text", "text": "look"}, {"text": "no type"}]
        assert shown(message("user", parts)) == [{"role": "user", "content": [{"type": "text", "text": "look"}]}]

    def test_further_fields_ride_along_but_calls_do_not(self) -> None:
        made = TapeEntry("message", {"role": "user", "content": "x", "name": "ann", "tool_calls": [call()]})
        assert shown(made) == [{"role": "user", "content": "x", "name": "ann"}]

    def test_a_system_message_is_shown_as_a_users_with_a_mark(self) -> None:
        assert shown(message("system", "be kind")) == [{"role": "user", "content": "[system] be kind"}]

    @pytest.mark.parametrize(
        "payload",
        [
            {"role": "user", "content": ""},
            {"role": "assistant", "content": " \n"},
            {"role": "assistant", "content": None},
            {"role": "user", "content": []},
            {"role": "user", "content": [{"type": "text", "text": ""}]},
            {"role": "tool", "content": "r", "tool_call_id": "c"},
            {"role": "developer", "content": "x"},
            {"role": None, "content": "x"},
            {"content": "x"},
            {"role": "user", "content": 7},
            {"role": "system", "content": ""},
            {},
        ],
    )
    def test_what_no_provider_takes_is_left_out(self, payload: dict[str, Any]) -> None:
        assert shown(TapeEntry("message", payload)) == []

    def test_a_message_of_blanks_is_shown_with_a_word_for_it(self) -> None:
        assert shown(message("user", " ")) == [{"role": "user", "content": "[no text]"}]

    @pytest.mark.parametrize(
        "entry",
        [event("x"), event("command", {"output": "y"}), system("s"), error("k", "m"), anchor("a"), TapeEntry("odd", {"role": "user", "content": "x"})],
    )  # fmt: skip
    def test_other_kinds_are_not_shown(self, entry: TapeEntry) -> None:
        assert shown(entry) == []

    def test_an_erased_entry_is_not_shown(self) -> None:
        gone = TapeEntry("message", {}, erased=True)
        assert shown(gone, message("user", "x")) == [{"role": "user", "content": "x"}]


class TestTimes:
    def stamped(self, role: str = "user", zone: str = "UTC", date: str = AT, content: Any = "hello") -> Any:
        made = TapeEntry("message", {"role": role, "content": content}, date=date)
        return shown(made, stamps=ZoneInfo(zone))[0]["content"]

    @pytest.mark.parametrize(
        ("zone", "text"),
        [("UTC", "[2026-11-21 23:30] hello"), ("Europe/Berlin", "[2026-11-22 00:30] hello"), ("Asia/Kolkata", "[2026-11-22 05:00] hello")],
    )  # fmt: skip
    def test_a_users_message_begins_with_the_chats_time(self, zone: str, text: str) -> None:
        assert self.stamped(zone=zone) == text

    def test_an_answer_does_not(self) -> None:
        assert self.stamped(role="assistant") == "hello"

    def test_parts_begin_with_it_too(self) -> None:
        parts = [{"type": "image_url", "image_url": {"url": "x"}}]
        assert self.stamped(content=parts) == [{"type": "text", "text": "[2026-11-21 23:30]"}, *parts]

    @pytest.mark.parametrize("date", ["", "yesterday"])
    def test_a_message_without_a_date_does_not(self, date: str) -> None:
        assert self.stamped(date=date) == "hello"


@pytest.mark.law("T12")
class TestPairing:
    def test_each_call_is_followed_by_its_result_in_call_order(self) -> None:
        messages = shown(
            tool_call([call("a"), call("b")], text="let me look"), tool_result([result("b", "2"), result("a", "1")])
        )
        assert messages[0]["content"] == "let me look"
        assert [one["id"] for one in messages[0]["tool_calls"]] == ["a", "b"]
        assert pairs(messages) == [("a", "1"), ("b", "2")]

    def test_a_call_without_a_result_gets_one_that_says_so(self) -> None:
        messages = shown(tool_call([call("a"), call("b")]), tool_result([result("b")]))
        assert pairs(messages) == [("a", OUTCOME_UNKNOWN), ("b", "r")]

    def test_a_result_without_a_call_is_left_out(self) -> None:
        assert shown(tool_result([result("z")]), message("user", "x")) == [{"role": "user", "content": "x"}]

    def test_a_result_that_comes_late_stands_with_its_call(self) -> None:
        messages = shown(tool_call([call("a")]), message("user", "x"), tool_result([result("a", "late")]))
        assert [one["role"] for one in messages] == ["assistant", "tool", "user"]
        assert pairs(messages) == [("a", "late")]

    def test_a_second_result_for_a_call_is_left_out(self) -> None:
        messages = shown(tool_call([call("a")]), tool_result([result("a", "1")]), tool_result([result("a", "2")]))
        assert pairs(messages) == [("a", "1")]

    def test_an_id_used_again_pairs_with_its_own_result_and_is_shown_apart(self) -> None:
        step = [tool_call([call("a")]), tool_result([result("a", "1")])]
        messages = shown(*step, tool_call([call("a")]), tool_result([result("a", "2")]))
        assert pairs(messages) == [("a", "1"), ("a_3_0", "2")]

    def test_one_id_twice_in_a_step_is_shown_apart(self) -> None:
        messages = shown(tool_call([call("a"), call("a")]), tool_result([result("a", "1"), result("a", "2")]))
        assert pairs(messages) == [("a", "1"), ("a_1_1", "2")]

    @pytest.mark.parametrize("missing", [None, ""])
    def test_results_without_an_id_pair_by_their_place(self, missing: str | None) -> None:
        messages = shown(
            tool_call([call(missing), call(missing)]), tool_result([result(missing, "1"), result(missing, "2")])
        )
        assert pairs(messages) == [("call_1_0", "1"), ("call_1_1", "2")]

    def test_results_without_an_id_in_entries_of_their_own_pair_one_after_another(self) -> None:
        messages = shown(tool_call([call("a"), call("b")]), tool_result(["1"]), tool_result(["2"]))  # type: ignore[list-item]
        assert pairs(messages) == [("a", "1"), ("b", "2")]

    @pytest.mark.parametrize(
        ("content", "text"),
        [("r", "r"), ("", ""), ({"a": 1}, '{"a":1}'), ([1, 2], '{"content":[1,2]}'), (None, '{"content":null}'), (7, '{"content":7}')],
    )  # fmt: skip
    def test_a_result_that_is_no_text_is_shown_as_json(self, content: object, text: str) -> None:
        assert pairs(shown(tool_call([call("a")]), tool_result([result("a", content)]))) == [("a", text)]

    def test_an_imported_result_with_other_fields_is_shown_whole(self) -> None:
        made = TapeEntry("tool_result", {"results": [{"output": "x"}]})
        assert pairs(shown(tool_call([call("a")]), made)) == [("a", '{"output":"x"}')]

    @pytest.mark.parametrize(
        ("name", "sent"),
        [("tape.search", "tape_search"), ("rm -rf /", "rm_-rf__"), ("", "unknown"), (None, "unknown"), ("漢", "_"), ("x" * 99, "x" * 64)],
    )  # fmt: skip
    def test_a_function_name_is_one_that_providers_take(self, name: object, sent: str) -> None:
        assert shown(tool_call([call("a", name)]))[0]["tool_calls"][0]["function"]["name"] == sent

    @pytest.mark.parametrize(
        ("arguments", "sent"),
        [
            ('{"a": 1}', '{"a": 1}'),
            ("", "{}"),
            (None, "{}"),
            ({"a": 1}, '{"a":1}'),
            ("{", '{"not_json":"{"}'),
            ("[1]", '{"not_json":"[1]"}'),
            ("[" * 100_000, '{"not_json":"' + "[" * 100_000 + '"}'),
        ],
    )
    def test_arguments_are_the_text_of_an_object(self, arguments: object, sent: str) -> None:
        assert shown(tool_call([call("a", arguments=arguments)]))[0]["tool_calls"][0]["function"]["arguments"] == sent

    @pytest.mark.parametrize("payload", [{}, {"calls": []}, {"calls": None}, {"calls": "x"}, {"calls": [None, "x"]}])
    def test_an_entry_without_calls_is_left_out(self, payload: dict[str, Any]) -> None:
        assert shown(TapeEntry("tool_call", payload)) == []


class TestCorrectionsThatSayNothing:
    @pytest.mark.parametrize(
        "payload",
        [
            {"name": "correction"},
            {"name": "correction", "data": None},
            {"name": "correction", "data": "x"},
            {"name": "correction", "data": {}},
            {"name": "correction", "data": {"corrects": {"a": 1}, "hide": True}},
            {"name": "correction", "data": {"corrects": 1, "content": None}},
            {"name": "correction", "data": {"corrects": True, "hide": True}},
        ],
    )
    def test_they_are_left_out(self, payload: dict[str, Any]) -> None:
        assert shown(message("user", "x"), TapeEntry("event", payload)) == [{"role": "user", "content": "x"}]


class TestTheOpeningAnchor:
    def test_it_reads_as_name_and_state(self) -> None:
        assert format_anchor_line(anchor("phase/x", {"summary": "é"})) == '[Anchor created: phase/x]: {"summary":"é"}'

    def test_an_imported_one_without_a_state_reads_as_an_empty_one(self) -> None:
        assert format_anchor_line(TapeEntry("anchor", {"name": "x"})) == "[Anchor created: x]: {}"

    def test_without_one_nothing_is_put_in_front(self) -> None:
        said = (ContextMessage({"role": "user", "content": "x"}, (1,)),)
        for style in (MessageStyle(), MessageStyle(first_assistant=False)):
            assert prepend_opening(None, said, style) == said

    def test_an_empty_window_shows_the_anchor_alone(self) -> None:
        made = anchor("x").with_id(4)
        assert [one.message["role"] for one in prepend_opening(made, (), MessageStyle())] == ["assistant"]
        assert [one.message["role"] for one in prepend_opening(made, (), MessageStyle(first_assistant=False))] == [
            "user"
        ]
