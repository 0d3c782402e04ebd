"""A start reads what follows the checkpoints, however much there is before them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench import startup


async def test_a_start_reads_as_little_of_a_long_past_as_of_a_short_one(tmp_path: Path) -> None:
    figures = []
    for entries, sessions in ((1_200, 10), (3_600, 30)):
        home = tmp_path / str(entries)
        await startup.build(home, entries, sessions)
        figures.append(await startup.measure(home))
    short, long = figures
    assert (long["jobs"], long["people"]) == (startup.JOBS, startup.JOBS + startup.TAIL)
    assert short["read"] == long["read"]
    # Checkpoints; facts after them; one fact for each job and person; how the home began.
    assert long["read"] <= 6 + 7 * startup.TAIL + 2 * startup.JOBS + 10
