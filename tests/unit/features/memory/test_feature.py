"""The memory of a session over its days: made with its first turn, pruned once a day, exported before a reset."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path

from bubbot.features.memory.feature import MemoryFeature
from bubbot.features.memory.settings import MemorySettings
from bubbot.features.memory.zone import MemoryZone
from bubbot.ports.channel import Role, Sender
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from tests.doubles import NO_RUNNER, SteppingClock
from tests.turns import Options, Played, running, says


def zone_of(tape: TapeService) -> MemoryZone:
    return MemoryZone(tape, now=SteppingClock(), zone=UTC)


async def notes_of(tape: TapeService) -> list[str]:
    return [note.content for note in (await zone_of(tape).read()).dailies]


async def test_a_session_has_a_memory_from_its_first_turn_on(memory_store: InMemoryStore) -> None:
    async with running(memory_store, Played(says("ok"))) as bench:
        for chat in ("home", "other", "home"):
            await bench.say("hello", chat=chat)
        for session in ("test:home", "test:other"):
            assert [each.version for each in await zone_of(bench.tape(session)).versions()] == [1]


async def test_old_notes_go_with_the_first_turn_of_a_day_in_each_session(memory_store: InMemoryStore) -> None:
    clock = SteppingClock()
    async with running(memory_store, Played(says("ok")), Options(clock=clock)) as bench:
        for chat in ("home", "other"):
            await bench.say(",memory.daily Rain.", chat=chat)
        home, other = bench.tape("test:home"), bench.tape("test:other")
        clock.advance(timedelta(days=31))
        await bench.say("hello")
        assert (await notes_of(home), await notes_of(other)) == ([], ["Rain."])
        await bench.say("hello", chat="other")
        assert await notes_of(other) == []
        await bench.say(",memory.daily date=2026-11-01 Old.")
        await bench.say("hello")
        assert await notes_of(home) == ["Old."]  # what is added goes with the next day
        clock.advance(timedelta(days=1))
        await bench.say("hello")
        assert await notes_of(home) == []


async def test_an_export_is_a_file_of_its_own_below_the_home(
    tape: TapeService, clock: SteppingClock, tmp_path: Path
) -> None:
    await tape.ensure_bootstrap_anchor()
    turn = Turn("t", "stdin:../a b", await tape.open_fork(), Sender("1"), Role.OWNER, clock, UTC, runner=NO_RUNNER)
    feature = MemoryFeature(tmp_path, clock, MemorySettings())
    await feature.open_zone(turn).save_long_term("Likes tea.")
    paths = [Path(await feature.export(turn)) for _ in range(2)]
    assert [path.parent for path in paths] == [tmp_path / "exports"] * 2
    assert paths[0].name.startswith("memory-stdin____a_b-20261121T")
    assert paths[0] != paths[1]
    assert "Likes tea." in paths[0].read_text(encoding="utf-8")
    assert (tmp_path / "exports").stat().st_mode & 0o777 == 0o700
