"""The recorded sessions on the page about a long chat are complete, and the scripted one is what a new run gives."""

from __future__ import annotations

import re

import pytest

from tests.docs.sessions import BLOCK, LAST, LIVES, PAGES, hold


def recorded() -> dict[str, str]:
    return {found[2]: found[0] for found in BLOCK.finditer(PAGES[0].read_text(encoding="utf-8"))}


def without_numbers(transcript: str) -> str:
    """Ids depend on how far a turn was when it was killed."""
    return re.sub(r"(#?\d+(-\d+)?(, )?)+", "#", transcript)


def test_both_pages_have_the_same_sessions() -> None:
    english, chinese = (BLOCK.findall(page.read_text(encoding="utf-8")) for page in PAGES)
    assert english == chinese


@pytest.mark.parametrize("model", ["scripted", "local"])
def test_a_session_shows_every_line_of_every_life(model: str) -> None:
    transcript = recorded()[model]
    for line in (*(line for life in LIVES for line in life), *LAST):
        assert f"> {line}\n" in transcript
    assert transcript.count("(killed by SIGKILL before the answer)\n") == len(LIVES) - 1
    processes = transcript.split("$ bubbot chat")[1:]
    assert len(processes) == len(LIVES)
    for process in processes[1:]:
        answer = process.splitlines()[1]
        assert answer, "the next process answers what was left open"
        assert not answer.startswith(">")


def test_the_last_questions_were_answered_from_their_threads() -> None:
    transcript = recorded()["scripted"]
    assert "On the 3rd of May; the hotel is the Aurora." in transcript
    assert "recalls #23-24 of the window of #18" in recorded()["local"]


@pytest.mark.proof
def test_the_scripted_session_is_what_a_new_run_gives() -> None:
    assert without_numbers(hold("scripted")) in without_numbers(recorded()["scripted"])
