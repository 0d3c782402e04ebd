"""What stays on the tape of programs if a person is forgotten: which other chats a program may read."""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec.structs import replace

from bubbot.features.mcp.serve.facts import CLIENTS_TAPE, ClientGrant
from bubbot.features.mcp.serve.state import ClientsState
from bubbot.ports.forgetting import ForgottenPerson, Restatement
from bubbot.tape.entry import TapeEntry


def restate_grants(_tape: str, entries: Sequence[TapeEntry], person: ForgottenPerson, erased: Set[int]) -> Restatement:
    """Erase all facts about each grant that lost one, and write it again without `by` if it holds and is for another chat.

    If only a revocation were erased, the grant before it would hold again.
    """
    facts = [
        (entry.id, ClientGrant.of(entry)) for entry in entries if entry.name in ClientGrant.EVENTS and not entry.erased
    ]
    touched = {fact.subject for number, fact in facts if number in erased}
    gone = {number for number, fact in facts if fact.subject in touched}
    held = [each.fact for each in ClientsState().apply(entries).grants if each.id in gone]
    kept = [fact for fact in held if not person.has_chat(fact.session)]
    return Restatement(frozenset(gone - erased), tuple([replace(fact, by="").to_entry() for fact in kept]))


FORGETTING = {CLIENTS_TAPE: restate_grants}
