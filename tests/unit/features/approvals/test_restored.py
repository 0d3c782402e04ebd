"""A home restored from a backup acts on no yes of before: the bot of which the backup was made may have done so."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bubbot.arguments.fields import NoArguments
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.turn import Turn
from bubbot.tool import Effect, EffectKind, Power, tool
from tests.approving import approving
from tests.e2e import inside
from tests.turns import Played, calls, says

POST: dict[str, Any] = calls("post_send", to="bob", text="hello")
SENT = [("post.send", "bob: hello")]


async def bubbot(home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command of the shell that goes well, beside this event loop."""
    done = await asyncio.to_thread(inside.run, home, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done


async def restored(folder: Path, *, answer: str = "") -> tuple[Path, str]:
    """Ask with a card, answer it in a shell, back the home up and restore it; return the new home and the card."""
    async with approving(folder / "home", Played(POST, says("I asked."))) as bench:
        await bench.say("send it")
        card = bench.card
    if answer:
        await bubbot(folder / "home", "approvals", "approve", card, answer)
    await bubbot(folder / "home", "backup", str(folder / "copy"))
    await bubbot(folder / "new", "restore", str(folder / "copy"))
    return folder / "new", card


async def test_a_yes_that_had_started_nothing_starts_nothing_and_ends_with_the_release(tmp_path: Path) -> None:
    home, _ = await restored(tmp_path, answer="once")
    for release in ([], ["restore", "--release"]):
        if release:
            assert b"approvals that run nothing: 1." in (await bubbot(home, *release)).stdout
        async with approving(home, Played(says("It is sent."))) as bench:
            await bench.settle()
            assert (bench.done, bench.channel.texts) == ([], [])


async def test_an_owner_who_knows_that_the_other_bot_did_nothing_keeps_it(tmp_path: Path) -> None:
    home, _ = await restored(tmp_path, answer="once")
    await bubbot(home, "restore", "--release", "--deliver")
    async with approving(home, Played(says("It is sent."))) as bench:
        await bench.settle()
        assert bench.done == SENT


async def test_an_open_card_cannot_be_allowed_and_the_release_refuses_it(tmp_path: Path) -> None:
    home, card = await restored(tmp_path)
    async with approving(home, Played(says("hi"))) as bench:
        assert "runs nothing here" in (await bench.say(f",approve {card}")).text
        assert bench.done == []
    said = await asyncio.to_thread(inside.run, home, "approvals", "approve", card)
    assert (said.returncode, b"quarantine" in said.stderr) == (2, True)
    await bubbot(home, "restore", "--release")
    async with approving(home, Played(says("hi"))) as bench:
        assert (await bench.say(f",approve {card}")).text == f"{card} was refused before, by terminal."
        (decided,) = await bench.facts("approval.decided", "bubbot/access")
        assert (decided["surface"], bench.done) == ("release", [])


async def test_a_turn_that_was_queued_and_a_standing_grant_run_nothing(tmp_path: Path) -> None:
    home, card = await restored(tmp_path, answer="always")
    async with approving(home, Played(POST, says("Not done."))) as bench:
        now = "2026-11-24T08:00:00+00:00"
        queued = Inbound(
            "stdin", f"approval:{card}", "default", Sender("1", "Ann"), "[allowed]", now, origin="approval"
        )
        assert "runs nothing here" in (await bench.app.ask(queued)).text
        await bench.say("send it again")
        assert bench.done == []
        assert "was restored from a backup" in (await bench.results())[-1]
        assert bench.cards == []
        checked = (await bench.facts("approval.checked"))[-1]
        assert (checked["tool"], checked["verdict"], "grant" in checked) == ("post.send", "refuse", False)


async def test_no_folder_of_the_owner_is_changed(tmp_path: Path) -> None:
    """The original bot may be at work there."""
    home, _ = await restored(tmp_path)
    changed: list[str] = []
    effect = Effect(EffectKind.INSIDE, power=Power.FOLDERS)

    @tool("notes.write", effect=effect)
    async def notes_write(turn: Turn, args: NoArguments) -> str:
        """Write a note."""
        changed.append("written")
        return "written"

    async with approving(home, Played(calls("notes_write"), says("Not done.")), tools=[notes_write]) as bench:
        await bench.say("note it")
        assert "was restored from a backup" in (await bench.results())[-1]
        await bench.say(",notes.write")  # what a person types is its own yes
    assert changed == ["written"]


@pytest.mark.parametrize("kept", [False, True])
async def test_a_grant_of_before_counts_again_after_the_release(tmp_path: Path, *, kept: bool) -> None:
    home, _ = await restored(tmp_path, answer="always")
    await bubbot(home, "restore", "--release", *(["--deliver"] if kept else []))
    async with approving(
        home, Played(says("It is sent."), POST, says("ok")) if kept else Played(POST, says("ok"))
    ) as bench:
        await bench.settle()
        await bench.say("send it again")
        assert bench.done == (SENT * 2 if kept else SENT)
