"""Choose the model for a name: a plugin's, or any `provider/model`, loaded on first use.

Providers with the OpenAI chat protocol are called directly, the others through litellm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from bubbot import plugins
from bubbot.errors import ConfigError
from bubbot.features.attachments.settings import AttachmentSettings
from bubbot.home import Home
from bubbot.models.catalogue import keys, names, sizes
from bubbot.models.lazy import LazyModel
from bubbot.models.local import model as local
from bubbot.models.unconfigured import KeylessModel, QuarantinedModel, UnconfiguredModel
from bubbot.ports.model import KnowsLessons, Model, ModelOptions, ModelTraits
from bubbot.ports.turn import Turn
from bubbot.runtime.lessons import ModelLessons
from bubbot.runtime.models import SessionModels
from bubbot.settings.environment import ENVIRONMENT_PREFIX, read_variables
from bubbot.settings.loader import Settings
from bubbot.texts import Texts

LITELLM = "litellm"
"""The model plugin for every `provider/model` that has no plugin."""
OWN_MODELS = ("local", "scripted")
"""bubbot's own models, which send nothing."""
ADDRESS_VARIABLE = f"{ENVIRONMENT_PREFIX}MODEL__API_BASE"
"""The environment variable with the model's address."""
MAX_CONCURRENT_TURNS = 64
"""Concurrent turns of different sessions: each mostly waits for a provider and holds only its chat's window."""
MAX_CONCURRENT_LOCAL_TURNS = 8
"""The same for a model on this machine, which answers one turn after another: a turn that waits longer than a model
call may take would fail."""
ENDPOINT_PROVIDER = "hosted_vllm"
"""The provider of models at an address that a feature names: models of one's own."""


def model_names() -> list[str]:
    """Return the names of the available models; for providers the form `provider/model`."""
    forms = {name: name for name in plugins.list_names("bubbot.models") if name != "local" or local.is_available()}
    return list((forms | {LITELLM: "provider/model"}).values())


class ModelSet(Struct, frozen=True):
    """The models of a bot: those that answer, and the one that transcribes voice messages, if any."""

    sessions: SessionModels
    transcriber: LazyModel | None

    def loading_names(self) -> list[str]:
        transcriber = [self.transcriber.name] if self.transcriber is not None and self.transcriber.is_loading else []
        return [*self.sessions.loading_names(), *transcriber]

    async def aclose(self) -> None:
        """Close every model that was loaded."""
        await self.sessions.aclose()
        if self.transcriber is not None:
            await self.transcriber.aclose()


class CurrentModels:
    """The models of a running bot: the set in use, and earlier ones until the turns that began with them have ended."""

    def __init__(self, models: ModelSet) -> None:
        self.in_use = models
        self._earlier: list[ModelSet] = []

    def get_model(self, name: str) -> Model:
        """Return the model with this name. Raise `ConfigError`."""
        return self.in_use.sessions.get_model(name)

    async def model_for_turn(self, turn: Turn) -> Model:
        """Return the model that answers in a turn. Raise `ModelUnavailable`."""
        return await self.in_use.sessions.model_for_turn(turn)

    def loading_names(self) -> list[str]:
        """Return the names of the models that are being loaded."""
        return self.in_use.loading_names()

    def replace(self, models: ModelSet) -> ModelSet:
        """Use other models from now on; return those that `close` has to get once their turns have ended."""
        self._earlier.append(self.in_use)
        self.in_use = models
        return self._earlier[-1]

    async def close(self, models: ModelSet) -> None:
        """Close models that were replaced."""
        self._earlier.remove(models)
        await models.aclose()

    async def aclose(self) -> None:
        """Close all."""
        for models in (*self._earlier, self.in_use):
            await models.aclose()


def choose_models(
    settings: Settings,
    home: Home,
    wrap: Callable[[Model], Model],
    lessons: ModelLessons,
    *,
    is_quarantined: bool = False,
) -> ModelSet:
    """Return the configured models. Raise `ConfigError` for bad names.

    Args:
        wrap: wraps each model that answers.
        is_quarantined: see `choose_model`.
    """

    def choose(name: str) -> Model:
        return wrap(choose_model(settings, home, name, lessons=lessons, is_quarantined=is_quarantined))

    sessions = SessionModels(choose(""), choose, model_names, lessons)
    return ModelSet(sessions, choose_transcriber(settings, home, is_quarantined=is_quarantined))


