"""What judges are shown of the run of a case, and how what they say becomes a score from 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, cast

from msgspec import structs

from bubbot.errors import ConfigError
from bubbot.features.judge.evals.facts import JudgeScore
from bubbot.features.judge.evals.spec import JUDGE_KEYS, EvalJudge
from bubbot.features.judge.judges.creation import create_judge
from bubbot.features.judge.judges.judging import Judge, JudgedRun, JudgeFailed, ScoreScale, judge_run
from bubbot.features.judge.judges.rubric import Ask, PairRubricJudge
from bubbot.features.judge.judges.settings import KINDS, JudgeInvalid, JudgeProblem, RubricSettings, read_judge
from bubbot.formatting import clean, did_you_mean

MAX_RATIONALE_CHARS = 2_000


async def judge_answer(settings: EvalJudge, run: JudgedRun, ask: Ask) -> JudgeScore:
    """Let a judge judge; a judge that fails gives no score.

    Args:
        ask: asks the model of the judge, if it has one.
    """
    name, kind, weight = settings.name, settings.kind, settings.weight
    try:
        judge = build_judge(settings, ask)
        result = await judge_run(judge, run)
    except (JudgeFailed, ConfigError) as error:
        problem = error.problem if isinstance(error, JudgeFailed) else str(error)
        return JudgeScore(name, kind, weight, None, failure=clean(problem)[:MAX_RATIONALE_CHARS])
    scale, score = judge.scale, result.score
    has_passed = None if score is None else passes(scale, score, settings.pass_at)
    points = None if score is None or has_passed is None else find_points(scale, score, has_passed=has_passed)
    label, rationale = clean(result.label), clean(result.rationale)[:MAX_RATIONALE_CHARS]
    return JudgeScore(name, kind, weight, score, label, rationale, has_passed, points=points)


def passes(scale: ScoreScale, score: float, pass_at: float | None) -> bool | None:
    """Return true if a score passes: by the evaluation, else by the judge, else in the better half of the scale.

    None if a scale has no end, and nobody says what passes.
    """
    limit = scale.pass_at if pass_at is None else pass_at
    if limit is None and isfinite(scale.high) and isfinite(scale.low):
        limit = (scale.low + scale.high) / 2
    if limit is None:
        return None
    return score <= limit if scale.is_lower_better else score >= limit


def find_points(scale: ScoreScale, score: float, *, has_passed: bool) -> float:
    """Return a score as points from 0 to 1, of which more are better; on a scale without an end only passing counts."""
    if not (isfinite(scale.low) and isfinite(scale.high)) or scale.high <= scale.low:
        return float(has_passed)
    points = (score - scale.low) / (scale.high - scale.low)
    return 1 - points if scale.is_lower_better else points


def check_judge(table: Mapping[str, Any], where: str) -> list[str]:
    """Say what is wrong with the kind and the settings of a judge, each with its path; see `CheckJudge`."""
    try:
        settings = read_judge(table, where)
    except JudgeInvalid as error:
        return [f"{each.where}: {_add_keys(table, each)}" for each in error.problems]
    if isinstance(settings, RubricSettings) and settings.pairwise:
        return [
            f"{where}.pairwise: it compares two answers, and a case has one: remove it, and write [[judges.anchors]]"
        ]
    return []


def _add_keys(table: Mapping[str, Any], problem: JudgeProblem) -> str:
    """Return what is wrong; for an unknown key with the nearest of all keys that a judge has here."""
    kind = KINDS.get(str(table.get("kind")))
    if (
        kind is None
        or not problem.message.startswith("unknown key")
        or (key := problem.where.rpartition(".")[2]) not in table
    ):
        return problem.message
    keys = [*JUDGE_KEYS, *(field.name for field in structs.fields(kind))]
    there = f"; there are: {', '.join(keys)}"
    return f"unknown key{did_you_mean(key, keys, otherwise=there, before='; ')}"


def build_judge(settings: EvalJudge, ask: Ask) -> Judge:
    """Make a judge. Raise `ConfigError` if a package does not offer its function, or it cannot be loaded."""
    judge = create_judge(settings.name, read_judge({"kind": settings.kind, **settings.settings}, settings.name), ask)
    assert not isinstance(judge, PairRubricJudge)  # `check_judge` refuses them
    return cast("Judge", judge)
