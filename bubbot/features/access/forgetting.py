"""What stays on the access tape if a person is forgotten: what they decided about others."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from msgspec.structs import replace

from bubbot.features.access.facts import (
    FACTS,
    AccessDeclined,
    AccessRequested,
    AccessRevoked,
    Audit,
    GroupAudience,
    PairingCode,
    Reading,
    RoleGranted,
)
from bubbot.features.access.state import ACCESS_PROJECTION, AccessState
from bubbot.ports.forgetting import ForgottenPerson, Restatement
from bubbot.tape.entry import TapeEntry
from bubbot.tape.fact import models_of

_MODELS = models_of(*FACTS)
_OF_ACCOUNTS = (RoleGranted, AccessRevoked, AccessDeclined, AccessRequested, PairingCode, Audit)
"""The facts about the rights of an account, each of which may end an earlier one."""
_DECISIONS = (RoleGranted, AccessRevoked, AccessDeclined)


def restate_access(_tape: str, entries: Sequence[TapeEntry], person: ForgottenPerson, erased: Set[int]) -> Restatement:
    """Say again what holds of others, without who decided it, and erase all that was said of them before.

    If only a revocation were erased, the grant before it would hold again.
    """
    facts: list[tuple[TapeEntry, Any]] = [
        (entry, model.of(entry)) for entry in entries if (model := _MODELS.get(entry.name or "")) is not None
    ]
    touched = {_matter(fact) for entry, fact in facts if entry.id in erased} - {None}
    gone = {entry.id for entry, fact in facts if _matter(fact) in touched}
    newest = {_matter(fact): fact for entry, fact in facts if entry.id in gone and isinstance(fact, _DECISIONS)}
    state = AccessState().apply(entries)
    held = (*state.groups, *state.readings, *state.audits)
    again = [*newest.values(), *(cited.fact for cited in held if cited.id in gone)]
    added = [replace(fact, by="").to_entry() for fact in again if not _is_about(fact, person)]
    return Restatement(frozenset(gone - erased), tuple(added))


def _matter(fact: Any) -> tuple[object, ...] | None:
    """Return what a fact decides about: of all facts about it, the newest ones count. None for a code or a link."""
    if isinstance(fact, _OF_ACCOUNTS):
        return "account", fact.channel, fact.id
    return (type(fact), fact.subject) if isinstance(fact, (GroupAudience, Reading)) else None


def _is_about(fact: Any, person: ForgottenPerson) -> bool:
    if isinstance(fact, Reading):
        return person.has_chat(fact.source) or person.has_chat(fact.reader)
    if isinstance(fact, Audit) and person.has_chat(fact.session):
        return True
    return not isinstance(fact, GroupAudience) and person.has_account(fact.channel, fact.id)


FORGETTING = {ACCESS_PROJECTION.tapes: restate_access}
