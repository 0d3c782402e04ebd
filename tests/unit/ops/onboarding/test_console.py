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
