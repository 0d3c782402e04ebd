"""Two setups, or two evaluations, side by side: what changed, and if that is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import Struct

from bubbot.errors import ValueInvalid
from bubbot.features.judge.evals.facts import Fetch
from bubbot.features.judge.evals.report import (
    MAX_LINE_CHARS,
    EvalReport,
    EvalResult,
    SetupSummary,
    describe_failure,
    find_evaluation,
    format_number,
    format_summary,
    read_report,
)
from bubbot.features.judge.statistics import Verdict, compare_setups, find_flips
from bubbot.formatting import did_you_mean
from bubbot.runtime.calls import shorten
from bubbot.texts import Texts

if TYPE_CHECKING:
    from bubbot.command import Caller

EXIT_REGRESSION = 1
SEED = 1
"""Of the resamples, so that a comparison comes out the same each time."""
MAX_LISTED = 50
"""Flipped cases that the text lists; JSON has all."""
VERDICT_SENTENCES = {
    "regression": "eval_verdict_regression",
    "improvement": "eval_verdict_improvement",
    "no difference": "eval_verdict_none",
}


class ComparedSide(Struct, frozen=True):
    """A side of a comparison.

    Attributes:
        id: the evaluation.
        name: of its file.
        setup: the setup.
        summary: its results.
    """

    id: str
    name: str
    setup: str
    summary: SetupSummary


class FlippedResult(Struct, frozen=True):
    """A case that passes on one side only.

    Attributes:
        case: the case.
        is_lost: it passed before, and does not now.
        before: a result of the first side.
        after: a result of the second side.
    """

    case: str
    is_lost: bool
    before: EvalResult
    after: EvalResult


class EvalComparison(Struct, frozen=True):
    """Two setups over the cases that both have scores for.

    Attributes:
        before: the first side.
        after: the second one.
        verdict: `regression` or `improvement` if the difference is beyond the interval.
        cases: how many count.
        left_out: cases without a score on one side.
        difference: the mean score of the second side less that of the first.
        low: the lower end of the 95 % interval of the difference; None for fewer than two cases.
        high: its upper end.
        lost: cases that passed before, and do not now.
        gained: the other way round.
        p_value: of McNemar's test of those.
        flipped: them, with both results.
    """

    is_text: ClassVar = True
    before: ComparedSide
    after: ComparedSide
    verdict: Verdict
    cases: int
    left_out: tuple[str, ...]
    difference: float
    low: float | None
    high: float | None
    lost: int
    gained: int
    p_value: float
    flipped: tuple[FlippedResult, ...]

    @property
    def exit_code(self) -> int:
        """1 for a regression."""
        return EXIT_REGRESSION if self.verdict == "regression" else 0

    def describe(self, caller: Caller) -> str:
        """Write it for people."""
        return format_comparison(self, caller.texts)


async def compare(fetch: Fetch, before: str, after: str) -> EvalComparison:
    """Compare two setups, each as `EVALUATION` or `EVALUATION:SETUP`. Raise `ValueInvalid` if there is no such one, or nothing to compare."""
    first = await _find_side(fetch, before)
    second = await _find_side(fetch, after)
    return compare_sides(first, second)


async def _find_side(fetch: Fetch, word: str) -> tuple[EvalReport, str]:
    name, _, setup = word.strip().partition(":")
    known = await find_evaluation(fetch, name)
    setups = known.started.setups
    if not setup and len(setups) == 1:
        setup = setups[0]
    if setup not in setups:
        raise ValueInvalid(
            "eval_setup_unknown",
            eval=name,
            setup=setup,
            setups=", ".join(setups),
            hint=did_you_mean(setup, setups, before="; "),
        )
    return await read_report(fetch, known), setup


def compare_sides(first: tuple[EvalReport, str], second: tuple[EvalReport, str]) -> EvalComparison:
    """Compare a setup of a report with one of a report. Raise `ValueInvalid` if they have no case in common."""
    sides = [[each for each in report.results if each.setup == setup] for report, setup in (first, second)]
    found = compare_setups(*(_list_values(results, "score") for results in sides), seed=SEED)
    before, after = (
        ComparedSide(report.id, report.name, setup, next(each for each in report.setups if each.setup == setup))
        for report, setup in (first, second)
    )
    if not found.cases:
        raise ValueInvalid(
            "eval_nothing_common",
            before=_name(before),
            after=_name(after),
            first=before.summary.results,
            second=after.summary.results,
        )
    flips = find_flips(*(_list_values(results, "has_passed") for results in sides), pass_at=1.0)
    flipped = [
        FlippedResult(
            each.case,
            is_lost,
            _pick(sides[0], each.case, has_passed=is_lost),
            _pick(sides[1], each.case, has_passed=not is_lost),
        )
        for is_lost, cases in ((True, flips.lost), (False, flips.gained))
        for each in cases
    ]
    return EvalComparison(
        before=before,
        after=after,
        verdict=found.verdict,
        cases=found.cases,
        left_out=found.left_out,
        difference=found.difference,
        low=found.interval[0] if found.interval else None,
        high=found.interval[1] if found.interval else None,
        lost=len(flips.lost),
        gained=len(flips.gained),
        p_value=flips.p_value,
        flipped=tuple(flipped),
    )


def _list_values(results: Sequence[EvalResult], name: Literal["score", "has_passed"]) -> dict[str, list[float]]:
    """List a value of the results by case, without those that have none."""
    values: dict[str, list[float]] = {each.case: [] for each in results}
    for each in results:
        if (value := getattr(each, name)) is not None:
            values[each.case].append(float(value))
    return values


def _pick(results: Sequence[EvalResult], case: str, *, has_passed: bool) -> EvalResult:
    """Return a result of a case that shows what it did mostly."""
    found = [each for each in results if each.case == case]
    return next((each for each in found if each.has_passed is has_passed), found[0])


def format_comparison(comparison: EvalComparison, texts: Texts) -> str:
    """Write a comparison for people."""
    lines = [
        texts.say(
            "eval_compared", before=_name(comparison.before), after=_name(comparison.after), count=comparison.cases
        ),
        format_summary(comparison.before.summary, texts),
        format_summary(comparison.after.summary, texts),
        texts.say(
            "eval_difference",
            difference=f"{comparison.difference:+.3f}",
            low="–" if comparison.low is None else f"{comparison.low:+.3f}",
            high="–" if comparison.high is None else f"{comparison.high:+.3f}",
            verdict=texts.say(VERDICT_SENTENCES[comparison.verdict]),
        ),
        texts.say("eval_flips", lost=comparison.lost, gained=comparison.gained, p=f"{comparison.p_value:.3f}"),
    ]
    if comparison.left_out:
        lines.append(texts.say("eval_not_compared", count=len(comparison.left_out)))
    for each in comparison.flipped[:MAX_LISTED]:
        sentence = "eval_flip_lost" if each.is_lost else "eval_flip_gained"
        lines.append(texts.say(sentence, case=each.case))
        lines += [
            f"  {side.setup} {format_number(side.score)}: {_describe(side)}" for side in (each.before, each.after)
        ]
    if len(comparison.flipped) > MAX_LISTED:
        lines.append(texts.say("eval_more", count=len(comparison.flipped) - MAX_LISTED))
    return "\n".join(lines)


def _name(side: ComparedSide) -> str:
    return f"{side.name}:{side.setup} ({side.id})"


def _describe(result: EvalResult) -> str:
    said = shorten(result.answer, MAX_LINE_CHARS)
    return said if result.has_passed else f"{said} [{describe_failure(result)}]".strip()
