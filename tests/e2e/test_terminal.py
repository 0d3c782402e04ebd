"""The line editor on a real terminal."""

from __future__ import annotations

import json
import re
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bot import entries, said
from tests.e2e.terminal import CTRL_C, CTRL_D, ENTER, TAB, UP, WAIT, Terminal

STORY = " ".join(f"word{number}" for number in range(60))
SCRIPT: dict[str, Any] = {
    "rules": [
        {"when": "slow", "steps": [{"delay": 60, "text": "late"}]},
        {"when": "story", "steps": [{"pace": 0.02, "text": STORY}]},
        {"when": "soon", "steps": [{"delay": 2.5, "text": "done"}]},
        {"when": "evil", "steps": [{"text": "a\x1b]0;owned\x07b\x1b[2Jc\u202ed"}]},
        {
            "when": "look",
            "steps": [
                {"text": "Let me look.", "calls": [{"name": "tape_info"}, {"name": "odd"}]},
                {"text": "# Found\n\nIt is **bold**\nand `short`."},
            ],
        },
    ]
}


_FAINT_QUESTIONS = re.compile(r"\x1b\[2m> (one, soon|the second|alone)")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return path


def typed(home: Path) -> list[object]:
    """What people have said, as the tape has it."""
    messages: list[Any] = [entry["payload"] for entry in entries(home, "stdin:default", "--kinds", "message")]
    return [one["content"] for one in messages if one["role"] == "user"]


def statuses(home: Path) -> list[str]:
    """How the turns ended."""
    found = [entry["payload"] for entry in entries(home, "stdin:default", "--kinds", "event")]
    return [one["data"]["status"] for one in found if one["name"] == "turn/end"]  # type: ignore[index]


def until_printed(home: Path, count: int) -> None:
    """Wait until that many answers are printed, as the tape has it."""
    deadline = time.monotonic() + WAIT
    while _count_receipts(home) < count:
        assert time.monotonic() < deadline, f"{count} answers are not printed yet"
        time.sleep(0.05)


def _count_receipts(home: Path) -> int:
    facts: list[Any] = [entry["payload"] for entry in entries(home, "bubbot/outbox/stdin", "--kinds", "event")]
    return sum(fact["name"] == "outbox/receipt" for fact in facts)


def test_a_line_is_answered_and_a_later_chat_knows_it_by_the_arrow_keys(home: Path) -> None:
    with Terminal(home) as chat:
        chat.say("hello")
        chat.expect("You said: hello")
        chat.say(",tape.info")
        chat.expect("entries: ")
        chat.settle()
        chat.type(",quit")
        chat.expect(",quit")
        chat.type(ENTER)
        shown = chat.expect("Bye. The conversation stays on the tape.\n")
        assert chat.ended() == 0
        assert chat.left_as_found()
        assert shown.count("> ,quit") == 1, "a line is drawn once more, whole, when it is entered"
        assert ">" not in shown.partition("> ,quit")[2]
    (kept,) = home.rglob("terminal_history")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with Terminal(home) as chat:
        chat.type(UP + UP)
        chat.expect(",tape.info")
        chat.type(UP + ENTER)
        chat.expect("You said: hello")
        chat.type(CTRL_D)
        assert chat.ended() == 0
        assert chat.left_as_found()
    assert typed(home) == ["hello", "hello"]


def test_commands_and_their_arguments_are_completed(home: Path) -> None:
    with Terminal(home) as chat:
        chat.type(",tape.inf" + TAB)
        chat.expect("tape.info")
        chat.type(ENTER)
        chat.expect("entries: ")
        chat.type(",search nothing lim" + TAB)
        chat.expect("limit=")
        chat.type("1" + ENTER)
        until_printed(home, 2)
    events: list[Any] = [entry["payload"] for entry in entries(home, "stdin:default", "--kinds", "event")]
    commands = [one["data"] for one in events if one["name"] == "command"]
    assert [(one["raw"], one["status"]) for one in commands] == [
        (",tape.info", "ok"),
        (",search nothing limit=1", "ok"),
    ]


def test_a_paste_arrives_whole_and_lines_can_be_broken_by_hand(home: Path) -> None:
    with Terminal(home) as chat:
        chat.type("\x1b[200~one\n  two\n\nthree\x1b[201~")
        chat.type(ENTER)
        chat.expect("You said: one")
        chat.type("four\x1b\rfive" + ENTER)
        chat.expect("You said: four")
        chat.type("six\\" + ENTER + "seven" + ENTER)
        chat.expect("You said: six")
        until_printed(home, 3)
    assert typed(home) == ["one\n  two\n\nthree", "four\nfive", "six\nseven"]


