"""What the commands about judgements take, and what they say."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller
from bubbot.features.judge.decision import Alternative
from bubbot.features.judge.settings import LABEL_NAME, LABEL_NAME_FORM
from bubbot.ports.judgements import Annotator, AnnotatorKind, Label
from bubbot.runtime.targets import format_target
from bubbot.shell_command import Argument, IsoTime

MAX_WHY_CHARS = 2_000
BEST, WORST = 5, 1
"""The scale of `,rate`."""
MAX_LISTED = 1_000
_CHAT = Argument("a session such as telegram:42 or default, or the name of a tape")
_TARGET = Argument(
    "an entry such as 12, a slice such as 12-40 or FIRST..SECOND anchor, the beginning of a turn or branch id"
)


class RateArgs(Args, frozen=True):
    """How good an answer is."""

    score: Annotated[int, Meta(description="from 1, bad, to 5, good", ge=WORST, le=BEST)]
    why: Annotated[str, Meta(description="why", max_length=MAX_WHY_CHARS)] = ""


class LabelArgs(Args, frozen=True):
    """A judgement of something on a tape."""

    chat: Annotated[str, _CHAT]
    target: Annotated[str, _TARGET]
    name: Annotated[
        str,
        Argument("what of it is judged (default: [judge] name)"),
        Meta(pattern=rf"^({LABEL_NAME})?\Z", extra={"form": LABEL_NAME_FORM}),
    ] = ""
    score: Annotated[float | None, Argument("a number, as the name defines it")] = None
    label: Annotated[str, Argument("a word, such as good"), Meta(max_length=64)] = ""
    why: Annotated[str, Argument("why"), Meta(max_length=MAX_WHY_CHARS)] = ""


class ListLabelsArgs(Args, frozen=True):
    """Which judgements of a chat."""

    limit: Annotated[int, Meta(description="how many of the newest", ge=1, le=MAX_LISTED)] = 20


class ListChatLabelsArgs(Args, frozen=True):
    """Which judgements of which chat."""

    chat: Annotated[str, _CHAT]
    limit: Annotated[int, Argument("how many of the newest (default: 100)"), Meta(ge=1, le=MAX_LISTED)] = 100


class ShowArgs(Args, frozen=True):
    """What is to be judged."""

    chat: Annotated[str, _CHAT]
    target: Annotated[str, _TARGET]


class LabelRow(Struct, frozen=True):
    """A judgement.

    Attributes:
        entry: its entry.
        date: when it was stored.
        target: what is judged.
        name: what of it is judged.
        score: a number; None without one.
        label: a word; empty without one.
        why: why; empty for nothing.
        kind: human, model or code.
        by: a person as channel and id, else the name of the model or the judge.
        identifier: reaction, or what else tells it from others of the same annotator.
        superseded_by: the entry that took its place; 0: it is in force.
    """

    entry: int
    date: IsoTime
    target: str
    name: str
    score: float | None
    label: str
    why: str
    kind: AnnotatorKind
    by: str
    identifier: str = ""
    superseded_by: int = 0

    @classmethod
    def of(cls, label: Label) -> LabelRow:
        """Describe a judgement."""
        fact = label.judgement
        return cls(
            label.entry,
            label.date,
            format_target(fact.target),
            fact.name,
            fact.score,
            fact.label,
            fact.rationale,
            fact.annotator.kind,
            format_annotator(fact.annotator),
            fact.identifier,
            label.superseded_by,
        )

    @property
    def value(self) -> str:
        """The score and the word."""
        return " ".join(filter(None, ["" if self.score is None else f"{self.score:g}", self.label])) or "–"

    def describe(self, caller: Caller) -> str:
        """Write it in a line."""
        texts = caller.result_texts
        line = texts.say("LabelRow", entry=self.entry, target=self.target, name=self.name, value=self.value, by=self.by)
        parts = [line, texts.say("LabelRow.why", why=" ".join(self.why.split())) if self.why else ""]
        parts.append(texts.say("LabelRow.superseded", entry=self.superseded_by) if self.superseded_by else "")
        return " ".join(filter(None, parts))


class AnswerRated(Struct, frozen=True):
    """An answer that somebody rated.

    Attributes:
        entry: the entry of the answer.
        score: from 1 to 5.
    """

    entry: int
    score: int


class TargetLabelled(Struct, frozen=True):
    """Something on a tape that was judged.

    Attributes:
        chat: the chat, as it was named.
        target: what was judged.
        name: what of it.
        entry: the entry of the judgement.
    """

    chat: str
    target: str
    name: str
    entry: int


class DecisionShown(Struct, frozen=True):
    """A decision, and what was judged of it.

    Attributes:
        target: what is to be judged.
        shown: the ranges of entries that the model was shown, each as its first and last id.
        lines: the newest of them.
        chosen: the calls and the text that the model wrote.
        model: the model; empty if none wrote it.
        branches: what else was possible.
        labels: the judgements in force; those of judges only if `withheld` is 0.
        withheld: how many of judges are not shown until you have judged it.
    """

    is_text: ClassVar = True
    target: str
    shown: tuple[tuple[int, ...], ...]
    lines: tuple[str, ...]
    chosen: tuple[str, ...]
    model: str
    branches: tuple[Alternative, ...]
    labels: tuple[LabelRow, ...]
    withheld: int

    def describe(self, caller: Caller) -> str:
        """Write what was shown, what was chosen, what else was possible, and then the judgements."""
        texts = caller.texts
        ranges = ", ".join(f"#{low}" if low == high else f"#{low}-#{high}" for low, high in self.shown)
        lines = [texts.say("decision_shown", entries=ranges or texts.say("none")), *_indent(self.lines)]
        lines += ["", texts.say("decision_chosen", target=self.target, model=self.model or "–"), *_indent(self.chosen)]
        if self.branches:
            lines += ["", texts.say("decision_branches")]
            lines += _indent([f"{each.number} ({each.fork}): {' '.join(each.text.split())}" for each in self.branches])
        lines += ["", texts.say("decision_labels") if self.labels else texts.say("decision_no_labels")]
        lines += _indent([label.describe(caller) for label in self.labels])
        if self.withheld:
            lines.append(texts.say("decision_withheld", count=self.withheld))
        return "\n".join(lines)


def format_annotator(annotator: Annotator) -> str:
    """Write who judges."""
    return f"{annotator.channel}:{annotator.id}" if annotator.channel else annotator.id


def _indent(lines: tuple[str, ...] | list[str]) -> list[str]:
    return [f"  {part}" for line in lines for part in line.splitlines()]
