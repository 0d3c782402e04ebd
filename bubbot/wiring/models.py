"""Which model a name stands for: a plugin's own, or any `provider/model` through litellm, loaded when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bubbot import plugins
from bubbot.budget import Budget
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.models.lazy import LazyModel
from bubbot.models.litellm import keys, names, sizes
from bubbot.models.local import model as local
from bubbot.models.unconfigured import KeylessModel, UnconfiguredModel
from bubbot.ports.model import Model, ModelOptions
from bubbot.runtime.intake import AttachmentIntake, AttachmentLimits
from bubbot.runtime.models import SessionModels
from bubbot.settings.environment import variables
from bubbot.settings.loader import Settings
from bubbot.texts import Texts

LITELLM = "litellm"
"""The model plugin for every `provider/model` that is no plugin itself."""
TURNS_AT_ONCE = 64
"""Turns of different sessions at once: each mostly waits for a provider, and holds little but its chat's window."""
LOCAL_TURNS_AT_ONCE = 8
"""The same where a model on this machine answers one after another: who waits longer for it than a model call may take
would get a failure in place of an answer."""


def model_names() -> list[str]:
    """The models there are; of a provider, the form of their names."""
    known = {name: name for name in plugins.names("bubbot.models") if name != "local" or local.available()}
    return list((known | {LITELLM: "provider/model"}).values())


@dataclass(frozen=True, slots=True)
class ModelSet:
    """The models of a bot: those that answer, and the one that writes down voice messages, if there is one."""

    sessions: SessionModels
    transcriber: LazyModel | None

    async def aclose(self) -> None:
        """Closes every model that was made."""
        await self.sessions.aclose()
        if self.transcriber is not None:
            await self.transcriber.aclose()


def choose_models(settings: Settings, home: Home, wrap: Callable[[Model], Model]) -> ModelSet:
    """The models that the settings name; each that answers goes through `wrap`. Raises `ConfigError`."""
    first = wrap(choose_model(settings, home))
    sessions = SessionModels(first, lambda name: wrap(choose_model(settings, home, name)), model_names)
    return ModelSet(sessions, choose_transcriber(settings, home))


def choose_model(settings: Settings, home: Home, name: str = "") -> Model:
    """The model of this name, else the configured one; where none is, the demonstration model if it is installed.

    Raises `ConfigError`.
    """
    name = name or settings.model.name
    if not name:
        if not local.available():
            return UnconfiguredModel(Texts(settings.bot.language))
        name = "local"
    provider, known = name.partition("/")[0], plugins.names("bubbot.models")
    if provider in known and provider != LITELLM:
        given = ModelOptions(name, home.path, _model_values(settings, provider))
        model: Model = plugins.load("bubbot.models", provider)(given)
        return model
    names.check(name, "[model] name" if name == settings.model.name else "the name", {*known} - {LITELLM})
    names.check_fallbacks(settings.model.fallback)
    is_configured = provider == settings.model.provider
    if is_configured and (unread := settings.missing_secret("model", "api_key")):
        return UnconfiguredModel(Texts(settings.bot.language), missing_key=unread.file)
    if is_configured:
        _check_address(settings, provider)
    # A fallback may be of the configured provider although the model is not, so litellm's adapter is told whose key it is.
    values = {**_model_values(settings, settings.model.provider), keys.KEY_PROVIDER: settings.model.provider}
    if missing := keyless_models(settings, variables(), name):
        if len(missing) == len({name, *settings.model.fallback}):
            return KeylessModel(name, missing[name], Texts(settings.bot.language), is_configured=is_configured)
        values["keyless"] = tuple(missing)
    own_address = is_configured and bool(settings.model.api_base)
    traits = sizes.traits(name, context_tokens=settings.model.context_tokens, own_address=own_address)
    options = ModelOptions(name, home.path, values)
    return LazyModel(name, traits, lambda: plugins.load("bubbot.models", LITELLM)(options))


def _check_address(settings: Settings, provider: str) -> None:
    """Raise `ConfigError` if `api_base` holds credentials that would go into the same header as the key."""
    address, has_key = urlsplit(settings.model.api_base or ""), settings.model.api_key is not None
    if (
        (address.username or address.password)
        and provider != "gemini"
        and (has_key or provider in keys.PROVIDER_KEY_VARIABLES)
    ):
        raise ConfigError(
            f"[model] api_base holds a user name or a password, which cannot be sent beside the key of {provider!r}: take "
            "what stands before the @ out of the address."
        )


def keyless_models(settings: Settings, environment: Mapping[str, str], name: str = "") -> dict[str, tuple[str, ...]]:
    """Return the models that are asked, `name` (else the configured one) and its fallbacks, whose keys are missing.

    Each with the variables that could hold it. Models of plugins need none, as far as anybody knows.
    """
    first, ours = name or settings.model.name, {*plugins.names("bubbot.models")} - {LITELLM}
    asked = [one for one in (first, *settings.model.fallback) if one.partition("/")[0] not in ours]
    is_set = settings.model.api_key is not None or settings.model.api_base is not None
    return keys.keyless(dict.fromkeys(asked), provider=settings.model.provider, is_set=is_set, variables=environment)


def turns_at_once(settings: Settings) -> int:
    """How many turns of different sessions run at once: as set, else what suits the configured model."""
    here = settings.model.name.partition("/")[0] in ("", "local")
    return settings.bot.turns_at_once or (LOCAL_TURNS_AT_ONCE if here else TURNS_AT_ONCE)


def choose_transcriber(settings: Settings, home: Home) -> LazyModel | None:
    """The model that writes down voice messages; None where none is configured.

    Raises `ConfigError`. Address and key of `[model]` are for models of the same provider.
    """
    name = settings.attachments.transcription
    if not name:
        return None
    provider, known = name.partition("/")[0], plugins.names("bubbot.models")
    values = _model_values(settings, provider)
    plugin = provider if provider in known and provider != LITELLM else LITELLM
    if plugin == LITELLM:
        names.check(name, "[attachments] transcription")
    options = ModelOptions(name, home.path, values)
    return LazyModel(name, sizes.traits(name), lambda: plugins.load("bubbot.models", plugin)(options))


def intake_of(settings: Settings, transcriber: LazyModel | None, texts: Texts, budget: Budget) -> AttachmentIntake:
    """What takes in attachments, within the limits of the settings."""
    limits = AttachmentLimits(settings.attachments.max_bytes, settings.attachments.max_inline)
    return AttachmentIntake(
        limits, (transcriber.name, transcriber) if transcriber else None, budget=budget, texts=texts
    )


def _model_values(settings: Settings, provider: str) -> dict[str, Any]:
    """Return what a model of this provider is given of `[model]`: all but its name.

    The key and the address belong to the provider of the configured model; no other is given them.
    """
    foreign = set() if provider == settings.model.provider else {"api_key", "api_base"}
    values = settings.model.model_dump(exclude={"name", "timeout", "max_steps"} | foreign, exclude_none=True)
    for secret in values.keys() & {"api_key"}:
        values[secret] = values[secret].get_secret_value()
    return {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
