"""The facts of evaluations, and the tape on which they stand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.fact import Fact
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.references import BlobDigest, SessionId, TapeSpans

EVALS_TAPE = "bubbot/evals"
"""The one place that quotes the chats whose turns were run again; an erasure finds the quotes by the chat that they name."""
Outcome: TypeAlias = Literal["complete", "budget", "denied"]
"""How an evaluation ended. `budget`: its tokens were used up. `denied`: a budget of the bot, or a rate, stopped it; to run it
again goes on with it."""
MAX_QUESTION_CHARS = 500
Fetch: TypeAlias = Callable[[Sequence[TapeQuery]], Awaitable[Sequence[Sequence[TapeEntry]]]]


class EvalStarted(Fact, frozen=True):
    """An evaluation began.

    Attributes:
        id: its id.
        name: of its file.
        title: what people read.
        spec: what is evaluated, as JSON, with what its setups rest on.
        version: the version of bubbot.
        setups: their names.
        planned: results that it needs; cases that are left out count.
        request: the message that asked for it.
    """

    EVENTS = ("eval/started",)
    id: str
    name: str
    title: str
    spec: BlobDigest
    version: str
    setups: tuple[str, ...]
    planned: int
    request: str = ""


class JudgeScore(Struct, frozen=True):
    """What a judge said of an answer, or why it failed.

    Attributes:
        name: what it judges.
        kind: of the judge.
        weight: how much it counts.
        score: a number on the scale of the judge; None without one, and if it failed.
        label: a word; empty without one.
        rationale: why.
        has_passed: the score is one that passes; None without a score.
        failure: why there is no judgement; empty if there is one.
        points: the score from 0 to 1, of which more are better; None without a score.
    """

    name: str
    kind: str
    weight: float
    score: float | None
    label: str = ""
    rationale: str = ""
    has_passed: bool | None = None
    failure: str = ""
    points: float | None = None


class EvalCaseEnded(Fact, frozen=True):
    """A case ran once under a setup.

    Attributes:
        eval: the id of the evaluation.
        setup: the setup.
        case: the case; a turn of a slice has the number of its first entry behind a slash.
        repeat: which time it was, from 1.
        chat: the chat of a slice, as the evaluation names it; empty for a made case.
        session: its session.
        tape: its tape; empty for a made case.
        rests_on: what the answer rests on, on that tape and others.
        question: the beginning of the message that was answered.
        answer: the answer, as far as judges read it; empty for none.
        cut: characters of the answer that followed.
        preferences: what judges that compare said of it beside the answer of the first setup: 1 if it is better, -1 if it is worse.
        calls: the tools that were called, in order.
        not_run: calls of tools that had no result, and were not run.
        scores: what each judge said.
        score: the mean of their points, by weight; 0 without an answer: a setup must not gain by failing. None without any points, and if a
            judge failed.
        has_passed: every judge's score passes; None if a judge failed or none gives a score.
        model: the model that answered.
        input_tokens: tokens read, without those of judges.
        output_tokens: tokens written.
        judge_tokens: tokens of judges.
        cost: US dollars, with those of judges; None if unknown.
        seconds: how long the answer took.
        failure: why there is no answer; empty if there is one.
    """

    EVENTS = ("eval/case",)
    eval: str
    setup: str
    case: str
    repeat: int
    chat: str
    session: SessionId
    tape: str
    rests_on: TapeSpans
    question: str
    answer: str
    calls: tuple[str, ...]
    not_run: int
    scores: tuple[JudgeScore, ...]
    score: float | None
    has_passed: bool | None
    model: str
    input_tokens: int
    output_tokens: int
    judge_tokens: int
    cost: float | None
    seconds: float
    failure: str = ""
    cut: int = 0
    preferences: tuple[JudgeScore, ...] = ()

    def quoted_texts(self) -> Iterator[tuple[Sequence[object], str]]:
        """Yield the message that was answered, by the first entry that the answer rests on."""
        if self.tape and self.question:
            yield (self.tape, self.entry), self.question

    @property
    def entry(self) -> int:
        """The first entry of the turn that was run again; 0 for a made case."""
        number = self.case.rpartition("/")[2]
        return int(number) if self.tape and number.isdigit() else 0

    @property
    def tokens(self) -> int:
        """All tokens that it used."""
        return self.input_tokens + self.output_tokens + self.judge_tokens


class EvalEnded(Fact, frozen=True):
    """An evaluation ended. One that was stopped may end again.

    Attributes:
        id: its id.
        turn: the turn in which it ended.
        request: the message that asked for it: one that is answered again has this end.
        outcome: how it ended.
        problem: what stopped it; empty if it is complete.
        left_out: cases that did not run, since somebody whose words they have has not allowed it, by name.
        gone: cases whose entries were erased, or cannot be read.
    """

    EVENTS = ("eval/ended",)
    id: str
    turn: str
    request: str
    outcome: Outcome
    problem: str
    left_out: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


STARTED, CASE, ENDED = EvalStarted.EVENTS[0], EvalCaseEnded.EVENTS[0], EvalEnded.EVENTS[0]
FACTS: tuple[type[Fact], ...] = (EvalStarted, EvalCaseEnded, EvalEnded)
SESSION_EVENTS = (CASE,)
"""Facts about one chat, which an erasure of that chat reaches."""
QUOTES = {EVALS_TAPE: (CASE,)}
"""Facts that quote a tape, with its name in `tape` and its session in `session`, by the tape on which they stand."""
COPIES = (CASE,)
"""Facts with words of the entries that they cite."""


def started_key(evaluation: str) -> str:
    """Return the key of the beginning of an evaluation."""
    return f"eval:{evaluation}"


def case_key(evaluation: str, setup: str, case: str, repeat: int) -> str:
    """Return the key of a result: there is one for each repeat of a case under a setup."""
    return f"eval:{evaluation}:{setup}:{case}:{repeat}"


def ended_key(turn: str) -> str:
    """Return the key of the end of an evaluation in a turn."""
    return f"eval-ended:{turn}"


async def read_results(fetch: Fetch, evaluation: str, first: int) -> list[tuple[TapeEntry, EvalCaseEnded | None]]:
    """Read the results of an evaluation in the order of the tape, each with its entry; erased ones have no fact.

    Args:
        first: the entry of its beginning.
    """
    part, prefix = IdRanges(((first, None),)), f"{started_key(evaluation)}:"
    found = (await fetch([TapeQuery(EVALS_TAPE, part, kinds=(Kind.EVENT,))]))[0]
    return [
        (entry, None if entry.erased else EvalCaseEnded.try_of(entry))
        for entry in found
        if (entry.key or "").startswith(prefix) and (entry.erased or entry.name == CASE)
    ]
