"""The payloads of the facts of context strategies."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypedDict

from bubbot.tape.references import EntryId, Spans

CUT = "context/cut"
"""The event that records a compaction, so that it holds."""

RECALLED = "context/recalled"
"""The event that names the entries recalled for a message."""

ContextCut = TypedDict("ContextCut", {"from": EntryId})
"""`context/cut`: `from` is the oldest entry still read."""


class ContextRecalled(TypedDict):
    """`context/recalled`: `entries` from before the window are shown beside `message`."""

    message: EntryId
    entries: Spans


STRATEGY_EVENTS: Mapping[str, type] = MappingProxyType({CUT: ContextCut, RECALLED: ContextRecalled})
