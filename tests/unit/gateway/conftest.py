"""Inbox and outbox keep their promises on one tape and on eight shards."""

from __future__ import annotations

import pytest

from bubbot.tape.store import TapeStore


@pytest.fixture(params=["memory", "sqlite", "sharded"])
def store(request: pytest.FixtureRequest) -> TapeStore:
    """Each store in turn, and one with sharded system tapes."""
    found: TapeStore = request.getfixturevalue(f"{request.param}_store")
    return found
