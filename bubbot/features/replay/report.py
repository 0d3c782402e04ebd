"""What a replay came to: how recorded requests came out, and how turns went again."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, structs

from bubbot.features.replay.facts import RECORDED_SENTENCES, Recorded, ReplayEnded, RunSummary
from bubbot.texts import Texts

if TYPE_CHECKING:
    from bubbot.command import Caller

EXIT_DIFFERENT = 1
MAX_LISTED = 50
"""Steps with differences that the text lists; the fact has all."""


class ReplayedStep(Struct, frozen=True):
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


class ReplayedTurn(Struct, frozen=True):
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


class ReplayReport(Struct, frozen=True):
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
        left_out: turns that did not run again, since somebody whose words their models were shown has not allowed it.
    """

    is_text: ClassVar = True
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
    left_out: int = 0

    @classmethod
    def of(cls, fact: ReplayEnded) -> ReplayReport:
        """Read the fact of a replay, in which entries stand with their tape."""
        steps = [
            ReplayedStep(each.entry[1], each.recorded, each.differs, each.unknown, each.first) for each in fact.steps
        ]
        turns = [
            ReplayedTurn(each.entry[1], each.turn, each.question, each.recorded, each.replayed) for each in fact.turns
        ]
        return cls(**{**structs.asdict(fact), "steps": tuple(steps), "turns": tuple(turns)})

    @property
    def exit_code(self) -> int:
        """1 if anything differs, or ended early."""
        return 0 if self.is_equal else EXIT_DIFFERENT

    def describe(self, caller: Caller) -> str:
        """Write it for people; the answer in a chat stays on a tape, and quotes nothing."""
        text = format_report(self, caller.texts, with_words=caller.turn is None)
        return text if caller.turn is None else f"{text}\n{caller.texts.say('replay_kept', id=self.id)}"


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
    lines += [texts.say("replay_left_out", count=report.left_out)] if report.left_out else []
    lines += [texts.say("replay_problem", problem=report.problem)] if report.problem else []
    return "\n".join(lines)


def _format_run(run: RunSummary, label: str, texts: Texts) -> str:
    cost = texts.say("replay_no_cost") if run.cost is None else f"${run.cost:.6f}"
    return texts.say(
        "replay_run", label=label, model=run.model, steps=run.steps, input=run.input_tokens, output=run.output_tokens,
        cost=cost, text=" ".join((run.text or run.error).split())[:300],
    )  # fmt: skip
