"""What the product stores is what it stored when the golden files were recorded; see the package."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.golden.recording import CHECKPOINTS, DECLARED, PROJECTIONS, Recording, list_unrecorded, load_expected, record


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder: Path = tmp_path_factory.mktemp("golden")
    return asyncio.run(record(folder))


@pytest.fixture(scope="module")
def expected() -> Recording:
    return load_expected()


def test_every_declared_event_is_recorded_or_has_a_reason_why_not(expected: Recording) -> None:
    unrecorded = list_unrecorded()
    assert sorted([*expected.events, *unrecorded, *CHECKPOINTS]) == sorted(DECLARED)
    assert all(reason.strip() for reason in unrecorded.values())


@pytest.mark.parametrize("name", DECLARED)
def test_an_event_is_stored_as_it_was_recorded(name: str, recording: Recording, expected: Recording) -> None:
    assert recording.events.get(name) == expected.events.get(name)


def test_the_run_stores_no_event_that_is_not_declared(recording: Recording) -> None:
    assert set(recording.events) <= set(DECLARED)


def test_checkpoints_are_stored_as_they_were_recorded(recording: Recording, expected: Recording) -> None:
    assert recording.checkpoints == expected.checkpoints


def test_a_projection_reads_its_recorded_checkpoint_and_writes_the_same_text(
    recording: Recording, expected: Recording
) -> None:
    assert recording.encoded == expected.checkpoints


def test_each_projection_has_a_checkpoint(expected: Recording) -> None:
    assert {key.partition(" ")[0] for key in expected.checkpoints} == {each.name for each in PROJECTIONS}


def test_recorded_payloads_are_canonical_json_objects_with_the_name_of_their_event(expected: Recording) -> None:
    for name, texts in expected.events.items():
        for text in texts:
            assert json.loads(text)["name"] == name
