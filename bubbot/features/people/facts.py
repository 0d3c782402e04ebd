"""The facts about people: what they allow, and on a tape of its own, without a name or an id, who is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal, TypeAlias

from bubbot.tape.entry import TapeEntry
from bubbot.tape.fact import Fact, PersonalFields
from bubbot.tape.references import EntryId, PersonId, TapeEntryId, TapeSpans

ForgetWish: TypeAlias = Literal["person", "owner"]
ForgettingReport: TypeAlias = Literal["forgotten", "failed"]


class Consent(Fact):
    """A person allows a purpose for their words, or takes that back. Only the person says so, and nobody for another one.

    Attributes:
        channel: the name of the channel.
        id: the numeric id of the account.
        purpose: what they may be used for; one that this version does not know allows nothing here.
    """

    EVENTS = ("people/consent_given", "people/consent_withdrawn")
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"id": ("channel", "id", "purpose")})
    channel: str
    id: PersonId
    purpose: str

    @property
    def account(self) -> tuple[str, str]:
        """The account that said so."""
        return self.channel, self.id

    @property
    def subject(self) -> tuple[str, str, str]:
        """The account and the purpose."""
        return self.channel, self.id, self.purpose


class PersonForgetting(Fact):
    """A person is to be forgotten. It is carried out at a start, before any turn, until `people/finished` says so.

    Attributes:
        entry: a message of the person in an inbox, or a fact about their rights: it names them until it is erased.
        by: who asked for it.
    """

    EVENTS = ("people/forgetting",)
    entry: TapeEntryId
    by: ForgetWish


class PersonForgotten(Fact):
    """What names a person, or is made of their words, was erased; in the transaction of the erasure.

    Attributes:
        forgetting: the fact that asked for it.
        entries: how many entries were erased.
        tapes: on how many tapes.
        files: how many files of the home were removed before.
        mentions: the entries of others that may say something about the person; they stay until an owner decides.
        backups: the backups from before, by their names, which hold everything still.
        is_in_settings: config.toml has the number of the person, which its owner has to take out.
    """

    EVENTS = ("people/forgotten",)
    forgetting: EntryId
    entries: int
    tapes: int
    files: int
    mentions: TapeSpans
    backups: tuple[str, ...]
    is_in_settings: bool


class ForgettingFinished(Fact):
    """No file of the home holds the erased words any more, the log of the database included.

    Attributes:
        forgetting: the fact that asked for it.
    """

    EVENTS = ("people/finished",)
    forgetting: EntryId


class ForgettingReported(Fact):
    """An owner was notified that somebody is forgotten, or could not be; in one transaction with the message.

    Attributes:
        forgetting: the fact that asked for it.
        report: `forgotten`; `failed`: a start did not succeed, and the next one tries again.
    """

    EVENTS = ("people/reported",)
    forgetting: EntryId
    report: ForgettingReport


FACTS: tuple[type[Fact], ...] = (Consent, PersonForgetting, PersonForgotten, ForgettingFinished, ForgettingReported)


def read_account(entry: TapeEntry) -> tuple[str, str] | None:
    """Return the account that a message in an inbox, or a fact about rights, is of; None for another entry."""
    data = entry.payload.get("data")
    if not isinstance(data, Mapping):
        return None
    sender = data.get("sender")
    number = sender.get("id") if isinstance(sender, Mapping) else data.get("id")
    channel = data.get("channel")
    return (channel, number) if isinstance(channel, str) and isinstance(number, str) and channel and number else None
