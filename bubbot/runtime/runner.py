"""The model runner: context, model, tools, results, until there is an answer."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any

from msgspec import Struct, structs

from bubbot.errors import (
    BubbotError,
    EntryNotFound,
    FeatureFailed,
    ModelCallDenied,
    ModelEmptyAnswer,
    ModelError,
    ModelOverflow,
    ModelRefused,
    ModelStepLimit,
    ModelUnavailable,
    TapeCorrupt,
)
from bubbot.formatting import clean, clean_json
from bubbot.middleware import AroundModel, BeforeStep, ModelCall, wrap
from bubbot.ports.channel import (
    ForeignWordsShown,
    PreviewCallback,
    StepFinished,
    TextDiscarded,
    TextStreamed,
    ignore_preview,
)
from bubbot.ports.model import (
    FailedAttempt,
    Lesson,
    Model,
    ModelReply,
    ModelRequest,
    RequestFit,
    TextDelta,
    ToolCall,
    ToolSpec,
    ToolSpecs,
    Usage,
)
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.answer import PreviewText, label_answer, route_assistant
from bubbot.runtime.calls import RepeatedCalls, ToolCallRunner
from bubbot.runtime.compose import ComposedRequest, RequestComposer, estimate_fixed_tokens, request_token_limit
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.runtime.effects import runs_again
from bubbot.runtime.fitting import COUNT_TIMEOUT, RequestFitter, check_count, count_tokens
from bubbot.runtime.lessons import ModelLessons
from bubbot.runtime.preparation import TurnPreparation
from bubbot.runtime.quiet import QuietText
from bubbot.runtime.shown import ForeignWords
from bubbot.runtime.thoughts import lacks_opening
from bubbot.tape import entry as make
from bubbot.tape.anchor import OVERFLOW_HANDOFF
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import THOUGHTS, JsonObject, Kind, TapeEntry, canonical, text_field
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.handle import TapeHandle, spans_of
from bubbot.tape.provenance import Source, source_of
from bubbot.tape.query import TapeQuery, Window
from bubbot.tape.withheld import reading_for_model

log = logging.getLogger(__name__)


class RunnerSettings(Struct, frozen=True):
    """The limits of a turn.

    Attributes:
        max_steps: the most model calls in one turn.
        timeout: seconds for one full model call.
    """

    max_steps: int = 20
    timeout: float = 600.0


MAX_LESSONS = 4
"""Refusals of one call to learn from; each repeats the call once."""
LEARNED_SENTENCES: Mapping[str, str] = MappingProxyType(
    {"no_tools@1": "model_learned_no_tools", "no_images@1": "model_learned_no_images"}
)
"""The sentences about a lesson, by its rule; other rules share one."""
MAX_THOUGHTS_READ = 16
"""Newest messages and calls of a tape to search for a thought that began without a mark."""
CUT_SENTENCES: Mapping[str, str] = MappingProxyType(
    {"length": "answer_cut", "content_filter": "answer_filtered", "unknown": "answer_unfinished"}
)
"""The sentences below an answer that may be unfinished, by its finish reason."""
MAX_REMEMBERED_TAPES = 1000
"""Tapes whose stored prompt and tools a process remembers; it looks for those of others again."""


class _StoredDigests(Struct, frozen=True):
    """Digests of the system prompt and the tool schemas that the tape already stores."""

    system: str = ""
    tools: str = ""


class ModelRunner:
    """Runs the model steps of a turn and their tool calls until there is an answer. It is the `TurnRunner` of turns."""

    def __init__(
        self,
        composer: RequestComposer,
        calls: ToolCallRunner,
        settings: RunnerSettings,
        elapsed: Callable[[], float],
        on_preview: PreviewCallback = ignore_preview,
        *,
        lessons: ModelLessons,
        list_around_model: Callable[[], Sequence[AroundModel]] = tuple,
        before_step: Sequence[BeforeStep] = (),
    ) -> None:
        """Set the parts of a step.

        Args:
            elapsed: a monotonic clock in seconds.
            on_preview: gets the text as it streams.
            lessons: lessons from refusals.
            list_around_model: returns the middleware of the next call of a model.
            before_step: called before the request of each step is built, in order.
        """
        self._list_around_model = list_around_model
        self._before_step = before_step
        self._lessons = lessons
        self._composer = composer
        self._fitter = RequestFitter(composer, settings.timeout)
        self._calls = calls
        self._settings = settings
        self._elapsed = elapsed
        self._show = on_preview
        self._stored: OrderedDict[str, _StoredDigests] = OrderedDict()
        """The prompt and the tools that this process has seen stored, by tape."""
        self._unopened: set[str] = set()
        """The models that have begun a thought without a mark: their text is shown once it is certain to be none."""

    async def run_model(self, turn: Turn) -> TurnOutcome:
        """Run model calls and tools until there is an answer.

        Raises:
            ModelError: a second overflow, the step limit, repeated or refused calls, or a failed model.
        """
        repeats, digests, overflowed = RepeatedCalls(), await self._find_stored(turn), False
        max_steps = min(turn.max_steps or self._settings.max_steps, self._settings.max_steps)
        if turn.stored_calls:  # the model that wrote them had seen the window
            with reading_for_model():
                self._note_shown(turn, await self._composer.compose(turn))
        if turn.stored_calls or runs_again(turn):
            await self._run_stored(turn, repeats)
        for step in range(1, max_steps + 1):
            if step > 1:
                await turn.join(turn)
            with reading_for_model():
                for prepare_step in self._before_step:
                    await prepare_step(turn)
                await self._composer.prepare(turn)
                fitted = await self._fitter.fit(turn, is_last=overflowed)
            composed = fitted.composed
            self._note_shown(turn, composed)
            digests = await self._store_prompt(turn, composed, digests)
            facts = self._request_facts(composed, digests, step, turn.tape.name) | fitted.count_facts()
            started = self._elapsed()
            try:
                fitted.check()
                call = ModelCall(turn, composed.model, composed.request, fitted.count_input, step=facts)
                quiet = QuietText(turn.shown.stands) if turn.shown.world else None
                reply = await self._call_model(call, facts, self._text_viewer(turn, quiet))
            except asyncio.CancelledError:
                facts |= {"elapsed_ms": self._elapsed_ms(started), "status": "stopped"}
                await turn.tape.append([make.event(STEP_EVENT, facts)])
                raise
            except (ModelError, FeatureFailed) as error:
                facts |= {"elapsed_ms": self._elapsed_ms(started), "error": clean(str(error))}
                can_retry = isinstance(error, ModelOverflow) and not overflowed
                facts["status"] = "auto_handoff" if can_retry else "error"
                await turn.tape.append([make.event(STEP_EVENT, facts)])
                if not can_retry or not isinstance(error, ModelOverflow):
                    _restore_notice(turn, error)
                    raise
                overflowed = True
                await _open_overflow_window(turn, error)
                continue
            facts |= _outcome_facts(reply) | {"elapsed_ms": self._elapsed_ms(started)}
            if not turn.is_subtask:
                self._show(
                    turn.session, StepFinished(step, len(reply.calls), quiet.flush() if quiet is not None else None)
                )
            if not reply.calls:
                return await self._finish(turn, reply, facts)
            await self._use_tools(turn, reply, facts, repeats)
        raise ModelStepLimit(max_steps)

    def _note_shown(self, turn: Turn, composed: ComposedRequest) -> None:
        """Raise the turn's provenance to that of the entries which the step shows (T22)."""
        texts = composed.texts
        turn.shown.find_quote = lambda address: texts().find_quote(address)
        turn.shown.weigh_query = lambda query, earlier, receiver: texts().weigh_query(query, earlier, receiver)
        turn.shown.stands = lambda address: texts().stands(address)
        if not composed.foreign:
            return
        is_first = not turn.shown.world
        composed.foreign.note_in(turn.shown)
        turn.tape.raise_source(turn.shown.source)
        if is_first and turn.shown.world and not turn.is_subtask:
            self._show(turn.session, ForeignWordsShown())

    async def find_model(self, turn: Turn) -> Model:
        return await self._composer.find_model(turn)

    async def needs_handoff(self, turn: Turn) -> bool:
        """See `TurnRunner.needs_handoff`."""
        return await self._composer.needs_handoff(turn)

    async def hand_off(self, turn: Turn, owner: str) -> Sequence[str]:
        """See `TurnRunner.hand_off`."""
        with reading_for_model():
            return await self._composer.hand_off(turn, owner)

    async def ask(
        self,
        turn: Turn,
        system: str,
        messages: Sequence[JsonObject],
        *,
        purpose: str,
        shown: Sequence[int] = (),
        elsewhere: Sequence[tuple[str, Sequence[tuple[int, int]]]] = (),
        tools: Sequence[ToolSpec] = (),
    ) -> ModelReply:
        """Call the model once, without running a tool; see `TurnRunner.ask`."""
        model, head = await self.find_model(turn), await turn.tape.head()
        foreign = await self._composer.judge(turn.tape, shown)
        foreign.note_in(turn.shown)
        turn.tape.raise_source(turn.shown.source)
        request = ModelRequest(system, tuple(messages), tuple(tools))
        texts = system.encode(), ToolSpecs.of(request.tools).encoded, canonical({"messages": list(messages)}).encode()
        digests = [await turn.tape.put_blob(text) for text in texts]
        facts: dict[str, Any] = {
            "step": 0,
            "purpose": purpose,
            "model": model.name,
            "view": {},
            "head": head,
            "as_of": [[1, head]] if head else [],
            "shown": [*map(list, spans_of(shown)), *[[tape, [*map(list, spans)]] for tape, spans in elsewhere]],
            "system": digests[0],
            "tools": digests[1],
            "messages": digests[2],
            "parameters": {},
            "request": request.digest(),
        } | _foreign_facts(foreign)
        started = self._elapsed()
        try:
            size = model.traits.context_tokens
            if size is not None and len(request.as_bytes()) > request_token_limit(size):
                count = await count_tokens(model, request, min(self._settings.timeout, COUNT_TIMEOUT))
                check_count(model.name, count, request_token_limit(size))
            call = ModelCall(turn, model, request, lambda: _estimate_input(request), step=facts)
            reply = await self._call_model(call, facts)
        except asyncio.CancelledError:
            facts["status"] = "stopped"
            raise
        except (ModelError, FeatureFailed) as error:
            facts |= {"status": "error", "error": clean(str(error))}
            raise
        else:
            facts |= _outcome_facts(reply)
            return reply
        finally:
            facts["elapsed_ms"] = self._elapsed_ms(started)
            await turn.tape.append([make.event(STEP_EVENT, facts)])

    async def _call_model(
        self, call: ModelCall, facts: dict[str, Any], show_text: Callable[[str], None] = lambda _: None
    ) -> ModelReply:
        """Call the model within its middleware; repeat the call if a refusal teaches a rule.

        Repeat it once more if the text that people have seen was not an answer. Each try passes the middleware, which
        reserves and counts it like the first one. Store lessons that helped.

        Args:
            facts: get `attempts`, `span` and `weights` if a middleware gave them and, if any model was asked, `cost` in US dollars (None: unknown).
            show_text: gets the visible text as it streams.
        """
        attempts = AttemptRecorder(call.model.name, self._elapsed)
        lessons: list[Lesson] = []
        tried: list[Lesson] = []
        spent, refusal, has_repeated = 0.0, "", False
        try:
            while True:
                try:
                    reply = await self._try_model(call, attempts, show_text)
                    break
                except ModelRefused as error:
                    lesson = attempts.lesson
                    if lesson is None or lesson in tried or len(tried) == MAX_LESSONS:
                        raise
                    if lessons and str(error) == refusal:  # the newest lesson was a wrong guess
                        self._lessons.drop([lessons.pop()])
                    refusal = str(error)
                    tried.append(lesson)
                    lessons.append(lesson)
                    self._lessons.try_out(lesson)
                except ModelUnavailable as error:
                    # Without any text the model itself has tried again.
                    if has_repeated or not (error.is_malformed and call.streamed):
                        raise
                    has_repeated = True
                    show_text("")
                spent += call.cost or 0.0
                call = ModelCall(call.turn, call.model, call.request, call.count_input, span=call.span, step=facts)
                attempts.begin_again(call.model.name)
        except BaseException:
            self._lessons.drop(lessons)
            raise
        finally:
            facts["attempts"] = attempts.as_json()
            if call.span:
                facts["span"] = call.span
            if call.weights:
                facts["weights"] = call.weights
            if call.is_sent or tried or has_repeated:
                facts["cost"] = None if call.cost is None else call.cost + spent
        if lessons:
            await self._keep_lessons(call.turn, lessons)
        return reply

    async def _try_model(
        self, call: ModelCall, attempts: AttemptRecorder, show_text: Callable[[str], None]
    ) -> ModelReply:
        replies: list[ModelReply] = []

        async def send(call: ModelCall) -> ModelReply:
            call.is_sent = True
            replies.append(await self._stream_reply(call, attempts, show_text))
            return replies[-1]

        try:
            reply = await wrap(self._list_around_model(), send)(call)
        except asyncio.CancelledError:
            if call.is_sent:
                attempts.on_stop(call.cost)
            raise
        except (ModelError, FeatureFailed) as error:
            if replies and isinstance(error, FeatureFailed):  # middleware failed after the model had answered
                attempts.on_reply(replies[-1], call.cost)
            elif call.is_sent:
                attempts.on_error(error, call.cost)
            raise
        attempts.on_reply(reply, call.cost)
        return _clean_reply(reply)

    async def _keep_lessons(self, turn: Turn, lessons: Sequence[Lesson]) -> None:
        """Store the lessons that helped and report them once."""
        for lesson in await self._lessons.keep(lessons):
            log.info(
                "%s refused a request and took it in another form",
                lesson.model,
                extra={"action": "model.learned", "rule": lesson.rule},
            )
            sentence = LEARNED_SENTENCES.get(lesson.rule, "model_learned")
            turn.root.notices.append(turn.texts.say(sentence, model=lesson.model))

    async def _stream_reply(
        self, call: ModelCall, attempts: AttemptRecorder, show_text: Callable[[str], None]
    ) -> ModelReply:
        model, reply = call.model, None
        preview = PreviewText(holds=model.name in self._unopened)
        show = _piece_viewer(preview, show_text)
        try:
            async with asyncio.timeout(self._settings.timeout):
                async for item in model.stream(call.request):
                    match item:
                        case TextDelta():
                            if attempts.first_text is None:
                                attempts.on_text()
                            call.streamed += item.text
                            for on_text in call.on_text:
                                on_text(item)
                            visible = preview.feed(item.text)
                            if visible or preview.is_wrong:
                                show(visible)
                        case FailedAttempt():
                            attempts.on_failed_call(item)
                        case _:
                            reply = item
        except TimeoutError:
            raise ModelUnavailable(f"{model.name} gave no answer within {self._settings.timeout:g} seconds") from None
        if reply is None:
            raise ModelUnavailable(f"{model.name} ended without an answer")
        call.cost = reply.usage.cost
        if reply.text != call.streamed and reply.text.startswith(call.streamed):  # it may stream a part, or nothing
            show(preview.feed(reply.text[len(call.streamed) :]))
        if (visible := preview.flush()) or preview.is_wrong:
            show(visible)
        if preview.is_unopened:
            self._unopened.add(model.name)
        return reply

    def _text_viewer(self, turn: Turn, quiet: QuietText | None) -> Callable[[str], None]:
        """Return the function that shows the text of a turn's answer; a sub-task's text is only for its turn.

        An empty text retracts the shown one.
        """
        if turn.is_subtask:
            return lambda _: None
        on_preview, session, label = self._show, turn.session, label_answer(turn.agent, "")
        has_text = False

        def show(text: str) -> None:
            nonlocal has_text
            if not text:
                has_text = False
                if quiet is not None:
                    quiet.restart()
                on_preview(session, TextDiscarded())
                return
            piece = text if text.isascii() else clean(text)
            if label and not has_text:
                piece = f"{label}{piece}"
            has_text = True
            on_preview(session, TextStreamed(piece, quiet.feed(piece) if quiet is not None else None))

        return show

    async def _finish(self, turn: Turn, reply: ModelReply, facts: dict[str, Any]) -> TurnOutcome:
        """Record the last step; the merge makes it durable."""
        answer = route_assistant(reply.text)
        message = make.message("assistant", answer.content or " ", thoughts=answer.thoughts, model=reply.model)
        await turn.tape.append([message, make.event(STEP_EVENT, facts)])
        if answer.empty:
            raise ModelEmptyAnswer
        if answer.silent:
            return TurnOutcome("silent", "")
        text = answer.text if turn.is_subtask else label_answer(turn.agent, answer.text)
        if (sentence := CUT_SENTENCES.get(reply.finish)) is None:
            return TurnOutcome("answered", text)
        notice = turn.texts.say(sentence, reason=reply.reason or reply.finish)
        return TurnOutcome("answered", f"{text}\n\n{notice}")

    async def _use_tools(self, turn: Turn, reply: ModelReply, facts: dict[str, Any], repeats: RepeatedCalls) -> None:
        answer = route_assistant(reply.text)
        entry = make.tool_call(
            [_as_json(call) for call in reply.calls],
            text=answer.content,
            thoughts=answer.thoughts,
            outside=self._calls.list_outside(reply.calls),
            model=reply.model,
        )
        if reply.replay:
            entry = replace(entry, payload={**entry.payload, "replay": reply.replay})
        await self._run_calls(turn, reply.calls, [entry, make.event(STEP_EVENT, facts)], repeats)

    async def _run_stored(self, turn: Turn, repeats: RepeatedCalls) -> None:
        """Run the calls that wait for the turn before the model is asked; no model wrote them in this turn.

        An interrupted attempt may have left them half done (T20), or an earlier turn had to ask for approval (T21).
        """
        if calls := [*await self._calls.list_unfinished(turn), *turn.stored_calls]:
            items, outside = [_as_json(call) for call in calls], self._calls.list_outside(calls)
            chained, turn.stored_calls = [call.id for call in turn.stored_calls], ()
            entry = make.tool_call(items, outside=outside, stored=True)
            await self._run_calls(turn, calls, [entry], repeats, chained=chained)

    async def _run_calls(
        self,
        turn: Turn,
        calls: Sequence[ToolCall],
        entries: Sequence[TapeEntry],
        repeats: RepeatedCalls,
        *,
        chained: Sequence[str] = (),
    ) -> None:
        """Run the calls. Their `entries` are durable before they run, the results before the next model call."""
        await turn.tape.append(entries)
        await turn.tape.save()
        await self._calls.run(turn, calls, repeats, chained=chained)
        await turn.end_step()
        await turn.tape.save()

    async def _find_stored(self, turn: Turn) -> _StoredDigests:
        """Find the digests that the newest step of the tape cites, so that their blobs are stored.

        Once in a process, also find the tape's models that begin thoughts without a mark. An imported step does not
        count, since imports lack blobs; then look for the blobs, once in a process. Like a whole import, such a step is
        of words from outside.
        """
        name = turn.tape.name
        queries = [TapeQuery(name, kinds=(Kind.EVENT,), names=(STEP_EVENT,), newest=True, limit=1)]
        if name not in self._stored:
            said = (Kind.MESSAGE, Kind.TOOL_CALL)
            queries.append(TapeQuery(name, Window(), kinds=said, newest=True, limit=MAX_THOUGHTS_READ, missing="empty"))
        steps, *newest = await turn.tape.fetch(queries)
        for entry in chain(*newest):
            if lacks_opening(text_field(entry.payload, THOUGHTS)):
                self._unopened.add(text_field(entry.meta, "model"))
        if not steps:
            return _StoredDigests()
        cited = _StoredDigests(text_field(steps[0].data, "system"), text_field(steps[0].data, "tools"))
        if source_of(steps[0]) is not Source.WORLD or self._stored.get(name) == cited:
            return cited
        found = [digest if await _has_blob(turn.tape, digest) else "" for digest in (cited.system, cited.tools)]
        return _StoredDigests(*found)

    async def _store_prompt(self, turn: Turn, composed: ComposedRequest, stored: _StoredDigests) -> _StoredDigests:
        """Store the system prompt and the tool schemas as blobs of the tape, once per version."""
        system, tools = composed.request.system.encode(), ToolSpecs.of(composed.request.tools)
        digests = _StoredDigests(blob_digest(system), tools.digest)
        if digests.system != stored.system:
            await turn.tape.put_blob(system)
            await turn.tape.append(
                [TapeEntry(Kind.SYSTEM, {"digest": digests.system, "characters": len(system.decode())})]
            )
        if digests.tools != stored.tools:
            await turn.tape.put_blob(tools.encoded)
        if composed.context.facts:
            await turn.tape.append(composed.context.facts)
        if digests != stored or turn.tape.name not in self._stored:
            self._stored[turn.tape.name] = digests
            if len(self._stored) > MAX_REMEMBERED_TAPES:
                self._stored.popitem(last=False)
        return digests

    def _request_facts(
        self, composed: ComposedRequest, digests: _StoredDigests, step: int, tape: str
    ) -> dict[str, Any]:
        """Collect everything needed to rebuild the request byte for byte."""
        facts: dict[str, Any] = {
            "step": step,
            "model": composed.model.name,
            "view": composed.view,
            "head": composed.head,
            "as_of": [[1, composed.head]] if composed.head else [],
            "shown": composed.shown(tape),
            "system": digests.system,
            "tools": digests.tools,
            "parameters": composed.request.parameters,
            "request": composed.request.digest(),
        }
        if composed.strategy_failure is not None:
            facts["strategy_failure"] = structs.asdict(composed.strategy_failure)
        return facts | _foreign_facts(composed.foreign)

    def _elapsed_ms(self, started: float) -> int:
        return round((self._elapsed() - started) * 1000)


