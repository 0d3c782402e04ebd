"""The questions of `bubbot init` about the bot and its model; `accounts` asks those about channels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from bubbot.errors import ConfigError
from bubbot.models.local import model as local
from bubbot.ops.onboarding import answers
from bubbot.ops.onboarding.changes import PendingEdits
from bubbot.ops.onboarding.console import Console
from bubbot.ops.onboarding.existing import ExistingConfig
from bubbot.ports.settings import format_setting
from bubbot.records import dataclass
from bubbot.settings.sources import MissingSecret
from bubbot.texts import Texts

OLLAMA = "ollama_chat"
"""The name of Ollama among the providers of litellm."""
OLLAMA_ADDRESS = "http://localhost:11434"
"""The default address of Ollama."""


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The answers from options of the command line; None: ask. Tokens and keys are not in `repr`.

    Attributes:
        name: the name of the bot.
        language: the language tag of its sentences.
        timezone: the IANA name of its time zone.
        model: the name of its model.
        api_key: the key of the model.
        tokens: the tokens by kind of channel.
        owners: owners such as `telegram:42`.
    """

    name: str | None = None
    language: str | None = None
    timezone: str | None = None
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    owners: Sequence[str] = ()


def ask_bot(console: Console, existing: ExistingConfig, options: InitOptions, changes: PendingEdits, zone: str) -> None:
    """Ask for name, language and time zone; `zone` is that of the system. Raises `ConfigError`, `InputEnded`."""
    bot = ("bot",)
    name = console.ask(
        "Name of the bot", _current_value(existing, "name", "bubbot"), answers.parse_bot_name, preset=options.name
    )
    changes.set_value(bot, "name", name)
    language = _current_value(existing, "language", "en")
    language = console.ask(
        "Language of the bot's own sentences: en or zh", language, answers.parse_language, preset=options.language
    )
    if not Texts(language).is_translated:
        console.tell(f"  Its own sentences are not translated to {language!r}: they will be English.")
    changes.set_value(bot, "language", language)
    changes.set_value(
        bot,
        "timezone",
        console.ask(
            "Time zone", _current_value(existing, "timezone", zone), answers.parse_zone, preset=options.timezone
        ),
    )


def ask_model(console: Console, existing: ExistingConfig, options: InitOptions, changes: PendingEdits) -> None:
    """Ask for the model, its key and its address. Raises `ConfigError`, `InputEnded`."""
    if options.model is not None:
        changes.set_value(("model",), "name", answers.parse_model_name(options.model))
    elif (current := existing.read_value("model", "name")) or console.is_unattended:
        _offer_current_model(console, str(current or ""), changes)
    else:
        _ask_kind(console, changes)
    if options.api_key is not None:
        try:
            changes.set_secret(("model",), "api_key", answers.parse_secret(options.api_key))
        except ConfigError as error:
            raise ConfigError(f"The key of the model: {error}") from error


def ask_missing_secrets(console: Console, secrets: Iterable[MissingSecret], changes: PendingEdits) -> None:
    """Ask for each secret whose file cannot be used, as after a restore; an empty answer leaves it missing.

    Raises `ConfigError`, `InputEnded`.
    """
    for missing in secrets:
        table, key = missing.setting[:-1], missing.setting[-1]
        if changes.sets_secret(table, key):
            continue
        if console.is_unattended:
            console.tell(
                f"{format_setting(missing.setting)}: {missing.file} cannot be used. Without --yes, init asks for the secret."
            )
            continue
        question = (
            f"{format_setting(missing.setting)}: its file {missing.file} cannot be used; Enter leaves that as it is"
        )
        while text := console.ask_secret(question):
            try:
                changes.set_secret(
                    table, key, answers.parse_token(text) if key == "token" else answers.parse_secret(text)
                )
                break
            except ConfigError as error:
                console.tell(f"  {error}")


def _offer_current_model(console: Console, current: str, changes: PendingEdits) -> None:
    if console.choose("Model", {"keep": f"{current}, as it is", "other": "another"}) == "other":
        _ask_kind(console, changes)


def _ask_kind(console: Console, changes: PendingEdits) -> None:
    is_local_available = local.is_available()
    kinds = {"local": "the demonstration model: no key, no network, and little knowledge"} if is_local_available else {}
    kinds |= {
        "provider": "a model of a provider, by name and key",
        "ollama": "a model of Ollama, on this machine or another",
    }
    if not is_local_available:
        kinds["later"] = "none yet: only commands work"
    match console.choose("Model", kinds):
        case "local":
            changes.set_value(("model",), "name", "local")
        case "provider":
            name = console.ask("Its name, such as openai/gpt-4o-mini", "", _require_model_name)
            changes.set_value(("model",), "name", name)
            _ask_key(console, name, changes)
        case "ollama":
            _ask_ollama(console, changes)


def _require_model_name(text: str) -> str:
    if name := answers.parse_model_name(text):
        return name
    raise ConfigError("Type a provider, a slash and a model, such as openai/gpt-4o-mini.")


def _ask_key(console: Console, name: str, changes: PendingEdits) -> None:
    variable = f"{name.partition('/')[0].upper()}_API_KEY"
    while text := console.ask_secret(f"Its key; Enter where there is none, or {variable} is in the environment"):
        try:
            changes.set_secret(("model",), "api_key", answers.parse_secret(text))
            return
        except ConfigError as error:
            console.tell(f"  {error}")


def _ask_ollama(console: Console, changes: PendingEdits) -> None:
    address = console.ask("Address of Ollama", OLLAMA_ADDRESS, answers.parse_address)
    name = console.ask("Name of the model there, such as qwen3", "", _ollama_name)
    changes.set_value(("model",), "name", name)
    if address and address != OLLAMA_ADDRESS:
        changes.set_value(("model",), "api_base", address)


def _ollama_name(text: str) -> str:
    return _require_model_name(f"{OLLAMA}/{text.strip().removeprefix(f'{OLLAMA}/')}")


def _current_value(existing: ExistingConfig, key: str, default: str) -> str:
    """Return the bot's setting from the file, or its default; `default` if there is no file."""
    return default if existing.text is None else str(existing.read_effective_value("bot", key))
