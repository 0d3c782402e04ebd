"""`bubbot init`: sets a bot up, by questions or by options."""

from __future__ import annotations

import asyncio
import io
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from bubbot import log
from bubbot.app.models import has_address_of_backup, keyless_models
from bubbot.app.settings import load_with_missing_secrets
from bubbot.app.stores import refuse_unusable_database
from bubbot.app.tapes import new_id, now
from bubbot.arguments.fields import Args
from bubbot.cli.init_service import NO_SERVICE, RequestedService, choose_home
from bubbot.cli.invocation import Invocation, usage_error
from bubbot.cli.local_command import local_command
from bubbot.cli.output import terminal_columns
from bubbot.errors import BubbotError, ConfigError, StoreUnavailable
from bubbot.home import Home
from bubbot.models.local import model as local
from bubbot.models.unconfigured import quarantine_sentence
from bubbot.ops.onboarding.accounts import TITLES, AccountPrompter
from bubbot.ops.onboarding.answers import find_system_zone
from bubbot.ops.onboarding.changes import PendingEdits, apply_edits, new_secrets
from bubbot.ops.onboarding.console import Console, InputEnded
from bubbot.ops.onboarding.existing import ExistingConfig, read_existing
from bubbot.ops.onboarding.farewell import describe_overrides, next_steps
from bubbot.ops.onboarding.model import ModelPrompter
from bubbot.ops.onboarding.questions import InitOptions, ask_bot, ask_missing_secrets
from bubbot.ops.onboarding.verify import close_channel, make_channel, verify_token
from bubbot.ops.onboarding.write import write
from bubbot.ports.channel import Channel
from bubbot.settings.environment import environment_secrets, read_variables, read_zone_variable
from bubbot.settings.language import read_language
from bubbot.settings.loader import Settings
from bubbot.settings.sections import SQLITE_STORE
from bubbot.settings.sources import MissingSecret, read_secret
from bubbot.shell_command import Argument, CommandGroup
from bubbot.tape.entry import timestamp
from bubbot.texts import Texts

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130
LOCALTIME, TIMEZONE = Path("/etc/localtime"), Path("/etc/timezone")


def parse_stdin(text: str) -> str:
    """Parse `-`, the mark of standard input. Raise `ValueError` with a sentence."""
    if text != "-":  # do not show the text: it may be the token
        raise ValueError("takes only -, for standard input: other users of this machine can read command lines")
    return text


class InitArgs(Args, frozen=True):
    """The arguments of `bubbot init`."""

    yes: Annotated[bool, Argument("ask nothing; settings without an option stay as they are")] = False
    name: Annotated[str | None, Argument("the name of the bot")] = None
    language: Annotated[str | None, Argument("the language of the bot's own sentences: de, en or zh", "TAG")] = None
    timezone: Annotated[str | None, Argument("the time zone, such as Europe/Berlin; else the system's", "ZONE")] = None
    model: Annotated[str | None, Argument("the model, such as openai/gpt-5 or gpt-5, or local", "NAME")] = None
    api_key_file: Annotated[
        str | None, Argument("a file with the model's key; - for a line of standard input", "FILE")
    ] = None
    telegram_token: Annotated[
        str | None, Argument("reads the token of Telegram from standard input", "-", parse_stdin)
    ] = None
    telegram_token_file: Annotated[str | None, Argument("a file with the token of Telegram", "FILE")] = None
    discord_token: Annotated[
        str | None, Argument("reads the token of Discord from standard input", "-", parse_stdin)
    ] = None
    discord_token_file: Annotated[str | None, Argument("a file with the token of Discord", "FILE")] = None
    owner: Annotated[
        tuple[str, ...], Argument("an owner, such as telegram:42; may be repeated", "CHANNEL:ID", repeated=True)
    ] = ()
    service: Annotated[
        Literal["none", "user", "system"] | None,
        Argument("install a systemd service: of this user, of the system, or none"),
    ] = None

    def find_token(self, kind: str) -> str | None:
        """Return the source of a channel kind's token: a file, or `-`; None if not typed."""
        token: str | None = getattr(self, f"{kind}_token")
        file: str | None = getattr(self, f"{kind}_token_file")
        if token and file:
            raise usage_error("bubbot init", f"--{kind}-token and --{kind}-token-file exclude each other: give one")
        return token or file


