"""The payloads of the memory's facts."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypedDict


class LongTermMemory(TypedDict):
    """`memory.long_term`"""

    content: str
    updated_at: str


class DailyMemory(TypedDict):
    """`memory.daily`"""

    date: str
    content: str
    updated_at: str


MEMORY_EVENTS: Mapping[str, type] = MappingProxyType({"memory.long_term": LongTermMemory, "memory.daily": DailyMemory})
