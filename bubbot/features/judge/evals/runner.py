"""Runs evaluations: setups, cases and repeats, several at once, each result a fact of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from msgspec.structs import replace

from bubbot import __version__, plugins
from bubbot.concurrency import task_group
from bubbot.errors import (
    BubbotError,
    ConfigError,
    EntryNotFound,
    FeatureFailed,
    LeaseLost,
    ModelCallDenied,
    ModelError,
    StoreError,
    ToolFailed,
)
from bubbot.feature import Kernel
from bubbot.features.judge.evals.facts import (
    ENDED,
    EVALS_TAPE,
    MAX_QUESTION_CHARS,
    STARTED,
    EvalCaseEnded,
    EvalEnded,
    EvalStarted,
    JudgeScore,
    Outcome,
    case_key,
    ended_key,
    read_results,
    started_key,
)
from bubbot.features.judge.evals.judging import judge_answer
from bubbot.features.judge.evals.spec import EvalCase, EvalJudge, EvalSetup, EvalSpec, SpecInvalid
from bubbot.features.judge.evals.talks import (
    PURPOSE,
    CaseGone,
    CasePeople,
    CaseTalk,
    PlannedCase,
    open_talk,
    plan_cases,
)
from bubbot.features.judge.judges.judging import JudgedCall, JudgedRun, find_citations
from bubbot.features.judge.judges.rubric import Ask
from bubbot.formatting import clean, did_you_mean, show_value
from bubbot.middleware import CallNext, ModelCall, ToolInvocation
from bubbot.ports.agents import NO_MEMORY, Agent
from bubbot.ports.inbox import INBOX_PREFIX
from bubbot.ports.model import Model, ModelOptions, ModelReply, ToolCall
from bubbot.ports.people import Account, AsksConsent
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import ComposedRequest
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.runtime.effects import runs_again
from bubbot.runtime.rerun import RecordedResults, only_reads_here
from bubbot.runtime.tool_list import unwrap_call
from bubbot.runtime.turns import StepRecord, TurnRecord, discarded_steps
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.fork import ForkedTape
from bubbot.tape.provenance import Source
from bubbot.tape.query import IdRanges, Span, TapeQuery, cut_spans, union
from bubbot.tape.withheld import reading_for_model
from bubbot.toml_tables import Problem
from bubbot.tool import ToolOutput

log = logging.getLogger(__name__)

NOT_RUN = "not run: in this evaluation nothing is done, and there is no result for this call"
"""The answer to a call that has no result."""
REFUSED = "refused: in this evaluation no tool may run"
RESERVED_OUTPUT_TOKENS = 4_096
"""Tokens that are reserved for what a model writes, if its requests set no limit."""
ERROR_PREFIX = "error:"
"""The beginning of a made result that is a failed call."""
MAX_ANSWER_CHARS = 64_000
"""Characters of an answer that judges read, and that its result has."""
MAX_FAILURE_CHARS = 1_000


CaseJob: TypeAlias = tuple[str, PlannedCase, int]
"""A case under a setup, and which time it is."""


class EvalBudgetExceeded(ModelError):
    """An evaluation has used its tokens."""

    kind = "evaluation_budget"

    def __init__(self, left: int, needed: int) -> None:
        super().__init__(f"{max(left, 0)} tokens are left for this evaluation, and the next call needs {needed}")


@dataclass
class Evaluation:
    """An evaluation under way.

    Attributes:
        id: its id.
        first: the entry of its beginning.
        done: the keys of the results that are stored.
        tokens: what its models read and wrote so far.
        reserved: tokens of calls under way, and of what they may write.
        settled: set whenever a call is over.
        people: whose words each case has, but those of who asks; None if it is not known.
    """

    id: str
    spec: EvalSpec
    first: int
    done: set[str]
    tokens: int = 0
    reserved: int = 0
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    people: dict[str, frozenset[Account] | None] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    outcome: Outcome = "complete"
    problem: str = ""

    def stop(self, outcome: Outcome, problem: str) -> None:
        """Begin no further case."""
        if self.outcome == "complete":
            self.outcome, self.problem = outcome, problem


@dataclass
class CaseAttempt:
    """A case that runs; metadata of its turns.

    Attributes:
        results: results of tools that the case has, by name.
        record: those of the turn that is run again.
        script: answers instead of the model; None for none.
        messages: those of the newest request.
        seconds: how long the answer took.
        judge_tokens: what its judges used.
        stopped: what ended a judge, and ends the evaluation.
        limit: of the time of the answer.
    """

    evaluation: Evaluation
    setup: EvalSetup
    results: Mapping[str, Sequence[str]]
    script: Model | None = None
    record: RecordedResults | None = None
    taken: Counter[str] = field(default_factory=Counter)
    not_run: int = 0
    messages: Sequence[Mapping[str, Any]] = ()
    seconds: float = 0.0
    is_judging: bool = False
    judge_tokens: int = 0
    stopped: BubbotError | None = None
    limit: asyncio.Timeout | None = None

    def find_result(self, call: ToolInvocation) -> str | None:
        """Return the result of a call; None if it has none."""
        name = call.tool.name
        if pattern := next(
            (each for each in (name, *self.results) if each in self.results and fnmatchcase(name, each)), ""
        ):
            results = self.results[pattern]
            self.taken[pattern] += 1
            return results[min(self.taken[pattern], len(results)) - 1]
        if self.record is None or call.call is None:
            return None
        return self.record.find(ToolCall(call.call.id, call.tool.name, call.call.arguments))


class EvalRunner:
    """Runs evaluations of a bot."""

    def __init__(
        self,
        kernel: Kernel,
        consents: AsksConsent,
        *,
        compose: Callable[[Turn], Awaitable[ComposedRequest]],
        list_memories: Callable[[], Sequence[str]],
        locks: MutableMapping[str, asyncio.Lock],
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """Build it.

        Args:
            kernel: opens talks that are thrown away.
            consents: knows who allows that models are compared with their words.
            compose: builds the next request of a turn. Raises `ModelError` if its model cannot be asked.
            list_memories: returns the names of the memory views.
            locks: of the evaluations that run, by what is evaluated; they outlast a reload.
            elapsed: a monotonic clock in seconds.
        """
        self._kernel = kernel
        self._consents = consents
        self._compose = compose
        self._list_memories = list_memories
        self._locks = locks
        self._elapsed = elapsed
        self._tape = kernel.open_tape(EVALS_TAPE)

    async def run(self, turn: Turn, spec: EvalSpec) -> EvalEnded:
        """Run what an evaluation lacks. One of the same digest that was cut off or denied goes on; who asks for one that runs
        waits for its end.

        Every result is durable as soon as it is complete.

        Raises:
            SpecInvalid: a model, a strategy, a memory view or a script cannot be used.
            EntryNotFound: a chat is unknown.
        """
        spec = replace(spec, basis=await self._describe_setups(turn, spec))
        scripts = _load_scripts(spec, self._kernel)
        planned = await plan_cases(self._kernel, spec.cases)
        lock = self._locks.setdefault(spec.digest, asyncio.Lock())
        async with lock:
            evaluation = await self._begin(turn, spec, planned)
            if isinstance(evaluation, EvalEnded):
                return evaluation
            jobs = self._list_jobs(evaluation, await self._choose_allowed(turn, evaluation, planned))
            async with task_group() as group:
                for _ in range(spec.parallel):
                    group.create_task(self._work(turn, evaluation, jobs, scripts))
            return await self._end(
                turn,
                EvalEnded(
                    evaluation.id,
                    "",
                    "",
                    evaluation.outcome,
                    evaluation.problem,
                    tuple(evaluation.left_out),
                    tuple(dict.fromkeys(evaluation.gone)),
                ),
            )

    async def _end(self, turn: Turn, ended: EvalEnded) -> EvalEnded:
        """Store the end of an evaluation as that of this turn."""
        ended = replace(ended, turn=turn.id, request=turn.inbounds[0].inbound.external_id)
        await self._tape.append([ended.to_entry(key=ended_key(turn.id))])
        return ended

    async def _describe_setups(self, turn: Turn, spec: EvalSpec) -> dict[str, Mapping[str, str]]:
        """Return what each setup rests on: its model, its strategy, and a digest of its prompt, tools and parameters.

        Raises:
            SpecInvalid: something that a setup or a judge names is unknown.
        """
        memories, strategies = (NO_MEMORY, *self._list_memories()), self._kernel.strategies
        problems, basis = list[Problem](), dict[str, Mapping[str, str]]()
        for name, setup in spec.setups.items():
            path = f"setups.{name}"
            if setup.strategy and not strategies.has(setup.strategy):
                hint = did_you_mean(setup.strategy, strategies.selectors, before="; ")
                problems.append(
                    Problem(f"{path}.strategy", f"there is no context strategy {show_value(setup.strategy)}{hint}")
                )
            if setup.memory and setup.memory not in memories:
                there = f"; there are: {', '.join(memories)}"
                hint = did_you_mean(setup.memory, memories, otherwise=there, before="; ")
                problems.append(Problem(f"{path}.memory", f"there is no memory view {show_value(setup.memory)}{hint}"))
            try:
                basis[name] = await self._describe_setup(turn, setup)
            except ModelError as error:
                problems.append(Problem(f"{path}.model", str(error)))
        for place, judge in enumerate(spec.judges):
            if model := judge.settings.get("model"):
                try:
                    await self._describe_setup(turn, EvalSetup(model=str(model)))
                except ModelError as error:
                    problems.append(Problem(f"judges[{place}].model", str(error)))
        if problems:
            raise SpecInvalid(problems)
        return basis

    async def _describe_setup(self, turn: Turn, setup: EvalSetup) -> Mapping[str, str]:
        """Build a request as a setup would, on a day and with a message that are always the same. Raise `ModelError`."""
        made = PlannedCase("", EvalCase(message="-"))
        talk = await open_talk(turn, self._kernel, made, replace(setup, memory=NO_MEMORY), ())
        talk.turn.now = lambda: datetime(2000, 1, 1, tzinfo=UTC)
        try:
            with reading_for_model():
                composed = await self._compose(talk.turn)
        finally:
            await talk.discard()
        digest = dataclasses.replace(composed.request, messages=(), texts=()).digest()
        return {"model": composed.model.name, "strategy": str(composed.view["selector"]), "request": digest}

    async def _begin(self, turn: Turn, spec: EvalSpec, planned: Sequence[PlannedCase]) -> Evaluation | EvalEnded:
        """Begin an evaluation, or go on with one; return its end if it ended since the message of the turn came.

        Raises:
            SpecInvalid: an earlier attempt of this very message ran another evaluation.
        """
        inbound = turn.inbounds[0].inbound
        inbox = self._kernel.open_tape(f"{INBOX_PREFIX}{inbound.channel}").shard(inbound.session)
        came = (await inbox.entry(turn.inbounds[0].id)).date
        names = (STARTED, ENDED)
        facts = (await self._tape.fetch([TapeQuery(EVALS_TAPE, kinds=(Kind.EVENT,), names=names)]))[0]
        ends = {end.id: (entry.date, end) for entry in facts if entry.name == ENDED if (end := EvalEnded.try_of(entry))}
        for date, end in ends.values():
            if date > came and end.request == inbound.external_id and end.outcome != "denied":
                return end
        for entry in reversed(facts):
            started = EvalStarted.try_of(entry) if entry.name == STARTED else None
            if started is None:
                continue
            date, known = ends.get(started.id, ("", None))
            if started.spec == spec.digest and started.version == __version__:
                if known is None or known.outcome == "denied":
                    return await self._resume(started.id, spec, entry.id)
                if date > came:
                    return await self._end(turn, known)
                break
            if known is None and entry.date > came and started.request == inbound.external_id and runs_again(turn):
                message = "bubbot or what is evaluated changed since it was cut off: type the command again"
                raise SpecInvalid([Problem(spec.name, message)])
        name = self._kernel.new_id()[:12]
        digest = await self._tape.put_blob(spec.to_json().encode())
        started = EvalStarted(
            id=name,
            name=spec.name,
            title=spec.title or spec.name,
            spec=digest,
            version=__version__,
            setups=tuple(spec.setups),
            planned=len(planned) * len(spec.setups) * spec.repeats,
            request=inbound.external_id,
        )
        (entry,) = await self._tape.append([started.to_entry(key=started_key(name))])
        return Evaluation(name, spec, entry.id, set())

    async def _resume(self, evaluation: str, spec: EvalSpec, first: int) -> Evaluation:
        found = await read_results(self._tape.fetch, evaluation, first)
        done = {entry.key for entry, _ in found if entry.key}
        return Evaluation(evaluation, spec, first, done, sum(fact.tokens for _, fact in found if fact))

    async def _choose_allowed(
        self, turn: Turn, evaluation: Evaluation, planned: Sequence[PlannedCase]
    ) -> list[PlannedCase]:
        """List the cases whose people allow it. Who asks allows it for their own words."""
        people, allowed = CasePeople(self._kernel), list[PlannedCase]()
        for each in planned:
            found = await people.find(each)
            evaluation.people[each.name] = None if found is None else frozenset(found - {turn.typing_account})
            if await self._is_allowed(evaluation, each):
                allowed.append(each)
        return allowed

    async def _is_allowed(self, evaluation: Evaluation, planned: PlannedCase) -> bool:
        """Return true if everybody whose words a case has allows it now; else it is left out."""
        people = evaluation.people[planned.name]
        if people is not None and all([await self._consents.has_consented(each, "evaluation") for each in people]):
            return True
        if planned.name not in evaluation.left_out:
            evaluation.left_out.append(planned.name)
        return False

    def _list_jobs(self, evaluation: Evaluation, planned: Sequence[PlannedCase]) -> Iterator[list[CaseJob]]:
        """Yield what has no result yet: all setups of a case, then the next case, so that a part can be compared.

        What is in one list runs one after the other: judges that compare need the answer of the first setup.
        """
        is_compared = any(judge.compares for judge in evaluation.spec.judges)
        for repeat in range(1, evaluation.spec.repeats + 1):
            for each in planned:
                jobs = [
                    (setup, each, repeat)
                    for setup in evaluation.spec.setups
                    if case_key(evaluation.id, setup, each.name, repeat) not in evaluation.done
                ]
                yield from [jobs] if is_compared else ([job] for job in jobs)

    async def _work(
        self,
        turn: Turn,
        evaluation: Evaluation,
        jobs: Iterator[list[CaseJob]],
        scripts: Mapping[str, Model],
    ) -> None:
        for setup, planned, repeat in itertools.chain.from_iterable(jobs):
            if evaluation.outcome != "complete":
                return
            if not await self._is_allowed(evaluation, planned):  # a withdrawal holds at once
                continue
            try:
                fact, usage, entries = await self._run_case(turn, evaluation, (setup, planned, repeat), scripts)
            except EvalBudgetExceeded as error:
                evaluation.stop("budget", str(error))
                return
            except ModelCallDenied as error:
                evaluation.stop("denied", turn.texts.english.format_commands(error.notice) or str(error))
                return
            except CaseGone as error:
                log.info("a case is gone", extra={"action": "eval.gone"})
                log.debug("case gone: %s", error, extra={"action": "eval.gone"})
                evaluation.gone.append(planned.name)
                continue
            await turn.tape.append(usage)
            if entries and not await self._is_there(planned, entries):  # what it quotes must not come back here
                evaluation.gone.append(planned.name)
                continue
            key = case_key(evaluation.id, setup, planned.name, repeat)
            await self._tape.append([fact.to_entry(key=key)], if_absent=True)

    async def _is_there(self, planned: PlannedCase, entries: Sequence[TapeEntry]) -> bool:
        """Return true if the turn that was run again is as it was: what it quotes may have been erased meanwhile."""
        try:
            tape = await self._kernel.open_copy(planned.case.chat)
        except EntryNotFound:
            return False
        found = (await tape.fetch([TapeQuery(tape.name, IdRanges((planned.entries,)))]))[0]
        return all(entry in found for entry in entries)

    async def _run_case(
        self,
        host: Turn,
        evaluation: Evaluation,
        job: CaseJob,
        scripts: Mapping[str, Model],
    ) -> tuple[EvalCaseEnded, list[TapeEntry], Sequence[TapeEntry]]:
        """Run a case and judge its answer; return the result, the steps that say what it cost, and the entries that it quotes.

        Raises:
            EvalBudgetExceeded: the evaluation has no tokens left.
            ModelCallDenied: the bot may not ask a model now.
            CaseGone: it cannot be run.
        """
        (setup, planned, repeat), spec = job, evaluation.spec
        options, case = spec.setups[setup], planned.case
        results = {name: (each,) if isinstance(each, str) else each for name, each in case.results.items()}
        attempt = CaseAttempt(evaluation, options, results, scripts.get(options.script))
        talk = await open_talk(host, self._kernel, planned, options, [attempt])
        attempt.record = talk.record
        started, answer, failure = self._elapsed(), "", ""
        try:
            async with asyncio.timeout(spec.timeout) as limit:
                attempt.limit = limit
                answer = clean((await talk.turn.runner.run_model(talk.turn)).text)
        except TimeoutError:
            if not limit.expired():
                raise
            failure = f"no answer within {spec.timeout} seconds"
        except (EvalBudgetExceeded, ModelCallDenied):
            await host.tape.append(discarded_steps(talk.turn.tape.delta, PURPOSE))  # what it cost stays a fact
            raise
        except (StoreError, LeaseLost):
            raise
        except (BubbotError, FeatureFailed) as error:
            failure = host.texts.english.reason(error)
        attempt.seconds = self._elapsed() - started
        delta = talk.turn.tape.delta
        steps = TurnRecord.of(delta).steps
        cut, answer = max(len(answer) - MAX_ANSWER_CHARS, 0), answer[:MAX_ANSWER_CHARS]
        run = await self._describe_run(planned, talk, attempt, answer, steps)
        every: list[JudgeScore] = []
        judging: list[TapeEntry] = []
        if not failure:
            rival = await self._find_rival(evaluation, job, run)
            judges = [each for each in spec.judges_of(planned.name) if rival is not None or not each.compares]
            every, judging = await self._judge(host, talk, attempt, judges, run, rival=rival)
        compared = {each.name for each in spec.judges_of(planned.name) if each.compares}
        scores = [each for each in every if each.name not in compared]
        usage = [*discarded_steps(delta, PURPOSE), *discarded_steps(judging, PURPOSE)]
        costs = [StepRecord(entry, entry.data, None, ()).cost for entry in usage]
        known = [cost for cost in costs if cost is not None]
        points = [(each.points, each.weight) for each in scores if each.points is not None]
        verdicts = [each.has_passed for each in scores if each.has_passed is not None]
        is_whole = bool(verdicts) and not any(each.failure for each in scores)
        fact = EvalCaseEnded(
            eval=evaluation.id,
            setup=setup,
            case=planned.name,
            repeat=repeat,
            chat=case.chat,
            session=talk.session,
            tape=talk.tape,
            rests_on=_find_origins(talk, planned, steps),
            question=clean(talk.question)[:MAX_QUESTION_CHARS],
            answer=answer,
            cut=cut,
            preferences=tuple(each for each in every if each.name in compared),
            calls=tuple(call.tool for call in run.calls),
            not_run=attempt.not_run,
            scores=tuple(scores),
            score=0.0
            if failure
            else sum(each * weight for each, weight in points) / sum(weight for _, weight in points)
            if points and not any(each.failure for each in scores)
            else None,
            has_passed=False if failure else all(verdicts) if is_whole else None,
            model=steps[-1].model if steps else "",
            input_tokens=sum(step.input_tokens for step in steps),
            output_tokens=sum(step.output_tokens for step in steps),
            judge_tokens=attempt.judge_tokens,
            cost=sum(known) if known and len(known) == len(costs) else None,
            seconds=round(attempt.seconds, 3),
            failure=clean(failure)[:MAX_FAILURE_CHARS],
        )
        host.tape.raise_source(talk.turn.tape.source)
        await talk.discard()
        return fact, usage, talk.entries

    async def _find_rival(self, evaluation: Evaluation, job: CaseJob, run: JudgedRun) -> JudgedRun | None:
        """Return the run of the first setup with which this one is compared; None for that one, and without its answer."""
        setup, planned, repeat = job
        first = next(iter(evaluation.spec.setups))
        if setup == first or not any(judge.compares for judge in evaluation.spec.judges_of(planned.name)):
            return None
        key = case_key(evaluation.id, first, planned.name, repeat)
        found = (await self._tape.fetch([TapeQuery(EVALS_TAPE, keys=(key,))]))[0]
        fact = EvalCaseEnded.try_of(found[0]) if found else None
        if fact is None or fact.failure:
            return None
        return replace(run, answer=fact.answer, calls=tuple(JudgedCall(tool, {}) for tool in fact.calls))

    async def _describe_run(
        self, planned: PlannedCase, talk: CaseTalk, attempt: CaseAttempt, answer: str, steps: Sequence[StepRecord]
    ) -> JudgedRun:
        """Collect what judges see of a run."""
        head = await talk.turn.tape.head()
        known = [cost for step in steps if (cost := step.cost) is not None]
        return JudgedRun(
            answer=answer,
            expected=planned.case.expect or None,
            calls=tuple(
                JudgedCall(
                    plain.name.replace("_", ".", 1),
                    _read_arguments(plain.arguments),
                    str((call.result or {}).get("content", "")),
                    call.is_error,
                )
                for step in steps
                for call in step.calls
                for plain in (unwrap_call(ToolCall(call.id, call.name, call.arguments)),)
            ),
            existing=frozenset(entry for entry in find_citations(answer) if 1 <= entry <= head),
            messages=tuple(attempt.messages),
            tokens=sum(step.input_tokens + step.output_tokens for step in steps),
            usd=sum(known) if known and len(known) == len(steps) else None,
            seconds=attempt.seconds,
        )

    async def _judge(
        self,
        host: Turn,
        talk: CaseTalk,
        attempt: CaseAttempt,
        judges: Sequence[EvalJudge],
        run: JudgedRun,
        *,
        rival: JudgedRun | None,
    ) -> tuple[list[JudgeScore], list[TapeEntry]]:
        """Let the judges judge; return what they say, and the steps of those that are models."""
        attempt.is_judging = True
        forks: list[ForkedTape] = []
        try:
            # Of the first setup's calls only the names are known: a judge that compares sees no more of either.
            bare = replace(run, calls=tuple(JudgedCall(call.tool, {}) for call in run.calls))
            scores = []
            for each in judges:
                ask = self._make_ask(host, talk, attempt, each, forks)
                compared = (bare, ask, rival) if each.compares else (run, ask)
                scores.append(await judge_answer(each, *compared))
            if attempt.stopped is not None:  # the judge made a failure of it
                raise attempt.stopped
            return scores, [entry for fork in forks for entry in fork.delta]
        finally:
            for fork in forks:
                host.tape.raise_source(fork.source)
                await fork.discard()

    def _make_ask(
        self, host: Turn, talk: CaseTalk, attempt: CaseAttempt, judge: EvalJudge, forks: list[ForkedTape]
    ) -> Ask:
        """Build the function with which a judge asks a model, without tools."""

        async def ask(system: str, messages: Sequence[Mapping[str, Any]]) -> str:
            fork = await talk.outer.fork(stamp={"origin": PURPOSE})
            forks.append(fork)
            agent = Agent(model=str(judge.settings.get("model", "")), memory=NO_MEMORY)
            turn = host.derive(
                fork, origin=PURPOSE, message_ids=(), allowed_tools=frozenset(), metadata=[attempt], agent=agent
            )
            turn.inbounds = talk.turn.inbounds
            try:
                return (await turn.runner.ask(turn, system, [dict(each) for each in messages], purpose="judge")).text
            except (StoreError, LeaseLost, EvalBudgetExceeded, ModelCallDenied) as error:
                attempt.stopped = error
                raise

        return ask

    # Middleware

    async def around_model(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        """Keep the calls of an evaluation within its tokens, and let a script answer instead of the model.

        Raises:
            EvalBudgetExceeded: the call needs more tokens than are left.
        """
        attempt = call.turn.find_metadata(CaseAttempt)
        if attempt is None:
            return await call_next(call)
        evaluation = attempt.evaluation
        needed = call.count_input()
        reserved = needed + int(call.request.parameters.get("max_tokens") or RESERVED_OUTPUT_TOKENS)
        await self._reserve(attempt, reserved)
        if not attempt.is_judging:
            system = {"role": "system", "content": call.request.system}
            attempt.messages = (system, *call.request.messages)
            if attempt.script is not None:
                call.model = attempt.script
        try:
            reply = await call_next(call)
        finally:
            evaluation.reserved -= reserved
            evaluation.settled.set()
        used = (reply.usage.input_tokens or needed) + (reply.usage.output_tokens or estimate_tokens(reply.text))
        evaluation.tokens += used
        attempt.judge_tokens += used if attempt.is_judging else 0
        return reply

    async def _reserve(self, attempt: CaseAttempt, tokens: int) -> None:
        """Reserve tokens for a call; wait for calls under way as long as what they leave may be enough.

        Raises:
            EvalBudgetExceeded: it is not.
        """
        evaluation, limit, loop = attempt.evaluation, attempt.limit, asyncio.get_running_loop()
        deadline, began = limit.when() if limit is not None and not attempt.is_judging else None, loop.time()
        while tokens > (left := evaluation.spec.tokens - evaluation.tokens) - evaluation.reserved:
            if not evaluation.reserved:
                raise EvalBudgetExceeded(left, tokens)
            if limit is not None and deadline is not None:  # the wait is none of the answer's
                limit.reschedule(None)
            evaluation.settled.clear()
            await evaluation.settled.wait()
        if limit is not None and deadline is not None:
            limit.reschedule(deadline + loop.time() - began)
        evaluation.reserved += tokens

    async def around_tool(self, call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
        """Answer the calls of a case: nothing is done.

        Raises:
            ToolFailed: the call has no result, or one that is a failure.
        """
        attempt = call.turn.find_metadata(CaseAttempt)
        if attempt is None:
            return await call_next(call)
        if attempt.setup.tools == "refused":
            attempt.not_run += 1
            raise ToolFailed(REFUSED)
        if (result := attempt.find_result(call)) is not None:
            if call.tool.effect.source is Source.WORLD:
                call.turn.tape.raise_source(Source.WORLD)
            if result.startswith(ERROR_PREFIX):
                raise ToolFailed(result.removeprefix(ERROR_PREFIX).strip())
            return result
        if attempt.setup.tools == "live" and only_reads_here(call):
            return await call_next(call)
        attempt.not_run += 1
        raise ToolFailed(NOT_RUN)


def _read_arguments(text: str) -> Any:
    """Return the arguments of a call as JSON; the text as it is if it is none."""
    try:
        return json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text


def _find_origins(talk: CaseTalk, planned: PlannedCase, steps: Sequence[StepRecord]) -> list[Any]:
    """Return what the answer rests on: the entries of the turn, and what its models were shown, by tape."""
    if not talk.tape:
        return []
    base = talk.outer.base
    spans: dict[str, list[Span]] = {talk.tape: [planned.entries]}
    for step in steps:
        spans[talk.tape] += cut_spans(step.shown, base)
        for tape, shown in step.shown_elsewhere:
            spans.setdefault(tape, []).extend(shown)
    return [[tape, [list(span) for span in union(found)]] for tape, found in spans.items()]


def _load_scripts(spec: EvalSpec, kernel: Kernel) -> dict[str, Model]:
    """Make the models that answer from scripts. Raise `SpecInvalid` for a script that cannot be used."""
    models: dict[str, Model] = {}
    for name, text in spec.scripts.items():
        factory = plugins.load("bubbot.models", "scripted")
        try:
            models[name] = factory(ModelOptions("scripted", kernel.home, {"script": json.loads(text)}))
        except (ConfigError, ValueError, OverflowError, RecursionError) as error:
            reason = "it is nested too deep: make it flatter" if isinstance(error, RecursionError) else str(error)
            raise SpecInvalid([Problem(name, f"the script cannot be used ({reason.rstrip('.')})")]) from error
    return models
