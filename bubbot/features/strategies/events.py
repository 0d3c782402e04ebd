"""The payloads of the facts of context strategies."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypedDict

from bubbot.tape.references import EntryId

CUT = "context/cut"
"""The event that records a compaction, so that it holds."""

ContextCut = TypedDict("ContextCut", {"from": EntryId})
"""`context/cut`: `from` is the oldest entry still read."""

STRATEGY_EVENTS: Mapping[str, type] = MappingProxyType({CUT: ContextCut})
