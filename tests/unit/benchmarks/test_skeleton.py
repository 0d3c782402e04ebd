"""The skeleton of a turn writes what it is compared with, and a write that fails ends it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.skeleton import make_turns, measure_raw, measure_skeleton, open_database

MEASURES = [measure_raw, measure_skeleton]
TURNS, SESSIONS = 7, 3


@pytest.mark.parametrize("measure", MEASURES)
def test_all_entries_of_all_turns_stand_on_their_tapes(tmp_path: Path, measure: Callable[..., float]) -> None:
    turns = make_turns(TURNS)
    with open_database(tmp_path, SESSIONS) as connection:
        assert measure(connection, turns, SESSIONS) > 0
        counts = connection.execute(
            "SELECT tape, count(*), count(DISTINCT chain) FROM entries GROUP BY tape"
        ).fetchall()
        assert counts == [(tape, size * len(turns[0]), size * len(turns[0])) for tape, size in ((1, 3), (2, 2), (3, 2))]
        assert connection.execute("SELECT count(*) FROM forks").fetchone() == (0,)


@pytest.mark.parametrize("sessions", [1, SESSIONS])
def test_a_write_that_fails_ends_all_sessions(tmp_path: Path, sessions: int) -> None:
    with open_database(tmp_path, sessions) as connection:
        connection.execute("DROP TABLE fork_batches")
        with pytest.raises(ExceptionGroup) as caught:
            measure_skeleton(connection, make_turns(TURNS), sessions)
        assert caught.group_contains(sqlite3.OperationalError, match="fork_batches")
