"""What people in each chat saw, as text for pages and for failing tests."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from tests.fakes.platform.world import Happening, World


def transcript(world: World[Any], *, times: bool = True) -> str:
    """Write down all chats, in the order in which they began. Edits in a row are one line with the last text.

    Typing is shown once until the one who types has spoken. Times are UTC; without them two runs can be compared.
    """
    parts = []
    for key in dict.fromkeys(one.chat for one in world.happenings):
        lines = _lines(world, [one for one in world.happenings if one.chat == key], times=times)
        parts.append("\n".join([f"== {world.title(key)} ==", *lines]))
    return "\n\n".join(parts) + "\n" if parts else ""


def _lines(world: World[Any], happenings: Iterable[Happening], *, times: bool) -> list[str]:
    shown: list[tuple[Happening, str]] = []
    edits = 0
    typing: set[str] = set()
    for one in happenings:
        if one.what == "typing" and one.who in typing:
            continue
        same = bool(shown) and one.what == shown[-1][0].what == "edit" and one.message == shown[-1][0].message
        edits = edits + 1 if same else 1
        if same:
            shown.pop()
        typing = typing | {one.who} if one.what == "typing" else typing - {one.who}
        shown.append((one, _line(world, one, edits) + world.remark(one)))
    stamp = "%H:%M:%S " if times else ""
    return [time.strftime(stamp, time.gmtime(one.time)) + line.replace("\n", "\n    ") for one, line in shown]


def _line(world: World[Any], one: Happening, edits: int) -> str:
    number = world.number(one.message or 0)
    match one.what:
        case "message":
            return f"{one.who} #{number}: {one.text}"
        case "edit":
            count = f" {edits} times" if edits > 1 else ""
            return f"{one.who} edited #{number}{count}: {one.text}"
        case "delete":
            return f"#{number} of {one.who} was deleted: {one.text}"
        case "reaction":
            return f"{one.who} to #{number}: {one.text}"
        case "typing":
            return f"{one.who} {one.text}"
    return f"-- {one.who} {one.text}"
