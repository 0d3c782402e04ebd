"""What installed packages add to the settings, found when the settings name something that bubbot itself lacks.

Commands import this file at their start: finding entry points takes ten milliseconds, and importing features many more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bubbot.ports.settings import SettingsSection
from bubbot.settings.loader import SettingsExtensions


def _find_sections() -> Mapping[str, type[SettingsSection] | None]:
    from bubbot.app.installed import load_features

    return load_features().sections()


def _list_selectors() -> Collection[str]:
    from bubbot.app.installed import load_strategies

    return load_strategies().selectors


EXTENSIONS = SettingsExtensions(_find_sections, _list_selectors)
"""The features of installed packages, and the context strategies beyond those of the kernel."""
