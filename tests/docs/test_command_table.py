"""The table of the words of the command line: what the groups of commands declare, and nothing else."""

from __future__ import annotations

from bubbot.app.command_table import COMMANDS
from tests.docs.command_table import FILE, find_groups, write_table


def test_it_is_what_the_groups_declare() -> None:
    assert FILE.read_text(encoding="utf-8") == write_table(), "python -m tests.docs.command_table writes it again"


def test_it_has_the_word_of_every_feature_and_of_every_command_of_the_shell() -> None:
    assert set(COMMANDS) == {*find_groups()}
