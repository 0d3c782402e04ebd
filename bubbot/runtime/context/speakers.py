"""A tape that several agents share, as one of them sees it.

It sees its own words, calls and results unchanged. Another agent's words become a user message with that agent's name; its calls,
results and choices are not shown. People's messages get names, too, even in a chat of one person, so that no words in them look
like those of an agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bubbot.ports.agents import speaker_name, writer_of
from bubbot.ports.channel import HUMAN_ORIGIN
from bubbot.runtime.context.selectors import EVIDENCE, SPEAKER, find_correction, is_agent_call, text_of
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.texts import SILENT_MARK

SPOKEN = "spoken"
"""The key of the message of a speaker, in the cache of the entry from which it is made."""


def is_own(entry: TapeEntry, viewer: str | None) -> bool:
    """Return true if an agent (None: the bot alone) wrote an entry itself, or a sub-task of it did."""
    return "fork" in entry.meta or writer_of(entry) == (viewer or "")


def see_as(entries: Sequence[TapeEntry], viewer: str | None) -> Sequence[TapeEntry]:
    """Return the entries of a tape as an agent sees them; unchanged if it is alone there.

    Args:
        entries: those that it may see, ascending.
        viewer: the agent; empty for the bot itself among others; None for the bot alone.
    """
    viewer = find_viewer(entries, viewer)
    return entries if viewer is None else tuple([seen for each in entries if (seen := _see(each, viewer)) is not None])


def find_viewer(entries: Sequence[TapeEntry], viewer: str | None) -> str | None:
    """Return the viewer; empty (the bot among others) if the bot is alone now, but agents wrote some of these entries."""
    if viewer is None and [
        True
        for entry in entries
        if "origin" in entry.meta and entry.meta["origin"] != HUMAN_ORIGIN and writer_of(entry)
    ]:
        return ""
    return viewer


def _see(entry: TapeEntry, viewer: str) -> TapeEntry | None:
    """Return an entry as the viewer sees it; None if it does not."""
    if "fork" in entry.meta:
        return entry
    if entry.kind == Kind.MESSAGE and entry.payload.get("role") == "user":
        if not is_agent_call(entry):
            return _spoken(entry, "")
        return entry if entry.meta.get("agent") == speaker_name(viewer) else None
    writer = writer_of(entry)
    if writer == viewer or (entry.kind == Kind.EVENT and find_correction(entry) is not None):
        return entry
    if entry.kind != Kind.MESSAGE or entry.payload.get("role") != "assistant":
        return None
    text = text_of(entry.payload.get("content"))
    return None if text.strip() in ("", SILENT_MARK) else _spoken(entry, speaker_name(writer))


def _spoken(entry: TapeEntry, speaker: str) -> TapeEntry:
    """Return a message as that of a speaker: an agent, or (empty) its sender. It is made once: its rendering is cached.

    Only the cache says that an agent speaks, since an imported tape may have any meta. The meta makes the copy unequal to
    the entry.
    """
    made: TapeEntry | None = entry.cache.get(SPOKEN)
    if made is None:
        payload = {"role": "user", "content": entry.payload.get("content")} if speaker else entry.payload
        made = replace(entry, payload=payload, meta={**entry.meta, "group": True, SPEAKER: speaker})
        made.cache[SPEAKER] = speaker
        if EVIDENCE in entry.cache:
            made.cache[EVIDENCE] = entry.cache[EVIDENCE]
        entry.cache[SPOKEN] = made
    return made
