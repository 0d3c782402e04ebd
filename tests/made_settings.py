"""Settings with sections of features, as tests want them."""

from __future__ import annotations

from typing import Any

from bubbot.app.own_features import own_sections, settings_schema
from bubbot.ports.settings import SettingsSection
from bubbot.settings.loader import Settings


def make_settings(*sections: SettingsSection, **core: Any) -> Settings:
    """Return settings with these sections of features, and these of bubbot by name. Read nothing; the rest are defaults."""
    paths = {kind: path for path, kind in own_sections().items()}
    found: dict[str, Any] = {**core}
    inner = {paths[type(section)]: section for section in sections}
    tools = {path.removeprefix("tools."): section for path, section in inner.items() if path.startswith("tools.")}
    found |= {path: section for path, section in inner.items() if "." not in path}
    if tools:
        kind = settings_schema().sections["tools"]
        found["tools"] = kind(**{**dict(core.get("tools", kind())), **tools})
    return settings_schema().model(**found)
