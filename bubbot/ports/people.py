"""People: the accounts of a person, and what they allow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Literal, Protocol, TypeAlias

Account: TypeAlias = tuple[str, str]
"""A channel's name and the numeric id of a person there."""
Purpose: TypeAlias = Literal["training", "evaluation", "sharing"]
"""What else the words of a person may be used for than to answer them.

`training`: to teach a model. `evaluation`: to judge answers, or to compare models. `sharing`: to give them to others, who may do
either.
"""
FindOwners: TypeAlias = Callable[[str, Collection[str] | None], Awaitable[Sequence[str]]]
"""Return the names of the owners on a channel who wrote lately, of those who wrote in certain sessions; None: in any."""


class FindAccounts(Protocol):
    """Knows which accounts belong to one person."""

    def __call__(self, account: Account, /) -> Awaitable[tuple[Account, ...]]:
        """Return the accounts of the person with this one, itself included."""
        ...


class AsksConsent(Protocol):
    """Knows what people allow. Nothing is allowed unless a person said so."""

    async def has_consented(self, account: Account, purpose: Purpose) -> bool:
        """Return true if the person with this account allows a purpose now, by the newest answer on any account."""
        ...
