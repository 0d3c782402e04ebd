"""The trial of offered weights: what evaluations say of their model, for the feature that lets sessions use them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import DecodeError, json

from bubbot.errors import TapeError, ValueInvalid
from bubbot.features.judge.evals.compare import compare_sides
from bubbot.features.judge.evals.facts import EVALS_TAPE, read_results
from bubbot.features.judge.evals.report import EvalReport, KnownEvaluation, build_report, list_evaluations, list_facts
from bubbot.features.judge.evals.spec import EvalSpec
from bubbot.features.learn.weights.trial import Trial
from bubbot.tape.service import TapeService


async def find_trial(
    open_tape: Callable[[str], TapeService], evaluation: str, model: str, in_use: str, since: str
) -> Trial:
    """Find the trial of an offer; see `FindTrial`."""
    tape = open_tape(EVALS_TAPE)
    known = [
        each
        for each in await list_evaluations(tape.fetch)
        if each.started.name == evaluation and each.state == "complete"
    ]
    setups = {each.started.id: await _find_models(tape, each) for each in known}
    newest = next((each for each in known if each.began >= since and model in setups[each.started.id].values()), None)
    if newest is None:
        return Trial()
    base = next(
        (
            each
            for each in known
            if in_use in setups[each.started.id].values() and (in_use != model or each.began < since)
        ),
        None,
    )
    report, answered = await _read(tape, newest)
    trials = [
        await _judge(
            tape,
            report,
            answered.get(setup, set()),
            setup=setup,
            model=model,
            base=None if base is None else (base, _pick(setups, base, in_use, setup)),
        )
        for setup, name in setups[newest.started.id].items()
        if name == model
    ]
    return min(trials, key=lambda trial: (trial.has_passed(1.0), trial.passed / max(1, trial.results)))


async def _find_models(tape: TapeService, known: KnownEvaluation) -> dict[str, str]:
    """Return the model of each setup of an evaluation that has one; scripts answer the others."""
    try:
        spec = json.decode(await tape.get_blob(known.started.spec), type=EvalSpec)
    except (TapeError, DecodeError):  # it is gone, or of another version
        return {}
    return {name: spec.basis.get(name, {}).get("model", "") for name, setup in spec.setups.items() if not setup.script}


async def _read(tape: TapeService, known: KnownEvaluation) -> tuple[EvalReport, dict[str, set[str]]]:
    """Return the report of an evaluation, and which models answered under each setup."""
    found = await read_results(tape.fetch, known.started.id, known.entry)
    answered: dict[str, set[str]] = {}
    for fact in list_facts(known, found):
        answered.setdefault(fact.setup, set()).add(fact.model)
    return build_report(known, found), answered


def _pick(setups: dict[str, dict[str, str]], base: KnownEvaluation, in_use: str, setup: str) -> str:
    """Return the setup of the model in use: the one of the same name, else the first."""
    names = [name for name, model in setups[base.started.id].items() if model == in_use]
    return setup if setup in names else names[0]


async def _judge(
    tape: TapeService,
    report: EvalReport,
    answered: set[str],
    *,
    setup: str,
    model: str,
    base: tuple[KnownEvaluation, str] | None,
) -> Trial:
    """Judge a setup of the offered model, beside one of the model in use."""
    results = [each for each in report.results if each.setup == setup]
    passed = sum(each.has_passed is True for each in results)
    regression, is_compared = "", False
    if base is not None:
        known, other = base
        before, _ = await _read(tape, known)
        try:
            found = compare_sides((before, other), (report, setup))
        except ValueInvalid:  # no case in common
            pass
        else:
            is_compared = True
            regression = f"{known.started.id}:{other}" if found.verdict == "regression" else ""
    stand_in = next((name for name in sorted(answered) if name and name != model), "")
    return Trial(report.id, setup, passed, len(results), regression, is_compared, stand_in)
