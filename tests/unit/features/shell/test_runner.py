"""The output of a program that is kept: its beginning and its end, within a limit."""

from __future__ import annotations

import pytest

from bubbot.features.shell.runner import ProgramOutput


@pytest.mark.parametrize("limit", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_the_beginning_and_the_end_are_kept_and_what_is_left_out_is_counted(limit: int, chunk: int) -> None:
    letters, half = "abcdefghijklmnopqrstuvwxyz", max(limit // 2, 1)
    for length in range(len(letters) + 1):
        written = letters[:length]
        output = ProgramOutput(limit)
        for start in range(0, length, chunk):
            output.add(written[start : start + chunk].encode())
        left_out = length - 2 * half
        cut = f"{written[:half]}\n… [{left_out} bytes left out]\n{written[-half:]}"
        assert output.text() == (cut if left_out > 0 else written)
        assert output.size == length


def test_what_a_terminal_obeys_is_not_kept_and_broken_characters_are_replaced() -> None:
    output = ProgramOutput(100)
    output.add(b"a\x1b[31mb\xffc")
    text = output.text()
    assert "\x1b" not in text
    assert "\ufffd" in text
