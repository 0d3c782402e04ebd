"""The questions of `bubbot init` about the bot and its model; those about channels are in `accounts`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bubbot.errors import ConfigError
from bubbot.models.local import model as local
from bubbot.ops.onboarding import answers
from bubbot.ops.onboarding.changes import PendingEdits
from bubbot.ops.onboarding.console import Console
from bubbot.ops.onboarding.existing import ExistingConfig
from bubbot.settings.sources import MissingSecret, shown
from bubbot.texts import Texts

OLLAMA = "ollama_chat"
"""The provider of litellm that Ollama is."""
OLLAMA_ADDRESS = "http://localhost:11434"
"""Where Ollama is unless its address says otherwise."""


@dataclass(frozen=True, slots=True)
class InitOptions:
    """What options answered before anything is asked; None: to be asked. Tokens and keys are not in `repr`.

    `tokens` by kind of channel, `owners` as pairs of channel and id.
    """

    name: str | None = None
    language: str | None = None
    timezone: str | None = None
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    owners: Sequence[str] = ()


def ask_bot(console: Console, present: ExistingConfig, given: InitOptions, changes: PendingEdits, zone: str) -> None:
    """Name, language and time zone; `zone` is that of the system. Raises `ConfigError`, `InputEnded`."""
    bot = ("bot",)
    name = console.ask("Name of the bot", _now(present, "name", "bubbot"), answers.bot_name, given=given.name)
    changes.set(bot, "name", name)
    language = _now(present, "language", "en")
    language = console.ask("Language of its own sentences: en or zh", language, answers.language, given=given.language)
    if not Texts(language).translated:
        console.tell(f"  Its own sentences are not translated to {language!r}: they will be English.")
    changes.set(bot, "language", language)
    changes.set(
        bot, "timezone", console.ask("Time zone", _now(present, "timezone", zone), answers.zone, given=given.timezone)
    )


def ask_model(console: Console, present: ExistingConfig, given: InitOptions, changes: PendingEdits) -> None:
    """Which model answers, its key and its address. Raises `ConfigError`, `InputEnded`."""
    if given.model is not None:
        changes.set(("model",), "name", answers.model_name(given.model))
    elif (current := present.written("model", "name")) or console.unasked:
        _ask_again(console, str(current or ""), changes)
    else:
        _ask_kind(console, changes)
    if given.api_key is not None:
        try:
            changes.keep(("model",), "api_key", answers.secret(given.api_key))
        except ConfigError as error:
            raise ConfigError(f"The key of the model: {error}") from error


def ask_missing_secrets(console: Console, secrets: Iterable[MissingSecret], changes: PendingEdits) -> None:
    """Ask for each secret whose file cannot be used, as after a restore; what stays empty stays missing.

    Raises `ConfigError`, `InputEnded`.
    """
    for missing in secrets:
        table, key = missing.setting[:-1], missing.setting[-1]
        if changes.sets_secret(table, key):
            continue
        if console.unasked:
            console.tell(
                f"{shown(missing.setting)}: {missing.file} cannot be used. Without --yes, init asks for the secret."
            )
            continue
        question = f"{shown(missing.setting)}: its file {missing.file} cannot be used; Enter leaves that as it is"
        while text := console.secret(question):
            try:
                changes.keep(table, key, answers.token(text) if key == "token" else answers.secret(text))
                break
            except ConfigError as error:
                console.tell(f"  {error}")


def _ask_again(console: Console, current: str, changes: PendingEdits) -> None:
    if console.choose("Model", {"keep": f"{current}, as it is", "other": "another"}) == "other":
        _ask_kind(console, changes)


def _ask_kind(console: Console, changes: PendingEdits) -> None:
    here = local.available()
    kinds = {"local": "the demonstration model: no key, no network, and little knowledge"} if here else {}
    kinds |= {
        "provider": "a model of a provider, by name and key",
        "ollama": "a model of Ollama, on this machine or another",
    }
    if not here:
        kinds["later"] = "none yet: commands work, answers do not"
    match console.choose("Model", kinds):
        case "local":
            changes.set(("model",), "name", "local")
        case "provider":
            name = console.ask("Its name, such as openai/gpt-4o-mini", "", _needed)
            changes.set(("model",), "name", name)
            _ask_key(console, name, changes)
        case "ollama":
            _ask_ollama(console, changes)


def _needed(text: str) -> str:
    if name := answers.model_name(text):
        return name
    raise ConfigError("Type a provider, a slash and a model, such as openai/gpt-4o-mini.")


def _ask_key(console: Console, name: str, changes: PendingEdits) -> None:
    variable = f"{name.partition('/')[0].upper()}_API_KEY"
    while text := console.secret(f"Its key; Enter where there is none, or {variable} is in the environment"):
        try:
            changes.keep(("model",), "api_key", answers.secret(text))
            return
        except ConfigError as error:
            console.tell(f"  {error}")


def _ask_ollama(console: Console, changes: PendingEdits) -> None:
    address = console.ask("Address of Ollama", OLLAMA_ADDRESS, answers.address)
    name = console.ask("Name of the model there, such as qwen3", "", _ollama_name)
    changes.set(("model",), "name", name)
    if address and address != OLLAMA_ADDRESS:
        changes.set(("model",), "api_base", address)


def _ollama_name(text: str) -> str:
    return _needed(f"{OLLAMA}/{text.strip().removeprefix(f'{OLLAMA}/')}")


def _now(present: ExistingConfig, key: str, default: str) -> str:
    """What the file says of the bot, or means by saying nothing; where there is none, the default."""
    return default if present.text is None else str(present.meant("bot", key))
