"""The payloads of the facts of context strategies."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypedDict

from bubbot.tape.references import EntryId, Spans

CUT = "context/cut"
"""The event that records a compaction, so that it holds."""
CHOSEN = "context/strategy"
"""The event that records the strategy that a chat has chosen."""

RECALLED = "context/recalled"
"""The event that names the entries recalled for a message."""

ContextCut = TypedDict(
    "ContextCut", {"from": EntryId, "results": Sequence[EntryId], "left_out": Spans, "since": str, "until": str}
)
"""`context/cut`: all that is cut by now; each field may be missing.

`from` is the oldest entry still read, `results` are the entries whose long results are shown as pointers, `left_out` are
the ranges of what is no longer shown, which is from `since` to `until`. Version 1 has only `from`.
"""


class StrategyChosen(TypedDict):
    """`context/strategy`: the selector that the chat has chosen; empty for the configured one."""

    selector: str


class ContextRecalled(TypedDict):
    """`context/recalled`: `entries` from before the window are shown beside `message`."""

    message: EntryId
    entries: Spans


STRATEGY_EVENTS: Mapping[str, type[Any]] = MappingProxyType(
    {CUT: ContextCut, RECALLED: ContextRecalled, CHOSEN: StrategyChosen}
)
"""The payload models of the feature, by the name of the event."""
