"""What goes from the tape of schedules, and what stays there, if a person is forgotten."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from msgspec.structs import replace

from bubbot.features.schedule.facts import BOT, FACTS, LASTING_FACTS, SCHEDULE_TAPE, ChatRef, ChatRules, Job
from bubbot.ports.forgetting import ForgottenPerson, Restatement
from bubbot.tape.entry import TapeEntry
from bubbot.tape.fact import models_of

_MODELS = models_of(*FACTS)


def restate_jobs(_tape: str, entries: Sequence[TapeEntry], person: ForgottenPerson, erased: Set[int]) -> Restatement:
    """Erase the person's jobs whole; say again, without them, what they changed of other jobs and of chats."""
    facts: list[tuple[TapeEntry, Any]] = [
        (entry, model.of(entry)) for entry in entries if (model := _MODELS.get(entry.name or "")) is not None
    ]
    jobs = {fact.id for _, fact in facts if isinstance(fact, Job) and _is_theirs(fact, person)}
    gone = {entry.id for entry, fact in facts if _job_of(fact) in jobs}
    newest: dict[tuple[bool, str], tuple[TapeEntry, Any]] = {}
    for entry, fact in facts:
        if isinstance(fact, ChatRules) and not person.has_chat(fact.session):
            newest[True, fact.session] = entry, fact
        elif isinstance(fact, LASTING_FACTS) and _job_of(fact) not in jobs:
            newest[isinstance(fact, Job), _job_of(fact)] = entry, fact
    kept = sorted((entry.id, entry.name or "", fact) for entry, fact in newest.values() if entry.id in erased)
    added = [_without(fact, person).to_entry(name) for _, name, fact in kept]
    return Restatement(frozenset(gone - erased), tuple(added))


def _is_theirs(job: Job, person: ForgottenPerson) -> bool:
    places = [place for place in (job.place, job.to) if place is not None]
    return person.has_account(job.by.channel, job.by.id) or any(_is_chat(place, person) for place in places)


def _is_chat(place: ChatRef, person: ForgottenPerson) -> bool:
    return person.has_chat(f"{place.channel}:{place.chat}")


def _job_of(fact: Any) -> str:
    return fact.id if isinstance(fact, Job) else getattr(fact, "job", "")


def _without(fact: Any, person: ForgottenPerson) -> Any:
    """Return a fact without the person: the bot itself has changed it."""
    if isinstance(fact, Job):
        granted = fact.granted
        return replace(fact, granted=BOT if granted and person.has_account(granted.channel, granted.id) else granted)
    return replace(fact, by=BOT) if hasattr(fact, "by") else fact


FORGETTING = {SCHEDULE_TAPE: restate_jobs}
