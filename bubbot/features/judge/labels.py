"""The judgements on a tape, those that reactions are among them: which hold, and which another one took the place of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import pairwise

from msgspec import UNSET, Struct
from msgspec.structs import replace

from bubbot.features.judge.settings import JudgeSettings
from bubbot.ports.channel import TERMINAL_CHANNEL
from bubbot.ports.judgements import LABEL_EVENTS, REACTION, Annotator, JudgedTarget, Judgement, Label
from bubbot.ports.outbox import OUTBOX_PREFIX, OutboxIntent, PartReceipt
from bubbot.tape.corrections import Corrections
from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.events import TURN_START, MessageReaction
from bubbot.tape.handle import CORRECTION, TapeHandle, spans_of
from bubbot.tape.provenance import TERMINAL_SENDER
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import QueryAnswers

MAX_RECEIPTS_READ = 5_000
"""Newest receipts of an outbox among which the message of a reaction is looked for."""
MAX_ANSWERS_READ = 2_000
"""Newest messages of a tape among which the answer that a reaction is to is looked for."""
LabelSteps = Generator[tuple[TapeQuery, ...], QueryAnswers, "tuple[Label, ...]"]


class LabelsView(Struct, frozen=True):
    """All judgements of a tape, newest first; at most one of each subject is in force.

    A reaction counts if it is to an answer. Of what a person shows below the parts of one answer, the newest reaction that the
    table has is in force; once it is taken back, the one before it.

    Attributes:
        channel: the channel of the chat.
        outboxes: the tapes that know under which ids answers were sent.
        name: what reactions judge.
        reactions: the score of each reaction that counts.
    """

    channel: str = ""
    outboxes: tuple[str, ...] = ()
    name: str = "quality"
    reactions: Mapping[str, float] | None = None

    @classmethod
    def of_tape(cls, tape: TapeHandle, name: str, reactions: Mapping[str, float]) -> LabelsView:
        """Return the view of the tape of a chat, or of a fork of it."""
        channel = tape.session.partition(":")[0]
        return cls(channel, tape.shards_of(f"{OUTBOX_PREFIX}/{channel}") if channel else (), name, reactions)

    def steps(self, tape: str) -> LabelSteps:
        """Read the facts; if there are reactions, then which messages were sent, and the answers."""
        events = TapeQuery(tape, kinds=(Kind.EVENT,))
        names = LABEL_EVENTS if self.reactions else Judgement.EVENTS
        (found,) = yield (_named(events, names),)
        written = [
            Label(entry.id, entry.date, fact)
            for entry in found
            if entry.name in Judgement.EVENTS and (fact := Judgement.try_of(entry)) is not None
        ]
        facts = [entry for entry in found if entry.name in MessageReaction.EVENTS and not entry.erased]
        reactions = yield from self._read_reactions(tape, facts)
        labels = [*_supersede(written), *reactions]
        return tuple(sorted(labels, key=lambda label: label.entry, reverse=True))

    def _read_reactions(self, tape: str, entries: Sequence[TapeEntry]) -> LabelSteps:
        """Return the judgements that the reactions to answers are."""
        facts = {entry.id: fact for entry in entries if (fact := MessageReaction.try_of(entry)) is not None}
        people = {number: _find_person(fact, self.channel) for number, fact in facts.items() if fact.entry is UNSET}
        sought = {facts[number].message for number, person in people.items() if person is not None}
        if not sought or not self.outboxes:
            return ()
        answers = yield from self._find_answers(tape, sought)
        shown: dict[tuple[Annotator, int], list[Label]] = defaultdict(list)
        for entry in entries:
            person = people.get(entry.id)
            answer = answers.get(facts[entry.id].message) if person is not None else None
            if person is not None and answer is not None:
                label = Label(entry.id, entry.date, self._judge(facts[entry.id], person, answer))
                shown[person, answer].append(label)
        return tuple(label for each in shown.values() for label in _choose(each, facts))

    def _find_answers(
        self, tape: str, messages: set[str]
    ) -> Generator[tuple[TapeQuery, ...], QueryAnswers, dict[str, int]]:
        """Return the entries of the answers that were sent under these ids of the platform."""
        newest = [
            TapeQuery(name, kinds=(Kind.EVENT,), names=PartReceipt.EVENTS, newest=True, limit=MAX_RECEIPTS_READ)
            for name in self.outboxes
        ]
        sent: list[dict[str, int]] = []
        for receipts in (yield tuple(newest)):
            known = [receipt for entry in receipts if not entry.erased and (receipt := PartReceipt.try_of(entry))]
            sent.append({each.external_id: each.intent for each in known if each.external_id in messages})
        queries = [
            TapeQuery(name, IdRanges(tuple(spans_of(sorted(set(intents.values()))))))
            for name, intents in zip(self.outboxes, sent, strict=True)
        ]
        written = TapeQuery(tape, kinds=(Kind.MESSAGE,), newest=True, limit=MAX_ANSWERS_READ)
        *intents, texts = yield (*queries, written)
        turns: dict[str, int] = {}
        for entry in texts:
            if is_answer(entry):
                turns.setdefault(text_field(entry.meta, "turn"), entry.id)
        found: dict[str, int] = {}
        for known_intents, entries in zip(sent, intents, strict=True):
            # Messages of other chats may have the same ids: their turns wrote nothing here.
            names = {entry.id: text_field(entry.data, "turn") for entry in entries if entry.name in OutboxIntent.EVENTS}
            found |= {
                message: turns[names[intent]] for message, intent in known_intents.items() if names.get(intent) in turns
            }
        return found

    def _judge(self, fact: MessageReaction, person: Annotator, answer: int) -> Judgement:
        """Return the judgement that a reaction is; one without a score takes back."""
        assert self.reactions is not None
        emoji = next((each for each in reversed(fact.emojis) if each in self.reactions), "")
        target = JudgedTarget("entry", ((answer, answer),))
        return Judgement(target, self.name, self.reactions.get(emoji), emoji, "", person, REACTION)


class LabelReader:
    """Reads the labels of any tape; `read` is a `ReadLabels`."""

    def __init__(self, open_tape: Callable[[str], TapeHandle], find_settings: Callable[[], JudgeSettings]) -> None:
        """`find_settings` returns the section in force."""
        self._open_tape = open_tape
        self._find_settings = find_settings

    async def read(self, name: str) -> tuple[Label, ...]:
        """Return the labels of a tape, newest first. Its newest turn tells of which chat it is."""
        tape, settings = self._open_tape(name), self._find_settings()
        ((*starts,),) = await tape.fetch(
            [TapeQuery(name, kinds=(Kind.EVENT,), names=(TURN_START,), newest=True, limit=1)]
        )
        channel = text_field(starts[0].data, "session").partition(":")[0] if starts else ""
        outboxes = tape.shards_of(f"{OUTBOX_PREFIX}/{channel}") if channel else ()
        return await tape.read(LabelsView(channel, outboxes, settings.name, settings.reactions))


def is_answer(entry: TapeEntry) -> bool:
    """Return true for a message that the bot, or an agent of the chat, wrote to people."""
    return entry.kind == Kind.MESSAGE and entry.payload.get("role") == "assistant" and entry.is_shown_to("")


async def read_answers(
    tape: TapeHandle,
    part: IdRanges = IdRanges(((1, None),)),  # noqa: B008 - frozen
    limit: int = MAX_ANSWERS_READ,
) -> list[TapeEntry]:
    """Return the answers among the newest messages of a part of a tape, newest first, without what was erased or deleted.

    `limit` is how many messages are read.
    """
    written = TapeQuery(tape.name, part, kinds=(Kind.MESSAGE,), newest=True, limit=limit)
    changes = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(CORRECTION,))
    found, events = await tape.fetch([written, changes])
    hidden = Corrections.of(events).hidden
    return [entry for entry in found if is_answer(entry) and not entry.erased and entry.id not in hidden]


def find_annotator(account: str) -> Annotator:
    """Return the annotator that a person is, by the account as channel and id, or by `terminal`."""
    channel, _, number = account.rpartition(":")
    return Annotator("human", number, channel) if channel else Annotator("human", TERMINAL_SENDER, TERMINAL_CHANNEL)


def offer_labels(labels: Sequence[Label], person: Annotator, settings: JudgeSettings) -> tuple[list[Label], int]:
    """Return the labels in force that a person is shown, and how many of judges are withheld until this person has judged."""
    in_force = [each for each in labels if each.is_in_force]
    has_judged = any(each.judgement.annotator == person for each in in_force)
    if has_judged or not settings.offer_after_look:
        return in_force, 0
    shown = [each for each in in_force if each.judgement.annotator.kind == "human"]
    return shown, len(in_force) - len(shown)


def labels_of(labels: Sequence[Label], target: JudgedTarget) -> tuple[Label, ...]:
    """Return the labels of exactly this target, in the same order."""
    wanted = target.kind, _spans(target)
    return tuple(each for each in labels if (each.judgement.target.kind, _spans(each.judgement.target)) == wanted)


def _spans(target: JudgedTarget) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(span) for span in target.entries)


def _named(query: TapeQuery, names: tuple[str, ...]) -> TapeQuery:
    return TapeQuery(query.tape, kinds=query.kinds, names=names)


def _find_person(fact: MessageReaction, channel: str) -> Annotator | None:
    """Return who reacted; None for a bot, and for a reaction of nobody."""
    number = fact.sender.get("id")
    return Annotator("human", number, channel) if isinstance(number, str) and not fact.sender.get("bot") else None


def _supersede(labels: Sequence[Label]) -> list[Label]:
    """Mark each label that a later one of the same subject took the place of."""
    by_subject: dict[object, list[Label]] = defaultdict(list)
    for label in labels:
        by_subject[label.judgement.subject].append(label)
    marked: list[Label] = []
    for each in by_subject.values():
        marked += [replace(old, superseded_by=new.entry) for old, new in pairwise(each)]
        marked.append(each[-1])
    return marked


def _choose(shown: Sequence[Label], facts: Mapping[int, MessageReaction]) -> list[Label]:
    """Return the judgements among the reactions of a person to one answer, oldest first, at most one of them in force."""
    newest = {facts[label.entry].message: label for label in shown}
    standing = [label.entry for label in newest.values() if label.judgement.score is not None]
    current = max(standing, default=0)
    marked: list[Label] = []
    for label, later in zip(shown, [*shown[1:], None], strict=True):
        if label.judgement.score is not None:
            superseded_by = 0 if label.entry == current or later is None else later.entry
            marked.append(replace(label, superseded_by=superseded_by))
    return marked
