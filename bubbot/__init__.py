"""bubbot: a self-hosted chat bot daemon whose whole state is facts on append-only tapes.

The names below are what packages and programs may rely on (docs/reference/python.md). Each is imported on first use, so that
`import bubbot` costs nothing.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

_MODULES = {
    "bubbot.app.areal_agent": ("BubbotAgent",),
    "bubbot.app.bot": ("Bot",),
    "bubbot.app.library": ("HomeTapes", "open_bot", "open_store"),
    "bubbot.arguments.fields": ("Args", "NoArguments"),
    "bubbot.command": ("Caller", "make_group", "make_tools"),
    "bubbot.errors": (
        "AccessError", "BubbotError", "CommandRefused", "ConfigError", "EntryInvalid", "EntryNotFound", "ModelError",
        "StoreError", "TapeConflict", "TapeError", "ToolFailed", "ToolRefused", "ToolRetry",
    ),
    "bubbot.feature": ("Feature", "FeatureFactory", "Kernel"),
    "bubbot.features.conversation.anchors": ("AnchorsView",),
    "bubbot.features.memory.views": ("MemoryView",),
    "bubbot.features.search.view": ("SearchView",),
    "bubbot.ports.channel": ("Inbound", "Outbound", "Role", "Sender"),
    "bubbot.ports.settings": ("SettingsSection",),
    "bubbot.ports.turn": ("Turn", "TurnOutcome", "TurnResult"),
    "bubbot.runtime.context.ports": ("ForeignEntry", "GrantedEntries", "StrategyPorts"),
    "bubbot.runtime.context.quoting": ("quote_text",),
    "bubbot.runtime.context.selectors": ("ContextMessage", "MessageStyle", "select_messages"),
    "bubbot.runtime.context.strategy": (
        "ContextInput", "ContextStrategy", "HandoffInput", "ModelContext", "PreparationInput", "StrategyHandoff",
    ),
    "bubbot.runtime.context.view": ("ContextView",),
    "bubbot.tape.entry": ("Kind", "TapeEntry", "event", "message"),
    "bubbot.tape.events": ("ContextPrepared",),
    "bubbot.tape.fact": ("Fact", "FactState"),
    "bubbot.tape.fork": ("ForkedTape",),
    "bubbot.tape.provenance": ("Source", "source_of"),
    "bubbot.tape.query": ("AfterAnchor", "BetweenAnchors", "IdRanges", "TapeQuery", "WholeTape", "Window"),
    "bubbot.tape.references": ("BlobDigest", "EntryId", "PersonId", "SessionId", "Spans", "TapeEntryId", "TapeSpans"),
    "bubbot.tape.service": ("TapeService",),
    "bubbot.tape.view": ("View",),
    "bubbot.tool": ("Tool",),
}  # fmt: skip
"""The stable names, by the module that defines them. `__init__.pyi` tells type checkers the same; a test compares the two."""
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - names


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'bubbot' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
