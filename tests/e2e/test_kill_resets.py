"""Messages wait behind every kind of reset, and the process is killed at every point: lost 0, twice 0."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from bubbot.gateway.inbox import inbox_tape
from bubbot.gateway.outbox import outbox_tape
from tests.e2e.daemon import WAIT, configured, running
from tests.e2e.kill_harness import KILLED, Bench
from tests.e2e.platforms import OnTelegram
from tests.fakes.botapi.server import Server

KINDS = {
    "erase": (",reset erase",),
    "archive": (",reset archive",),
    "erase twice": (",reset erase", ",reset erase"),
    "archive, erase": (",reset archive", ",reset erase"),
    "erase, archive": (",reset erase", ",reset archive"),
    "asked only": (",reset",),
}
OPERATIONS = ("open-fork", "merge", "send", "append-outbox")
SAMPLE = {
    "erase": ("merge:after#2", "open-fork:after#3", "merge:before#3"),
    "erase twice": ("merge:after#2", "send:after#3"),
    "archive, erase": ("merge:after#3",),
}
"""Points for the default suite: after the reset, in the turn behind it, and before that is merged."""


@dataclass
class ResetBench(Bench):
    """A home in which messages wait behind resets."""

    CHILD: ClassVar[str] = "tests.e2e.reset_child:run"

    def lost_and_doubled(self, messages: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """The messages without an answer, and those with more than the receipts allow."""
        printed = [line for line in (self.home / "printed").read_text().splitlines() if line]
        answers = Counter(line for line in printed if line.startswith("answer to <"))
        wanted = Counter(f"answer to <{message}>" for message in messages if not message.startswith(","))
        heads = ("The tape starts anew", "This tape has")
        resets = Counter({"reset": sum(line.startswith(heads) for line in printed)})
        answers, wanted = answers + resets, wanted + Counter(reset=sum(text.startswith(",") for text in messages))
        receipts = self.entries(outbox_tape("stdin"), "outbox/receipt")
        may_repeat = sum("resumed" in entry.payload["data"] for entry in receipts)
        doubled = answers - wanted
        return list(wanted - answers), list(doubled) if doubled.total() > may_repeat else []

    def undecided(self, number: int) -> list[str]:
        """The inbounds that are not done exactly once, and what is damaged."""
        done = Counter(
            inbound
            for entry in self.entries(inbox_tape("stdin"), "inbox/done")
            for inbound in entry.payload["data"]["inbounds"]
        )
        return [f"inbound {inbound} is done {count} times" for inbound, count in done.items() if count != 1] + (
            [] if len(done) == number else [f"{len(done)} of {number} are done"]
        )


def kill_and_go_on(home: Path, kind: str, point: str) -> tuple[bool, list[str], list[str], list[str]]:
    """Whether it was killed at this point, what is lost, what is doubled, and what else is wrong."""
    bench, messages = ResetBench(home), ("first", *KINDS[kind], "one", "two")
    code = bench.run(messages, point, str(len(messages)))
    assert code in (0, KILLED), (home / "errors").read_text()
    assert bench.run(()) == 0, (home / "errors").read_text()
    lost, doubled = bench.lost_and_doubled(messages)
    return code == KILLED, lost, doubled, bench.undecided(len(messages))


@pytest.mark.sampled(2)
@pytest.mark.law("T2", "T17")
@pytest.mark.parametrize(("kind", "point"), [(kind, point) for kind, points in SAMPLE.items() for point in points])
def test_a_kill_behind_a_reset_loses_and_doubles_nothing(tmp_path: Path, kind: str, point: str) -> None:
    assert kill_and_go_on(tmp_path / "home", kind, point) == (True, [], [], [])


@pytest.mark.proof
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_any_point_around_a_reset_loses_and_doubles_nothing(tmp_path: Path, kind: str) -> None:
    """Prints one row of the table: the kind, kills, lost, twice."""
    turns = len(KINDS[kind]) + 3
    points = [
        f"{operation}:{side}#{number}"
        for number in range(1, turns + 1)
        for operation in OPERATIONS
        for side in ("before", "after")
        if (number, operation) != (1, "open-fork")  # nothing has to be accepted before the first turn
    ]
    points += [f"model:before#{number}" for number in (1, 2, 3)]
    kills, lost, twice, wrong = 0, dict[str, list[str]](), dict[str, list[str]](), dict[str, list[str]]()
    for place, point in enumerate(points):
        is_killed, lost[point], twice[point], wrong[point] = kill_and_go_on(tmp_path / str(place), kind, point)
        kills += is_killed
    found = [{point: faults for point, faults in table.items() if faults} for table in (lost, twice, wrong)]
    print(f"| {kind} | {len(points)} | {kills} | {len(found[0])} | {len(found[1])} |")
    assert found == [{}, {}, {}]
    assert kills == len(points)


@pytest.mark.proof
@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_people_say_behind_a_reset_on_telegram_is_answered_after_a_restart(
    tmp_path: Path, kind: str, end: str
) -> None:
    """The bot is stopped while it answers the first message behind the reset; two more wait."""
    script = {
        "rules": [{"when": "slow", "steps": [{"text": "answer to <{text}>", "delay": 1.5}]}],
        "default": [{"text": "answer to <{text}>"}],
    }
    waiting = [f"slow {number}" for number in range(3)]
    async with Server(limits=None, conflict_pause=0.1) as server:
        platform = OnTelegram(server)
        ada = platform.person("Ada")
        configured(tmp_path / "home", server, script, owners=[int(ada)], debounce=0)
        async with running(tmp_path / "home") as daemon:
            for text in ("slow before", *KINDS[kind], *waiting):
                platform.say(ada, text)
            heads = ("The tape starts anew", "This tape has")
            resets = len(KINDS[kind])
            await server.until(lambda: sum(a.startswith(heads) for a in platform.answers(ada)) == resets, WAIT)
            await (daemon.end() if end == "SIGTERM" else daemon.kill())
        async with running(tmp_path / "home") as daemon:
            await server.until(lambda: f"answer to <{waiting[-1]}>" in platform.answers(ada), WAIT)
            await daemon.quiet(server)
        answers = [text for text in platform.answers(ada) if text.startswith("answer to")]
        assert answers == [f"answer to <{text}>" for text in ("slow before", *waiting)]
