"""What people in each channel saw, as text for pages and for failing tests."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tests.fakes.discordapi.world import DM, FORUM, Channel, Happening, World


def transcript(world: World, *, times: bool = True) -> str:
    """All channels, in the order in which they began. Edits in a row are one line with the last text.

    Messages are numbered in each channel, people, roles and channels have names instead of ids. Typing is shown once
    until the one who types has spoken. Times are UTC; without them two runs can be compared.
    """
    parts = []
    for number in dict.fromkeys(one.channel for one in world.happenings):
        lines = _lines(world, [one for one in world.happenings if one.channel == number], times=times)
        parts.append("\n".join([f"== {_title(world, world.channels[number])} ==", *lines]))
    return "\n\n".join(parts) + "\n" if parts else ""


def _title(world: World, channel: Channel) -> str:
    if channel.kind == DM:
        names = [one.name() for one in channel.recipients if one.id != world.bot.id]
        return f"{', '.join(names)} (direct)"
    if channel.is_thread and channel.parent is not None:
        kind = "post" if channel.parent.kind == FORUM else "thread"
        return f"{channel.name} ({kind} in #{channel.parent.name})"
    return f"#{channel.name} ({channel.guild.name if channel.guild else ''})"


def _lines(world: World, happenings: Iterable[Happening], *, times: bool) -> list[str]:
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
        shown.append((one, _line(one, world.number(one.message or 0), edits)))
    stamp = "%H:%M:%S " if times else ""
    return [time.strftime(stamp, time.gmtime(one.time)) + line.replace("\n", "\n    ") for one, line in shown]


def _line(one: Happening, number: int, edits: int) -> str:
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
