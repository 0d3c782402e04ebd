"""The questions of `bubbot init` about Telegram and Discord: a token, who the bot is there, and who is its owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bubbot.errors import ChannelError, ChannelRefused, ConfigError
from bubbot.ops.onboarding import answers
from bubbot.ops.onboarding.changes import PendingEdits
from bubbot.ops.onboarding.console import Console
from bubbot.ops.onboarding.existing import ExistingConfig
from bubbot.ops.onboarding.questions import InitOptions
from bubbot.ports.channel import BotIdentity, Channel

TITLES = {"telegram": "Telegram", "discord": "Discord"}
"""The kinds of channel that are asked about, in this order."""
_SOURCE = {
    "telegram": "the token that @BotFather gave you",
    "discord": "the token from the page Bot of your application",
}
_IDS = {
    "telegram": "its apps do not show it, and the bot works without",
    "discord": "Settings, Advanced, Developer Mode; then a right click on your name",
}


@dataclass(frozen=True, slots=True)
class PlatformAccount:
    """A bot on a platform; `name` is the one it has there, empty where the platform was not asked in success."""

    kind: str
    channel: str
    name: str
    has_owner: bool


@dataclass(frozen=True, slots=True)
class AccountPrompter:
    """Asks about the accounts of the bot. `make` makes an adapter, `meet` asks it who the bot is."""

    console: Console
    present: ExistingConfig
    given: InitOptions
    changes: PendingEdits
    make: Callable[[str, Mapping[str, Any]], Channel]
    meet: Callable[[Channel], BotIdentity | None]

    def ask(self) -> list[PlatformAccount]:
        """Asks about each kind; gives those that have a token. Raises `ConfigError`, `ChannelError`, `InputEnded`."""
        found = []
        owners = [answers.owner(text, self._names()) for text in self.given.owners]
        for kind in TITLES:
            name = self.present.channel(kind)
            mine = [number for channel, number in owners if channel == name]
            if (known := self._token(kind, name)) is not None:
                found.append(PlatformAccount(kind, name, known, self._owners(kind, name, mine)))
            elif mine:  # the token may come from elsewhere when the bot runs
                self._owners(kind, name, mine)
        return found

    def _names(self) -> set[str]:
        return {*TITLES, *self.present.settings.channels} - {"stdin", "terminal"}

    def _token(self, kind: str, name: str) -> str | None:
        """The bot's name on the platform once there is a token, empty where that was not found out; None without one."""
        if (given := self.given.tokens.get(kind)) is not None:
            try:
                token = answers.token(given)
            except ConfigError as error:
                raise ConfigError(f"The token of {TITLES[kind]}: {error}") from error
            return self._checked(kind, name, token)
        table = self.present.settings.channels.get(name, {})
        present = str(table.get("token") or "")
        missing = self.present.settings.missing_secret("channels", name, "token")
        where = "Enter keeps the one there is" if present else "Enter for none"
        if missing:
            where = f"its file {missing.file} cannot be used, and Enter leaves that as it is"
        while True:
            typed = self.console.secret(f"{TITLES[kind]}: {_SOURCE[kind]}; {where}")
            if not typed and not present:
                return None
            try:
                return self._checked(kind, name, answers.token(typed) if typed else None)
            except (ChannelRefused, ConfigError) as error:
                if self.console.unasked or not _is_about_token(error, name):
                    raise
                self.console.tell(f"  {error}")
                if not typed:
                    present, where = "", "Enter leaves the one there is"

    def _checked(self, kind: str, name: str, token: str | None) -> str:
        """Asks the platform; `token` None stands for the one there is. A token that is taken, or kept, is a change."""
        table = {"kind": kind, **self.present.settings.channels.get(name, {})}
        channel = self.make(name, table if token is None else {**table, "token": token})
        known = self._met(kind, channel)
        if known is None:
            raise ConfigError(f"[channels.{name}] token was not kept: type it again, another, or Enter.")
        here = any(self.present.written("channels", name, key) for key in ("token", "token_file"))
        if token is not None and not (here and token == table.get("token")):
            self.changes.keep(("channels", name), "token", token)
            if name != kind:
                self.changes.set(("channels", name), "kind", kind)
        return known

    def _met(self, kind: str, channel: Channel) -> str | None:
        self.console.tell(f"  Asking {TITLES[kind]} ...")
        try:
            known = self.meet(channel)
        except ChannelRefused:
            raise
        except ChannelError as error:
            return self._kept_unverified(str(error))
        if known is None:
            return ""
        at = "@" if kind == "telegram" else ""
        self.console.tell(f"  This is {at}{known.name} (id {known.id}).")
        for remark in known.remarks:
            self.console.tell(f"  - {remark}")
        return known.name

    def _kept_unverified(self, reason: str) -> str | None:
        self.console.tell(f"  {reason}")
        options = {"keep": "keep the token; nobody has verified it", "other": "type it again"}
        if self.console.choose("The token could not be verified now.", options) == "other":
            return None
        self.console.tell("  Kept UNVERIFIED: `bubbot doctor` asks again.")
        return ""

    def _owners(self, kind: str, name: str, given: list[int]) -> bool:
        """Sets the owners; gives whether there is one."""
        listed = self.present.written("channels", name, "owners")
        before = list(listed) if isinstance(listed, list) else []
        if not given and not before:
            question = f"Your own numeric id on {TITLES[kind]} ({_IDS[kind]}); Enter if you do not know it"
            asked = None if self.console.unasked else self.console.ask(question, "", answers.person)
            given = [asked] if asked is not None else []
        added = [one for one in given if str(one) not in map(str, before)]
        if added:
            self.changes.set(("channels", name), "owners", [*before, *added])
        return bool(before or added or self.present.settings.channels.get(name, {}).get("owners"))


def _is_about_token(error: Exception, name: str) -> bool:
    """Whether another token mends it; what is wrong with other keys, it does not."""
    return not str(error).startswith(f"[channels.{name}] ") or str(error).startswith(f"[channels.{name}] token ")
