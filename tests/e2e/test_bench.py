"""The benchmarks on short tapes: every row is measured and the report is whole. How fast it was is no matter here."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from benchmarks.bench import tapes, words
from benchmarks.bench.__main__ import bench, given
from benchmarks.bench.baselines import Jsonl, RawSqlite
from benchmarks.bench.children import compiled
from benchmarks.bench.goals import Goal, goals
from benchmarks.bench.measure import Figures, Rate, Row, ratio
from benchmarks.bench.plan import Plan
from benchmarks.bench.report import report
from benchmarks.bench.searching import SORTS
from benchmarks.bench.talk import WITH_TOOLS, talking
from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.entry import Kind

SHORT = Plan(
    (200, 1_000),
    rounds=1,
    times=2,
    searches=1,
    sessions=(1, 4),
    history=200,
    turns=4,
    slow=2.0,
    opens=1,
    burst=0.6,
    queries=0,
)
WAIT = 60.0


def copies(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith("built-")]


def measured(row: Figures, *names: str) -> bool:
    return all(row[name] > 0 for name in names)


@pytest.mark.proof
async def test_every_row_is_measured_and_the_report_is_whole(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT):
        figures = await bench(SHORT, tmp_path)
    assert copies(tmp_path) == [], "copies are removed part by part"
    lines = ["turn, JSON lines", "append, JSON lines"]
    rows = ["append", "append, raw", "fork and merge", "context", "context, raw", "memory", "info", "turn", *lines]
    for size in ("200", "1000"):
        single, search, fresh = (
            part[size] for part in (figures["single"], figures["search"]["sizes"], figures["fresh"])
        )
        assert set(single) == {*rows, "turn with two tools"}
        assert all(measured(row, "p50", "p99", "cpu") for row in single.values())
        assert set(search) == {name for sort in SORTS for name in (sort, f"{sort}, plain")}
        assert measured(fresh, "store", "bot", "messages")
    for many in ("1", "4"):
        assert set(figures["crowds"]["fast"][many]) == {
            "raw sqlite3", "merges", "forks and merges", "whole turns", "JSON lines",
        }  # fmt: skip
    judged = goals(SHORT, figures)
    said = report(json.loads(json.dumps(figures)), judged)
    assert all(one.name in said for one in judged)
    assert len(judged) == 15
    assert measured(figures["search"]["indexes"]["1000"], "seconds", "rate", "bytes", "texts")
    assert measured(figures["indexing"]["searches"], "p50", "worst")
    assert figures["indexing"]["rate"] >= 0
    if "slow" in figures["crowds"]:
        fast, slow = (figures["crowds"][disk]["1"]["raw sqlite3"] for disk in ("fast", "slow"))
        assert slow["rate"] < 500, "a commit takes 2 ms at least"
        assert fast["fsyncs"] >= 1, "every commit is counted"
    else:
        assert "The slow fsync is missing" in said


async def test_a_slow_fsync_is_left_out_with_its_reason_where_nothing_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await compiled(tmp_path) is None


def test_a_goal_is_reached_missed_or_not_measured() -> None:
    found = [Goal("a", 2.0, 1.9), Goal("b", 2.0, 1.9, least=True), Goal("c", 2.0, None, why="no compiler")]
    assert [one.reached for one in found] == [True, False, None]
    assert found[2].as_json()["why"] == "no compiler"


async def test_a_row_has_the_middle_and_the_worst_of_its_times() -> None:
    row = Row([0.001] * 99 + [0.5], [0.002], [0.001])
    assert row.figures() == {"times": 100, "p50": 1.0, "p99": 500.0, "cpu": 2.0, "rounds": [1.0]}
    rate = Rate()

    async def nothing() -> None:
        return None

    await rate.take(10, nothing(), iter([3, 8]).__next__)
    assert rate.figures()["fsyncs"] == 0.5


def test_a_ratio_is_the_middle_of_those_of_the_rounds() -> None:
    assert ratio({"rounds": [1.0, 30.0, 9.0]}, {"rounds": [1.0, 10.0, 1.0]}) == 3.0


class TestWhatIsMeasured:
    """The tapes and the baselines are what they say."""

    async def test_a_tape_has_as_many_entries_as_asked_for(self, tmp_path: Path) -> None:
        await tapes.build(tmp_path / "home", 203, chats=2)
        store = await open_readonly(tmp_path / "home" / "bubbot.db")
        assert [await store.head(tapes.name(chat)) for chat in range(2)] == [203, 203]
        assert (await store.audit()).findings == ()
        await store.aclose()

    def test_a_turn_has_eight_entries_of_realistic_size(self) -> None:
        made = words.Words()
        turns = [made.turn(number) for number in range(50)]
        assert {len(turn) for turn in turns} == {8}
        assert 2_000 < sum(words.size_of(turn) for turn in turns) / 50 < 4_000
        assert len(set(made.known)) == 20_000

    async def test_the_window_has_fifty_entries_and_a_turn_with_tools_calls_two(self, tmp_path: Path) -> None:
        await tapes.build(tmp_path / "home", 200)
        async with talking(tmp_path / "home") as talk:
            await talk.new_window()
            assert len(await talk.tape().from_last_anchor()) == words.WINDOW
            merged = (await talk.say(text=WITH_TOOLS)).merged_entries
        assert [entry.kind for entry in merged].count(Kind.TOOL_RESULT) == 2

    async def test_the_baseline_of_sqlite_writes_what_bubbot_can_verify(self, tmp_path: Path) -> None:
        await tapes.build(tmp_path / "home", 200)
        raw = RawSqlite(tmp_path / "home" / "bubbot.db")
        raw.write(raw.rows(tapes.name(0), words.Words().turn(1)))
        assert len(raw.window(tapes.name(0))) > 8
        raw.close()
        store = await open_readonly(tmp_path / "home" / "bubbot.db")
        assert await store.head(tapes.name(0)) == 208
        assert (await store.audit()).findings == ()
        await store.aclose()

    def test_the_baseline_of_lines_reads_window_and_memory_and_appends(self, tmp_path: Path) -> None:
        tapes.write_lines(tmp_path / "tape.jsonl", 200)
        file = Jsonl(tmp_path / "tape.jsonl")
        before = file.turn([b'{"kind":"message","payload":{}}\n'])
        assert file.turn([]) == before + 1
        file.close()


@pytest.mark.parametrize("option", ["rounds", "times", "turns", "burst"])
def test_what_would_measure_nothing_is_refused(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", f"--{option}", "0"])
    with pytest.raises(SystemExit, match=r"^2$"):
        given()
    assert f"--{option} 0" in capsys.readouterr().err
