"""The thoughts within a model's text."""

from __future__ import annotations

import pytest

from bubbot.runtime.thoughts import ThoughtSplitter, lacks_opening, split_thoughts

MARKS = [
    ("<think>", "</think>"),
    ("<think>\n", "\n</think>\n\n"),
    ("<think >", "</think >"),
    ("< think >", "< / think >"),
    ("<THINK>", "</Think>"),
    ("<think type='deep' n=1>", "</think>"),
    ("<think>", "</think/>"),
    ("<thinking>", "</thinking>"),
    ("<thinking>", "</think>"),
    ("<antThinking>", "</antThinking>"),
    ("<thought>", "</thought>"),
    ("<thoughts>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<reasoning_content>", "</reasoning_content>"),
    ("<REASONING_SCRATCHPAD>", "</REASONING_SCRATCHPAD>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<M2_7think>", "</M2_7think>"),
    ("<deepseek_thought>", "</thought>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|think|>", "<|/think|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|start|>assistant<|channel|>analysis<|message|>", "<|end|>"),
    ("<|channel|>commentary to=functions.run <|constrain|>json<|message|>", "<|call|>"),
    ("<|start|>assistant to=functions.run<|channel|>commentary<|constrain|>json<|message|>", "<|call|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|message|>"),
]


@pytest.mark.parametrize(("opening", "closing"), MARKS)
@pytest.mark.parametrize(
    "before", ["", "  \n", "Wait.\n", "Wait.\n   ", "<think>a</think>", "Wait.\n<thought>a</thought> "]
)
def test_a_thought_begins_with_its_mark_at_the_beginning_of_a_line_and_ends_with_its_own(
    before: str, opening: str, closing: str
) -> None:
    visible, thoughts = split_thoughts(f"{before}{opening}They ask `x`\n\nfor a</b> greeting.{closing}Hello!")
    assert visible.split() == [*(["Wait."] if "Wait" in before else []), "Hello!"]
    assert "for a</b> greeting." in thoughts[-1]
    assert len(thoughts) == 1 + before.count("<t")


@pytest.mark.parametrize("closing", sorted({mark for _, mark in MARKS if "<|" not in mark and mark != "</think/>"}))
@pytest.mark.parametrize("glue", ["\n", "", "`code`\n", " And `a`."])
def test_a_mark_that_ends_what_none_began_makes_all_before_it_a_thought(closing: str, glue: str) -> None:
    text = f"They ask for <b>a</b> greeting.\n```\nx\n```\nI say `hi`.{glue}{closing}\n\nHello!"
    visible, thoughts = split_thoughts(text)
    assert visible.strip() == "Hello!"
    assert thoughts == [text.partition(closing.strip())[0] + closing.strip()]


NAMED = [
    "DeepSeek wraps its reasoning in `<think>` and `</think>`. To strip it:\n```python\nre.sub(r'<think>.*', '', s)\n```\nAll.",
    "`<think>` begins it, `</think>` ends it.",
    "``<think>`` and ``</think>``",
    "```\n<think>\nhm\n</think>\n```",
    "~~~~text\n~~~\n<think>hm</think>\n~~~~",
    "- like this:\n  ```xml\n<think>hm</think>\n  ```\n- and on",
    "> ```\n> x\n<think>hm</think>\n> ```",
    "1. ```\n<think>hm\n```",
    "```\n<think>never closed",
    "x\n    <think>hm</think>",
    "use <think> to begin and </think> to end it",
    "Put it between <think>and</think>. That is all.",
    "It ends with </think> as always",
    'It ends with "</think>" as always',
    "It ends with （</think>） as always",
    "`it ends with</think>` as code",
    "`a` and `it ends with</think>` as code",
    "Hello.\n<think>and then it never ended",
    "Hello <think>hm</think> you",
    "<thinkers> are people",
    "<rethink>x</rethink>",
    "<think-tank>x</think-tank>",
    "<b>a</b> < c and d > e",
    "a <|endoftext|> b",
    "[THINKING] of you",
    "[think]a[/think]",
    "Hello.<|end|>",
    "<output>42</output>",
    "<answer>42</answer> is how XML looks",
    "The <final>word</final>",
]
"""Texts that name or show marks, and hold no thought."""


@pytest.mark.parametrize("text", NAMED)
def test_what_only_names_or_shows_marks_keeps_all_of_its_text(text: str) -> None:
    assert split_thoughts(text) == (text, [])


MENTION = "<think>They ask what `</think>` is, and `</think>` again.</think>Hello!"


def test_a_thought_may_name_its_own_end_as_code() -> None:
    assert split_thoughts(MENTION) == ("Hello!", [MENTION.removesuffix("Hello!")])
    assert split_thoughts("<think>I say `hi`</think>Hello!")[0] == "Hello!"
    assert split_thoughts("<think>I say `hi`</think>")[0] == ""


def test_a_thought_that_never_ends_is_one_if_nothing_stands_before_it() -> None:
    assert split_thoughts("  <think>a\nb") == ("  ", ["<think>a\nb"])
    assert split_thoughts("<think>a</think>\n<think>b") == ("\n", ["<think>a</think>", "<think>b"])


