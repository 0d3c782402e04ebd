"""What the tapes of a home mean to an export of everything about a person: the features whose facts are in it are named here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bubbot.app.installed import load_features
from bubbot.features.access.links import AccountLinks
from bubbot.features.access.state import ACCESS_PROJECTION
from bubbot.features.memory.facts import DayText, LongTermText
from bubbot.features.memory.scopes import user_tape
from bubbot.features.people.commands import PeopleOptions
from bubbot.features.people.record import PersonalTapes
from bubbot.features.topics.names import TAKEN_UP
from bubbot.ports.access import NO_LISTED_PEOPLE, ListedPeople
from bubbot.ports.channel import Role
from bubbot.ports.people import Account, FindAccounts
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.service import TapeService


def personal_tapes(listed: Mapping[str, ListedPeople], references: ReferenceRegistry) -> PersonalTapes:
    """Return what the tapes mean, with the people that the configuration lists, by channel."""

    def find_role(account: Account) -> str:
        channel, number = account
        role = listed.get(channel, NO_LISTED_PEOPLE).role(number)
        return "" if role is Role.STRANGER else str(role)

    return PersonalTapes(
        references=references,
        user_tape=user_tape,
        memory_texts=(LongTermText, DayText),
        topic_prefix=TAKEN_UP,
        configured_role=find_role,
    )


def people_options(listed: Mapping[str, ListedPeople]) -> PeopleOptions:
    """Return what the commands of a shell get, with the facts of installed packages."""

    def find_accounts(open_tape: Callable[[str], TapeService]) -> FindAccounts:
        return AccountLinks(open_tape(ACCESS_PROJECTION.tapes), ProjectionRunner()).linked_accounts

    return PeopleOptions(personal_tapes(listed, load_features().references), find_accounts)
