"""The daemon under a short load, by the harness of `make soak`: every message answered once and in order."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak import words
from benchmarks.soak.measure import trend
from benchmarks.soak.parts import Plan, joined, load, provider, slow
from benchmarks.soak.table import table, verdicts
from benchmarks.soak.tended import tended

ROOT = Path(__file__).parents[2]
PLATFORMS = ("telegram", "discord")
WAIT = 60.0


def heard(*numbers: int) -> list[str]:
    return [words.answer(0, number) for number in numbers]


class TestFaults:
    """The check itself finds what it is for."""

    def test_every_answer_once_and_in_order_is_no_fault(self) -> None:
        assert words.faults("here", 0, 3, heard(0, 1, 2)) == []

    @pytest.mark.parametrize(
        ("texts", "fault"),
        [
            (heard(0, 2), "here chat 0: message 1 has no answer"),
            (heard(0, 1, 1, 2), "here chat 0: message 1 has 2 answers"),
            (heard(0, 2, 1), "here chat 0: the answer to message 2 stands before that to message 1"),
            ([*heard(0, 1), words.answer(7, 2)], "here chat 0: message 2 has no answer"),
            ([*heard(0, 1), words.answer(0, 2)[:40]], "here chat 0: message 2 has no answer"),
            ([*heard(0, 1, 2), "I could not."], "here chat 0: 'I could not.' is no answer to a message of it"),
        ],
    )
    def test_what_is_missing_doubled_moved_or_strange_is_told(self, texts: list[str], fault: str) -> None:
        assert fault in words.faults("here", 0, 3, texts)

    @pytest.mark.parametrize(
        ("texts", "faults"),
        [
            (["message 0.0, message 0.1", "message 0.2"], []),
            (["message 0.0", "message 0.2"], ["here chat 0: message 1 has no answer"]),
            (["message 0.0, message 0.1", "message 0.1, message 0.2"], ["here chat 0: message 1 has 2 answers"]),
            (["message 0.1, message 0.0, message 0.2"], ["here chat 0: the answers come in the order [1, 0, 2]"]),
            (["message 0.0, message 0.1, message 0.2, message 1.1"], ["here chat 0: an answer names message 1 of chat 1"]),
        ],
    )  # fmt: skip
    def test_of_joined_messages_each_is_named_once(self, texts: list[str], faults: list[str]) -> None:
        assert words.faults_of_joined("here", 0, 3, texts) == faults


FAILED = "openai did not take the key (trace 1a2b3c4d)"


@pytest.mark.parametrize(
    ("texts", "faults"),
    [
        ([words.answer(0, 0), FAILED], []),
        ([words.answer(0, 0)], ["here chat 0: 2 messages have 1 answers"]),
        ([words.answer(0, 0), FAILED, FAILED], ["here chat 0: 2 messages have 3 answers"]),
        ([words.answer(0, 1), FAILED], [f"here chat 0: {words.answer(0, 1)[:80]!r} is no answer to message 0"]),
        ([FAILED, words.answer(0, 1)[:20]], [f"here chat 0: {words.answer(0, 1)[:20]!r} is no answer to message 1"]),
    ],
)
def test_of_a_failing_model_each_message_is_answered_or_told_that_it_is_not(
    texts: list[str], faults: list[str]
) -> None:
    assert words.faults_of_failing("here", 0, 2, texts) == faults


def test_growth_is_that_of_the_last_third_over_the_first_after_warm_up() -> None:
    points = [(number * 100, 50.0 if number < 10 else 100.0 + number) for number in range(40)]
    went = trend(points, 1000)
    assert (went.first, went.last, went.peak) == (114.5, 134.5, 139.0)
    assert went.slope == pytest.approx(10.0)


@pytest.mark.proof
async def test_many_chats_on_every_platform_are_answered_once_and_in_order(tmp_path: Path) -> None:
    given = Plan(PLATFORMS, chats=4, messages=3, rounds=1, ahead=3)
    async with asyncio.timeout(WAIT):
        figures = {"load": await load(given, tmp_path)}
    assert figures["load"]["faults"] == []
    assert figures["load"]["messages"] == 12
    assert figures["load"]["files"]["peak"] > 0
    assert "messages answered" in table(figures)


@pytest.mark.proof
async def test_turns_that_wait_for_a_model_run_side_by_side(tmp_path: Path) -> None:
    given = Plan(PLATFORMS[:1], slow_chats=24, slow_messages=1, slow_seconds=1.0)
    async with asyncio.timeout(WAIT):
        figures = await slow(given, tmp_path)
    assert figures["faults"] == []
    assert figures["rate"] > 9, "eight at once would be eight a second"


@pytest.mark.proof
async def test_messages_that_are_joined_are_each_answered_once(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT):
        assert (await joined(Plan(PLATFORMS[:1], joined_chats=3), tmp_path))["faults"] == []


def test_growth_and_faults_are_said_in_sentences() -> None:
    went = {"first": 90.0, "last": 120.0, "slope": 1.0, "peak": 120.0}
    part = {
        "faults": ["telegram chat 1: message 2 has no answer"],
        "memory": went,
        "files": {**went, "last": 91.0},
        "connections": {**went, "last": 141.0},
    }
    assert verdicts({"load": part}, Plan(PLATFORMS, growth=10)) == [
        "load: telegram chat 1: message 2 has no answer",
        "after warm-up the daemon grew by 30.0 MB, from 90.0 to 120.0; 10 MB are allowed",
        "the daemon's open files grew from 90 to 91 after warm-up",
        "the daemon's open connections grew from 90 to 141 after warm-up",
    ]


@pytest.mark.proof
def test_the_limit_of_time_ends_everything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--chats", "2", "--messages", "8", "--limit", "0.5"]
    done = subprocess.run(
        [*command, "--json", str(tmp_path / "figures.json")],
        cwd=ROOT, capture_output=True, text=True, timeout=WAIT, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "did not end within 0.5 seconds" in done.stderr
    assert not (tmp_path / "figures.json").exists()


@pytest.mark.proof
async def test_a_provider_that_refuses_cuts_and_hangs_leaves_no_message_unanswered(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT * 2):
        went = await provider(Plan(PLATFORMS, provider_chats=8, provider_messages=5), tmp_path)
    assert went["faults"] == []
    assert {"401", "429", "cut", "dropped", "hung"} <= set(went["asked"])


@pytest.mark.proof
async def test_a_daemon_that_is_tended_loses_nothing(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT * 2):
        figures = await tended(Plan(PLATFORMS, chats=6, minutes=0.1, every=5.0), tmp_path)
    assert figures["faults"] == []
    assert figures["lives"] > 1
    assert {"backup", "restore", "verify", "reload"} <= set(figures["seconds"])
    assert "lives of the daemon" in table({"tended": figures})


@pytest.mark.proof
def test_the_whole_command_ends_well_and_writes_its_figures(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--chats", "40", "--messages", "1600", "--slow-chats", "20"]
    done = subprocess.run(
        [*command, "--json", str(tmp_path / "figures.json")],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "figures.json").read_text())["wrong"] == []
