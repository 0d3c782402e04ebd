"""The features of bubbot: the one list. What a feature declares is found in its folder, and imported when it is asked for.

A feature is a folder of `bubbot.features`. It may have these modules, each with the constant or function named here:

- `settings.py`: `SECTIONS`, its sections of config.toml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bubbot.ports.settings import SettingsSection
from bubbot.settings.loader import CORE_SCHEMA, SettingsSchema

FEATURES = (
    "conversation", "search", "topics", "why", "explain", "replay", "memory", "strategies", "usage", "attachments", "files", "schedule", "agents",
    "budget", "web", "shell", "otel", "approvals",
)  # fmt: skip
"""The features of bubbot, in the order of their tools, prompts and middleware. Those of packages come before.

Approvals are last: whatever others change in a call, it is decided as it will run."""


def find_parts(module: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield what each feature that has such a module declares there under a name."""
    for feature in FEATURES:
        path = f"bubbot.features.{feature}.{module}"
        if find_spec(path) is not None:
            yield feature, getattr(import_module(path), name)


@cache
def own_sections() -> Mapping[str, type[SettingsSection]]:
    """Return the sections of the settings of all features, by path, such as `memory` and `tools.web`."""
    return {path: section for _, sections in find_parts("settings", "SECTIONS") for path, section in sections.items()}


@cache
def settings_schema() -> SettingsSchema:
    """Return the sections of bubbot and of its own features."""
    return CORE_SCHEMA.extend(own_sections())
