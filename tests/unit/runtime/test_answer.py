"""What people see of a model's text, whole and in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.runtime.answer import PreviewText, route_assistant
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind
from tests.turns import Played, running, says


@pytest.mark.parametrize("written", ["Hello.", "  Hello.\n\n", "<think>hm</think>Hello.", "</think>Hello."])
def test_people_get_the_answer_without_thoughts_and_outer_spaces(written: str) -> None:
    answer = route_assistant(written)
    assert (answer.text, answer.silent, answer.empty) == ("Hello.", False, False)


def test_a_text_without_thoughts_is_what_the_model_is_shown_again() -> None:
    answer = route_assistant("  Hello.\n")
    assert (answer.content, answer.thoughts) == ("  Hello.\n", "")


def test_a_model_is_not_shown_its_thoughts_again() -> None:
    answer = route_assistant("<think>a</think>\n\nHello.\n<thought>b</thought>\nBye.\n")
    assert answer.content == answer.text == "Hello.\n\nBye."
    assert answer.thoughts == "<think>a</think>\n<thought>b</thought>"


SILENCE = [
    "[SILENT]",
    " [SILENT]\n",
    "<think>nothing to add</think>[SILENT]",
    "thinking aloud\n</think>\n[SILENT]",
    "[SILENT].",
    "[SILENT]。",
    "[SILENT]!",
    "...[SILENT]...",
    "[silent]",
    "[Silent]",
    "[ SILENT ]",
    '"[SILENT]"',
    "“[SILENT]”",
    "«[SILENT]»",
    "`[SILENT]`",
    "**[SILENT]**",
    "_[SILENT]._",
    "```\n[SILENT]\n```",
    "```text\n[SILENT]\n```",
    "\\[SILENT\\]",
    "[[SILENT]]",
    "【SILENT】",
    "［SILENT］",
    "［ＳＩＬＥＮＴ］",
    "〔SILENT〕",
    "(SILENT)",
    "（SILENT）",
    "<SILENT>",
    "{SILENT}",
    "[SILENT]\n[SILENT]",
    "\ufeff[SILENT]\u200b",
    "<final>[SILENT]</final>",
]


@pytest.mark.parametrize("written", SILENCE)
def test_the_silent_mark_alone_is_silence_in_whatever_dress(written: str) -> None:
    answer = route_assistant(written)
    assert (answer.text, answer.silent, answer.empty) == ("", True, False)


WORDS = [
    "I say [SILENT] when quiet",
    "[SILENT] but",
    "but [SILENT]",
    "[SILENT]?",
    "[SILENTLY]",
    "[SIL",
    "[SILENT",
    "Silent.",
    "SILENT",
    "(silent)",
    "**Silent**",
    "「silent」",
    "SILENT[]",
    "[SILENT]" * 30,
    "Silently it fell.",
    "-",
    "???",
    "\U0001f910",
    "❤\ufe0f",
    "```hello```",
    "```\nx\n```",
    "&nbsp",
    "&nbsp;a",
    "<b></b>",
    "# a",
    "> a",
    "[a]()",
    "\u200bعربي",
    "----" * 60,
]


@pytest.mark.parametrize("written", WORDS)
def test_words_are_neither_silence_nor_nothing(written: str) -> None:
    answer = route_assistant(written)
    assert (answer.text, answer.silent, answer.empty) == (written, False, False)


NOTHING = [
    "",
    "   ",
    "\n",
    "<think>only thoughts</think>",
    "<think>cut off",
    "\u200b",
    "\u2060\ufeff",
    "\xad",
    "\ufe0f",
    "\u3164",
    "\uffa0",
    "\u2800",
    "\u115f\u1160",
    "\U000e0020\U000e0101",
    "\u202e\u2066",
    "&nbsp;",
    "&NBSP;&#8203;&#x200B;",
    "<br>",
    "<br/>\n<br />",
    "<p></p>",
    "```\n```",
    "```python\n\n```",
    "~~~\n\u200b\n~~~",
    "```",
    "#",
    "> ",
    "[]()",
    "![]()",
    "<think>a</think>\u200b",
    "&nbsp;" * 60,
]


@pytest.mark.parametrize("written", NOTHING)
def test_nothing_to_read_is_an_empty_answer(written: str) -> None:
    answer = route_assistant(written)
    assert (answer.text, answer.empty, answer.silent) == ("", True, False)


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
        (["a", "b "], ["a", "b"]),
        (["  hel", "lo", "\n", "\n"], ["hel", "lo"]),
        (["<thi", "nk>no", "no</thi", "nk> yes"], ["yes"]),
        (["1 < 2 and <thing>"], ["1 < 2 and <thing>"]),
        (["a <think>b"], ["a <think>b"]),
        (["a\n<think>b", "c"], ["a", "\n<think>bc"]),
        (["a\n<think>b", "</think>", "c"], ["a", "\nc"]),
        (["[SIL", "ENT]", "."], []),
        (["[SIL", "ENT] but"], ["[SILENT] but"]),
        (["<reasoning>x</reasoning>[SIL", "LY]"], ["[SILLY]"]),
        (["odd <thin"], ["odd", " <thin"]),
        (["&nb", "sp;", "<b", "r>"], []),
        (["&nb", "sp;", "a"], ["&nbsp;a"]),
        (["```", "python\n", "```"], []),
        (["```", "python\n", "x", "\n```"], ["```python\nx", "\n```"]),
    ],
)
def test_a_piece_is_shown_as_soon_as_it_is_certain(pieces: Sequence[str], shown: Sequence[str]) -> None:
    text = PreviewText()
    assert [piece for piece in [*map(text.feed, pieces), text.flush()] if piece] == shown


def test_a_thought_that_no_mark_begins_is_taken_back_at_its_end() -> None:
    text = PreviewText()
    assert (text.feed("They are in a hurry."), text.is_wrong) == ("They are in a hurry.", False)
    assert (text.feed("\n</think>\n\nHel"), text.is_wrong, text.is_unopened) == ("Hel", True, True)
    text.is_wrong = False
    assert (text.feed("lo!"), text.flush(), text.is_wrong) == ("lo!", "", False)


def test_silence_after_a_thought_that_people_have_seen_is_silence() -> None:
    text = PreviewText()
    assert text.feed("They are in a hurry.") == "They are in a hurry."
    assert (text.feed("\n</think>\n[SILENT]"), text.flush(), text.is_wrong) == ("", "", True)


def test_a_thought_that_no_mark_begins_is_not_shown_of_a_model_that_does_so() -> None:
    text = PreviewText(holds=True)
    assert [text.feed(piece) for piece in ("They are in a hurry.", "\n</think>", "\n\nHel", "lo!")] == [
        "", "", "Hel", "lo!",
    ]  # fmt: skip
    assert (text.flush(), text.is_unopened) == ("", True)


def test_a_thought_that_comes_in_one_piece_with_its_answer_is_not_shown() -> None:
    text = PreviewText()
    assert text.feed("They are in a hurry.\n</think>\n\nHello!") == "Hello!"
    assert text.flush() == ""


def test_a_model_that_may_think_without_a_mark_is_shown_at_the_end_if_it_does_not() -> None:
    text = PreviewText(holds=True)
    assert [text.feed("Hello"), text.feed(" there"), text.flush()] == ["", "", "Hello there"]
    assert not text.is_unopened


def test_a_model_that_marks_its_thoughts_is_shown_live_even_if_it_once_did_not() -> None:
    text = PreviewText(holds=True)
    assert [text.feed("<think>a</think>"), text.feed("Hel"), text.feed("lo")] == ["", "Hel", "lo"]


@pytest.mark.parametrize("written", [*SILENCE, *WORDS, *NOTHING])
def test_the_preview_is_the_answer_at_every_cut(written: str) -> None:
    for cut in range(len(written) + 1):
        text = PreviewText(holds=True)
        assert text.feed(written[:cut]) + text.feed(written[cut:]) + text.flush() == route_assistant(written).text
    text = PreviewText(holds=True)
    assert "".join([*map(text.feed, written), text.flush()]) == route_assistant(written).text


PIECES = st.sampled_from(
    (
        *(
            "<think>",
            "</think>",
            "<thi",
            "nk>",
            "<",
            "[SILENT]",
            "[",
            "]",
            "silent",
            " ",
            "\n",
            "a",
            "\U0001f600",
            "</",
            "`",
        ),
        *("```", "~~~", "\n```\n", "<thought>", "</thought>", "[THINK]", "[/THINK]", "<final>", "</final>", "<answer>"),
        *(
            "</answer>",
            "<|channel|>",
            "analysis",
            "final",
            "<|message|>",
            "<|end|>",
            "<|start|>assistant",
            "&nb",
            "sp;",
        ),
        *("<br>", "\u200b", "    ", "- ", "> ", "◁think▷", "◁/think▷", "<|channel>thought", "<channel|>", "x" * 100),
        *("*", "#", ".", "<think a=b", "<think ", "/>", " to=x", "<|call|>", "<|constrain|>", "\r\n", "\t", "1. "),
    )
)


@given(st.lists(PIECES, max_size=40), st.booleans())
def test_the_pieces_add_up_to_what_is_delivered(pieces: list[str], holds: bool) -> None:
    written = "".join(pieces)
    text, answer = PreviewText(holds=holds), route_assistant(written)
    shown = ""
    reads: list[Callable[[], str]] = [*(partial(text.feed, piece) for piece in pieces), text.flush]
    for read in reads:
        piece = read()
        assert not (holds and text.is_wrong)
        shown = piece if text.is_wrong else shown + piece
        text.is_wrong = False
    assert shown == answer.text
    whole = PreviewText(holds=True)
    assert whole.feed(written) + whole.flush() == answer.text


@given(st.lists(PIECES, max_size=40))
def test_no_word_is_lost(pieces: list[str]) -> None:
    words = [f"word{place}." for place in range(len(pieces))]
    answer = route_assistant("".join(f"{word}{piece}" for word, piece in zip(words, pieces, strict=True)))
    kept = f"{answer.content}\n{answer.thoughts}"
    assert [word for word in words if word not in kept] == []
