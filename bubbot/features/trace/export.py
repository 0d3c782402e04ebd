"""A part of a session as one file: it opens anywhere, without a network and without scripts."""

from __future__ import annotations

from bubbot.errors import ConfigError
from bubbot.features.trace.timeline import TurnGroup, group_turns, read_rows
from bubbot.tape.handle import TapeHandle
from bubbot.texts import Texts

MAX_EXPORT_ENTRIES = 2000
MAX_EXPORT_CHARS = 20_000_000
"""Characters of one file at most, without its markup."""
EXPORT_CHARS = 100_000
"""Characters of one text in a file."""


async def read_slice(tape: TapeHandle, first: int, last: int, texts: Texts) -> tuple[TurnGroup, ...]:
    """Read the entries of a part. Raise `ConfigError` if there are none, or too many."""
    head = await tape.head()
    last = min(last, head)
    if not 1 <= first <= last:
        raise ConfigError(texts.say("trace_export_empty", first=first, last=last, head=head))
    if last - first >= MAX_EXPORT_ENTRIES:
        sentence = texts.say(
            "trace_export_limit", limit=MAX_EXPORT_ENTRIES, first=last - MAX_EXPORT_ENTRIES + 1, last=last
        )
        raise ConfigError(sentence)
    rows, room = [], MAX_EXPORT_CHARS
    async for row in read_rows(tape, first, last, EXPORT_CHARS):
        room -= sum(len(part.words.text) for part in row.parts)
        if room < 0:
            raise ConfigError(texts.say("trace_export_long", limit=MAX_EXPORT_CHARS, first=first, last=row.id - 1))
        rows.append(row)
    return group_turns(rows)
