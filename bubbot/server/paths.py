"""The HTTP paths of channels whose platform calls them."""

from __future__ import annotations

from collections.abc import Mapping

from bubbot.errors import ConfigError
from bubbot.ports.channel import SupportsWebhook


def check_paths(channels: Mapping[str, SupportsWebhook]) -> None:
    """Raise `ConfigError` if two channels want the same path."""
    paths: dict[str, str] = {}
    for name, channel in channels.items():
        if (first := paths.setdefault(channel.path, name)) != name:
            raise ConfigError(f"[channels.{name}] and [channels.{first}] both want the path {channel.path}: change one")
