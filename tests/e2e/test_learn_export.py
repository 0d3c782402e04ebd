"""`bubbot export` over a home in which much has happened: consent, completeness, and files that are whole or not there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bubbot.features.memory.scopes import WORKSPACE_TAPE
from bubbot.features.people.consent import CONSENT_TAPE, WITHDRAWN
from bubbot.features.people.facts import Consent
from bubbot.home import Home
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.service import TapeService
from tests.doubles import SteppingClock
from tests.e2e import bot, forked
from tests.trace.home import apart, lived, words_about, words_of_tapes

CANARY = re.compile(r"zq\d{5}x|zp\d{5}x")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose people allow evaluation, and nobody training."""
    home = tmp_path_factory.mktemp("learn") / "home"
    lived(home)
    return home


def export(home: Path, name: str, *arguments: str) -> tuple[subprocess.CompletedProcess[bytes], Path]:
    out = home.parent / name
    return bot.run(home, "export", *arguments, "--out", str(out)), out


def words_for_all(home: Path) -> set[str]:
    """What the owner, who allows evaluation, wrote into the memory that all chats share."""
    return set(apart(words_of_tapes(home))[WORKSPACE_TAPE])


def receipt_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.with_name(path.name + ".receipt.json").read_text())
    assert found["sha256"] == sha256(path.read_bytes()).hexdigest()
    assert found["bytes"] == path.stat().st_size
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("chat", ["tg:1", "tg:5", "tg:7", "tg:-8"])
@pytest.mark.parametrize("form", ["atif", "openai-chat"])
def test_nothing_goes_out_for_a_purpose_that_people_did_not_allow(home: Path, chat: str, form: str) -> None:
    done, out = export(home, f"training{chat}{form}", form, chat)
    assert done.returncode == 2, done.stderr
    assert b"there is nothing to export (" in done.stderr
    assert b"consent: " in done.stderr
    assert not list(home.parent.glob(f"{out.name}*"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("chat", ["tg:1", "tg:5", "tg:7"])
@pytest.mark.parametrize("form", ["atif", "openai-chat"])
def test_an_export_has_words_of_its_people_and_of_nobody_else(home: Path, chat: str, form: str) -> None:
    done, out = export(home, f"{form}{chat}", form, chat, "--for", "evaluation")
    assert done.returncode == 0, done.stderr
    found = set(CANARY.findall(out.read_text()))
    assert found
    assert found <= apart(words_about(home, chat)) | words_for_all(home)
    receipt = receipt_of(out)
    (part,) = receipt["slices"]
    assert (part["session"], part["first"], receipt["purpose"]) == (chat, 1, "evaluation")
    assert part["hash"]
    assert receipt["is_complete"] is (not part["left_out"] and not receipt["losses"])
    if chat == "tg:5":  # its model was shown another chat
        assert part["left_out"]["unknown people"] >= 1


def test_what_one_person_takes_back_is_in_no_export_of_the_others(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "home"
    shutil.copytree(home, copy)

    async def withdraw() -> None:
        store = await open_store(Home(copy).database, salt=os.urandom, now=SteppingClock())
        tape = TapeService(store, CONSENT_TAPE, now=SteppingClock(), new_id=str)
        await tape.append([Consent("tg", "1", "evaluation").to_entry(WITHDRAWN)])
        await store.aclose()

    apart(withdraw())
    for chat in ("tg:5", "tg:7"):
        done, out = export(copy, f"after{chat}", "atif", chat, "--for", "evaluation")
        assert done.returncode == 0, done.stderr
        found = set(CANARY.findall(out.read_text()))
        assert found
        assert not found & words_for_all(copy)


def test_require_complete_writes_nothing_and_says_why(home: Path) -> None:
    done, out = export(home, "whole.json", "atif", "tg:5", "--for", "evaluation", "--require-complete")
    assert done.returncode == 2
    assert b"would not be complete (" in done.stderr
    assert not list(home.parent.glob(f"{out.name}*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("atiff", "tg:5"), "must be atif, openai-chat"),
        (("atif", "tg:5 tg:7"), "one slice"),
        (("openai-chat", "tg:5@99999"), "99999"),
        (("openai-chat", "tg:5@12..nothing"), "nothing"),
        (("openai-chat", "tg:5", "--discount", "2"), "discount"),
        (("openai-chat", "tg:5", "--for", "fun"), "fun"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(home: Path, arguments: tuple[str, ...], words: str) -> None:
    done, out = export(home, "wrong.jsonl", *arguments)
    assert done.returncode == 2
    assert words.encode() in done.stderr, done.stderr
    assert not list(home.parent.glob(f"{out.name}*"))


def test_a_file_that_is_there_stays_and_a_slice_has_its_turns_only(home: Path) -> None:
    (home.parent / "there").write_text("mine")
    done, out = export(home, "there", "openai-chat", "tg:5@1-40", "--for", "evaluation")
    assert (done.returncode, out.read_text()) == (2, "mine")
    assert not out.with_name("there.receipt.json").exists()
    done, out = export(home, "slices.jsonl", "openai-chat", "tg:5@1-40", "tg:7@1-40", "--for", "evaluation")
    assert done.returncode == 0, done.stderr
    assert [each["last"] for each in receipt_of(out)["slices"]] == [40, 40]


@pytest.mark.parametrize("out", ["-", ".", "..", "/", "", "x" * 245, "nowhere/out.jsonll"])
def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(home: Path, out: str) -> None:
    before = {*home.parent.iterdir()}
    done = bot.run(home, "export", "openai-chat", "tg:5", "--for", "evaluation", "--out", out)
    assert done.returncode == 2
    assert "file" in bot.sentence(done)
    assert {*home.parent.iterdir()} == before


def test_an_archive_is_exported_whole_or_in_part_and_counts_are_of_what_was_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for text in ("the garden", "the cellar"):
        assert bot.run(home, "ask", "--session", "ours", text).returncode == 0
    archive = bot.run(home, "tape", "archive", "stdin:ours").stdout.decode().strip()
    turns = []
    for name, part in (("whole", ""), ("part", "@1-9")):
        done, out = export(home, name, "openai-chat", f"{archive}{part}")
        assert done.returncode == 0, done.stderr
        (found,) = receipt_of(out)["slices"]
        assert found["tape"] == archive
        turns.append(found["turns"])
    assert turns == [2, 1]
    for _ in range(2):
        assert bot.run(home, "ask", "--session", "new", "the attic").returncode == 0
    assert bot.run(home, "judge", "label", "new", "6", "quality", "4").returncode == 0
    done, out = export(home, "kto", "trl-kto", "new")
    assert done.returncode == 0, done.stderr
    receipt = receipt_of(out)
    assert (receipt["records"], receipt["slices"][0]["turns"]) == (1, 1)
    assert receipt["losses"] == {"a turn without a reward": 1}


LONG_EXPORT = ("export", "openai-chat", *["tg:1"] * 12, "--for", "evaluation")


@dataclass(frozen=True)
class Kill:
    """A moment of an export, after a share of its time, or when a share of its bytes is written."""

    share: float
    is_of_time: bool

    def strike(self, process: forked.Child, folder: Path, whole: tuple[float, int]) -> bool:
        """Kill an export at that moment; return true if its file was being written then."""
        seconds, size = whole
        begun = time.monotonic()
        while process.returncode is None:
            written = sum(part.stat().st_size for part in list_parts(folder))
            if (time.monotonic() - begun >= self.share * seconds) if self.is_of_time else (written > self.share * size):
                break
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        process.wait(10.0)
        return bool(list_parts(folder))


def list_parts(folder: Path) -> list[Path]:
    return [part for part in folder.glob("out.*.part") if part.exists()]


def kill_export(home: Path, folder: Path, kill: Kill, whole: tuple[float, int]) -> bool:
    """Kill an export, look at what it leaves, and remove it if it has a name; return true if its file was being written."""
    out, receipt = folder / "out.jsonl", folder / "out.jsonl.receipt.json"
    arguments = (*LONG_EXPORT, "--out", str(out))
    with bot.opened(home, *arguments) as opened:
        was_writing = kill.strike(opened.process, folder, whole)
    if out.exists():  # then it is whole, and has its receipt
        receipt_of(out)
    assert {*folder.iterdir()} <= {out, receipt, *(folder / f"{each.name}.part" for each in (out, receipt))}
    out.unlink(missing_ok=True)
    receipt.unlink(missing_ok=True)
    return was_writing


def whole_export(home: Path, folder: Path) -> tuple[float, int]:
    """Export, whatever a kill has left; return how many seconds it took, and the size of the file."""
    begun, out = time.monotonic(), folder / "out.jsonl"
    done = bot.run(home, *LONG_EXPORT, "--out", str(out))
    assert done.returncode == 0, done.stderr
    receipt_of(out)
    size = out.stat().st_size
    assert len([*folder.iterdir()]) == 2
    for path in (out, folder / "out.jsonl.receipt.json"):
        path.unlink()
    return time.monotonic() - begun, size


KILLS = [
    Kill(0.0, is_of_time=False),
    Kill(0.5, is_of_time=False),
    Kill(0.4, is_of_time=True),
    Kill(0.9, is_of_time=True),
]


@pytest.mark.parametrize("kill", KILLS, ids=str)
def test_a_kill_leaves_no_file_that_looks_whole(home: Path, tmp_path: Path, kill: Kill) -> None:
    """At four moments; the proof does fifty."""
    copy = shutil.copytree(home, tmp_path / "home")
    folder = tmp_path / "out"
    folder.mkdir()
    kill_export(copy, folder, kill, whole_export(copy, folder))
    whole_export(copy, folder)


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_fifty_kills_leave_no_file_that_looks_whole(home: Path, tmp_path: Path) -> None:
    """Half of them by the clock, at any moment from its start on, and half while the file is written."""
    copy, chance = shutil.copytree(home, tmp_path / "home"), Random(50)
    folder = tmp_path / "out"
    folder.mkdir()
    whole = whole_export(copy, folder)
    writing = [
        kill_export(copy, folder, Kill(chance.random() * 1.05, is_of_time=number % 2 == 0), whole)
        for number in range(50)
    ]
    assert sum(writing) >= 10, "so that the kills say something"
    whole_export(copy, folder)
