"""What secrets are for, in words: a person who puts them back has to know which is which."""

from __future__ import annotations

from bubbot.ports.settings import Keys, format_setting
from bubbot.settings.loader import Settings


def describe_secret(settings: Settings, setting: Keys) -> str:
    """Return the name of a secret's setting, and what uses it."""
    name = format_setting(setting)
    match setting:
        case ("model", "api_key"):
            return f"{name}, the key of the model {settings.model.name}"
        case ("channels", channel, key):
            kind = str(settings.channels.get(channel, {}).get("kind", channel)).capitalize()
            return (
                f"{name}, for the channel {channel} on {kind}"
                if key == "token"
                else f"{name}, of the channel {channel}"
            )
        case ("health" | "http" | "server", *_):
            return f"{name}, for programs that ask this bot over HTTP"
        case ("store", *_):
            return f"{name}, where the tapes are"
    return name
