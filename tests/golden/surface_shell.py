"""`shell.json`: what `bubbot access`, `approvals` and `memory` print, and how they exit, one after another over one home.

The home is that of a bot to which strangers and people wrote before. `[name]` before a line chooses another home, `<text`
after it is standard input, and `<?text` a terminal on which that is typed; `wait N` lets minutes pass.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from shlex import split
from typing import Any
from unittest.mock import patch

from bubbot.cli.main import main
from tests.doubles import FixedClock
from tests.golden.surface_stage import CHANNELS, fixed_world, golden_stage

CONFIG = """
[model]
name = "scripted"
[channels.discord]
kind = "discord"
owners = ["1"]
admins = ["2"]
members = ["3"]
groups = ["-100"]
[channels.telegram]
kind = "telegram"
owners = ["1"]
admins = ["2"]
members = ["3"]
"""
"""The people of `CHANNELS`."""
GERMAN = f'[bot]\nlanguage = "de"\n{CONFIG}'

GROUPS = {
    "access": (
        *("list", "pending", "approve", "grant", "revoke", "group", "readings", "grant-reading", "revoke-reading"),
        *("audits", "grant-audit", "revoke-audit", "history"),
    ),
    "approvals": ("list", "show", "approve", "deny", "grants", "revoke"),
    "memory": ("show", "save", "forget", "restore", "export", "import", "erase"),
}
"""The commands, each of which has a `--help`."""

LINES = """
[missing] access list
[missing] access list --json
[missing] access pending
[missing] access readings --json
[missing] access audits
[missing] access history
[missing] approvals list
[missing] approvals grants --json
[missing] approvals show ABCDE
[missing] memory show default
[missing] memory show default --json
[missing] memory export default
[missing] memory forget default tea
[german] access --help
[german] access grant --help
[german] access list
[german] access grant telegram 42 king
[german] approvals --help
[german] approvals approve --help
[german] memory save --help
[german] memory show default
[bare] access list
[bare] access list --json
[bare] access history
[bare] approvals list --json
[bare] memory show default
access
access frobnicate
access list
access list --json
access list extra
access pending
access pending --json
access approve
access approve 7KQ2 --yes
access approve ZZZZZZZZ --yes
access approve ZZZZZZZZ --json --yes
access approve {code44}
access approve {code44} --role king --yes
access approve {code44} --yes
access approve {code44} --yes
access approve {code45} --role admin --yes --json
wait 61
access approve {code46} --yes
access pending
access grant
access grant telegram
access grant telegram 42
access grant telegram 42 king
access grant telegram ann member
access grant nowhere 42 member
access grant telegram -5 member
access grant telegram 42 member
access grant telegram 42 member
access grant telegram 42 member --json
access grant telegram 43 admin --json
access grant telegram 3 admin
access grant telegram 1 member
access grant telegram 1 member --json
access grant discord 42 owner --jsn
access revoke telegram
access revoke telegram 3
access revoke telegram ann
access revoke telegram 999
access revoke telegram 999 --json
access revoke nowhere 42
access revoke telegram 42
access revoke telegram 42
access revoke telegram 43 --json
access group telegram
access group telegram -200 friends
access group telegram club everybody
access group nowhere -200 everybody
access group telegram -200 everybody
access group telegram -200 everybody
access group telegram -200 everybody --json
access group telegram -200 known --json
access group discord -100 nobody
access group telegram -200 nobody
access readings
access readings --json
access grant-reading discord:44
access grant-reading discord:44 telegram:3
access grant-reading discord:44 telegram:3
access grant-reading discord:44 telegram:3 --json
access grant-reading discord:1 work --json
access grant-reading discord:1 discord:1
access grant-reading bubbot/access discord:1
access readings
access readings --json
access revoke-reading discord:44 telegram:3
access revoke-reading discord:44 telegram:3
access revoke-reading discord:44 telegram:3 --json
access revoke-reading discord:1 work --json
access audits
access grant-audit anna
access grant-audit anna discord:44
access grant-audit anna discord:44
access grant-audit anna discord:44 --json
access grant-audit discord:3 discord:-100 --json
access grant-audit 'Anna!' discord:44
access grant-audit nowhere:3 discord:44
access grant-audit discord:ann discord:44
access grant-audit anna bubbot/access
access audits
access audits --json
access revoke-audit anna discord:44
access revoke-audit anna discord:44
access revoke-audit anna discord:44 --json
access revoke-audit discord:3 discord:-100 --json
access list
access list --json
access history
access history --limit 3
access history --limit 3 --json
access history --limit 0
access history --limit many
approvals
approvals frobnicate
approvals list
approvals list --json
approvals show
approvals show ABCDE
approvals show ABCDE --json
approvals show {card}
approvals show {card} --json
approvals approve
approvals approve ABCDE
approvals approve ABCDE --json
approvals approve {card}  forever
approvals approve {card-1} always
approvals approve {card-1}
approvals approve {card-1}
approvals approve {card-1} --json
approvals deny ABCDE
approvals deny {card-1} 'too late'
approvals deny {card-2} 'not today' --json
approvals deny {card-2}
approvals approve {card} always --json
approvals list
approvals list --json
approvals grants
approvals grants --json
approvals revoke
approvals revoke twelve
approvals revoke 99
approvals revoke 99 --json
approvals revoke 41
approvals revoke 41
approvals grants
wait 2000
approvals approve {card-3}
approvals deny {card-3} --json
memory
memory frobnicate
memory show
memory show nosuch
memory show nosuch --json
memory show discord:1
memory show discord:1 --json
memory show discord:1 --workspace
memory show discord:1 --as-of 5
memory show discord:1 --as-of 99999
memory show discord:1 --as-of soon
memory show --workspace
memory show --workspace --json
memory show --workspace --as-of 3
memory show --user discord:1
memory show --user discord:1 --json
memory show --user ann
memory show --user discord:ann
memory save work
memory save work 'Likes green tea.'
memory save work 'Likes green tea.'
memory save work 'Likes green tea.' --json
memory save work 'Likes black tea.'
memory save work 'Likes black tea.' --yes
memory save work ''
memory save work - <Likes black tea.\\nLikes water.
memory save work - --json <Likes black tea.\\nLikes water.\\nLikes milk.
memory save work - <\\xff
memory save --user telegram:9 'Likes tea.'
memory save --workspace 'We meet on Mondays.' --yes --json
memory save bubbot/access x
memory save --user telegram:9
memory forget work
memory forget work ' '
memory forget work zebra
memory forget work zebra --json
memory forget work MILK
memory forget work water --json
memory forget nosuch tea
memory forget --user telegram:9 tea
memory restore work
memory restore work two
memory restore work 99
memory restore work 99 --json
memory restore work 2
memory restore work 2
memory restore work 1 --json
memory restore --workspace 1
memory export work
memory export work {folder}/out.md
memory export work {folder}/out.md
memory export --user telegram:9
memory export nosuch
memory import work
memory import work {folder}/nosuch.md
memory import work {folder}/empty.md
memory import work {folder}/memory
memory import work {folder}/memory --replace
memory import new {folder}/memory --json
memory import other {folder}/notes.md
memory import --user telegram:10 {folder}/notes.md
memory show work
memory erase
memory erase work
memory erase --user telegram:9
memory erase --user telegram:9 --yes
memory erase --user telegram:9 --yes
memory erase --user telegram:9 --yes --json
memory erase --user telegram:9 --workspace --yes
memory erase --user ann --yes
memory erase --workspace --yes --json
memory show --workspace
memory save work 'Likes cola.' <?n\n
memory save work 'Likes cola.' <?
memory save work 'Likes cola.' --json <?yes\n
memory show work
memory erase --user discord:1 <?N\n
memory erase --user discord:1 <? Y \n
memory erase --user discord:1 --json <?y\n
access role --help
access role
access role discord 2
access role discord 2 --json
access role discord 9999
access role nowhere 2
[german] access role --help
[german] access role discord 2
[missing] access role discord 1
"""
"""In this order: each works on what those before it left."""


GROUPS_HELP = tuple(f"{group} --help" for group in GROUPS)


def record_shell(folder: Path) -> dict[str, Any]:
    """Type every line; return what was printed by line."""
    recorded: dict[str, Any] = {}
    with fixed_world() as clock:
        names = asyncio.run(_fill_home(folder, clock))
        for line in [f"{group} {name} --help" for group in GROUPS for name in GROUPS[group]] + [*GROUPS_HELP]:
            recorded[f"help {line}"] = _type(folder, "home", line, b"")
        for line in filter(None, LINES.split("\n")):
            if line.startswith("wait "):
                clock.advance(minutes=int(line.removeprefix("wait ")))
                continue
            clock.advance(seconds=10)
            command, _, text = line.partition(" <")
            home = command[1:].partition("] ")[0] if command.startswith("[") else "home"
            typed = command.partition("] ")[2] if command.startswith("[") else command
            for name, value in {**names, "folder": str(folder)}.items():
                typed = typed.replace(f"{{{name}}}", value)
            stdin = text.encode().decode("unicode_escape").encode("latin-1")
            recorded[f"{len(recorded) + 1:03} {line}"] = _type(folder, home, typed, stdin)
    return recorded


async def _fill_home(folder: Path, clock: FixedClock) -> dict[str, str]:
    """Make the homes; return the codes and cards by the names that stand for them in `LINES`."""
    assert set(CHANNELS) == {"discord", "telegram"}
    for name, config in {"home": CONFIG, "bare": '[model]\nname = "scripted"\n', "german": GERMAN}.items():
        (folder / name).mkdir(mode=0o700)
        (folder / name / "config.toml").write_text(config)
    notes = folder / "memory"
    notes.mkdir()
    (notes / "MEMORY.md").write_text("# Long-term\n\nLikes cocoa.\n")
    (notes / "2026-11-20.md").write_text("Went swimming.\n")
    (notes / "2026-01-02.md").write_text("Long ago.\n")
    (notes / "picture.png").write_bytes(b"\x89PNG")
    (folder / "notes.md").write_text("Likes cheese.\n")
    (folder / "empty.md").write_text("\n")
    async with golden_stage(folder / "home", clock) as stage:
        for person in ("44", "45", "46"):
            await stage.say("hello", sender=person, channel="telegram")
        for text in (",remember Ann is allergic to nuts.", ",memory.daily Paid the rent.", ",remember Likes tea."):
            await stage.say(text)
        await stage.say(",remember scope=user Likes short answers.")
        await stage.say(",remember scope=workspace We meet on Mondays.")
        for text in ("run make", "clear it all", "forget the nuts"):
            await stage.say(text)
        await stage.say("post to bob", sender="1", channel="telegram")
        return dict(stage.names)


class TypedInput(io.TextIOWrapper):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        """Return true."""
        return True


def _type(folder: Path, home: str, line: str, stdin: bytes) -> dict[str, Any]:
    """Run a command line in this process; return its exit code and what it printed."""
    raw = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(stream, "utf-8", write_through=True) for stream in raw)
    is_terminal = stdin.startswith(b"?")
    kind = TypedInput if is_terminal else io.TextIOWrapper
    typed = patch.object(sys, "stdin", kind(io.BytesIO(stdin.removeprefix(b"?")), "utf-8"))
    with _environment(folder / home), typed, redirect_stdout(out), redirect_stderr(err):
        code = main(split(line))
    printed = [stream.getvalue().decode() for stream in raw]
    stdout, stderr = (text.replace(str(folder), "<folder>") for text in printed)
    return {"exit": code, "stdout": stdout, **({"stderr": stderr} if stderr else {})}


@contextmanager
def _environment(home: Path) -> Iterator[None]:
    """Take the settings of the person who runs this away."""
    left = {name: value for name, value in os.environ.items() if not name.startswith(("BUBBOT_", "LC_", "LANG"))}
    names = {"BUBBOT_HOME": str(home), "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    with patch.dict(os.environ, {**left, **names}, clear=True):
        yield
