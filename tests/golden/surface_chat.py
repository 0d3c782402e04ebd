"""`chat.json`: what people read who type the commands of access, approvals and memory, and what is stored of it.

A line is `WHO | TEXT`. WHO is the numeric id of a person (see `PEOPLE`), then `#` in the group, `/` on the platform whose
commands begin with `/`, and `:de` or `:zh` for a person of that language; or `wait`, then TEXT is minutes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bubbot.features.memory.settings import MemorySettings
from tests.golden.surface_stage import fixed_world, golden_stage

WHO = re.compile(r"(?P<sender>\d+)(?P<group>#?)(?P<slash>/?)(?::(?P<language>\w+))?")

ACCESS = """
1 | ,access
44 | hello, who are you
1 | ,access
2 | ,access
3 | ,access
1# | ,access
1 | ,access.approve
1 | ,access.approve 7KQ2
1 | ,access.approve ZZZZZZZZ
1 | ,access.approve {code44} king
1 | ,access.approve {code44} member now
2 | ,access.approve {code44} owner
3 | ,access.approve {code44}
1 | ,access.approve {code44}
1 | ,access.approve {code44}
45 | hello
wait | 61
1 | ,access.approve {code45}
1 | ,access
1 | ,access.grant
1 | ,access.grant ann
1 | ,access.grant 4242 king
1 | ,access.grant 4242 member channel=nowhere
1 | ,access.grant 4242 member chanel=discord
1 | ,access.grant -5
1 | ,access.grant 4242
1 | ,access.grant 4242
1 | ,access.grant 4242 admin
1 | ,access.grant id=4243 role=owner channel=telegram
2 | ,access.grant 4244 owner
2 | ,access.grant 4242 member
2 | ,access.grant 4244 admin
3 | ,access.grant 4244
1# | ,access.grant 4244
1 | ,access
1 | ,access.revoke
1 | ,access.revoke ann
1 | ,access.revoke 3
1 | ,access.revoke 9999
1 | ,access.revoke 4242 channel=nowhere
2 | ,access.revoke 4243 channel=telegram
1 | ,access.revoke 4243 channel=telegram
1 | ,access.revoke 4242
1 | ,access.revoke 4242
3 | ,access.revoke 4242
46 | let me in
1 | ,access.decline
1 | ,access.decline 4244
1 | ,access.decline 46
1 | ,access.decline 46
1 | ,access.decline 47 channel=telegram
1 | ,access.decline 47 channel=nowhere
3 | ,access.decline 46
1 | ,access.group
1 | ,access.group -200
1 | ,access.group -200 everybody
1 | ,access.group -200 everybody
1 | ,access.group discord:-200 known
1 | ,access.group telegram:-300 nobody
1 | ,access.group -100 nobody
1 | ,access.group -200 friends
1 | ,access.group club everybody
1 | ,access.group nowhere:-1 everybody
1 | ,access.group -200 leave
2 | ,access.group -200 everybody
1# | ,access.group -200 everybody
1 | ,access.group
1 | ,access
1 | ,access.grnt 4242
1 | ,acces
1 | ,grants
1 | ,grant
1 | ,grant discord:44
1 | ,grant discord:44 to telegram:3
1 | ,grant discord:44 to telegram:3
1 | ,grant source=discord:1 reader=discord:2
1 | ,grant discord:44 discord:44
1 | ,grant bubbot/access to discord:44
1 | ,grant discord:44 to telegram:3 please=yes
2 | ,grant discord:44 to discord:2
1# | ,grant discord:44 to discord:-100
1 | ,grants
3 | ,grants
1 | ,grant.revoke
1 | ,grant.revoke discord:44 to telegram:3
1 | ,grant.revoke discord:44 to telegram:3
1 | ,grant.revoke source=discord:1 reader=discord:2
2 | ,grant.revoke discord:44 to telegram:3
1 | ,audits
1 | ,audit
1 | ,audit anna
1 | ,audit anna of discord:44
1 | ,audit anna of discord:44
1 | ,audit discord:3 of discord:-100
1 | ,audit Anna! of discord:44
1 | ,audit nowhere:3 of discord:44
1 | ,audit discord:ann of discord:44
1 | ,audit anna of bubbot/access
2 | ,audit anna of discord:44
1# | ,audit anna of discord:44
1 | ,audits
3 | ,audits
1 | ,audit.revoke
1 | ,audit.revoke anna of discord:44
1 | ,audit.revoke anna of discord:44
1 | ,audit.revoke auditor=discord:3 session=discord:-100
2 | ,audit.revoke anna of discord:44
1 | ,link yes
1 | ,link no
1 | ,unlink
1 | ,link
3 | ,link {code1}
3 | ,link {code1}
1 | ,link {code1}
1 | ,link
1 | ,link no
1 | ,link no
1 | ,link
1 | ,link ABC
1 | ,link ZZZZZZZZ
3 | ,link {code1}
1 | ,link yes
1 | ,link yes
3 | ,link {code1}
2 | ,link {code1}
1# | ,link
1 | ,link
wait | 20
2 | ,link {code1}
1 | ,unlink
1 | ,unlink
3 | ,unlink
1 | ,link
1 | ,link
1 | ,link
1 | ,link
1 | ,link now please
"""
WRONG_CODES = "\n".join(
    [
        *["2 | ,access.approve ZZZZZZZZ"] * 10,
        "2 | ,access.approve ZZZZZZZZ",
        *["3 | ,link ZZZZZZZZ"] * 10,
        "3 | ,link ZZZZZZZZ",
    ]
)
"""The last one of each is one too many."""

APPROVALS = """
1 | ,approvals
1 | ,approve
1 | ,approve ABCDE
1 | ,deny ABCDE
1 | ,deny
1 | ,approve ABCDE forever
1 | ,approve 123456789012345678901234567890123
1 | ,approvals revoke
1 | ,approvals revoke 12
1 | ,approvals revoke twelve
1 | ,approvals revoke -1
1 | ,approvals clear
1 | run make
1 | ,approvals
2 | ,approve {card}
3 | ,deny {card}
3 | ,approvals
1 | ,approve {card} always
1 | ,approve {card}
1 | ,approve {card}
1 | ,deny {card}
1 | post to eve
1 | ,deny {card} not today, thanks
1 | ,deny {card}
1 | ,approve {card}
1 | post to bob
1 | ,approve {card} always
1 | ,approvals
3 | ,approvals
3 | ,approvals revoke 16
1# | post to bob
1# | run make
1 | ,approvals
1# | ,approvals
3# | ,approve {card}
2# | ,approvals
1# | ,approve {card}
3 | post to bob
1 | run make
wait | 1500
1 | ,approve {card}
1 | ,approvals
1 | run make
1 | ,reset archive
1 | ,approve {card}
1 | ,approvals
1 | ,approvals revoke 16
"""

MEMORY = """
1 | ,memory
1 | ,memory.why
1 | ,remember
1 | ,remember Ann is allergic to nuts.
1 | ,remember Ann is allergic to nuts.
1 | ,remember text="Likes short answers." scope=user
1 | ,remember scope=workspace We meet on Mondays.
3 | ,remember scope=workspace We meet on Tuesdays.
1# | ,remember scope=user I like tea.
1# | ,remember scope=workspace We meet on Fridays.
1# | ,remember The club meets at eight.
1 | ,remember scope=everybody x
1 | ,remember scop=user x
1 | ,memory
1 | ,memory scope=user
1 | ,memory scope=workspace
1 | ,memory user
1 | ,memory all of it
1# | ,memory
1# | ,memory scope=user
1 | ,memory.save
1 | ,memory.save Ann is allergic to nuts.\\nLikes green tea.
1 | ,memory.save Ann is allergic to nuts.
1 | ,memory.save Likes green tea.
1 | ,memory.save confirm=true Likes green tea.
1 | ,memory.save content="Likes green tea." scope=user
1 | ,memory.save content="Likes green tea." scope=user confirm=true
1 | ,memory.save content="x" scope=workspace confirm=maybe
3 | ,memory.save scope=workspace x
1 | ,memory.daily
1 | ,memory.daily Paid the rent.
1 | ,memory.daily date=2026-11-20 content="Ann called."
1 | ,memory.daily date=2026-13-45 content="x"
1 | ,memory.daily date=2030-01-01 content="x"
1 | ,memory.daily date=2026-01-01 content="Long ago."
1 | ,memory.daily scope=user content="Slept well."
1 | ,memory.recall
1 | ,memory.recall green tee
1 | ,memory.recall zebra
1 | ,memory.recall query=rent days=1
1 | ,memory.recall days=-1
1 | ,memory.recall days=soon
1 | ,memory.recall scope=user query=slept
1# | ,memory.recall scope=user
1 | ,memory.forget
1 | ,memory.forget zebra
1 | ,memory.forget slept
1 | ,memory.forget rent
1 | ,forget green tea
1 | ,memory.forget scope=user green tea
3 | ,memory.forget scope=workspace Mondays
1 | ,memory.restore
1 | ,memory.restore two
1 | ,memory.restore 2
1 | ,memory.restore 2
1 | ,memory.restore 99
1 | ,memory.restore version=1 scope=user
1 | ,memory.restore 1 scope=user
1 | ,memory
1 | ,memory.why
1# | ,memory.why
1 | ,memory.clear
1 | ,memory.clear confirm=true
1 | ,memory.clear
1 | ,memory.clear true scope=user
1 | ,memory.clear maybe
3 | ,memory.clear scope=workspace
1 | ,undo
1 | ,remember %LONG%
1 | ,memory.save confirm=true %LONG%
1 | ,memory.daily %HUGE%
1 | ,remember %HUGE%
1 | ,remeber x
1 | ,memory
1 | clear it all
1 | ,deny {card}
1 | ,remember Ann is allergic to nuts.
1 | clear it all
1 | ,approve {card}
1 | ,remember Ann is allergic to nuts.
1 | forget the nuts
1 | ,approve {card}
1 | note the rent
1 | keep tea only
1 | bring version 1 back
1 | ,deny {card} I need it
"""

LANGUAGES = """
1 | ,access
1 | ,access.approve 7KQ2
1 | ,access.approve ZZZZZZZZ
1 | ,access.grant 4242
1 | ,access.grant ann
1 | ,access.grant 4242 king
1 | ,access.grant
1 | ,access
1 | ,access.revoke 4242
1 | ,access.revoke 4242
1 | ,access.revoke 3
1 | ,access.decline 48
1 | ,access.group -200 everybody
1 | ,access.group -200 known
1 | ,access.group -200 nobody
1 | ,access.group -200 leave
1 | ,access.group
3 | ,access
1# | ,access.grant 4242
1 | ,grant discord:44 to telegram:3
1 | ,grants
1 | ,grant.revoke discord:44 to telegram:3
1 | ,grant.revoke discord:44 to telegram:3
1 | ,grant discord:44 discord:44
1 | ,grants
1 | ,audit anna of discord:44
1 | ,audits
1 | ,audit.revoke anna of discord:44
1 | ,audit.revoke anna of discord:44
1 | ,audit Anna! of discord:44
1 | ,audits
2 | ,link
2 | ,link {code2}
3 | ,link {code2}
2 | ,link yes
2 | ,link yes
3 | ,link ABC
2 | ,unlink
2 | ,unlink
1 | ,approvals
1 | ,approve ABCDE
1 | run make
1 | ,approvals
3 | ,approve {card}
1 | ,approve {card} chat
1 | ,deny {card} no
1 | ,deny {card}
1 | ,approvals revoke 12
1 | ,memory
1 | ,remember Ann is allergic to nuts.
1 | ,remember
3 | ,remember scope=workspace x
1 | ,memory.save Likes tea.
1 | ,memory.save confirm=true Likes tea.
1 | ,memory.daily Paid the rent.
1 | ,memory.daily date=2030-01-01 content="x"
1 | ,memory.recall tea
1 | ,memory.recall zebra
1 | ,memory.forget zebra
1 | ,memory.forget tea
1 | ,memory.restore 99
1 | ,memory.restore 1
1 | ,memory scope=user
1 | ,memory.why
1 | ,memory.clear
1 | ,memory.clear confirm=true
1 | ,memory.clear
"""
"""Said once in German and once in Chinese, in a home that knows nothing."""

SLASH = """
1/ | ,access
1/ | ,access_grant 4242
1/ | ,access.grant 4242 king
1/ | ,access.grant 4242
1/ | ,access.revoke 4242
1/ | ,access.group
1/ | ,grant telegram:44
1/ | ,grants
1/ | ,audit anna of telegram:44
1/ | ,audit.revoke bob of telegram:44
1/ | ,link
1/ | ,approvals
1/ | run make
1/ | ,approve {card} always
1/ | ,approve {card}
1/ | ,remember Ann is allergic to nuts.
1/ | ,memory_save Likes tea.
1/ | ,memory.save confirm=true Likes tea.
1/ | ,memory
1/ | ,memory.clear
1/ | ,memory.clear confirm=true
1/ | ,remeber x
3/ | ,access
1/:de | ,memory.save
1/:zh | ,access.revoke ann
"""

MORE = """
1 | ,memory.recall
1 | ,memory.recall scope=user
1 | ,memory.why
1 | ,memory.forget x
1 | ,memory.restore 1
1 | ,memory.save content=" "
1 | ,memory.daily content=" "
1 | ,remember text=" "
1 | ,memory.forget text=" "
1 | ,memory.save %LONG%
1 | ,memory.daily %LONG%
1 | ,memory.daily date=2026-11-20 content="Ann called."
1 | ,memory.daily date=2026-11-23 content="Call Ann."
1 | ,memory.daily date=2026-11-05 content="Met Ann."
1 | ,memory.daily date=2026-11-19 content="%HALF%"
1 | ,memory.daily date=2026-11-18 content="%HALF%"
1 | ,memory
1 | ,memory.why
1 | ,memory.forget Ann
1 | ,access.group -200 everybody
1 | ,access.group -201 known
1 | ,access.group -666 leave
1 | ,access.group
1 | ,access
7 | ,access
7 | ,link
7 | ,unlink
7 | ,approve ABCDE
7 | ,remember I am a bot.
1 | post to bob
1 | ,approve {card} chat
1 | ring the bell
1 | ,approve {card} always
1 | ,approvals
2 | ,approvals revoke 12
1 | ,new
1 | ,approvals
1 | post to bob
1 | ring the bell
%LINKS%
""".replace(
    "%LINKS%",
    "\n".join(
        f"1 | ,access.grant {number}\n{number} | ,link\n1 | ,link {{code{number}}}\n{number} | ,link yes"
        for number in range(61, 70)
    ),
)
"""Its tail links more accounts than a person may have."""

OFF = """
1 | ,memory
1 | ,memory scope=user
1 | ,memory scope=workspace
1 | ,remember scope=user x
1 | ,remember scope=workspace x
1 | ,remember x
1 | ,memory.why
1 | ,memory.save scope=user x
1 | ,memory.clear scope=workspace
1:de | ,memory scope=user
1:zh | ,remember scope=workspace x
"""
"""In a home that keeps the memory of chats alone."""

ROLE = """
1 | ,access.role 2
1 | ,access.grant 4242 admin channel=telegram
1 | ,audit telegram:4242 of discord:1
2 | ,access.role 4242 channel=telegram
1:de | ,access.role 4242 channel=telegram
1:zh | ,access.role 4242 channel=telegram
1:de | ,access.role 9999
1:zh | ,access.role 9999
1 | ,access.role
1 | ,access.role ann
1 | ,access.role 1 channel=nowhere
3 | ,access.role 1
1# | ,access.role 1
"""
SCRIPTS: Mapping[str, Sequence[str]] = {
    "access": [*ACCESS.split("\n"), *WRONG_CODES.split("\n")],
    "approvals": APPROVALS.split("\n"),
    "memory": MEMORY.split("\n"),
    "slash": SLASH.split("\n"),
    "more": MORE.split("\n"),
    "off": OFF.split("\n"),
    "role": ROLE.split("\n"),
    **{
        language: [
            line.replace(" |", f":{language} |", 1) if line[:1].isdigit() else line for line in LANGUAGES.split("\n")
        ]
        for language in ("de", "zh")
    },
}
"""Each is said in a home of its own."""


async def record_chat(folder: Path, name: str) -> dict[str, Any]:
    """Say the lines of a script; return the answers by line."""
    recorded: dict[str, Any] = {}
    memory = [MemorySettings(zones=["chat"])] if name == "off" else []
    with fixed_world() as clock:
        async with golden_stage(folder / f"chat-{name}", clock, sections=memory) as stage:
            for line in filter(None, SCRIPTS[name]):
                who, _, text = line.partition(" | ")
                if who == "wait":
                    clock.advance(minutes=int(text))
                    continue
                found = WHO.fullmatch(who)
                assert found is not None, line
                said = await stage.say(
                    _lengthen(text),
                    channel="telegram" if found["slash"] else "discord",
                    sender=found["sender"],
                    group=bool(found["group"]),
                    language=found["language"] or "en",
                )
                recorded[f"{name} {len(recorded) + 1:03} {line}"] = _shorten(said)
    return recorded


def _lengthen(text: str) -> str:
    """Put what cannot be typed into a script for what stands for it: line breaks and long texts."""
    text = text.replace("\\n", "\n")
    for word, count in {"%HALF%": 150_000, "%LONG%": 40_000, "%HUGE%": 300_000}.items():
        text = text.replace(word, "x" * count)
    return text


def _shorten(value: Any) -> Any:
    """Leave out the middle of the one text that is long on purpose."""
    if isinstance(value, Mapping):
        return {name: _shorten(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shorten(each) for each in value]
    return re.sub(r"x{1000,}", lambda found: f"(x {len(found[0])} times)", value) if isinstance(value, str) else value