def choose_model(
    settings: Settings,
    home: Home,
    name: str = "",
    *,
    lessons: KnowsLessons | None = None,
    is_quarantined: bool = False,
) -> Model:
    """Return the model with this name, else the configured one, else the demonstration model if installed.

    Args:
        name: empty for the configured one.
        is_quarantined: do not call addresses from the backup.

    Raises:
        ConfigError: no such model.
    """
    name = name or settings.model.name
    if not name:
        if not local.is_available():
            return UnconfiguredModel(Texts(settings.bot.language))
        name = "local"
    provider, plugin_names = name.partition("/")[0], plugins.list_names("bubbot.models")
    if is_quarantined and has_address_of_backup(settings, name):
        return QuarantinedModel(name, Texts(settings.bot.language))
    if provider in plugin_names and provider != LITELLM:
        plugin_options = ModelOptions(name, home.path, _model_values(settings, provider))
        model: Model = plugins.load("bubbot.models", provider)(plugin_options)
        return model
    names.check_model_name(
        name, "[model] name" if name == settings.model.name else "the name", {*plugin_names} - {LITELLM}
    )
    names.check_fallbacks(settings.model.fallback)
    is_configured = provider == settings.model.provider
    if is_configured and (unread_key := settings.missing_secret("model", "api_key")):
        return UnconfiguredModel(Texts(settings.bot.language), missing_key=unread_key.file)
    if is_configured:
        _check_address(settings, provider)
    missing_keys = keyless_models(settings, read_variables(), name)
    targets = [target for target in (name, *settings.model.fallback) if target not in missing_keys]
    if not targets:
        return KeylessModel(name, missing_keys[name], Texts(settings.bot.language), is_configured=is_configured)
    own_address = settings.model.has_own_address(name)
    traits = sizes.find_traits(
        name,
        context_tokens=settings.model.context_tokens,
        own_address=own_address,
        server=_find_server(settings, name),
    )
    models = [
        QuarantinedModel(target, Texts(settings.bot.language))
        if is_quarantined and has_address_of_backup(settings, target)
        else _load_later(target, settings, home, traits, lessons)
        for target in targets
    ]
    if targets == [name]:
        return models[0]
    # Imported here: few bots have a second model.
    from bubbot.models.fallback import FallbackModel

    return FallbackModel(name, traits, models)


def open_endpoint_model(
    settings: Settings,
    name: str,
    address: str,
    key: str,
    *,
    home: Path,
    lessons: KnowsLessons | None = None,
    is_quarantined: bool = False,
) -> Model:
    """Return the model at an address that a feature's section names. A failed call is not repeated.

    Args:
        name: as the server has it; it is one for models of one's own, without a price, and speaks the OpenAI chat protocol.
        is_quarantined: see `choose_model`.

    Raises:
        ConfigError: the address may not be called yet.
    """
    if is_quarantined:
        raise ConfigError("a restored home calls no address that came with the backup")
    # Imported here: a model that is no provider's needs no list of them.
    from bubbot.models.openai.providers import find_server

    full_name = f"{ENDPOINT_PROVIDER}/{name}"
    own = {"api_base": address, "api_key": key, "retries": 0, keys.KEY_PROVIDER: ENDPOINT_PROVIDER}
    options = ModelOptions(full_name, home, {**_model_values(settings, ""), **own}, lessons)
    server = find_server(full_name, api_base=address, variables={})
    traits = sizes.find_traits(full_name, context_tokens=settings.model.context_tokens, own_address=True, server=server)
    return LazyModel(full_name, traits, lambda: _load_direct(options), lessons)


def has_address_of_backup(settings: Settings, name: str) -> bool:
    """Return true if calls of this model may go to an address from the backup of a restored home.

    An address in the environment is local, and bubbot's own models make no calls.
    """
    is_from_here = any(variable.upper() == ADDRESS_VARIABLE for variable in read_variables())
    return settings.model.has_own_address(name) and name not in OWN_MODELS and not is_from_here


