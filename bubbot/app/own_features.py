"""The list of bubbot's features. Each declares its parts in its folder; they are imported on first use.

A feature is a folder of `bubbot.features`. It may have these modules, each with the constant or function named here:

- `feature.py`: `create(kernel, settings)`, which builds its `Feature` at the start and at each reload, or `create_lasting`, which builds one
  that stays and takes new settings by `prepare`; neither if it needs ports of other features.
- `commands.py`: `COMMANDS`, the group of its commands in the shell.
- `settings.py`: `SECTIONS`, its sections of config.toml by path.
- `facts.py`: `FACTS`, the types of its facts. `SESSION_EVENTS`: those on tapes of its own about one chat, which an erasure of that chat
  reaches. `QUOTES`: those that quote a tape, by the tape on which they stand. `COPIES`: the events with words of what they cite.
- `state.py`: `CHECKPOINTS`, the models of the checkpoints of its projections, by the names of the events.
- `checks.py`: `CHECKS`, for `bubbot doctor`.
- `health.py`: `read_health`, which reports its health from the tapes while no bot runs.
- `forgetting.py`: `FORGETTING`, what its facts need if a person is forgotten, by the beginning of the names of tapes; empty: those
  of chats.
- `release.py`: `end_open_work`, which ends what a restored home must not go on with when its quarantine is released.
- `panels.py`: `PANELS`, what it shows on the trace page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bubbot.ports.settings import SettingsSection
from bubbot.settings.loader import CORE_SCHEMA, SettingsSchema
from bubbot.tape.fact import models_of

FEATURES = (
    "access", "conversation", "search", "topics", "views", "why", "explain", "replay", "judge", "judge.evals", "learn", "learn.live", "learn.weights", "memory", "strategies", "usage", "attachments", "files", "schedule",
    "agents", "tasks", "budget", "people", "web", "shell", "skills", "mcp", "mcp.serve", "otel", "trace", "config", "approvals",
)  # fmt: skip
"""The features of bubbot, in the order of their tools, prompts and middleware. Those of packages come first.

Approvals are last, so that they decide a call in its final form."""


def find_part(feature: str, module: str, name: str) -> Any:
    """Return a feature's declaration by module and name; None if it has none."""
    path = f"bubbot.features.{feature}.{module}"
    return getattr(import_module(path), name, None) if find_spec(path) else None


def find_parts(module: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the features that have a declaration under this module and name, with it, in the order of the list."""
    for feature in FEATURES:
        if (part := find_part(feature, module, name)) is not None:
            yield feature, part


@cache
def own_sections() -> Mapping[str, type[SettingsSection]]:
    """Return the sections of the settings of all features, by path, such as `memory` and `tools.web`."""
    return {path: section for _, sections in find_parts("settings", "SECTIONS") for path, section in sections.items()}


@cache
def settings_schema() -> SettingsSchema:
    """Return the sections of bubbot and of its own features."""
    return CORE_SCHEMA.extend(own_sections())


@cache
def own_events() -> Mapping[str, type]:
    """Return the payload models of the events of all features, by name."""
    facts = {name: model for _, kinds in find_parts("facts", "FACTS") for name, model in models_of(*kinds).items()}
    return facts | {name: model for _, models in find_parts("state", "CHECKPOINTS") for name, model in models.items()}


@cache
def session_events() -> tuple[str, ...]:
    """Return the events on features' tapes that an erasure of their session reaches."""
    return tuple(name for _, names in find_parts("facts", "SESSION_EVENTS") for name in names)


@cache
def quoting_events() -> Mapping[str, tuple[str, ...]]:
    """Return the names of facts that quote a tape (fields `tape` and `session`), by the tape on which they stand."""
    return {tape: names for _, quotes in find_parts("facts", "QUOTES") for tape, names in quotes.items()}


@cache
def copying_events() -> tuple[str, ...]:
    """Return the events of features that hold words of the entries that they cite."""
    return tuple(name for _, names in find_parts("facts", "COPIES") for name in names)
