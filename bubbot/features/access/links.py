"""Linked accounts: which accounts belong to one person, as the facts on the access tape say."""

from __future__ import annotations

from bubbot.features.access.state import ACCESS_PROJECTION, AccountKey
from bubbot.tape.handle import TapeHandle
from bubbot.tape.projection import ProjectionRunner


class AccountLinks:
    """The accounts of each person, for features that keep something of people.

    The state is that of the service that writes the tape, if both have the same projections.
    """

    def __init__(self, tape: TapeHandle, projections: ProjectionRunner) -> None:
        self._projected = projections.project(ACCESS_PROJECTION, tape)
        self._is_loaded = False

    @property
    def links(self) -> object:
        """Stand for all links, as an object that is another one once accounts were linked or unlinked."""
        return self._projected.state.persons

    async def linked_accounts(self, account: AccountKey) -> tuple[AccountKey, ...]:
        """Return the accounts of the person with this one, in the order they were linked; at least the account."""
        await self._load()
        return self._projected.state.linked_accounts(account)

    async def former_accounts(self, account: AccountKey) -> tuple[AccountKey, ...]:
        """Return the accounts that were linked with this one and are not any more."""
        await self._load()
        return self._projected.state.former_accounts(account)

    async def _load(self) -> None:
        if not self._is_loaded:
            await self._projected.catch_up()
            self._is_loaded = True
