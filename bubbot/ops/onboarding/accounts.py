"""The questions of `bubbot init` about Telegram and Discord: the token, the bot's identity and its owners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from bubbot.errors import ChannelError, ChannelRefused, ConfigError
from bubbot.ops.onboarding import answers
from bubbot.ops.onboarding.changes import PendingEdits
from bubbot.ops.onboarding.console import Console
from bubbot.ops.onboarding.existing import ExistingConfig
from bubbot.ops.onboarding.questions import InitOptions
from bubbot.ports.channel import BotIdentity, Channel

TITLES = {"telegram": "Telegram", "discord": "Discord"}
"""The kinds of channel that `init` asks about, in this order."""
_SOURCES = {"telegram": "init_source_telegram", "discord": "init_source_discord"}
_IDS = {"telegram": "init_ids_telegram", "discord": "init_ids_discord"}


class PlatformAccount(Struct, frozen=True):
    """A bot on a platform.

    Attributes:
        kind: the kind of channel, such as `telegram`.
        name: the bot's name on the platform; empty if the platform did not confirm it.
        has_owner: the channel has an owner.
    """

    kind: str
    channel: str
    name: str
    has_owner: bool


class AccountPrompter(Struct, frozen=True):
    """Asks about the accounts of the bot."""

    console: Console
    existing: ExistingConfig
    options: InitOptions
    changes: PendingEdits
    make_channel: Callable[[str, Mapping[str, Any]], Channel]
    verify_token: Callable[[Channel], BotIdentity | None]

    def ask(self) -> list[PlatformAccount]:
        """Ask about each kind of channel; return the accounts that have a token.

        Raises `ConfigError`, `ChannelError`, `InputEnded`.
        """
        accounts = []
        owners = [answers.parse_owner(text, self._names()) for text in self.options.owners]
        for kind, title in TITLES.items():
            name = self.existing.find_channel(kind)
            ids = [number for channel, number in owners if channel == name]
            self.console.begin_step(title)
            if (bot_name := self._ask_token(kind, name)) is not None:
                accounts.append(PlatformAccount(kind, name, bot_name, self._ask_owners(kind, name, ids)))
            elif ids:  # the running bot may get its token from elsewhere
                self._ask_owners(kind, name, ids)
        return accounts

    def _names(self) -> set[str]:
        return {*TITLES, *self.existing.settings.channels} - {"stdin", "terminal"}

    def _ask_token(self, kind: str, name: str) -> str | None:
        """Ask for a token; return the bot's name on the platform, or None without a token.

        The name is empty if the platform did not confirm it.
        """
        if (option := self.options.tokens.get(kind)) is not None:
            try:
                token = answers.parse_token(option)
            except ConfigError as error:
                raise ConfigError(f"The token of {TITLES[kind]}: {error}") from error
            return self._verify(kind, name, token)
        table = self.existing.settings.channels.get(name, {})
        current = str(table.get("token") or "")
        missing = self.existing.settings.missing_secret("channels", name, "token")
        say = self.console.say
        hint = say("init_keeps_token" if current else "init_no_token")
        if missing:
            hint = say("init_token_unusable", file=missing.file)
        while True:
            typed = self.console.ask_secret(
                say("init_token", title=TITLES[kind], source=say(_SOURCES[kind]), hint=hint)
            )
            if not typed and not current:
                return None
            try:
                return self._verify(kind, name, answers.parse_token(typed, self.console.texts) if typed else None)
            except (ChannelRefused, ConfigError) as error:
                if self.console.is_unattended or not _is_about_token(error, name):
                    raise
                self.console.tell(f"  {error}")
                if not typed:
                    current, hint = "", say("init_leaves_token")

    def _verify(self, kind: str, name: str, token: str | None) -> str:
        """Verify a token with the platform, record it if it is new, and return the bot's name there.

        `token` None stands for the existing token.
        """
        table = {"kind": kind, **self.existing.settings.channels.get(name, {})}
        channel = self.make_channel(name, table if token is None else {**table, "token": token})
        bot_name = self._identify(kind, channel)
        if bot_name is None:
            raise ConfigError(self.console.say("init_token_dropped", name=name))
        is_in_file = any(self.existing.read_value("channels", name, key) for key in ("token", "token_file"))
        if token is not None and not (is_in_file and token == table.get("token")):
            self.changes.set_secret(("channels", name), "token", token)
            if name != kind:
                self.changes.set_value(("channels", name), "kind", kind)
        return bot_name

    def _identify(self, kind: str, channel: Channel) -> str | None:
        self.console.tell(f"  {self.console.say('init_asks', title=TITLES[kind])}")
        try:
            identity = self.verify_token(channel)
        except ChannelRefused:
            raise
        except ChannelError as error:
            return self._offer_unverified(str(error))
        if identity is None:
            return ""
        prefix = "@" if kind == "telegram" else ""
        who = self.console.say("init_this_is", name=f"{prefix}{identity.name}", id=identity.id)
        self.console.tell(f"  {who}")
        for remark in identity.warnings:
            self.console.tell(f"  - {remark}")
        return identity.name

    def _offer_unverified(self, reason: str) -> str | None:
        say = self.console.say
        self.console.tell(f"  {reason}")
        options = {"keep": say("init_keep_unverified"), "other": say("init_type_again")}
        if self.console.choose(say("init_unverified"), options) == "other":
            return None
        self.console.tell(f"  {say('init_kept_unverified')}")
        return ""

    def _ask_owners(self, kind: str, name: str, owners: list[int]) -> bool:
        """Record the owners; return true if the channel has one."""
        written = self.existing.read_value("channels", name, "owners")
        existing = list(written) if isinstance(written, list) else []
        if not owners and not existing:
            where = self.console.say(_IDS[kind])
            question = self.console.say("init_your_id", title=TITLES[kind], where=where)
            parse = partial(answers.parse_person, texts=self.console.texts)
            answer = None if self.console.is_unattended else self.console.ask(question, "", parse)
            owners = [answer] if answer is not None else []
        added = [owner for owner in owners if str(owner) not in map(str, existing)]
        if added:
            self.changes.set_value(("channels", name), "owners", [*existing, *added])
        return bool(existing or added or self.existing.settings.channels.get(name, {}).get("owners"))


def _is_about_token(error: Exception, name: str) -> bool:
    """Return true if another token can fix the error, which names no other key of the channel."""
    return not str(error).startswith(f"[channels.{name}] ") or str(error).startswith(f"[channels.{name}] token ")