def test_ctrl_c_stops_the_turn_and_not_the_bot_and_what_was_typed_ahead_is_answered(home: Path, script: Path) -> None:
    with Terminal(home, script=script) as chat:
        chat.say("a slow question")
        chat.expect("Ctrl-C stops")
        chat.say("the next one")
        chat.type(CTRL_C)
        chat.expect("Stopped.")
        chat.expect("You said: the next one")
        chat.settle()
        chat.type("rubbish" + CTRL_C)
        chat.expect("Ctrl-D or ,quit leaves.")
        chat.say("fine")
        chat.expect("You said: fine")
        until_printed(home, 3)
    assert statuses(home) == ["stopped", "answered", "answered"]
    assert typed(home) == ["a slow question", "the next one", "fine"]


def test_ctrl_c_stops_what_is_under_way_after_the_end_of_the_input_too(home: Path, script: Path) -> None:
    with Terminal(home, script=script) as chat:
        chat.say("a slow question")
        chat.expect("Ctrl-C stops")
        chat.type(CTRL_D)
        chat.expect("Waiting for the answer")
        chat.type(CTRL_C)
        chat.expect("Stopped.")
        assert chat.ended() == 0


def test_an_answer_is_shown_while_it_is_written_and_whole_in_the_end_whatever_the_window_does(
    home: Path, script: Path
) -> None:
    with Terminal(home, script=script) as chat:
        chat.say("a story")
        chat.expect("word9")
        chat.expect("Ctrl-C stops")
        chat.resize(43, 20)
        chat.expect("word30")
        chat.resize(60, 30)
        chat.expect("word59")
        chat.say("and now?")
        chat.expect("You said: and now?")
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", chat.sent)
        shown = shown.replace("\r", "")
        lines = [line.rstrip() for line in shown[shown.rindex("word0 word1 ") :].split("\n")]
        assert " ".join(lines[:10]).startswith(STORY)
        assert max(map(len, lines[:7])) <= 60


def test_each_of_two_answers_to_questions_typed_ahead_shows_its_question(home: Path, script: Path) -> None:
    with Terminal(home, script=script) as chat:
        chat.say("one, soon " + "on " * 60)
        chat.expect("working 0 s  (Ctrl-C stops)")
        chat.expect("1")  # the seconds: only what changes is drawn again
        chat.say("the second")
        chat.expect("You said: the second")
        until_printed(home, 2)  # the text above may be one in progress, beside which "alone" would be typed ahead
        chat.say("alone")
        chat.expect("You said: alone")
        chat.type(CTRL_D)
        assert chat.ended() == 0
    first, second = _FAINT_QUESTIONS.finditer(chat.sent)
    assert (first[1], second[1]) == ("one, soon", "the second")
    # the last time each was drawn: a streamed answer is first drawn beside the prompt, without its question
    last = chat.sent.rindex("You said: the second")
    assert first.start() < chat.sent.rindex("done") < second.start() < last
    assert "…" in chat.sent[first.start() : chat.sent.rindex("done")]


def test_a_terminal_does_not_obey_what_a_model_wrote(home: Path, script: Path) -> None:
    with Terminal(home, script=script) as chat:
        chat.say("evil")
        chat.expect("a\ufffd]0;owned\ufffdb\ufffd[2Jc\ufffdd")
        assert "\x1b]0;owned" not in chat.sent
        assert "\x1b[2J" not in chat.sent


def test_tools_are_a_line_each_and_the_answer_is_set_as_markdown(home: Path, script: Path) -> None:
    with Terminal(home, script=script) as chat:
        chat.say("look")
        chat.expect("Let me look.")
        chat.expect("· tape_info {} → ")
        chat.expect(" characters\n")
        chat.expect("· odd {} → failed")
        shown = chat.expect("and short.")
        assert "It is bold\n" in shown
        assert "\x1b[1mbold\x1b[0m" in chat.sent


def test_without_colours_there_are_none_and_on_a_dumb_terminal_lines_only(home: Path, script: Path) -> None:
    with Terminal(home, script=script, NO_COLOR="1") as chat:
        chat.say("look")
        chat.expect("and short.")
        assert re.findall(r"\x1b\[[0-9;]*(?:3[0-79]|4[0-79]|38|48|9[0-7])[0-9;]*m", chat.sent) == []
    with Terminal(home, TERM="dumb") as chat:
        chat.type("plain\n")
        chat.expect("You said: plain")
        assert "\x1b" not in chat.sent


@pytest.mark.parametrize("how", ["term", "hang up"])
def test_a_signal_and_a_hang_up_end_it_cleanly_and_the_turn_is_taken_up_later(
    home: Path, script: Path, how: str
) -> None:
    with Terminal(home, script=script) as chat:
        chat.say("a slow question")
        chat.expect("Ctrl-C stops")
        if how == "term":
            chat.process.send_signal(signal.SIGTERM)
            assert chat.ended() == 128 + signal.SIGTERM
            assert chat.left_as_found()
            assert "Traceback" not in chat.sent
        else:
            chat.hang_up()
            assert chat.ended() == 128 + signal.SIGHUP
    assert said(home, ",memory.show")[0] == "You said: a slow question"