@local_command("init", example="init --yes --telegram-token-file token.txt --owner telegram:42")
def set_up(invocation: Invocation, args: InitArgs) -> int:
    """Set up a bot: name, model, accounts.

    Set up a bot: ask for its name, model and accounts, try the key of the model if you agree, verify the tokens with
    Telegram and Discord, write config.toml, and offer a first answer. An existing config.toml is copied first, and only
    settings with a new answer change. Options answer questions in advance. Until everything is written, Ctrl-C leaves
    everything as it is.
    """
    command = _InitCommand(invocation, args)
    console = command.console
    try:
        command.ask()
    except InputEnded:
        console.tell(console.say("init_ended"))
        return EXIT_FAILED
    except KeyboardInterrupt:
        console.tell(f"\n{console.say('init_unchanged')}")
        return EXIT_INTERRUPTED
    command.finish()
    return EXIT_OK


class _InitCommand:
    """A run of the command. `ask` changes nothing; `finish` writes.

    Attributes:
        console: asks the person.
    """

    def __init__(self, invocation: Invocation, args: InitArgs) -> None:
        self._invocation, self._args = invocation, args
        self._home = Home(choose_home(args.service, invocation.home))
        self._config: Path | None = invocation.config.absolute() if invocation.config else None
        # A program that was started with closed descriptors has no streams.
        self.console = Console(
            sys.stdin or io.StringIO(),
            sys.stdout or io.StringIO(),
            texts=Texts(args.language or read_language(self._home.path, self._config)),
            is_unattended=args.yes,
            on_secret=self._hide,
            find_columns=terminal_columns,
        )
        self._service = RequestedService(args.service, self._home.path, self._config)
        self._secrets: list[str] = [*environment_secrets()]
        self._changes = PendingEdits()
        log.setup("warning", secrets=self._secrets)

    def ask(self) -> None:
        """Ask all questions. Raise `InputEnded`, and `ConfigError` or `ChannelError` if no answer can fix the cause."""
        self._service.check()
        self._existing, options = read_existing(self._home, self._config), self._read_options()
        self._hide(*self._existing.settings.secrets(), options.api_key or "", *options.tokens.values())
        existing, changes, console = self._existing, self._changes, self.console
        if not console.is_unattended:
            console.tell(console.say("init_begins", path=self._home.path))
            console.tell(console.say("init_keys"))
        missing = self._find_missing_secrets()
        has_service = not console.is_unattended and self._service.is_offered()
        has_trial = console.is_terminal and self._home.holder_pid() is None
        asked = [options.name is None, options.language is None, options.timezone is None, options.model is None]
        console.expect_steps(sum((*asked, len(TITLES), bool(missing), has_service, has_trial)))
        ask_bot(console, existing, options, changes, find_system_zone(read_zone_variable(), LOCALTIME, TIMEZONE))
        ModelPrompter(console, existing, options, changes, self._home).ask()
        self._accounts = AccountPrompter(console, existing, options, changes, self._make_channel, verify_token).ask()
        if missing:
            console.begin_step(console.say("init_secrets"))
        ask_missing_secrets(console, existing.settings, missing, changes)
        self._kind = self._service.choose_kind(console) if has_service else self._service.kind or NO_SERVICE
        self._has_trial = has_trial

    def _find_missing_secrets(self) -> list[MissingSecret]:
        """Return the missing secrets that no other question covers."""
        existing = self._existing
        tokens = {("channels", existing.find_channel(kind), "token") for kind in TITLES}
        own_questions = set() if self.console.is_unattended else tokens
        return [secret for secret in existing.settings.missing_secrets if secret.setting not in own_questions]

    def finish(self) -> None:
        """Write, install the service and print the next steps. Raise `ConfigError`."""
        settings, console = self._write(self._existing, self._changes), self.console
        for line in describe_overrides(settings, self._changes, console.texts):
            console.tell(line)
        if self._has_trial:
            self._offer_trial(settings)
        try:
            serves, failure = self._service.install(self._kind, console), None
        except ConfigError as error:  # the files are written, so print the next steps anyway
            serves, failure = False, error
        if loss := self._describe_loss(settings):
            console.tell(f"\n{console.say('init_no_start', reason=loss)}")
        writer = None if serves else self._home.holder_pid()
        lines = next_steps(
            settings,
            self._accounts,
            prefix=self._prefix(),
            running_pid=writer,
            has_service=serves,
            environment=read_variables(),
            texts=console.texts,
        )
        for line in lines:
            console.tell(line)
        if failure is not None:
            raise failure

    def _offer_trial(self, settings: Settings) -> None:
        """Offer a first answer of the bot. Everything is written: errors here change nothing."""
        from bubbot.cli.ask import ask
        from bubbot.cli.setup import load_setup, session_id

        console = self.console
        console.begin_step(console.say("init_try"))
        if self._describe_loss(settings):
            console.tell(console.say("init_no_database"))
            return
        if has_address_of_backup(settings, settings.model.name) and self._is_quarantined():
            console.tell(quarantine_sentence(settings.model.name, console.texts))
            return
        is_keyless = settings.model.name in keyless_models(settings, read_variables())
        if is_keyless or not (settings.model.name or local.is_available()):
            console.tell(console.say("init_no_answer"))
            return
        try:
            text = console.ask(console.say("init_say"), console.say("init_hello"), str)
            if text.strip().casefold() in ("n", "no", console.say("init_no")):
                return
            console.tell("")
            ask(load_setup(Invocation(home=self._home.path, config=self._config)), session_id("default"), text)
        except (KeyboardInterrupt, InputEnded):
            console.tell("")
        except BubbotError as error:
            console.tell(str(error))

    def _describe_loss(self, settings: Settings) -> str:
        """Return a sentence if the home's database is missing or not a file; empty otherwise."""
        try:
            if settings.store.kind == SQLITE_STORE:
                refuse_unusable_database(self._home)
        except StoreUnavailable as error:
            return str(error)
        return ""

    def _is_quarantined(self) -> bool:
        from bubbot.cli.quarantine import read_quarantine
        from bubbot.cli.setup import load_setup

        setup = load_setup(Invocation(home=self._home.path, config=self._config))
        return asyncio.run(read_quarantine(setup)) is not None

    def _read_options(self) -> InitOptions:
        args, tokens = self._args, dict[str, str]()
        for kind in TITLES:
            if file := args.find_token(kind):
                tokens[kind] = self._read_secret(
                    file, f"--{kind}-token-file", self.console.say("init_token_of", title=TITLES[kind])
                )
        prompt = self.console.say("init_key_of_model")
        key = self._read_secret(args.api_key_file, "--api-key-file", prompt) if args.api_key_file else None
        return InitOptions(args.name, args.language, args.timezone, args.model, key, tokens, args.owner)

    def _read_secret(self, file: str, option: str, prompt: str) -> str:
        if file == "-":
            return self.console.ask_hidden(prompt)
        return read_secret(Path(file).expanduser(), option)

    def _make_channel(self, name: str, table: Mapping[str, Any]) -> Channel:
        self._hide(*(value for key, value in table.items() if isinstance(value, str) and key.endswith("token")))
        return make_channel(name, table, self._home.path, lambda: timestamp(now()), new_id)

    def _hide(self, *secrets: str) -> None:
        """Redact these secrets in the log from now on."""
        self._secrets += secrets
        log.setup("warning", secrets=self._secrets)

    def _write(self, existing: ExistingConfig, changes: PendingEdits) -> Settings:
        """Write and report the changes; return the resulting settings."""
        text, secrets = apply_edits(existing, changes, self._home), new_secrets(changes, self._home)
        if text == existing.text and not secrets:
            self.console.tell(f"\n{self.console.say('init_same', path=existing.path)}")
            return existing.settings
        stamp = now().strftime("%Y%m%dT%H%M%SZ")
        backups = write(self._home, existing, text, secrets, stamp=stamp, check=self._check)
        self.console.tell("")
        for path in (*secrets, *([existing.path] if text != existing.text else [])):
            self.console.tell(self.console.say("init_written", path=path))
        for path in backups:
            self.console.tell(self.console.say("init_backup", path=path))
        return load_with_missing_secrets(home=self._home.path, config=existing.path)

    def _check(self, candidate: Path) -> None:
        """Raise `ConfigError` if a configuration does not load or an adapter refuses its keys."""
        missing = {secret.setting for secret in self._existing.settings.missing_secrets}
        try:
            settings = load_with_missing_secrets(home=self._home.path, config=candidate)
            if any(secret.setting not in missing for secret in settings.missing_secrets):
                settings.require_secrets()
            for name, table in settings.channels.items():
                if table.get("token"):
                    close_channel(self._make_channel(name, table))
        except ConfigError as error:
            message = str(error).replace(str(candidate), "config.toml")
            raise ConfigError(f"{message}\nNothing was changed.") from None

    def _prefix(self) -> str:
        """Return the command that runs bubbot for the same home and configuration."""
        options = {"--home": self._invocation.home, "--config": self._invocation.config}
        return " ".join(["bubbot", *(f"{name} {shlex.quote(str(path))}" for name, path in options.items() if path)])


INIT_COMMANDS = CommandGroup("init", (set_up,))
