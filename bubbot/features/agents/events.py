"""The payloads of the facts about sub-tasks."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NotRequired, TypedDict

from bubbot.tape.entry import JsonObject
from bubbot.tape.references import Spans

STARTED = "agent/started"
ENDED = "agent/ended"


class AgentStarted(TypedDict):
    """`agent/started`"""

    fork: str
    name: str
    order: str
    depth: int
    tools: Sequence[str]
    steps: int
    tokens: int
    mode: str


class AgentEnded(TypedDict):
    """`agent/ended`"""

    fork: str
    name: str
    order: str
    call_id: NotRequired[str]
    status: str
    merged: bool
    entries: Spans
    result: str
    steps: int
    tools: Sequence[str]
    usage: JsonObject


AGENT_EVENTS: Mapping[str, type] = MappingProxyType({STARTED: AgentStarted, ENDED: AgentEnded})
