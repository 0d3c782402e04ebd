"""Running the tool calls of a model, and cutting their results to a size that a model can be shown."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from bubbot.errors import BubbotError, ModelRepeatsCall, ToolError, ToolFailed, ToolRetry
from bubbot.ports.channel import PreviewCallback, ToolFinished, ToolStarted, ignore_preview
from bubbot.ports.middleware import AroundTool, ToolInvocation, wrap
from bubbot.ports.model import ToolCall
from bubbot.ports.text import clean
from bubbot.ports.tool import RerunModel, Tool, Toolbox, ToolOutput
from bubbot.ports.turn import Turn
from bubbot.records import dataclass
from bubbot.tape import entry as make
from bubbot.tape.blobs import cited_blobs
from bubbot.tape.entry import TapeEntry
from bubbot.tape.handle import TapeHandle

log = logging.getLogger(__name__)

MAX_RESULT_PAGE_CHARS = 8_000
"""Characters that `result.read` shows at once by default."""
PAGE_FRAME_CHARS = 80
"""Characters that may stand around a page, so that the page itself is not cut."""
TAIL_SHARE = 4
"""The end of a cut result gets one part in this many of the shown text."""
REPEAT_LIMIT = 3
"""Equal calls in a row: this one is refused, the next one ends the turn."""
MAX_ARGUMENTS_CHARS = 80
"""Characters of a call's arguments that a preview shows."""
_POINTER = re.compile(
    r"(?P<before>… \[cut: \d+ characters in all; read on with"
    r' result_read\(handle="(?P<handle>[0-9a-f]{64})", offset=)\d+(?P<after>(?:, limit=\d+)?\)\])'
)


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """The limits of tool calls.

    Attributes:
        timeout: seconds a tool may run.
        result_limit: characters of a result that are shown.
    """

    timeout: float = 60.0
    result_limit: int = 16_000


@dataclass(frozen=True, slots=True)
class CutResult:
    """A text as a model is shown it.

    Attributes:
        text: within the limit.
        blob: digest of the full text; None if nothing was cut.
    """

    text: str
    blob: str | None = None


@dataclass
class RepeatedCalls:
    """Equal calls in a row, within one turn."""

    last: tuple[str, str] = ("", "")
    count: int = 0
    names: set[str] = field(default_factory=set)

    def count_call(self, call: ToolCall) -> int:
        """Count how often this call has come in a row, this time included."""
        key = (call.name, call.arguments.strip())
        self.count = self.count + 1 if key == self.last else 1
        self.last = key
        self.names.add(call.name)
        return self.count


class ToolCallRunner:
    """Runs calls one after another, since they may write to the same tape; `on_preview` gets each of them."""

    def __init__(
        self,
        toolbox: Toolbox,
        settings: ToolLimits,
        on_preview: PreviewCallback = ignore_preview,
        *,
        around_tool: Sequence[AroundTool] = (),
    ) -> None:
        self._toolbox = toolbox
        self._run = wrap(around_tool, _run_tool)
        self._show = on_preview
        self._settings = settings

    async def run(self, turn: Turn, calls: Sequence[ToolCall], repeats: RepeatedCalls) -> TapeEntry:
        """Run the calls in order and return the entry with a result for each.

        If this raises or is cancelled, the results so far are appended to the turn's tape.

        Raises:
            ModelRepeatsCall: the model does not stop repeating itself.
        """
        results: list[dict[str, Any]] = []
        blobs: list[str] = []
        try:
            for call in calls:
                shown, failed = await self._run_call(turn, call, repeats)
                result: dict[str, Any] = {"tool_call_id": call.id, "content": shown.text}
                results.append(result | {"is_error": True} if failed else result)
                blobs += [shown.blob] if shown.blob else []
        except BaseException:
            if results:
                await turn.tape.append([make.tool_result(results, blobs=blobs)])
            raise
        return make.tool_result(results, blobs=blobs)

    async def _run_call(self, turn: Turn, call: ToolCall, repeats: RepeatedCalls) -> tuple[CutResult, bool]:
        times = repeats.count_call(call)
        if times > REPEAT_LIMIT:
            raise ModelRepeatsCall(call.name)
        if times == REPEAT_LIMIT:
            return CutResult(f"this is the same call {times} times in a row; it was not run. Try another way."), True
        self._show(turn.session, ToolStarted(clean(call.name), shorten(clean(call.arguments))))
        output, failed = await self._invoke_call(turn, call)
        size = len(clean(output))
        self._show(turn.session, ToolFinished(clean(call.name), not failed, size, size > self._settings.result_limit))
        return await self.cut_result(turn.tape, output), failed

    async def _invoke_call(self, turn: Turn, call: ToolCall) -> tuple[str, bool]:
        try:
            tool = self._toolbox.find(call.name)
            if tool not in self._toolbox.for_model(turn.role) or not turn.may_call(tool.name):
                raise ToolFailed(f"{tool.name} is not available here")
            output = await self.invoke(turn, tool, tool.parse(call.arguments))
        except (BubbotError, ToolRetry, ToolFailed) as error:
            return str(error), True
        except Exception as error:  # tool call boundary: whatever a tool raises is its result
            log.info("tool raised %s", type(error).__name__, extra={"action": "tool.raised", "tool": call.name})
            log.debug("traceback", exc_info=True, extra={"action": "tool.raised"})  # its text may be that of people
            return f"{call.name} failed: {type(error).__name__}: {error}", True
        return output if isinstance(output, str) else output.text, False

    async def invoke(self, turn: Turn, tool: Tool, args: Any) -> str | RerunModel:
        """Run the tool and return its output.

        Raises:
            ToolError: the tool ran out of time.
            Exception: whatever the tool raised.
        """
        try:
            async with asyncio.timeout(self._settings.timeout) as limit:
                output: object = await self._run(ToolInvocation(turn, tool, args))
        except TimeoutError:
            if not limit.expired():
                raise  # the tool's own timeout
            raise ToolError(f"{tool.name} was stopped after {self._settings.timeout:g} seconds") from None
        if not isinstance(output, (str, RerunModel)):
            raise ToolFailed(f"{tool.name} returned a {type(output).__name__} instead of text")
        return output

    async def cut_result(self, tape: TapeHandle, text: str) -> CutResult:
        """Cut the text to what a model is shown.

        Of a long text that is head and tail within the limit, and between them a pointer to the full text, which is
        kept as a blob of the tape.
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
    """Return the pointer to the full text in a cut result, so that it reads on from this character; None without one.

    Only a pointer to a blob of the result's own entry counts: any text can look like one.
    """
    blobs = cited_blobs(entry)
    found = next((found for found in _POINTER.finditer(text) if found["handle"] in blobs), None)
    return found and f"{found['before']}{offset}{found['after']}"


async def _run_tool(call: ToolInvocation) -> ToolOutput:
    return await call.tool.run(call.turn, call.args)


def shorten(text: str, limit: int = MAX_ARGUMENTS_CHARS) -> str:
    """Shorten a text to its beginning, on one line."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 1]}…"
