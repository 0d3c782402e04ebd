"""`[memory]` of the settings."""

import json
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, cast, get_args

from pydantic import BeforeValidator, Field, field_validator

from bubbot.formatting import did_you_mean
from bubbot.ports.memory import ZONES_VIEW, MemoryNode, NodeKind
from bubbot.ports.settings import Label, Name, Names, OptionalWhole, SettingsSection, Text, Whole

CURRENT_TOPIC = "current"
"""The name of a node for the topic that the chat is on."""
_LIMITS = ("session", "weight", "max_age_days", "max_tokens")
MAX_NODES = 32


class Scope(StrEnum):
    """Whose memory it is."""

    CHAT = "chat"
    USER = "user"
    WORKSPACE = "workspace"


def parse_node(text: str) -> MemoryNode:
    """Parse a node as settings write it, such as `topic Trip to Rome weight=2`. Raise `ValueError`."""
    kinds = get_args(NodeKind)
    kind, *words = text.split() or [""]
    if kind not in kinds:
        raise ValueError(f"{text!r}: a node begins with {', '.join(kinds)}{did_you_mean(kind, kinds, before='; ')}")
    limits: dict[str, str] = {}
    while words and "=" in words[-1]:
        name, _, value = words.pop().partition("=")
        if name not in _LIMITS or name in limits:
            raise ValueError(f"{text!r}: {name} is not a limit of a node{did_you_mean(name, _LIMITS, before='; ')}")
        limits[name] = value
    node = MemoryNode(
        cast("NodeKind", kind),
        " ".join(words),
        limits.get("session", ""),
        _parse_weight(text, limits.get("weight", "1")),
        _parse_whole(text, "max_age_days", limits),
        _parse_whole(text, "max_tokens", limits),
    )
    return _check_node(text, node)


def _check_node(text: str, node: MemoryNode) -> MemoryNode:
    if not node.name:
        raise ValueError(f"{text!r}: the name of the {node.kind} is missing")
    if node.kind == "zone":
        scope = Scope.CHAT if node.name == "session" else node.name
        if scope not in tuple(Scope):
            raise ValueError(
                f"{text!r}: the zones are {', '.join(Scope)}{did_you_mean(node.name, tuple(Scope), before='; ')}"
            )
        node = MemoryNode(node.kind, str(scope), node.session, node.weight, node.max_age_days, node.max_tokens)
    if node.session and node.kind not in ("topic", "anchor"):
        raise ValueError(f"{text!r}: only a topic and an anchor have a session")
    if node.session and node.name == CURRENT_TOPIC:
        raise ValueError(f"{text!r}: the current topic is that of the own chat")
    return node


def _parse_weight(text: str, value: str) -> float:
    try:
        weight = float(value)
    except ValueError:
        weight = 0.0
    if not 0 < weight <= 1000:
        raise ValueError(f"{text!r}: weight has to be a number above 0, at most 1000")
    return weight


def _parse_whole(text: str, name: str, limits: Mapping[str, str]) -> int | None:
    if name not in limits:
        return None
    value = limits[name]
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= 1_000_000):
        raise ValueError(f"{text!r}: {name} has to be a whole number from 1 to 1000000")
    return int(value)


class MemoryViewSettings(SettingsSection):
    """`[memory.views.NAME]`: the nodes from which a memory view is assembled, and how much it shows."""

    nodes: Names = Field(
        default=[f"zone {scope.value}" for scope in Scope],
        description=(
            "What it is assembled from: `zone chat`, `zone user`, `zone workspace`, `topic NAME`, `topic current`, `anchor "
            "NAME` or `tape SESSION`; each may add `weight=2`, `max_age_days=30`, `max_tokens=500`, and a topic or an anchor "
            "`session=telegram:42`."
        ),
    )
    max_tokens: OptionalWhole = Field(
        default=None,
        ge=100,
        le=1_000_000,
        description="Tokens that it may show; default: `[memory] block_tokens`. Never more than half of the model's context.",
        examples=[4000],
    )
    strategy: Text = Field(
        default="", description="A package of the group `bubbot.memory` that chooses; default: by weight, newest first."
    )

    @field_validator("nodes")
    @classmethod
    def _check_nodes(cls, value: list[str]) -> list[str]:
        nodes = [parse_node(text) for text in value]
        if not nodes or len(nodes) > MAX_NODES:
            raise ValueError(f"from 1 to {MAX_NODES} nodes")
        labels = [node.label for node in nodes]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise ValueError(f"nodes that differ, but {twice[0]!r} is there twice")
        return value

    @property
    def parsed_nodes(self) -> tuple[MemoryNode, ...]:
        """The nodes."""
        return tuple(map(parse_node, self.nodes))


def _parse_views(value: object) -> object:
    """Parse JSON, which the environment may hold."""
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


class MemorySettings(SettingsSection):
    """`[memory]`: whose memory the model is shown, how much of it, and how long notes are kept."""

    retention_days: Whole = Field(
        default=30, ge=1, le=36500, description="Days after which the notes of a day are dropped."
    )
    recent_days: Whole = Field(default=7, ge=1, le=36500, description="Days before today whose notes count as recent.")
    zones: Names = Field(
        default=[scope.value for scope in Scope],
        description=(
            "Whose memory there is, the most important first, which gets the room if that is short: of the chat, of the "
            "person in direct chats, and of everybody who may speak."
        ),
    )
    block_tokens: Whole = Field(
        default=22_000,
        ge=500,
        le=1_000_000,
        description="Tokens that the memory may take of a request; never more than half of the model's context.",
    )

    view: Name = Field(
        default=ZONES_VIEW,
        description=(
            "The memory view that the model is shown: `zones`, a table of `[memory.views]`, or a package of the group "
            "`bubbot.memory`. A chat may have another one (`,memory.view`)."
        ),
    )
    views: Annotated[dict[Label, MemoryViewSettings], BeforeValidator(_parse_views)] = Field(
        default={}, description="Memory views, as tables by name, such as `[memory.views.family]`."
    )

    named_tables: ClassVar[Mapping[str, type[SettingsSection]]] = MappingProxyType({"views.<name>": MemoryViewSettings})

    @field_validator("views")
    @classmethod
    def _check_views(cls, value: dict[str, Any]) -> dict[str, Any]:
        if ZONES_VIEW in value:
            raise ValueError(f"tables with other names: {ZONES_VIEW!r} is the view that every bot has")
        return value

    @field_validator("zones")
    @classmethod
    def _check_zones(cls, value: list[str]) -> list[str]:
        names = [scope.value for scope in Scope]
        if unknown := [name for name in value if name not in names]:
            raise ValueError(f"there is no zone {unknown[0]!r}: the zones are {', '.join(names)}")
        if Scope.CHAT not in value or len(set(value)) < len(value):
            raise ValueError(f"has to name {Scope.CHAT.value}, and each zone once")
        return value

    @cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes of memory that are on, the most important first."""
        return tuple(Scope(name) for name in self.zones)


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"memory": MemorySettings})
"""The section of the feature in config.toml."""
