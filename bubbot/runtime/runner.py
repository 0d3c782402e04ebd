"""The model runner: context, model, tools, results, until there is an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bubbot.errors import ModelEmptyAnswer, ModelError, ModelOverflow, ModelStepLimit, ModelUnavailable
from bubbot.ports.channel import StepFinished, TextStreamed
from bubbot.ports.model import FailedAttempt, ModelReply, TextDelta, ToolCall, tools_text
from bubbot.ports.turn import Turn
from bubbot.runtime.attempts import AttemptRecorder, usage_data
from bubbot.runtime.auto_handoff import overflow_handoff
from bubbot.runtime.calls import RepeatedCalls, ToolCallRunner, clean
from bubbot.runtime.compose import ComposedRequest, RequestComposer
from bubbot.runtime.fitting import RequestFitter
from bubbot.runtime.metering import CallObserver, Meter, Unmetered
from bubbot.runtime.preview import PreviewText, Show, show_nothing
from bubbot.runtime.router import RoutedAnswer, route_assistant
from bubbot.tape import entry as make
from bubbot.tape.blobs import digest_of
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.handle import spans_of
from bubbot.tape.query import TapeQuery
from bubbot.views.context import CUT

STEP = "loop.step"


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """`max_steps`: model calls in one turn. `timeout`: seconds for one whole model call."""

    max_steps: int = 20
    timeout: float = 600.0


@dataclass(frozen=True, slots=True)
class _StoredDigests:
    """Digests of the system prompt and tool schemas that the tape already keeps."""

    system: str = ""
    tools: str = ""


class ModelRunner:
    """Runs the steps of turns. `elapsed` is a monotonic clock in seconds; `show` is told of text as it comes;
    `meter` reserves what each call takes."""

    def __init__(
        self,
        composer: RequestComposer,
        calls: ToolCallRunner,
        settings: RunnerSettings,
        elapsed: Callable[[], float],
        show: Show = show_nothing,
        *,
        meter: Meter | None = None,
    ) -> None:
        self._meter = meter or Unmetered()
        self._fitting = RequestFitter(composer, settings.timeout)
        self._calls = calls
        self._settings = settings
        self._elapsed = elapsed
        self._show = show

    async def run(self, turn: Turn) -> RoutedAnswer:
        """The answer. Raises a `ModelError` where there is none: overflow twice, step limit, repeated call, failure."""
        repeats, kept, overflowed = RepeatedCalls(), await _kept(turn), False
        for step in range(1, self._settings.max_steps + 1):
            if step > 1:
                await turn.join()
            fitted = await self._fitting.fitted(turn, last=overflowed)
            composed = fitted.composed
            kept = await self._keep(turn, composed, kept)
            facts = self._facts(composed, kept, step) | fitted.facts()
            started = self._elapsed()
            try:
                fitted.check()
                counted = fitted.count.tokens if fitted.count else None
                reply = await self._measured(turn, composed, counted, facts)
            except asyncio.CancelledError:
                facts |= {"elapsed_ms": self._since(started), "status": "stopped"}
                await turn.tape.append([make.event(STEP, facts)])
                raise
            except ModelError as error:
                facts |= {"elapsed_ms": self._since(started), "error": clean(str(error))}
                again = isinstance(error, ModelOverflow) and not overflowed
                facts["status"] = "auto_handoff" if again else "error"
                await turn.tape.append([make.event(STEP, facts)])
                if not again or not isinstance(error, ModelOverflow):
                    raise
                overflowed = True
                await overflow_handoff(turn, error)
                continue
            facts |= _outcome(reply) | {"elapsed_ms": self._since(started)}
            self._show(turn.session, StepFinished(step, len(reply.calls)))
            if not reply.calls:
                return await self._finish(turn, reply, facts)
            await self._use_tools(turn, reply, facts, repeats)
        raise ModelStepLimit(self._settings.max_steps)

    async def _measured(
        self, turn: Turn, composed: ComposedRequest, counted: int | None, facts: dict[str, Any]
    ) -> ModelReply:
        """Ask the model within its budget, and add to the facts of the step whom that asked and what it cost.

        Args:
            counted: the tokens of the request, if somebody counted them.
            facts: get `attempts` and, if any model was asked, `cost` in US dollars (None: unknown).
        """
        heard: CallObserver | None = None
        attempts = AttemptRecorder(composed.model.name, self._elapsed)
        try:
            async with self._meter.call(turn, composed, counted) as heard:
                reply = await self._ask(turn, composed, heard, attempts)
        except asyncio.CancelledError:
            if heard is not None:
                attempts.on_stop(heard.cost)
            raise
        except ModelError as error:
            if heard is not None:
                attempts.on_error(error, heard.cost)
            raise
        else:
            attempts.on_reply(reply, heard.cost)
            return reply
        finally:
            facts["attempts"] = attempts.as_json()
            if heard is not None:
                facts["cost"] = heard.cost

    async def _ask(
        self, turn: Turn, composed: ComposedRequest, heard: CallObserver, attempts: AttemptRecorder
    ) -> ModelReply:
        model, reply, seen, shown = composed.model, None, "", PreviewText()
        try:
            async with asyncio.timeout(self._settings.timeout):
                async for item in model.stream(composed.request):
                    if isinstance(item, TextDelta):
                        seen += item.text
                        attempts.on_text()
                        heard.text(item)
                        self._say(turn, shown.feed(item.text))
                    elif isinstance(item, FailedAttempt):
                        attempts.on_failed_call(item)
                    else:
                        reply = item
        except TimeoutError:
            raise ModelUnavailable(f"{model.name} gave no answer within {self._settings.timeout:g} seconds") from None
        if reply is None:
            raise ModelUnavailable(f"{model.name} ended without an answer")
        heard.reply(reply)
        if reply.text.startswith(seen):  # a model need not stream all of its text, or any
            self._say(turn, shown.feed(reply.text[len(seen) :]))
        self._say(turn, shown.rest())
        return reply

    def _say(self, turn: Turn, text: str) -> None:
        if text:
            self._show(turn.session, TextStreamed(clean(text)))

    async def _finish(self, turn: Turn, reply: ModelReply, facts: dict[str, Any]) -> RoutedAnswer:
        """The last step: written by the merge alone."""
        text = clean(reply.text)
        answer = route_assistant(text)
        said = make.message("assistant", text or " ", model=reply.model)
        await turn.tape.append([said, make.event(STEP, facts)])
        if answer.empty:
            raise ModelEmptyAnswer
        if reply.finish == "length" and not answer.silent:
            return replace(answer, text=f"{answer.text}\n\n{turn.texts.say('answer_cut')}")
        return answer

    async def _use_tools(self, turn: Turn, reply: ModelReply, facts: dict[str, Any], repeats: RepeatedCalls) -> None:
        """Calls are durable before they run, results before the next model call."""
        calls = [ToolCall(clean(call.id), clean(call.name), clean(call.arguments)) for call in reply.calls]
        asked = make.tool_call([_as_json(call) for call in calls], text=clean(reply.text), model=reply.model)
        if reply.replay:
            asked = replace(asked, payload={**asked.payload, "replay": reply.replay})
        await turn.tape.append([asked, make.event(STEP, facts)])
        await turn.tape.save()
        results = await self._calls.run(turn, calls, repeats)
        await turn.tape.append([make.tool_result(results)])
        await turn.write_handoffs()
        await turn.tape.save()

    async def _keep(self, turn: Turn, composed: ComposedRequest, kept: _StoredDigests) -> _StoredDigests:
        """Keeps the system prompt and the tool schemas beside the tape, once per version."""
        system, tools = composed.request.system.encode(), tools_text(composed.request.tools).encode()
        now = _StoredDigests(digest_of(system), digest_of(tools))
        if now.system != kept.system:
            await turn.tape.put_blob(system)
            await turn.tape.append([TapeEntry(Kind.SYSTEM, {"digest": now.system, "characters": len(system.decode())})])
        if now.tools != kept.tools:
            await turn.tape.put_blob(tools)
        if composed.context.new_cut is not None:
            await turn.tape.append([make.event(CUT, {"from": composed.context.new_cut})])
        return now

    def _facts(self, composed: ComposedRequest, kept: _StoredDigests, step: int) -> dict[str, Any]:
        """Everything needed to rebuild the request byte for byte."""
        return {
            "step": step,
            "model": composed.model.name,
            "view": composed.view,
            "head": composed.head,
            "shown": [list(span) for span in spans_of(composed.context.ids)],
            "system": kept.system,
            "tools": kept.tools,
            "parameters": composed.request.parameters,
            "request": composed.request.digest(),
        }

    def _since(self, started: float) -> int:
        return round((self._elapsed() - started) * 1000)


def _outcome(reply: ModelReply) -> dict[str, Any]:
    outcome: dict[str, Any] = {
        "status": "tool_calls" if reply.calls else "ok",
        "finish": reply.finish,
        "usage": usage_data(reply.usage),
    }
    if reply.model:
        outcome["answered"] = reply.model
    if reply.response_id:
        outcome["response_id"] = reply.response_id
    if reply.reasoning:
        outcome["reasoning"] = clean(reply.reasoning)
    return outcome


def _as_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


async def _kept(turn: Turn) -> _StoredDigests:
    """What the newest step of the tape cites, which is therefore kept."""
    query = TapeQuery(turn.tape.name, kinds=(Kind.EVENT,), names=(STEP,), newest=True, limit=1)
    found = (await turn.tape.fetch([query]))[0]
    data = found[0].payload["data"] if found else {}
    return _StoredDigests(data.get("system", ""), data.get("tools", ""))