def _restore_notice(turn: Turn, error: BubbotError) -> None:
    """Give people the notice of a refusal that only the turn's context strategy has got."""
    state = turn.find_metadata(TurnPreparation)
    if isinstance(error, ModelCallDenied) and not error.notice and state is not None and state.denial is not None:
        error.notice = state.denial.notice


class AttemptRecorder:
    """Records the calls of one step, in order.

    A model without retries reports nothing; the runner's own observation records its single call.

    Attributes:
        first_text: the time of the first piece of the current call's answer; None before it.
        lesson: the lesson of the last failed call, if any.
    """

    def __init__(self, model: str, elapsed: Callable[[], float]) -> None:
        """Start the step with a call of `model`; `elapsed` is a monotonic clock in seconds."""
        self._elapsed = elapsed
        self._model = model
        self._step_started = self._call_started = elapsed()
        self.first_text: float | None = None
        self.lesson: Lesson | None = None
        self._calls: list[dict[str, Any]] = []

    def as_json(self) -> list[JsonObject]:
        """Return the calls for the step's record; times are milliseconds since the step began."""
        return list(self._calls)

    def on_text(self) -> None:
        """Record the time of the first piece of an answer."""
        if self.first_text is None:
            self.first_text = self._elapsed()

    def on_failed_call(self, attempt: FailedAttempt) -> None:
        """Record a failed call; if it names a next model, another call follows after its wait."""
        self._model = attempt.model
        self._call_started = self._elapsed() - attempt.elapsed
        self.lesson = attempt.lesson
        taught = {"taught": attempt.lesson.rule} if attempt.lesson is not None else {}
        self._add("failed", attempt.fit, kind=attempt.kind, error=clean(attempt.error), **taught)
        self._model = attempt.next_model
        self._call_started = self._elapsed() + attempt.wait
        self.first_text = None

    def begin_again(self, model: str) -> None:
        """Begin the next call after a refusal that taught a lesson."""
        self._model, self._call_started, self.lesson, self.first_text = model, self._elapsed(), None, None

    def on_reply(self, reply: ModelReply, cost: float | None) -> None:
        """Record the call that answered, and its cost in US dollars (None: unknown)."""
        self._model = reply.model or self._model
        self._add("ok", reply.fit, usage=_usage_as_json(reply.usage), cost=cost)

    def on_error(self, error: ModelError | FeatureFailed, cost: float | None) -> None:
        """Record the call that ended the step, unless the model has reported it already."""
        if self._model:
            self._add("failed", kind=error.kind, error=clean(str(error)), cost=cost)

    def on_stop(self, cost: float | None) -> None:
        """Record a call that was cancelled."""
        if self._model:
            self._add("stopped", cost=cost)

    def _add(self, status: str, fit: RequestFit | None = None, **facts: Any) -> None:
        started = min(self._call_started, self._elapsed())  # the call may have ended during the wait
        call = {
            "model": self._model,
            "started_ms": round((started - self._step_started) * 1000),
            "elapsed_ms": round((self._elapsed() - started) * 1000),
            "status": status,
        }
        if self.first_text is not None:
            call["first_text_ms"] = round((self.first_text - started) * 1000)
        if fit is not None:
            call["fit"] = fit.as_json()
        self._calls.append(call | facts)


