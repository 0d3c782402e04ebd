"""The facts about people that are about nothing else: what they allow."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

from bubbot.tape.fact import Fact, PersonalFields
from bubbot.tape.references import PersonId


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


FACTS: tuple[type[Fact], ...] = (Consent,)
