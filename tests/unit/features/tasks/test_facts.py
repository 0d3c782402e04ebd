"""The facts about runs, as they are read back from a tape."""

from __future__ import annotations

from bubbot.features.tasks.facts import RunEventSeen


def test_an_event_is_read_back_with_its_fields_whatever_they_are_called() -> None:
    seen = RunEventSeen("K3Q7M", 1, 5.0, "call", "file.edit", "clean", 1, {"new": "", "values": 2, "items": [1]})
    assert RunEventSeen.of(seen.to_entry()).number == 1
    assert RunEventSeen.of(seen.to_entry()).fields["values"] == 2
