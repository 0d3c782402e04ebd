"""Run the tool calls of a model, and truncate their results for the model."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct, structs

from bubbot.concurrency import run_uninterrupted
from bubbot.errors import (
    BubbotError,
    ModelCallsRefused,
    ModelRepeatsCall,
    ToolError,
    ToolFailed,
    ToolRefused,
    ToolSignal,
)
from bubbot.formatting import clean
from bubbot.middleware import AroundTool, ToolInvocation, wrap
from bubbot.ports.channel import PreviewCallback, ToolFinished, ToolStarted, ignore_preview
from bubbot.ports.model import ToolCall
from bubbot.ports.turn import Turn
from bubbot.runtime.effects import EffectRun, find_record
from bubbot.runtime.tool_list import ToolList, is_callable, unwrap_call
from bubbot.tape import entry as make
from bubbot.tape.blobs import cited_blobs
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.handle import TapeHandle
from bubbot.tape.provenance import Source, track_reads
from bubbot.tape.withheld import reading_for_model
from bubbot.texts import NOT_RUN
from bubbot.tool import EffectKind, RerunModel, Tool, ToolOutput, plan_call

log = logging.getLogger(__name__)

MAX_RESULT_PAGE_CHARS = 8_000
"""Characters that `result.read` shows at once by default."""
PAGE_FRAME_CHARS = 80
"""Characters reserved for the text around a page, so that the page itself is not truncated."""
TAIL_SHARE = 4
"""The tail of a truncated result gets one part in this many of the shown text."""
BROKEN_OFF = "was not run: a call before it failed, on which it may depend. If it is still wanted, call it again."
"""The result of a chained call after a failed one; the tool's name precedes it."""
PARALLEL_CALLS = 4
"""Calls of one step that may run at the same time."""
REPEAT_LIMIT = 3
"""Equal calls in a row: the last of so many is refused, the next one ends the turn."""
REFUSAL_LIMIT = 3
"""Refused calls in a row: the last of so many ends the turn."""
MAX_ARGUMENTS_CHARS = 80
"""Characters of a call's arguments that a preview shows."""
_POINTER = (
    r"(?P<before>… \[cut: \d+ characters in all; read on with"
    r' result_read\(handle="(?P<handle>[0-9a-f]{64})", offset=)\d+(?P<after>(?:, limit=\d+)?\)\])'
)


class ToolLimits(Struct, frozen=True):
    """The limits of tool calls.

    Attributes:
        timeout: seconds a tool may run.
        result_limit: characters of a result that a model sees.
        may_repeat_effects: an interrupted effect with an idempotency key may run again under it; false for a copy of a
            bot.
    """

    timeout: float = 60.0
    result_limit: int = 16_000
    may_repeat_effects: bool = True


class CutResult(Struct, frozen=True):
    """A text as a model sees it.

    Attributes:
        text: within the limit.
        blob: digest of the full text; None if the text is whole.
    """

    text: str
    blob: str | None = None


@dataclass
class RepeatedCalls:
    """Equal calls in a row, and refused ones, within one turn."""

    last: tuple[str, str] = ("", "")
    count: int = 0
    refused: int = 0

    def count_call(self, call: ToolCall) -> int:
        """Return how often this call has come in a row, this time included."""
        key = (call.name, call.arguments.strip())
        self.count = self.count + 1 if key == self.last else 1
        self.last = key
        return self.count

    def count_refusal(self, result: _Result) -> int:
        """Return how many calls in a row were refused, the one of this result included."""
        self.refused = self.refused + 1 if result.is_refused else 0
        return self.refused


class _Result(Struct, frozen=True):
    """The result of one call.

    Attributes:
        item: for the tape.
        blob: the digest of the full text if it was truncated.
        is_refused: the call was not allowed.
        effect: records if the call acted outside.
    """

    item: dict[str, Any]
    blob: str | None = None
    is_refused: bool = False
    effect: EffectRun = msgspec.field(default_factory=EffectRun)


