"""The uses of secrets, in words, for a person who has to enter them again."""

from __future__ import annotations

from bubbot.ports.settings import Keys, format_setting
from bubbot.settings.loader import Settings
from bubbot.texts import Texts


def describe_secret(settings: Settings, setting: Keys, texts: Texts) -> str:
    """Return the name of a secret's setting, and what uses it."""
    name = format_setting(setting)
    match setting:
        case ("model", "api_key"):
            return texts.say("init_secret_model", setting=name, model=settings.model.name)
        case ("channels", channel, key):
            kind = str(settings.channels.get(channel, {}).get("kind", channel)).capitalize()
            if key == "token":
                return texts.say("init_secret_token", setting=name, channel=channel, platform=kind)
            return texts.say("init_secret_channel", setting=name, channel=channel)
        case ("health" | "http" | "server", *_):
            return texts.say("init_secret_http", setting=name)
        case ("store", *_):
            return texts.say("init_secret_store", setting=name)
    return name
