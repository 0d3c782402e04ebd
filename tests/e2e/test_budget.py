"""Budgets of a real bot: in a chat, in the shell, and when the process is killed in the middle of a call."""

from __future__ import annotations

import asyncio
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.tapes import open_tapes
from bubbot.errors import StoreUnavailable
from bubbot.features.usage import chart
from bubbot.home import Home
from bubbot.tape.query import TapeQuery
from tests.e2e import bot, forked, inside
from tests.e2e.daemon import WAIT, configured, running
from tests.e2e.terminal import Terminal
from tests.fakes.botapi.server import Server

PRICES = "\n[budget.models.scripted]\ninput_price = 1000.0\noutput_price = 1000.0\n"


def at_home(tmp_path: Path, text: str = "", script: Any = None) -> Path:
    """A home with this configuration and the scripted model."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "script.json").write_text(json.dumps(script or {}))
    head = f'[model]\nname = "scripted"\nscript = "{home / "script.json"}"\n'
    (home / "config.toml").write_text(head + text)
    return home


async def on_tape(home: Path, name: str) -> list[Any]:
    """The data of the facts of this name, read beside whatever runs; none while the database is being made."""
    with suppress(StoreUnavailable):
        async with open_tapes(Home(home)) as (store, _):
            found = (await store.fetch([TapeQuery("bubbot/budget", names=(name,))]))[0]
        return [entry.payload["data"] for entry in found]
    return []


async def test_a_process_that_is_killed_in_a_call_owes_it_and_the_next_one_settles_it(tmp_path: Path) -> None:
    home = at_home(tmp_path, "[budget]\nday = 100.0\n" + PRICES, {"default": [{"text": "late", "delay": 600}]})
    nothing = os.open(os.devnull, os.O_RDWR)
    process = forked.start(
        forked.BOT, ["ask", "hello"], env=bot.environment(home), cwd=tmp_path, streams=(nothing, nothing, nothing)
    )
    os.close(nothing)
    async with asyncio.timeout(WAIT):
        while not (reserved := await on_tape(home, "budget/reserved")):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
        process.kill()
        await process.ended()
    assert await on_tape(home, "budget/settled") == []
    (home / "script.json").write_text(json.dumps({"default": [{"text": "here"}]}))
    assert await asyncio.to_thread(inside.said, home, "again", session="other") == ["here"]
    first, *_ = settled = await on_tape(home, "budget/settled")
    took = ("call", "model", "input_tokens", "output_tokens", "nano", "day", "user", "turn")
    assert {name: first[name] for name in took} == {name: reserved[0][name] for name in took}
    assert (first["status"], first["estimated"], first["reserved"]) == ("unknown", True, 1)
    assert [one["status"] for one in settled[1:]] == ["answered"]
    shown = json.loads((await asyncio.to_thread(inside.run, home, "usage", "--json")).stdout)
    assert shown["total"]["estimated"] == 1
    assert shown["total"]["reservations"] == [1, *(one["reserved"] for one in settled[1:])]


async def test_owner_and_people_are_told_in_their_chats(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        hers, his = server.private(ada), server.private(bob)
        configured(home, server, {"default": [{"text": "You said: {text}"}]}, owners=[ada.id], members=[bob.id])
        with (home / "config.toml").open("a") as file:
            file.write(f'[budget]\nmonth = 1000.0\n[budget.users."telegram:{bob.id}"]\ntokens_day = 2500\n{PRICES}')
        async with running(home) as daemon:
            hers.say("hello")
            await server.until(lambda: "You said: hello" in server.transcript(times=False), WAIT)
            his.say("one")
            await server.until(lambda: "You said: one" in server.transcript(times=False), WAIT)
            near = f"of the budget of the person telegram:{bob.id} for"
            for number in range(4):  # one more brings it to its end, whatever a call takes exactly
                his.say(f"more {number}")
                await daemon.quiet(server)
                if "The budget of your account for today is used up" in server.transcript(times=False):
                    break
            his.say("and again")  # within ten minutes there is nothing new to say
            await daemon.quiet(server)
            his.say(",help usage")
            await server.until(lambda: "/usage month" in server.transcript(times=False).partition("and again")[2], WAIT)
            said = server.transcript(times=False)
            assert said.count("The budget of your account for today is used up") == 1
            await server.until(lambda: near in server.transcript(times=False), WAIT)
            assert server.transcript(times=False).count(near) == 1
            his.say(",usage")
            await server.until(lambda: "Budgets:" in server.transcript(times=False), WAIT)
            assert f"the person telegram:{bob.id}, 2" in server.transcript(times=False)
            assert f"telegram:{ada.id}: " not in server.transcript(times=False)
            hers.say(",usage month")
            await server.until(lambda: "By chat:" in server.transcript(times=False), WAIT)
            said = server.transcript(times=False)
            assert " Ada on Telegram: " in said
            assert " Bob: " in said
            his.say("/usage chart")
            await server.until(lambda: server.calls("sendPhoto"), 3 * WAIT)
            shown = await asyncio.to_thread(inside.run, home, "usage", "month", "--by", "user")  # beside the bot
            assert b" Bob: " in shown.stdout


def test_usage_in_the_shell(tmp_path: Path) -> None:
    home = at_home(tmp_path, "[budget]\nday = 100.0\ntokens_month = 1000000\n" + PRICES)
    assert inside.run(home, "usage").stdout == b"Today no model was asked.\n"
    inside.said(home, "one", "two")
    inside.said(home, "three", session="other")
    told = inside.run(home, "usage").stdout.decode()
    assert re.match(r"Today [0-9.]+ of 100\.00 USD; 3 answers; most in stdin:default\.\nall: ", told)
    assert "█" not in told
    assert "By chat:\n  stdin:" in told
    assert "\n  scripted: " in told
    assert "the whole bot, 2" in told
    assert inside.run(home, "usage", "month", "--by", "model").stdout.decode().count("By ") == 1
    for none in ("::", "stdin", "stdin:", ":other"):
        refused = inside.run(home, "usage", "--chat", none)
        assert (refused.returncode, refused.stdout) == (2, b"")
        assert "is not a chat: use its channel" in refused.stderr.decode()
    of_one = json.loads(inside.run(home, "usage", "all", "--json", "--chat", "stdin:other").stdout)
    assert (of_one["total"]["calls"], list(of_one["by"]["chat"])) == (1, ["stdin:other"])
    assert of_one["total"]["dollars"] == sum(one["dollars"] for one in of_one["by"]["day"].values())
    said = inside.said(home, ",usage all")
    assert re.fullmatch(r"So far [0-9.]+ USD; 3 answers; most in stdin:default\.", said[0])
    assert said[1].startswith("all: ")


def test_a_terminal_shows_bars_and_a_dumb_one_lines(tmp_path: Path) -> None:
    home = at_home(tmp_path, PRICES)
    inside.said(home, "one", "two")
    inside.said(home, "three", session="other")
    with Terminal(home, "usage", first="By model:", NO_COLOR="1") as terminal:
        terminal.expect("3 calls")
        lines = [line.rstrip() for line in terminal.sent.splitlines()]
    [bar] = [line for line in lines if line.startswith("  stdin:default ")]
    assert "█" in bar
    assert bar.endswith("2 calls")
    assert "\x1b" not in terminal.sent
    assert not set("─│┌┐└┘━┃") & set(terminal.sent)
    with Terminal(home, "usage", first="The entries are", TERM="dumb") as terminal:
        assert "█" not in terminal.sent


def test_a_chart_in_a_file(tmp_path: Path) -> None:
    home = at_home(tmp_path, PRICES)
    target = tmp_path / "spent.svg"
    nothing = inside.run(home, "ask", ",help")
    assert nothing.returncode == 0
    nothing = inside.run(home, "usage", "--by", "job", "--chart", str(target))
    assert (nothing.returncode, nothing.stdout) == (1, b"This month no model was asked.\n")
    inside.said(home, "one", "two")
    done = inside.run(home, "usage", "--chart", str(target))
    assert re.fullmatch(
        rf"This month [0-9.]+ USD; 2 answers\.\nExported to {re.escape(str(target))}\.\n", done.stdout.decode()
    )
    assert target.read_bytes().startswith(b"<?xml")
    nothing = inside.run(home, "usage", "--by", "job", "--chart", str(tmp_path / "jobs.svg"))
    assert (nothing.returncode, nothing.stdout.splitlines()[1:]) == (1, [b"There is nothing to draw by job."])
    for arguments, error in (
        (("--chart", str(target)), "already exists"),
        (("--chart", str(tmp_path / "spent.pdf")), "end it in .png or .svg"),
        (("--chart", ".png"), "end it in .png or .svg"),
    ):
        refused = inside.run(home, "usage", *arguments)
        assert (refused.returncode, refused.stdout) == (2, b"")
        assert error in refused.stderr.decode()
        assert refused.stderr.count(b"\n") == 1


def test_a_chart_that_cannot_be_drawn_is_a_failure_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = at_home(tmp_path, PRICES)
    inside.said(home, "one")
    program = tmp_path / "draw.py"
    program.write_text("raise SystemExit('no paint')")
    monkeypatch.setattr(chart, "DRAWING_FILE", program)
    target = tmp_path / "spent.svg"
    failed = inside.run(home, "usage", "--chart", str(target))
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert failed.stderr == b"bubbot: The chart could not be drawn: no paint\n"
    failed = inside.run(home, "usage", "--chart", str(target), "--json")
    assert json.loads(failed.stderr)["error"]["exit_code"] == 1
    assert not target.exists()


@pytest.mark.proof
def test_a_chart_is_a_png_by_its_name_and_one_in_a_chat_is_saved(tmp_path: Path) -> None:
    home = at_home(tmp_path, PRICES)
    inside.said(home, "one", "two")
    told = inside.run(home, "usage", "day", "--chart", "./b.PNG", "--json")
    assert json.loads(told.stdout)["answers"] == 2
    assert (tmp_path / "b.PNG").read_bytes().startswith(b"\x89PNG")
    [_, saved] = inside.said(home, ",usage chart")
    path = Path(saved.removeprefix("The file usage-").partition(" is saved as ")[2])
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_budget_that_is_used_up_ends_ask_with_a_failure(tmp_path: Path) -> None:
    home = at_home(tmp_path, "[budget]\ntokens_day = 1\n")
    assert inside.run(home, "ask", "one").returncode == 0
    for _ in range(2):  # whoever runs a command is told each time
        done = inside.run(home, "ask", "two")
        assert done.returncode == 1
        assert b"The budget of the whole bot for today is used up" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('day = "much"', "[budget] day is 'much', but must be a number from 0."),
        ("day = -1", "[budget] day is -1, but must be a number from 0."),
        ("dya = 1", "[budget] dya is not a setting; did you mean 'day'?"),
        ('currency = "EUR"', "set usd_rate to what one US dollar is in EUR, such as 0.9."),
        ("[budget.users]\neach = 3", 'but must be tables such as [budget.users."telegram:42"].'),
        ("[budget.users.42]\nday = 1", "'42' has no channel before its id, as in 'telegram:42'."),
        ("[budget.users.each]\nper_minute = 0", "per_minute of 'each' is 0, but must be a whole number from 1."),
        ("[budget.chats.each]\nper_minit = 1", "per_minit of 'each' is not a setting; did you mean 'per_minute'?"),
        ("[budget.jobs.each]\nper_hour = 1", "per_hour of 'each' is not a setting"),
        ('[budget.models."a/b"]\ninput_price = 1', "set input_price and output_price, or neither of the three."),
    ],
)
def test_a_mistake_is_named_with_its_mending(tmp_path: Path, text: str, said: str) -> None:
    done = inside.run(at_home(tmp_path, f"[budget]\n{text}\n"), "ask", "hello")
    assert done.returncode == 2
    assert said in done.stderr.decode()
