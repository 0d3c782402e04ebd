"""What an evaluation came to: for each setup the mean, the pass rate, cost and time; as a text, as JSON, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from msgspec import Struct, structs

from bubbot.errors import ValueInvalid
from bubbot.features.judge.evals.facts import (
    ENDED,
    EVALS_TAPE,
    STARTED,
    EvalCaseEnded,
    EvalEnded,
    EvalStarted,
    Fetch,
    JudgeScore,
    Outcome,
    read_results,
)
from bubbot.features.judge.statistics import compute_mcnemar
from bubbot.formatting import did_you_mean, replace_controls
from bubbot.runtime.calls import shorten
from bubbot.shell_command import IsoTime
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts

if TYPE_CHECKING:
    from bubbot.command import Caller

State: TypeAlias = Outcome | Literal["running"]
STATE_SENTENCES = {
    "running": "eval_state_running",
    "complete": "eval_state_complete",
    "budget": "eval_state_budget",
    "denied": "eval_state_denied",
}
EXIT_INCOMPLETE = 1
MAX_LISTED = 50
"""Results that did not pass that the text lists; JSON and the page have all."""
MAX_LINE_CHARS = 200


class Preference(Struct, frozen=True):
    """What a judge that compares says of a setup beside the first one, over cases.

    Attributes:
        judge: its name.
        better: cases in which the answers of this setup are better, over their repeats.
        worse: those of the first setup are.
        ties: neither is.
        failures: comparisons that failed; they count nowhere.
        p_value: of the sign test of the cases that are no tie.
    """

    judge: str
    better: int
    worse: int
    ties: int
    failures: int
    p_value: float


class SetupSummary(Struct, frozen=True):
    """The results of a setup.

    Attributes:
        setup: its name.
        model: the model that answered.
        results: how many there are.
        failures: those without an answer.
        judge_failures: those of which a judge failed: they count in neither the mean nor the pass rate.
        mean: the mean over cases of the mean over their repeats; an answer that failed counts 0. None without a score.
        pass_rate: the share of the results that pass, from 0 to 1; those without an answer do not pass. None without any.
        tokens: of all results, those of judges included.
        cost: US dollars of all results; None if unknown.
        seconds: the mean time of an answer; None without results.
        preferences: what judges that compare say of it beside the first setup.
    """

    setup: str
    model: str
    results: int
    failures: int
    judge_failures: int
    mean: float | None
    pass_rate: float | None
    tokens: int
    cost: float | None
    seconds: float | None
    preferences: tuple[Preference, ...] = ()


class EvalResult(Struct, frozen=True):
    """How a case ran once under a setup.

    Attributes:
        setup: the setup.
        case: the case; a turn of a slice has the number of its first entry behind a slash.
        repeat: which time it was, from 1.
        chat: the chat of a slice; empty for a made case.
        question: the beginning of the message that was answered.
        answer: the answer, as far as judges read it; empty for none.
        cut: characters of the answer that followed.
        preferences: what judges that compare said of it beside the answer of the first setup: 1 if it is better, -1 if it is worse.
        calls: the tools that were called, in order.
        not_run: calls of tools that had no result, and were not run.
        scores: what each judge said.
        score: the mean of their points, by weight; 0 without an answer. None without any points, and if a judge failed.
        has_passed: every judge's score passes; None if a judge failed or none gives a score.
        tokens: those of judges included.
        cost: US dollars; None if unknown.
        seconds: how long the answer took.
        failure: why there is no answer; empty if there is one.
    """

    setup: str
    case: str
    repeat: int
    chat: str
    question: str
    answer: str
    calls: tuple[str, ...]
    not_run: int
    scores: tuple[JudgeScore, ...]
    score: float | None
    has_passed: bool | None
    tokens: int
    cost: float | None
    seconds: float
    failure: str = ""
    cut: int = 0
    preferences: tuple[JudgeScore, ...] = ()

    @classmethod
    def of(cls, fact: EvalCaseEnded) -> EvalResult:
        """Read the fact of a result."""
        names = [each.name for each in structs.fields(cls)]
        return cls(**{name: getattr(fact, name) for name in names})


class EvalReport(Struct, frozen=True):
    """An evaluation.

    Attributes:
        id: its id.
        name: of its file.
        title: what people read.
        began: when it began.
        version: the version of bubbot.
        digest: of what is evaluated.
        state: `complete`, `budget` (its tokens are used up), `denied` (a budget of the bot stopped it) or `running`: it runs, or was
            cut off, and goes on if it is run again.
        problem: what stopped it; empty for nothing.
        planned: results that it needs.
        left_out: cases that did not run, since somebody whose words they have has not allowed it.
        gone: cases whose entries were erased, or cannot be read.
        erased: results whose chat was erased since.
        setups: the results of each setup.
        results: all, in the order of setups and cases.
    """

    is_text: ClassVar = True
    id: str
    name: str
    title: str
    began: IsoTime
    version: str
    digest: str
    state: State
    problem: str
    planned: int
    left_out: tuple[str, ...]
    gone: tuple[str, ...]
    erased: int
    setups: tuple[SetupSummary, ...]
    results: tuple[EvalResult, ...]

    @property
    def exit_code(self) -> int:
        """1 if it is not complete."""
        return 0 if self.state == "complete" else EXIT_INCOMPLETE

    def describe(self, caller: Caller) -> str:
        """Write it for people; the answer in a chat stays on a tape, and quotes nothing."""
        return format_report(self, caller.texts, with_words=caller.turn is None)


class WrittenReport(EvalReport, frozen=True):
    """A report that is written to a file as a page.

    Attributes:
        file: the file.
        content: the page.
    """

    file: Path | None = None
    content: bytes = b""

    def describe(self, caller: Caller) -> str:  # noqa: ARG002 - see `describe`
        """Say nothing: the shell says where it is."""
        return ""


class EvalRow(Struct, frozen=True):
    """An evaluation in a list.

    Attributes:
        id: its id.
        name: of its file.
        began: when it began.
        state: as in its report.
        results: how many there are.
        planned: how many it needs.
    """

    id: str
    name: str
    began: IsoTime
    state: State
    results: int
    planned: int

    def values(self, caller: Caller) -> dict[str, str]:
        """Return the formatted values of its sentence."""
        return {"state": caller.texts.say(STATE_SENTENCES[self.state]), "began": self.began[:16].replace("T", " ")}


class KnownEvaluation(Struct, frozen=True):
    """An evaluation on the tape: its beginning with the entry, and its end, if any."""

    started: EvalStarted
    entry: int
    began: str
    ended: EvalEnded | None

    @property
    def state(self) -> State:
        """How it stands."""
        return self.ended.outcome if self.ended else "running"


async def list_evaluations(fetch: Fetch) -> list[KnownEvaluation]:
    """List all evaluations, newest first."""
    facts = (await fetch([TapeQuery(EVALS_TAPE, kinds=(Kind.EVENT,), names=(STARTED, ENDED))]))[0]
    ends = {end.id: end for entry in facts if entry.name == ENDED if (end := EvalEnded.try_of(entry))}
    return [
        KnownEvaluation(fact, entry.id, entry.date, ends.get(fact.id))
        for entry in reversed(facts)
        if entry.name == STARTED and (fact := EvalStarted.try_of(entry))
    ]


async def find_evaluation(fetch: Fetch, word: str) -> KnownEvaluation:
    """Find an evaluation by its id, the beginning of one, or the name of its file: then the newest. Raise `ValueInvalid`."""
    word = word.strip()
    known = await list_evaluations(fetch)
    for matches in (
        [each for each in known if each.started.id == word],
        [each for each in known if each.started.name == word][:1],
        [each for each in known if len(word) >= 4 and each.started.id.startswith(word)],
    ):
        if len(matches) == 1:
            return matches[0]
    names = [name for each in known for name in (each.started.id, each.started.name)]
    raise ValueInvalid("eval_unknown", eval=word, hint=did_you_mean(word, names, before="; "))


async def read_report(fetch: Fetch, known: KnownEvaluation) -> EvalReport:
    """Read the report of an evaluation."""
    return build_report(known, await read_results(fetch, known.started.id, known.entry))


def build_report(known: KnownEvaluation, found: Sequence[tuple[TapeEntry, EvalCaseEnded | None]]) -> EvalReport:
    """Build the report of an evaluation from its results."""
    started, ended = known.started, known.ended
    facts = list_facts(known, found)
    return EvalReport(
        id=started.id,
        name=started.name,
        title=replace_controls(shorten(started.title, MAX_LINE_CHARS)),
        began=known.began,
        version=started.version,
        digest=started.spec,
        state=known.state,
        problem=ended.problem if ended else "",
        planned=started.planned,
        left_out=ended.left_out if ended else (),
        gone=ended.gone if ended else (),
        erased=len(found) - len(facts),
        setups=tuple(summarise(name, [fact for fact in facts if fact.setup == name]) for name in started.setups),
        results=tuple(map(EvalResult.of, facts)),
    )


def list_facts(known: KnownEvaluation, found: Sequence[tuple[TapeEntry, EvalCaseEnded | None]]) -> list[EvalCaseEnded]:
    """List the results that are not erased, in the order of setups, cases and repeats."""
    order = {name: place for place, name in enumerate(known.started.setups)}
    facts = [fact for _, fact in found if fact is not None]
    return sorted(facts, key=lambda fact: (order.get(fact.setup, len(order)), fact.case, fact.repeat))


def summarise(setup: str, facts: Sequence[EvalCaseEnded]) -> SetupSummary:
    """Sum up the results of a setup."""
    by_case: dict[str, list[float]] = {}
    for fact in facts:
        if fact.score is not None:
            by_case.setdefault(fact.case, []).append(fact.score)
    means = [fsum(scores) / len(scores) for scores in by_case.values()]
    verdicts = [fact.has_passed for fact in facts if fact.has_passed is not None]
    costs = [fact.cost for fact in facts if fact.cost is not None]
    return SetupSummary(
        setup=setup,
        model=next((fact.model for fact in reversed(facts) if fact.model), ""),
        results=len(facts),
        failures=sum(bool(fact.failure) for fact in facts),
        judge_failures=sum(any(score.failure for score in fact.scores) for fact in facts),
        mean=fsum(means) / len(means) if means else None,
        pass_rate=sum(verdicts) / len(verdicts) if verdicts else None,
        tokens=sum(fact.tokens for fact in facts),
        cost=fsum(costs) if costs and len(costs) == len(facts) else None,
        seconds=fsum(fact.seconds for fact in facts) / len(facts) if facts else None,
        preferences=tuple(
            _count_preferences(name, facts)
            for name in dict.fromkeys(each.name for fact in facts for each in fact.preferences)
        ),
    )


def _count_preferences(judge: str, facts: Sequence[EvalCaseEnded]) -> Preference:
    by_case: dict[str, list[float]] = {}
    said = [(fact.case, each) for fact in facts for each in fact.preferences if each.name == judge]
    for case, each in said:
        if each.score is not None:
            by_case.setdefault(case, []).append(each.score)
    sums = [fsum(scores) for scores in by_case.values()]
    better, worse = sum(each > 0 for each in sums), sum(each < 0 for each in sums)
    failures = sum(bool(each.failure) for _, each in said)
    return Preference(judge, better, worse, len(sums) - better - worse, failures, compute_mcnemar(better, worse))


def format_report(report: EvalReport, texts: Texts, *, with_words: bool) -> str:
    """Write a report for people. Without words it quotes nothing: an answer stays where no erasure of a chat finds it."""
    lines = [
        texts.say(
            "eval_report",
            title=report.title,
            id=report.id,
            count=len(report.results),
            planned=report.planned,
            state=texts.say(STATE_SENTENCES[report.state]),
        )
    ]
    lines += [texts.say("eval_problem", problem=report.problem)] if report.problem else []
    lines += [texts.say("eval_left_out", count=len(report.left_out))] if report.left_out else []
    lines += [texts.say("eval_gone", count=len(report.gone))] if report.gone else []
    lines += [texts.say("eval_erased", count=report.erased)] if report.erased else []
    lines += [format_summary(each, texts) for each in report.setups]
    failed = [each for each in report.results if each.failure or each.has_passed is not True]
    for each in failed[:MAX_LISTED] if with_words else ():
        lines.append(
            texts.say("eval_failed", setup=each.setup, case=each.case, repeat=each.repeat, why=describe_failure(each))
        )
        if each.answer:
            lines.append(f"  {shorten(each.answer, MAX_LINE_CHARS)}")
        if each.cut:
            lines.append(texts.say("eval_cut", count=each.cut))
    if with_words and len(failed) > MAX_LISTED:
        lines.append(texts.say("eval_more", count=len(failed) - MAX_LISTED))
    return "\n".join(lines)


def format_summary(summary: SetupSummary, texts: Texts) -> str:
    """Write the line of a setup, and one for each judge that compares it with the first."""
    line = texts.say(
        "eval_setup",
        setup=summary.setup + (f" ({replace_controls(summary.model)})" if summary.model else ""),
        mean=format_number(summary.mean),
        rate="–" if summary.pass_rate is None else f"{summary.pass_rate:.0%}",
        results=summary.results,
        failures=summary.failures,
        judges=summary.judge_failures,
        tokens=summary.tokens,
        cost=texts.say("eval_no_cost") if summary.cost is None else f"${summary.cost:.4f}",
        seconds="–" if summary.seconds is None else f"{summary.seconds:.2f}",
    )
    return "\n".join([line, *(format_preference(each, texts) for each in summary.preferences)])


def format_preference(preference: Preference, texts: Texts) -> str:
    """Write what a judge that compares says of a setup."""
    return texts.say(
        "eval_preference",
        judge=preference.judge,
        better=preference.better,
        worse=preference.worse,
        ties=preference.ties,
        failures=preference.failures,
        p_value=f"{preference.p_value:.3f}",
    )


def format_number(value: float | None) -> str:
    """Write a score."""
    return "–" if value is None else f"{value:.3f}"


def describe_failure(result: EvalResult) -> str:
    """Say why a result does not pass: the failure, or what the judges said that did not pass."""
    if result.failure:
        return shorten(result.failure, MAX_LINE_CHARS)
    wrong = [each for each in result.scores if each.failure or each.has_passed is False] or result.scores
    return "; ".join(
        f"{each.name}: {shorten(each.failure or each.rationale or each.label or format_number(each.score), MAX_LINE_CHARS)}"
        for each in wrong
    )


def render_report(report: EvalReport, texts: Texts) -> bytes:
    """Render a report as one page that needs nothing else."""
    # Imported here: few reports become a page.
    from importlib.resources import files

    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(
        say=texts.say,
        number=format_number,
        why=describe_failure,
        preference=lambda each: format_preference(each, texts),
        language=texts.language if texts.is_translated else "en",
        states=STATE_SENTENCES,
    )
    text = (files("bubbot.features.judge.evals") / "templates" / "report.html").read_text(encoding="utf-8")
    values: dict[str, Any] = {"report": report}
    return environment.from_string(text).render(values).encode()
