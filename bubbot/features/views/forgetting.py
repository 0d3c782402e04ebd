"""What stays on the tape of views if a person is forgotten: what the person decided about other chats."""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec.structs import replace

from bubbot.features.views.facts import VIEWS_TAPE, ChatView
from bubbot.features.views.state import ViewsState
from bubbot.ports.forgetting import ForgottenPerson, Restatement
from bubbot.tape.entry import TapeEntry


def restate_views(_tape: str, entries: Sequence[TapeEntry], person: ForgottenPerson, erased: Set[int]) -> Restatement:
    """Say again which views of others hold, without who decided it, and erase all that was said of them before.

    If only a removal were erased, the view before it would hold again.
    """
    facts = [(entry.id, ChatView.of(entry)) for entry in entries if entry.name in ChatView.EVENTS and not entry.erased]
    touched = {fact.subject for number, fact in facts if number in erased}
    gone = {number for number, fact in facts if fact.subject in touched}
    held = [each.fact for each in ViewsState().apply(entries).views if each.id in gone]
    kept = [fact for fact in held if not (person.has_chat(fact.chat) or person.has_chat(fact.session))]
    return Restatement(frozenset(gone - erased), tuple([replace(fact, by="").to_entry() for fact in kept]))


FORGETTING = {VIEWS_TAPE: restate_views}
