"""Access from the shell with the real command."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import tempfile
from pathlib import Path

from bubbot.app.tapes import now, open_tapes, tape_service
from bubbot.features.access.service import AccessService
from bubbot.home import Home
from bubbot.ports.access import ListedPeople
from bubbot.ports.channel import Sender
from tests.e2e import bot, forked, inside
from tests.e2e.bot import sentence
from tests.e2e.inside import run
from tests.e2e.terminal import CTRL_C, Terminal

ENV = {"BUBBOT_CHANNELS__CHAT__OWNERS": "7", "BUBBOT_CHANNELS__OTHER__KIND": "chat"}


def access(home: Path, *arguments: str) -> str:
    done = run(home, "access", *arguments, env=ENV)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def refused(home: Path, code: int, *arguments: str) -> str:
    done = run(home, "access", *arguments, env=ENV)
    assert done.returncode == code, done.stdout.decode()
    return sentence(done)


def given_code(home: Path, who: str, name: str) -> str:
    """What the bot answers a stranger with."""

    async def pair() -> str | None:
        async with open_tapes(Home(home), write=True) as (store, _):
            made = AccessService(
                tape_service(store, "bubbot/access"), now=now, random=os.urandom, configured={"chat": ListedPeople()}
            )
            return await made.create_code(Sender(who, name), "chat", who)

    code = asyncio.run(pair())
    assert code is not None
    return code


def test_a_home_that_is_new_lists_the_configured_and_says_what_to_do(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert access(home, "list") == "chat  7  owner  configured: [channels.chat] owners\n"
    assert "No code is open" in access(home, "pending")
    assert "Nothing was granted" in access(home, "history")
    assert not home.exists()
    assert "approve the code" in run(home, "access", "list").stdout.decode()


def test_a_chat_may_read_another_one_until_that_is_taken_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert "No chat may read" in access(home, "readings")
    inside.said(home, "the code is swordfish", session="work")
    assert "may not read stdin:work" in inside.said(home, ",chat.read stdin:work")[-1]
    assert access(home, "grant-reading", "work", "default").startswith("stdin:default may read stdin:work now.")
    assert access(home, "grant-reading", "work", "default").startswith("Nothing changed: stdin:default may read it")
    assert access(home, "readings").split()[:4] == ["stdin:default", "may", "read", "stdin:work"]
    assert any("swordfish" in line for line in inside.said(home, ",chat.read stdin:work"))
    assert "may not read stdin:default" in inside.said(home, ",chat.read stdin:default", session="work")[-1]
    assert "no longer read" in access(home, "revoke-reading", "work", "default")
    assert "no grant to read" in refused(home, 1, "revoke-reading", "work", "default")
    assert "may not read stdin:work" in inside.said(home, ",chat.read stdin:work")[-1]
    assert "never read by grant" in refused(home, 2, "grant-reading", "bubbot/access", "default")
    assert "two different chats" in refused(home, 2, "grant-reading", "work", "stdin:work")
    assert [line.split()[3] for line in access(home, "history").splitlines()] == ["revoked:", "granted:"]


def test_a_stranger_is_let_in_by_the_code_and_out_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    code = given_code(home, "42", "Ann\x1b[2J\u202e")
    pending = access(home, "pending")
    assert re.match(r"chat  42  until \d\d:\d\d UTC ", pending)
    assert "\x1b" not in pending
    assert code not in pending
    told = bot.run(home, "access", "approve", "--yes", code.lower(), "--role", "owner", env=ENV)
    assert b"is now owner on chat" in told.stdout, told.stderr
    assert re.search(r"42 +owner +granted by terminal \(code\) on \d{4}-\d\d-\d\d\b", access(home, "list"))
    assert "used before" in refused(home, 1, "approve", code)
    assert "cannot talk to the bot" in access(home, "revoke", "chat", "42")
    assert "no grant" in refused(home, 1, "revoke", "chat", "42")
    history = access(home, "history").splitlines()
    assert [line.split()[2] for line in history] == ["revoked:", "code", "code", "granted:", "code:"]
    assert code not in "\n".join(history)
    assert "\x1b" not in "\n".join(history)
    assert len(access(home, "history", "--limit", "2").splitlines()) == 2


def test_what_one_person_may_do_is_told_with_the_reasons(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert (
        access(home, "role", "chat", "7") == "7 is owner on chat:\nowner by the configuration: [channels.chat] owners\n"
    )
    assert not home.exists()
    access(home, "grant", "chat", "42", "admin")
    access(home, "grant-audit", "chat:42", "chat:7")
    lines = access(home, "role", "chat", "42").splitlines()
    assert lines[0] == "42 is admin on chat:"
    assert re.fullmatch(r"admin by a grant of terminal \(command\) on \d{4}-\d\d-\d\d", lines[1])
    assert re.fullmatch(r"auditor of chat:7, granted by terminal on \d{4}-\d\d-\d\d", lines[2])
    told = json.loads(access(home, "role", "chat", "42", "--json"))
    assert (told["role"], told["reasons"][0]["by"], told["audits"][0]["session"]) == ("admin", "terminal", "chat:7")
    assert access(home, "role", "other", "42").startswith("42 is a stranger on other: ")
    assert "not a configured channel" in refused(home, 2, "role", "nowhere", "42")
    assert "not a numeric id" in refused(home, 2, "role", "chat", "ann")


def test_who_is_let_in_where_nobody_is_owner_is_told_how_to_be_it(tmp_path: Path) -> None:
    home, nobody = tmp_path / "home", {"BUBBOT_CHANNELS__CHAT__KIND": "chat"}
    told = run(home, "access", "approve", "--yes", given_code(home, "42", "Ann"), env=nobody).stdout.decode()
    command = told.rstrip().partition("if this is you: bubbot ")[2]
    assert command == "access grant chat 42 owner"
    assert run(home, *command.split(), env=nobody).returncode == 0
    told = run(home, "access", "approve", "--yes", given_code(home, "43", "Bob"), env=nobody).stdout.decode()
    assert "43 (Bob) is now member" in told
    assert "Nobody is owner" not in told


def test_approve_shows_the_person_and_asks(tmp_path: Path) -> None:
    home = tmp_path / "home"
    code = given_code(home, "42", "Ann\x1b[2J")
    question = "Let 42 (Ann _2J) in on chat as admin?"  # a name loses what moves a cursor, and brackets
    assert f"{question} There is no terminal" in refused(home, 2, "approve", code, "--role", "admin")
    typed = ("access", "approve", code, "--role", "admin")
    for answer, said in (
        ("n", "Nothing was changed."),
        ("", "Nothing was changed."),
        ("y", "42 (Ann _2J) is now admin"),
    ):
        with Terminal(home, *typed, first=f"{question} [y/N] ", script=None, **ENV) as terminal:
            terminal.type(f"{answer}\n")
            terminal.expect(said)
    assert "42  admin" in access(home, "list")
    assert "used before" in refused(home, 1, "approve", code)


def test_approve_asks_on_standard_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    code = given_code(home, "42", "Ann")
    keyboard, terminal = pty.openpty()
    os.write(keyboard, b"n\ny\n")
    arguments = ["access", "approve", code, "--json"]
    variables = {**bot.environment(home, **ENV), "PATH": os.environ["PATH"]}
    for stdout, stderr in ((None, "Nothing was changed."), ({"id": "42"}, "")):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            streams = (terminal, out.fileno(), err.fileno())
            forked.start(forked.BOT, arguments, env=variables, cwd=tmp_path, streams=streams).wait(60)
            out.seek(0)
            err.seek(0)
            shown, told = out.read(), err.read()
        printed = json.loads(shown) if shown else None
        assert (printed and {"id": printed["id"]}) == stdout
        assert told.decode().strip() == f"Let 42 (Ann) in on chat as member? [y/N] {stderr}".strip()
    os.close(keyboard)
    os.close(terminal)


def test_approve_ends_at_an_interrupt(tmp_path: Path) -> None:
    home = tmp_path / "home"
    code = given_code(home, "42", "Ann")
    with Terminal(home, "access", "approve", code, first="[y/N] ", script=None, **ENV) as terminal:
        terminal.type(CTRL_C)
        assert terminal.ended() == 130
    assert "42" not in access(home, "list")


def test_grants_name_what_holds_and_what_is_wrong(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert "42 is now member on chat" in access(home, "grant", "chat", "42", "member")
    assert "Nothing changed" in access(home, "grant", "chat", "42", "member")
    assert "The configuration makes it owner" in access(home, "grant", "chat", "7", "member")
    assert "username" in refused(home, 2, "grant", "chat", "@ann", "member")
    assert "another script" in refused(home, 2, "grant", "chat", "４２", "member")
    assert "chat, other" in refused(home, 2, "grant", "chta", "42", "member")
    assert "[channels.chat] owners" in refused(home, 2, "revoke", "chat", "7")
    assert "8 letters and digits" in refused(home, 2, "approve", "nonsense!")
    assert "no such code" in refused(home, 1, "approve", "ABCDEFGH")


def test_a_wrong_list_is_named(tmp_path: Path) -> None:
    done = run(tmp_path / "home", "access", "list", env={"BUBBOT_CHANNELS__CHAT__OWNERS": "@ann"})
    assert done.returncode == 2
    assert sentence(done).startswith("bubbot: [channels.chat] owners is '@ann', but must be numeric ids")


def test_reading_works_beside_a_running_bot_and_writing_says_who_writes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    access(home, "grant", "chat", "42", "admin")

    async def beside() -> None:
        async with open_tapes(Home(home), write=True):
            assert "42" in await asyncio.to_thread(access, home, "list")
            assert "is writing" in await asyncio.to_thread(refused, home, 3, "revoke", "chat", "42")

    asyncio.run(beside())
