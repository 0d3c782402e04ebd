"""The questions of `bubbot init` about the bot itself; `model` asks about its model, `accounts` about channels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bubbot.errors import ConfigError
from bubbot.ops.onboarding import answers
from bubbot.ops.onboarding.changes import PendingEdits
from bubbot.ops.onboarding.console import Console
from bubbot.ops.onboarding.existing import ExistingConfig
from bubbot.ops.onboarding.secret_uses import describe_secret
from bubbot.settings.loader import Settings
from bubbot.settings.sources import MissingSecret
from bubbot.texts import Texts
from bubbot.texts.catalogue import SOURCE_LANGUAGE, list_languages

LANGUAGE_NAMES = {"de": "Deutsch", "en": "English", "zh": "中文"}
"""The languages of the bot's own sentences, each by the name that its speakers use."""


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The answers from options of the command line; None: ask. Tokens and keys are not in `repr`.

    Attributes:
        language: the language tag of its sentences.
        timezone: the IANA name of its time zone.
        model: the name of its model.
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
    if options.name is None:
        console.begin_step(console.say("init_name_step"))
    name = console.ask(
        console.say("init_name"),
        _current_value(existing, "name", "bubbot"),
        answers.parse_bot_name,
        preset=options.name,
    )
    changes.set_value(bot, "name", name)
    language = _ask_language(console, existing, options.language)
    changes.set_value(bot, "language", language)
    console.speak(language)
    if options.timezone is None:
        console.begin_step(console.say("init_zone"))
    current_zone = _current_value(existing, "timezone", zone)
    zone = console.ask(
        console.say("init_zone"),
        current_zone,
        partial(answers.parse_zone, texts=console.texts),
        preset=options.timezone,
    )
    changes.set_value(bot, "timezone", zone)


def _ask_language(console: Console, existing: ExistingConfig, preset: str | None) -> str:
    """Ask for one of the languages that there are; an option and the configuration may name others."""
    is_asked = preset is None and not console.is_unattended
    usual = console.texts.language if is_asked and console.texts.is_translated else SOURCE_LANGUAGE
    current = _current_value(existing, "language", usual)
    if is_asked:
        console.begin_step(console.say("init_language"))
        languages = {
            tag: LANGUAGE_NAMES.get(tag, tag)
            for tag in sorted(list_languages(Texts().package), key=lambda tag: tag != current)
        }
        if current not in languages:
            languages[current] = console.say("init_language_kept", language=current)
        return console.choose("", languages, default=current)
    language = answers.parse_language(current if preset is None else preset)
    if not Texts(language).is_translated:
        console.tell(f"  {console.say('init_untranslated', language=language)}")
    return language


def ask_missing_secrets(
    console: Console, settings: Settings, secrets: Iterable[MissingSecret], changes: PendingEdits
) -> None:
    """Ask for each of these secrets, whose files cannot be used, as after a restore; an empty answer leaves it missing.

    Raises `ConfigError`, `InputEnded`.
    """
    for missing in secrets:
        table, key = missing.setting[:-1], missing.setting[-1]
        if changes.sets_secret(table, key) or changes.values.get((table, f"{key}_file")) == "":
            continue
        secret = describe_secret(settings, missing.setting, console.texts)
        if console.is_unattended:
            console.tell(console.say("init_secret_unusable", secret=secret, file=missing.file))
            continue
        question = console.say("init_secret", secret=secret, file=missing.file)
        while text := console.ask_secret(question):
            try:
                changes.set_secret(
                    table, key, (answers.parse_token if key == "token" else answers.parse_secret)(text, console.texts)
                )
                break
            except ConfigError as error:
                console.tell(f"  {error}")


def _current_value(existing: ExistingConfig, key: str, default: str) -> str:
    """Return the bot's setting from the file, or its default; `default` if there is no file."""
    return default if existing.text is None else str(existing.read_effective_value("bot", key))