class ToolCallRunner:
    """Runs the calls of a step.

    Consecutive calls that only read run at the same time. Any other call runs alone, after those before it: it may
    write to the tape.
    """

    def __init__(
        self,
        tools: ToolList,
        settings: ToolLimits,
        on_preview: PreviewCallback = ignore_preview,
        *,
        around_tool: Sequence[AroundTool] = (),
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wrap each call in `around_tool`; `on_preview` gets the begin and the end of each call.

        Args:
            elapsed: a monotonic clock in seconds.
        """
        self._elapsed = elapsed
        self._tools = tools
        self._around_tool = tuple(around_tool)
        self._show = on_preview
        self._settings = settings

    async def run(
        self, turn: Turn, calls: Sequence[ToolCall], repeats: RepeatedCalls, *, chained: Collection[str] = ()
    ) -> None:
        """Run the calls and append their results to the turn's tape, in the order of the calls.

        The result of a call that acted outside is durable at once. If this raises or is cancelled, it appends the
        results so far, and a note as the result of each call that never began.

        Args:
            repeats: the repeated calls of the turn so far.
            chained: the ids of calls that run without a look at the results in between: once one that acts has failed,
                the later ones that act do not run, since they may depend on it.

        Raises:
            ModelRepeatsCall: the model keeps repeating a call.
            ModelCallsRefused: too many calls in a row were refused.
        """
        results: dict[int, _Result] = {}
        begun: set[int] = set()
        plain = [unwrap_call(call) for call in calls]
        is_broken = False
        try:
            for group in self._groups(plain):
                place, call = group[-1]
                is_link = call.id in chained and not self._only_reads(call)
                if is_link and is_broken:
                    begun.add(place)
                    results[place] = _Result(_not_run(call, timestamp(turn.now()), f"{call.name} {BROKEN_OFF}"))
                    continue
                await self._run_group(turn, group, repeats, results, begun)
                is_broken = is_broken or (is_link and "is_error" in results[place].item)
                if any(result.effect.is_begun for result in results.values()):
                    await self._append_results(turn, results)
                    await turn.tape.save()
        except BaseException:
            for place, call in enumerate(calls):
                if place not in begun:
                    results[place] = _Result({"tool_call_id": call.id, "content": NOT_RUN, "is_error": True})
            await self._append_results(turn, results)
            raise
        await self._append_results(turn, results)

    async def _append_results(self, turn: Turn, results: dict[int, _Result]) -> None:
        """Append the results and the ends of effects; remove them from the waiting results."""
        ordered = [results[place] for place in sorted(results)]
        results.clear()
        if ordered:
            ends = [end for each in ordered for end in each.effect.end(is_error="is_error" in each.item)]
            blobs = [each.blob for each in ordered if each.blob]
            items = [each.item for each in ordered]
            meta = {"provenance": str(turn.tape.source), **turn.take_copied()}
            await turn.tape.append([*ends, make.tool_result(items, blobs=blobs, **meta)])

    def list_outside(self, calls: Sequence[ToolCall]) -> list[str]:
        """List the ids of the calls whose tools act outside: each needs an `effect.begin`."""
        return [call.id for call in calls if (tool := self._find_tool(call)) is not None and tool.acts_outside]

    async def list_unfinished(self, turn: Turn) -> list[ToolCall]:
        """List the calls of an interrupted attempt that must be settled before the turn continues (T20)."""
        record = None if turn.is_subtask else await find_record(turn)
        return record.list_unfinished(turn.stored_calls) if record is not None else []

    def _find_tool(self, call: ToolCall) -> Tool | None:
        try:
            return self._tools.find(unwrap_call(call).name)
        except ToolError:
            return None

    def _groups(self, calls: Sequence[ToolCall]) -> list[list[tuple[int, ToolCall]]]:
        """Split the calls, with their positions, into groups that run one after another."""
        groups: list[list[tuple[int, ToolCall]]] = []
        was_parallel = False
        for place, call in enumerate(calls):
            is_parallel = self._runs_in_parallel(call)
            if is_parallel and was_parallel:
                groups[-1].append((place, call))
            else:
                groups.append([(place, call)])
            was_parallel = is_parallel
        return groups

    def _only_reads(self, call: ToolCall) -> bool:
        tool = self._find_tool(call)
        return tool is not None and tool.effect.kind is EffectKind.READ

    def _runs_in_parallel(self, call: ToolCall) -> bool:
        tool = self._find_tool(call)
        return tool is not None and tool.runs_in_parallel

    async def _run_group(
        self,
        turn: Turn,
        group: Sequence[tuple[int, ToolCall]],
        repeats: RepeatedCalls,
        results: dict[int, _Result],
        begun: set[int],
    ) -> None:
        """Run the calls of a group at the same time; `results` gets each result as soon as its call ends."""
        counts = [repeats.count_call(call) for _, call in group]
        running = [item for item, times in zip(group, counts, strict=True) if times <= REPEAT_LIMIT]
        places = asyncio.Semaphore(PARALLEL_CALLS)

        async def run(place: int, call: ToolCall, times: int) -> None:
            async with places:
                begun.add(place)
                results[place] = await self._run_call(turn, call, times)

        if len(running) == 1:  # the usual case needs no task
            await run(*running[0], counts[0])
        elif running:
            await _run_together([run(*item, times) for item, times in zip(running, counts, strict=False)])
        if len(running) < len(group):
            raise ModelRepeatsCall(group[len(running)][1].name)
        for place, call in group:
            if repeats.count_refusal(results[place]) >= REFUSAL_LIMIT:
                raise ModelCallsRefused(call.name, REFUSAL_LIMIT)

    async def _run_call(self, turn: Turn, call: ToolCall, times: int) -> _Result:
        started, begun = timestamp(turn.now()), self._elapsed()
        if times == REPEAT_LIMIT:
            return _Result(
                _not_run(
                    call, started, f"this is the same call {times} times in a row; it was not run. Try another way."
                )
            )
        started_call = ToolStarted(clean(call.name), shorten(clean(call.arguments)))
        self._show(turn.session, started_call)
        effect = EffectRun(call.id)
        output, error = await self._invoke_call(turn, call, effect)
        size = len(clean(output))
        self._show(
            turn.session,
            ToolFinished(
                started_call.name, error is None, size, size > self._settings.result_limit, started_call.arguments
            ),
        )
        shown = await self.cut_result(turn.tape, output)
        elapsed = round((self._elapsed() - begun) * 1000)
        item = {"tool_call_id": call.id, "content": shown.text, "started": started, "elapsed_ms": elapsed}
        if error is not None:
            item["is_error"] = True
        return _Result(item, shown.blob, isinstance(error, ToolRefused), effect)

    async def _invoke_call(self, turn: Turn, call: ToolCall, effect: EffectRun) -> tuple[str, Exception | None]:
        try:
            tool = self._tools.find(call.name)
            if not is_callable(tool, turn):
                raise ToolFailed(f"{tool.name} is not available here")
            with reading_for_model():
                output = await self._invoke_tracked(turn, tool, tool.parse(call.arguments), effect, call)
        except (BubbotError, ToolSignal) as error:
            return str(error), error
        except Exception as error:  # tool call boundary: any error of a tool is its result
            log.info("tool raised %s", type(error).__name__, extra={"action": "tool.raised", "tool": call.name})
            log.debug("traceback", exc_info=True, extra={"action": "tool.raised"})  # may contain words of people
            return f"{call.name} failed: {type(error).__name__}: {error}", error
        return output if isinstance(output, str) else output.text, None

    async def _invoke_tracked(
        self, turn: Turn, tool: Tool, args: Any, effect: EffectRun, call: ToolCall
    ) -> str | RerunModel:
        """Run the tool for a model and raise the turn's provenance to what the tool read (T22).

        If the tool declares more foreign results than it read from tapes, the declaration counts.
        """
        if tool.effect.source is not Source.PEOPLE:
            return await self.invoke(turn, tool, args, effect, call)
        reads: list[Source] = []

        def on_read(source: Source) -> None:
            reads.append(source)
            turn.tape.raise_source(source)

        try:
            with track_reads(on_read):
                return await self.invoke(turn, tool, args, effect, call)
        finally:
            if not reads and tool.effect.kind is EffectKind.READ:
                turn.tape.raise_source(Source.PEOPLE)

    async def invoke(
        self, turn: Turn, tool: Tool, args: Any, effect: EffectRun, call: ToolCall | None = None
    ) -> str | RerunModel:
        """Run the tool and return its output.

        Answer a call that an interrupted attempt made from its record. Plan a call of a model first.

        Args:
            args: checked.
            effect: records if the call acted outside; the caller writes its end.
            call: the model's call; None for a command that a person typed.

        Raises:
            ToolError: the tool ran out of time.
            Exception: whatever the tool raised.
        """
        try:
            seconds = self._settings.timeout if tool.timeout is None else tool.timeout
            async with asyncio.timeout(seconds) as limit:
                output: object = await self._run_or_answer(ToolInvocation(turn, tool, args, call), effect)
        except TimeoutError:
            if not limit.expired():
                raise  # the tool's own timeout
            raise ToolError(
                f"{tool.name} was stopped after {seconds:g} seconds"
                f"{'; it may have happened all the same' if effect.is_begun else ''}"
            ) from None
        if not isinstance(output, (str, RerunModel)):
            raise ToolFailed(f"{tool.name} returned a {type(output).__name__} instead of text")
        return output

    async def _run_or_answer(self, invocation: ToolInvocation, effect: EffectRun) -> ToolOutput:
        turn, tool, was_used = invocation.turn, invocation.tool, False
        if (record := await find_record(turn)) is not None:
            if (recorded := record.find(invocation)) is None:
                was_used = record.has_used(tool)
            else:
                if tool.effect.source is Source.WORLD:  # the record may hold its words, also in an error
                    turn.tape.raise_source(Source.WORLD)
                if (
                    output := await record.answer(
                        recorded, invocation, effect, may_repeat=self._settings.may_repeat_effects
                    )
                ) is not None:
                    return output
        if invocation.call is not None:
            plan = await plan_call(turn, tool, invocation.args)
            is_outside = EffectKind.OUTSIDE in (tool.effect.kind, plan.effect.kind)
            invocation = structs.replace(invocation, plan=plan, used_before=was_used and is_outside)
        return await wrap(self._around_tool, effect.run)(invocation)

    async def cut_result(self, tape: TapeHandle, text: str) -> CutResult:
        """Truncate the text for the model.

        Keep head and tail of a long text within the limit, with a pointer between them to the full text, which is
        stored as a blob of the tape.
        """
        text = clean(text)
        limit = self._settings.result_limit
        if len(text) <= limit:
            return CutResult(text)
        handle = await tape.put_blob(text.encode())
        page = max(limit - PAGE_FRAME_CHARS, limit // 4)
        size = f", limit={page}" if page < MAX_RESULT_PAGE_CHARS else ""

        def mark(offset: int) -> str:
            pointer = f'result_read(handle="{handle}", offset={offset}{size})'
            return f"\n… [cut: {len(text)} characters in all; read on with {pointer}]"

        budget = max(limit - len(mark(len(text))) - 1, limit // 4)
        tail = budget // TAIL_SHARE
        return CutResult(f"{text[: budget - tail]}{mark(budget - tail)}\n{text[len(text) - tail :]}", handle)


def move_pointer(text: str, entry: TapeEntry, offset: int) -> str | None:
    """Return the pointer in a truncated result, changed to continue at this character; None without one.

    Only a pointer to a blob of the result's own entry counts: any text can look like one.
    """
    blobs = cited_blobs(entry)
    found = next((found for found in re.finditer(_POINTER, text) if found["handle"] in blobs), None)
    return found and f"{found['before']}{offset}{found['after']}"


def _not_run(call: ToolCall, started: str, text: str) -> dict[str, Any]:
    return {"tool_call_id": call.id, "content": text, "started": started, "elapsed_ms": 0, "is_error": True}


async def _run_together(calls: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run the calls concurrently. If one raises or the caller is cancelled, all have ended when this raises."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await run_uninterrupted(asyncio.wait(tasks))
        raise


def shorten(text: str, limit: int = MAX_ARGUMENTS_CHARS) -> str:
    """Shorten a text to its beginning, on one line."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 1]}…"