def test_a_mark_that_ends_nothing_is_no_part_of_the_answer_if_only_thoughts_stand_before_it() -> None:
    assert split_thoughts("</think>\n\nHello!")[0].strip() == "Hello!"
    assert split_thoughts("<think>a</think>\n</think>Hello!")[0].strip() == "Hello!"
    assert split_thoughts("<think>a</think>Hello!\n</think>")[0] == "Hello!\n</think>"


@pytest.mark.parametrize(
    "text",
    [
        "<final>Hello!</final>",
        "<final>Hello!</final>\n\n",
        "<FINAL>Hello!",
        "<think>a</think>\n<final>Hello!</final>",
        "<think>a</think>\n<answer>Hello!</answer>",
        "<think>a</think><response>Hello!</response>\n",
        "<think>a</think><output>Hello!</output>",
        "a\n</think>\n<answer>Hello!</answer>",
        "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>Hello!<|END_RESPONSE|>",
        "<|begin_of_thought|>a<|end_of_thought|><|begin_of_solution|>Hello!<|end_of_solution|>",
        "<think/>Hello!",
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>",
        "<|channel|>final<|message|>Hello!<|end|>",
    ],
)
def test_what_models_write_around_the_answer_is_no_part_of_it(text: str) -> None:
    assert split_thoughts(text)[0].strip() == "Hello!"


def test_the_end_of_a_wrapper_within_the_answer_stays() -> None:
    assert split_thoughts("<final>a</final> and b</final>")[0] == "a</final> and b"
    assert split_thoughts("<final>a</answer>")[0] == "a</answer>"


def test_words_for_people_before_a_call_of_gpt_oss_are_shown() -> None:
    text = (
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>I look it up.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
    )
    visible, thoughts = split_thoughts(text)
    assert visible == "I look it up."
    assert len(thoughts) == 2


def test_a_splitter_that_holds_shows_an_answer_once_no_thought_can_end_in_it() -> None:
    splitter = ThoughtSplitter(holds=True)
    assert [splitter.feed(piece) for piece in ("Hel", "lo\n", "<think>a</think>", "Bye")] == ["", "", "Hello\n", "Bye"]


@pytest.mark.parametrize(
    ("thoughts", "lacks"),
    [
        ("", False),
        ("<think>a</think>", False),
        ("[THINK]a[/THINK]", False),
        ("<|channel|>analysis<|message|>a<|end|>", False),
        ("</think>", False),
        ("a\n</think>", True),
        ("\na</think>", True),
        ("`a`\n</think>\n<think>b</think>", True),
    ],
)
def test_thoughts_that_no_mark_began_are_known_by_their_text(thoughts: str, lacks: bool) -> None:
    assert lacks_opening(thoughts) is lacks


WHOLE = [
    *NAMED,
    MENTION,
    "<think>I say `hi`</think>Hello!",
    "<think>I say `hi`</think>",
    "Wait.\n<think>" + "long " * 60 + "</think>\nHello!",
    "Wait.\n<think type='deep'>" + "long " * 60,
    "- ```\n  ``\n<think>\n  `````\n<think>a</think>Hello!",
    "<final>a</final>\n\nb</final>\n\n",
    "```\n```x\n<think>a</think>\n```\n",
    "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=f <|constrain|>json<|message|>{}<|call|>b",
    "Hello <|channel|>! <|start|> assistant [T [THINK ◁thi <thin",
    "a" * 5000 + "`</think>` `b",
    "`" + "a" * 5000 + "</think>` b",
]


@pytest.mark.parametrize("text", WHOLE)
@pytest.mark.parametrize("holds", [True, False])
def test_the_pieces_add_up_to_the_same_wherever_they_are_cut(text: str, holds: bool) -> None:
    whole = split_thoughts(text)
    cuts = [[text[:cut], text[cut:]] for cut in range(len(text) + 1)] if len(text) < 1000 else []
    for pieces in [list(text), [text[place : place + 7] for place in range(0, len(text), 7)], *cuts]:
        splitter = ThoughtSplitter(holds=holds)
        assert ("".join([*map(splitter.feed, pieces), splitter.flush()]), splitter.thoughts) == whole


def test_an_answer_is_shown_as_soon_as_its_thought_has_ended() -> None:
    splitter = ThoughtSplitter(holds=False)
    assert [splitter.feed(piece) for piece in ("<think>I say `hi`", "</think>", "Hel", "lo!")] == ["", "", "Hel", "lo!"]


def test_code_may_follow_right_after_a_thought() -> None:
    assert split_thoughts("A hurry.</think>```\n<think>a</think>\n```")[0] == "```\n<think>a</think>\n```"


@pytest.mark.parametrize("text", NAMED)
def test_text_that_only_names_marks_is_shown_while_it_comes(text: str) -> None:
    splitter = ThoughtSplitter(holds=False)
    assert splitter.feed(f"{text}\n\nAnd on") in (f"{text}\n\nAnd on", "Hello.\n")
