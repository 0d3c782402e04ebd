"""The reference of tasks says what the code says, and people can know all of it."""

from __future__ import annotations

import re

from bubbot.features.tasks.harness.feature_files import parse_harness
from bubbot.features.tasks.harness.steps import OWN_STEPS
from bubbot.features.tasks.schema import parse_schema
from tests.docs.pages import blocks
from tests.docs.task_pages import PAGE, write_page


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert write_page(page) == page, "run `python -m tests.docs.task_pages`"


def test_there_are_so_few_steps_that_a_person_can_know_them() -> None:
    rows = re.findall(r"^\| `[^`]+` \| (?:Given|When|Then)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == len(OWN_STEPS) <= 25


def test_the_files_that_the_page_shows_can_be_read() -> None:
    shown = {block.language: block.text for block in blocks(PAGE)}
    assert parse_schema(shown["ini"]).nodes
    assert parse_harness({"scripts/rules.feature": shown["gherkin"]}).rules
