"""What a replay came to: how recorded requests came out, and how turns went again."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast

from bubbot.features.replay.events import RECORDED_SENTENCES, ReplayEnded
from bubbot.records import dataclass, json_data
from bubbot.texts import Texts

MAX_LISTED = 50
"""Steps with differences that the text lists; the fact has all."""

Recorded: TypeAlias = Literal["equal", "different", "gone", "unknown"]
"""How the recorded request of a step came out; see `ReplayedStep`."""


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A model call whose request was built again.

    Attributes:
        entry: its entry.
        recorded: `equal` (the request came out byte for byte), `different`, `gone` (erased or not kept), or `unknown` (its strategy is not
            installed in that version).
        differs: the parts that this version would build otherwise: `prompt`, `tools`, `messages`.
        unknown: parts that come out otherwise for reasons that may not be in the code, or that are not compared.
        first: the first difference, as the record has it and as this version has it.
    """

    entry: int
    recorded: Recorded
    differs: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    first: str = ""

    @property
    def is_equal(self) -> bool:
        """True if nothing that is known differs."""
        return self.recorded == "equal" and not self.differs


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a turn went.

    Attributes:
        model: the model that answered.
        text: the answer; empty if there was none.
        steps: model calls.
        calls: the names of the tools that were called, in order.
        not_recorded: calls that the record has no answer to.
        input_tokens: tokens read.
        output_tokens: tokens written.
        cost: US dollars; None if unknown.
        error: why there is no answer.
    """

    model: str = ""
    text: str = ""
    steps: int = 0
    calls: tuple[str, ...] = ()
    not_recorded: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ReplayedTurn:
    """A turn, as it went and as it went again.

    Attributes:
        entry: its first entry.
        turn: its id.
        question: the beginning of the newest message of a person that its model was shown.
        recorded: how it went.
        replayed: how it went again.
    """

    entry: int
    turn: str
    question: str
    recorded: RunSummary
    replayed: RunSummary


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A replay.

    Attributes:
        id: its id; the trace page shows it under Replays.
        chat: the chat, as it was named.
        session: its session; empty for a tape that has none.
        tape: the name of the tape.
        first: the first entry of the slice.
        last: its last entry.
        model: the model that the turns ran again with; empty if only requests were built again.
        is_equal: all requests came out as recorded, and this version would build the same.
        steps: the model calls, if requests were built again.
        turns: the turns, if they ran again.
        problem: what ended it early.
    """

    id: str
    chat: str
    session: str
    tape: str
    first: int
    last: int
    model: str
    is_equal: bool
    steps: tuple[ReplayedStep, ...]
    turns: tuple[ReplayedTurn, ...]
    problem: str

    def as_fact(self) -> ReplayEnded:
        """Build the fact, in which entries stand with their tape."""
        data: dict[str, Any] = json_data(self)
        for each in (*data["steps"], *data["turns"]):
            each["entry"] = (self.tape, each["entry"])
        return cast("ReplayEnded", data)


def format_report(report: ReplayReport, texts: Texts, *, with_words: bool) -> str:
    """Write a replay for people. Without words it quotes nothing: an answer stays where no erasure of the chat finds it."""
    lines: list[str] = []
    if not report.model:
        changed = [step for step in report.steps if not step.is_equal]
        lines.append(texts.say("replay_steps", count=len(report.steps), changed=len(changed)))
        for step in changed[:MAX_LISTED]:
            parts = ", ".join(step.differs) or texts.say(RECORDED_SENTENCES[step.recorded])
            lines.append(texts.say("replay_step", entry=step.entry, parts=parts))
            lines += [f"  {step.first}"] if step.first and with_words else []
        if len(changed) > MAX_LISTED:
            lines.append(texts.say("replay_more", count=len(changed) - MAX_LISTED))
    else:
        lines.append(texts.say("replay_turns", count=len(report.turns), model=report.model))
        for each in report.turns if with_words else ():
            lines.append(texts.say("replay_turn", entry=each.entry, question=" ".join(each.question.split())[:100]))
            lines.append(_format_run(each.recorded, texts.say("replay_then"), texts))
            lines.append(_format_run(each.replayed, texts.say("replay_now"), texts))
            missed = each.replayed.not_recorded
            lines += [texts.say("replay_missed", count=missed)] if missed else []
    lines += [texts.say("replay_problem", problem=report.problem)] if report.problem else []
    return "\n".join(lines)


def _format_run(run: RunSummary, label: str, texts: Texts) -> str:
    cost = texts.say("replay_no_cost") if run.cost is None else f"${run.cost:.6f}"
    return texts.say(
        "replay_run", label=label, model=run.model, steps=run.steps, input=run.input_tokens, output=run.output_tokens,
        cost=cost, text=" ".join((run.text or run.error).split())[:300],
    )  # fmt: skip