def _piece_viewer(preview: PreviewText, show_text: Callable[[str], None]) -> Callable[[str], None]:
    """Return the function that shows a piece of the preview and first retracts a wrong text."""

    def show(visible: str) -> None:
        if preview.is_wrong:
            preview.is_wrong = False
            show_text("")
        if visible:
            show_text(visible)

    return show


async def _open_overflow_window(turn: Turn, error: ModelOverflow) -> None:
    """Open a window with only the answered messages, because the request was longer than the context."""
    state = {"reason": "context_length_exceeded", "error": clean(str(error))}
    await turn.tape.handoff(OVERFLOW_HANDOFF, state, recalls=spans_of(turn.message_ids))
    await turn.tape.save()


def _foreign_facts(foreign: ForeignWords) -> dict[str, Any]:
    return {"foreign": foreign.as_json()} if foreign else {}


def _estimate_input(request: ModelRequest) -> int:
    texts = sum(estimate_tokens(canonical(message)) for message in request.messages)
    return texts + estimate_fixed_tokens(request.system, request.tools)


def _outcome_facts(reply: ModelReply) -> dict[str, Any]:
    outcome: dict[str, Any] = {
        "status": "tool_calls" if reply.calls else "ok",
        "finish": reply.finish,
        "usage": _usage_as_json(reply.usage),
    }
    if reply.reason:
        outcome["finish_reason"] = reply.reason
    if reply.model:
        outcome["answered"] = reply.model
    if reply.response_id:
        outcome["response_id"] = reply.response_id
    if reply.reasoning:
        outcome["reasoning"] = clean(reply.reasoning)
    return outcome


def _usage_as_json(usage: Usage) -> dict[str, Any]:
    """Build the token counts that a step records."""
    return {name: getattr(usage, name) for name in Usage.__struct_fields__}


def _clean_reply(reply: ModelReply) -> ModelReply:
    """Make a provider's reply storable: half a surrogate pair is legal in JSON but is not text."""
    plain = f"{reply.text}{reply.response_id}{reply.reasoning}"
    for call in reply.calls:
        plain += f"{call.id}{call.name}{call.arguments}"
    if reply.replay is None and plain.isascii():
        return reply
    return structs.replace(
        reply,
        text=clean(reply.text),
        calls=tuple(ToolCall(clean(call.id), clean(call.name), clean(call.arguments)) for call in reply.calls),
        response_id=reply.response_id and clean(reply.response_id),
        reasoning=reply.reasoning and clean(reply.reasoning),
        replay=clean_json(reply.replay),
    )


def _as_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


async def _has_blob(tape: TapeHandle, digest: str) -> bool:
    try:
        await tape.get_blob(digest)
    except EntryNotFound:
        return False
    except TapeCorrupt:  # nothing can replace it; the audit reports it
        return True
    return True
