"""The reference of the tape format says of every event what its payload model says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from bubbot.app.events import OWN_REFERENCES
from bubbot.tape.references import walk_fields
from tests.docs.names import written
from tests.docs.pages import ROOT
from tests.docs.reference_pages import FORMAT, write_references

PAGE = FORMAT.read_text(encoding="utf-8")
EVENTS = OWN_REFERENCES.events
CHECKPOINT_FIELDS = {"version", "after", "state"}
"""What every checkpoint has: the page says it once."""


def rows() -> Iterator[tuple[str, str]]:
    """The name of each event in the tables, and the cell about its data."""
    checkpoints, _, events = PAGE.partition("## Checkpoints")[2].partition("## References")[0].partition("## Events")
    for section in (checkpoints, events):
        for names, data in re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", section, re.MULTILINE):
            for name in re.findall(r"`([^`]+)`", names):
                yield name, data


def fields(name: str) -> set[str]:
    return {
        part.removesuffix("[]") for path, _ in walk_fields(EVENTS[name]) for part in path.replace("[]", "").split(".")
    }


def test_every_event_has_a_row_and_a_model() -> None:
    assert {name for name, _ in rows()} == EVENTS.keys()


@pytest.mark.parametrize("name", EVENTS)
def test_a_row_names_every_field_of_the_model(name: str) -> None:
    spans = re.findall(r"`([^`\n]+)`", dict(rows())[name])
    wanted = fields(name) - (CHECKPOINT_FIELDS if name.endswith("/checkpoint") else set())
    assert {field for field in wanted if field not in spans} <= ELSEWHERE.get(name, set())


ELSEWHERE = {
    "tape/anchor": fields("tape/anchor"),
    "handoff": fields("handoff") - {"name", "state"},
    "inbox/waiting": fields("inbox/received"),
    "inbox/pressed": fields("inbox/received"),
    "inbox/changed": fields("inbox/changed") - {"what", "external_id"},
    "outbox/preview-begin": fields("outbox/intent"),
    "budget/checkpoint": fields("budget/reserved"),
}
"""Fields that the page describes with an anchor, or with another event."""


def test_what_the_source_writes_is_in_the_model() -> None:
    names = written(ROOT, ("bubbot", "channels")).names
    events = {name: keys for name, keys in names.items() if name in EVENTS}
    assert events
    assert {name: keys - fields(name) for name, keys in events.items() if keys - fields(name)} == {}


def test_the_table_of_references_is_that_of_the_models() -> None:
    assert write_references(PAGE) == PAGE, "run `python -m tests.docs.reference_pages`"
