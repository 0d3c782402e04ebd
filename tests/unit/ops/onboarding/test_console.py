"""Questions on streams that are no terminal."""

from __future__ import annotations

import io

import pytest

from bubbot.ops.onboarding.console import Console


@pytest.mark.parametrize(("typed", "secret"), [("sk-1\n", "sk-1"), ("  sk-2  \n", "sk-2"), ("\n", "")])
def test_a_secret_from_a_pipe_is_asked_for_without_a_word_about_the_screen(typed: str, secret: str) -> None:
    output, secrets = io.StringIO(), list[str]()
    console = Console(io.StringIO(typed), output, on_secret=secrets.append)
    assert console.ask_hidden("Token") == secret
    assert output.getvalue() == "Token: \n"
    assert secrets == [secret] * bool(secret)


def test_text_and_questions_break_between_words() -> None:
    output = io.StringIO()
    console = Console(io.StringIO("x\n"), output, find_columns=lambda: 20)
    console.tell("Enter takes what stands in [brackets].")
    assert console.ask("The key of a provider with a name", "", str) == "x"
    assert output.getvalue() == "Enter takes what\nstands in\n[brackets].\nThe key of a\nprovider with a\nname: \n"
