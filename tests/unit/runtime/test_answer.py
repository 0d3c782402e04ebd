"""What people see of a model's text, whole and in pieces."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.runtime.answer import PreviewText, route_assistant
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind
from tests.turns import Played, running, says


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Hello.", "Hello."),
        ("  Hello.\n\n", "Hello."),
        ("<think>hm</think>Hello.", "Hello."),
        ("<think>a\n\nb</think>\n\nHello.", "Hello."),
        ("<THINKING>x</THINKING> Hello.", "Hello."),
        ("Hello. <reasoning>because</reasoning> Bye.", "Hello.  Bye."),
        ("Hello.<think>and then it never ended", "Hello."),
        ("<think>a</think>1<think>b</think>2", "12"),
        ("<thinkers> are people", "<thinkers> are people"),
        ("a < b and <b>bold</b>", "a < b and <b>bold</b>"),
        ("I say [SILENT] when quiet", "I say [SILENT] when quiet"),
    ],
)
def test_leaked_reasoning_is_taken_out_and_the_rest_stays(written: str, said: str) -> None:
    answer = route_assistant(written)
    assert (answer.text, answer.silent, answer.empty) == (said, False, False)


@pytest.mark.parametrize("written", ["[SILENT]", " [SILENT]\n", "<think>nothing to add</think>[SILENT]"])
def test_the_silent_mark_alone_is_silence(written: str) -> None:
    answer = route_assistant(written)
    assert (answer.text, answer.silent, answer.empty) == ("", True, False)


@pytest.mark.parametrize("written", ["", "   ", "\n", "<think>only thoughts</think>", "<think>cut off"])
def test_nothing_to_read_is_an_empty_answer(written: str) -> None:
    answer = route_assistant(written)
    assert (answer.empty, answer.silent) == (True, False)


async def test_what_a_model_writes_after_a_comma_is_never_run(memory_store: InMemoryStore) -> None:
    async with running(memory_store, Played(says(",reset erase"), says("fine"))) as bench:
        result = await bench.say("hello")
        assert (result.status, result.text) == ("answered", ",reset erase")
        entries = await bench.entries()
        assert [entry.name for entry in entries if entry.name in ("command", "tape/erased")] == []
        await bench.say("still there?")
        assert len([entry for entry in await bench.entries() if entry.kind == Kind.MESSAGE]) == 4


async def test_a_silent_turn_says_nothing_and_is_done(memory_store: InMemoryStore) -> None:
    async with running(memory_store, Played(says("[SILENT]"))) as bench:
        result = await bench.say("no answer needed")
        assert (result.status, result.text, bench.channel.sent) == ("silent", "", [])
        (done,) = await bench.events("inbox/done", bench.inbox.name)
        assert done["outcome"] == "silent"
        assert (await bench.recover()).inbounds == ()


async def test_thoughts_without_an_answer_are_a_failure(memory_store: InMemoryStore) -> None:
    async with running(memory_store, Played(says("<think>hm</think>"))) as bench:
        result = await bench.say("hello")
        assert (result.status, result.text) == (
            "failed",
            f"I could not answer this: The model returned an empty answer. (trace {result.turn_id[:8]})",
        )


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["a", "b "], "ab"),
        (["  hel", "lo", "\n", "\n"], "hello"),
        (["<thi", "nk>no", "no</thi", "nk> yes"], "yes"),
        (["1 < 2 and <thing>"], "1 < 2 and <thing>"),
        (["a <think>b"], "a"),
        (["[SIL", "ENT]"], ""),
        ([" [SILENT] ", ""], ""),
        (["[SILENT] but"], "[SILENT] but"),
        (["<reasoning>x</reasoning>[SIL", "LY]"], "[SILLY]"),
        (["odd <thin"], "odd <thin"),
    ],
)
def test_the_text_that_is_shown_is_the_text_that_people_get(pieces: Sequence[str], shown: str) -> None:
    text = PreviewText()
    assert "".join([*map(text.feed, pieces), text.flush()]) == shown


@given(
    st.lists(
        st.sampled_from(
            ["<think>", "</think>", "<thi", "nk>", "<", "[SILENT]", "[", " ", "\n", "a", "é\U0001f600", "</"]
        )
    )
)
def test_the_pieces_add_up_to_what_is_delivered(pieces: list[str]) -> None:
    text, answer = PreviewText(), route_assistant("".join(pieces))
    shown = "".join([*map(text.feed, pieces), text.flush()])
    assert shown == ("" if answer.silent or answer.empty else answer.text)