def _load_later(
    name: str,
    settings: Settings,
    home: Home,
    traits: ModelTraits,
    lessons: KnowsLessons | None = None,
) -> LazyModel:
    """Return a provider's model, which loads when it is called.

    It gets the values of `[model]` and the name of the provider that their key and address belong to, which may be
    another one.
    """
    provider = settings.model.provider
    server = _find_server(settings, name)
    values = {**_model_values(settings, provider), keys.KEY_PROVIDER: provider, keys.SERVER: server}
    options = ModelOptions(name, home.path, values, lessons)

    def load() -> Model:
        if not needs_litellm(settings, name):
            return _load_direct(options)
        model: Model = plugins.load("bubbot.models", LITELLM)(options)
        return model

    # A configured size overrides what a server reported before.
    return LazyModel(name, traits, load, lessons if settings.model.context_tokens is None else None)


def _find_server(settings: Settings, name: str) -> str:
    # Imported here: a model that is no provider's needs no list of them.
    from bubbot.models.openai.providers import find_server

    api_base = settings.model.api_base if settings.model.has_own_address(name) else None
    return find_server(name, api_base=api_base, variables=read_variables())


def needs_litellm(settings: Settings, name: str) -> bool:
    """Return true if litellm calls this `provider/model`, by litellm's list. It takes about 190 MB of memory."""
    # Imported here: a model that is no provider's needs no list of them.
    from bubbot.models.openai.providers import is_direct

    is_configured = name.partition("/")[0] == settings.model.provider
    api_base = settings.model.api_base if is_configured else None
    return settings.model.via == LITELLM or not is_direct(name, mode=sizes.find_mode(name), api_base=api_base)


def _load_direct(options: ModelOptions) -> Model:
    """Load the client of the OpenAI chat protocol; loading aiohttp takes a tenth of a second."""
    from bubbot.models.openai.model import make_model

    return make_model(options, read_variables())


def _check_address(settings: Settings, provider: str) -> None:
    """Raise `ConfigError` if `api_base` has credentials, which would use the same header as the key."""
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
    """Return the models without a key among `name` (else the configured one) and its fallbacks.

    Each comes with the variables that could hold its key. Models of plugins are assumed to need none.
    """
    first, plugin_names = name or settings.model.name, {*plugins.list_names("bubbot.models")} - {LITELLM}
    candidates = [each for each in (first, *settings.model.fallback) if each.partition("/")[0] not in plugin_names]
    is_set = settings.model.api_key is not None or settings.model.api_base is not None
    return keys.find_keyless_models(
        dict.fromkeys(candidates), provider=settings.model.provider, is_set=is_set, variables=environment
    )


def turns_at_once(settings: Settings) -> int:
    """Return the number of concurrent turns of different sessions: the setting, else a value for the configured model."""
    is_local = settings.model.name.partition("/")[0] in ("", "local")
    return settings.bot.turns_at_once or (MAX_CONCURRENT_LOCAL_TURNS if is_local else MAX_CONCURRENT_TURNS)


def choose_transcriber(settings: Settings, home: Home, *, is_quarantined: bool = False) -> LazyModel | None:
    """Return the model that transcribes voice messages; None if none is configured or it may not be called yet.

    It gets address and key of `[model]` only if the provider is the same.

    Raises:
        ConfigError: no such model.
    """
    name = settings.section(AttachmentSettings).transcription
    if not name or (is_quarantined and has_address_of_backup(settings, name)):
        return None
    provider, plugin_names = name.partition("/")[0], plugins.list_names("bubbot.models")
    if provider not in plugin_names or provider == LITELLM:
        names.check_model_name(name, "[attachments] transcription")
        return _load_later(name, settings, home, sizes.find_traits(name))
    options = ModelOptions(name, home.path, _model_values(settings, provider))
    return LazyModel(name, sizes.find_traits(name), lambda: plugins.load("bubbot.models", provider)(options))


def _model_values(settings: Settings, provider: str) -> dict[str, Any]:
    """Return the values of `[model]`, except the name, for a model of this provider.

    Only the provider of the configured model gets the key and the address.
    """
    foreign = set() if provider == settings.model.provider else {"api_key", "api_base"}
    values = settings.model.model_dump(exclude={"name", "timeout", "max_steps"} | foreign, exclude_none=True)
    for secret in values.keys() & {"api_key"}:
        values[secret] = values[secret].get_secret_value()
    return {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
