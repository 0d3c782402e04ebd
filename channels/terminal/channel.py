"""The terminal as a channel: a line editor below, the conversation above.

A text in progress is shown between the two and printed permanently once it is complete. Until then the cursor waits
above it, so that the text can be erased exactly after the window has been resized.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from msgspec import structs
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from bubbot.errors import DeliveryFailed
from bubbot.formatting import wrap_text
from bubbot.ports.channel import (
    ChannelOptions,
    Inbound,
    MessagePart,
    Outbound,
    Preview,
    Receipt,
    Receive,
    Sender,
    StepFinished,
    StopRequest,
    TextDiscarded,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    session_folder,
)
from channels.platform.saved_files import make_parts, save_file
from channels.terminal.history import LineHistory
from channels.terminal.screen import ParkedCursor, ScreenOutput, print_above
from channels.terminal.view import CommandCompleter, dim, fold_rows, format_tool_call, neutralise, render_markdown

PROMPT = "> "
TERMINAL_OWNER = Sender("0", "owner")
"""Anyone who can type here can also read the database."""
LEAVE_HINT = "Ctrl-D or ,quit leaves."
WAITING_NOTICE = "Waiting for the answer that is under way; Ctrl-C stops it."
SPINNER_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_SECONDS = 0.2
"""Seconds between two frames of the spinner."""
REDRAW_SECONDS = 0.05
"""Seconds between two drawings of a text in progress."""
ACCEPT_TIMEOUT_SECONDS = 5.0
"""Seconds that a stop waits for the messages typed before it."""
MENU_ROWS = 6
"""Rows for completions."""
MAX_LIVE_ROWS = 6
"""Rows of a text in progress."""
MIN_LIVE_ROWS = 2
"""Rows shown in any case: the command that began the chat, and its first line, are above them."""
MAX_QUESTION_CHARS = 2_000
"""Characters of a question that are kept for the line above its answer; more than a row has."""
STOP_HINT = "  (Ctrl-C stops)"


@dataclass
class _LiveScreen:
    """The display of the running turn.

    Attributes:
        busy: a turn is running or about to start.
        text: the text of the current step so far.
        answer: the last answer, until it is printed.
        calls: the running tool calls; those of sub-tasks stand after that of their task.
        frame: the spinner's position.
        started: when the wait for it began, on a monotonic clock in seconds.
    """

    busy: bool = False
    text: str = ""
    answer: str = ""
    calls: list[ToolStarted] = field(default_factory=list)
    frame: int = 0
    started: float = field(default_factory=time.monotonic)


class TerminalChannel:
    """A chat in a terminal. See `Channel` and `ShowsPreviews`. Settings: `chat`; `colour` (true or false)."""

    def __init__(self, options: ChannelOptions) -> None:
        self.name = options.name
        self._options = options
        self._chat = str(options.settings.get("chat") or "default")
        self._colour = bool(options.settings.get("colour", True))
        self._completer = CommandCompleter(options.list_commands)
        self._history = LineHistory(session_folder(options.home, f"{options.name}:{self._chat}"))
        self._now = options.now
        self._process = options.new_id()
        self._live = _LiveScreen()
        self._lines: asyncio.Queue[Inbound] = asyncio.Queue()
        self._prints: asyncio.Queue[tuple[str, asyncio.Future[None] | None]] = asyncio.Queue()
        self._stops: asyncio.Queue[StopRequest] = asyncio.Queue()
        self._rows_above = 0  # rows above the line editor, at least
        self._questions: dict[str, str] = {}  # typed and not answered yet, by external id
        self._question_above = ""  # the id of the question right above the line editor, if nothing came after it
        self._idle = asyncio.Event()
        self._open = False
        self._output = ScreenOutput()
        self._session: PromptSession[str] | None = None

    async def run(self, receive: Receive) -> None:
        """Read until Ctrl-D, `,quit`, or the end of the terminal."""
        with ExitStack() as signals:
            async with self._running_helpers(receive):
                with print_above(self._put):
                    is_eof = await self._read_lines()
                    signals.enter_context(_handle_interrupts(self._ask_to_stop))
                    if is_eof and self._live.busy:
                        self._put(dim(WAITING_NOTICE, colour=self._colour))
                    await self._lines.join()
                    if self._live.busy:
                        await self._idle.wait()
                    await self._prints.join()

    @asynccontextmanager
    async def _running_helpers(self, receive: Receive) -> AsyncIterator[None]:
        """Run the tasks that accompany the line editor, for the time of the block."""
        async with asyncio.TaskGroup() as group:
            self._session = self._make_editor()
            self._open = True
            helpers = [
                group.create_task(self._submit_lines(receive)),
                group.create_task(self._submit_stops(receive)),
                group.create_task(self._print_all()),
                group.create_task(self._spin()),
            ]
            try:
                yield
            finally:
                self._open = False
                for helper in helpers:
                    helper.cancel()

    async def _read_lines(self) -> bool:
        """Read lines to the end; return true if Ctrl-D ended them and false for `,quit`."""
        assert self._session is not None
        number = 0
        while True:
            try:
                typed = await self._session.prompt_async()
            except EOFError:
                return True
            text = typed.encode("utf-8", "surrogateescape").decode("utf-8", "replace").rstrip()
            if not text:
                continue
            number += 1
            self._rows_above += 1
            if not self._live.busy:
                self._live.busy, self._live.started = True, time.monotonic()
            self._idle.clear()
            external_id = f"{self._process}-{number}"
            self._questions[external_id] = text[:MAX_QUESTION_CHARS]
            self._question_above = external_id
            self._lines.put_nowait(Inbound(self.name, external_id, self._chat, TERMINAL_OWNER, text, self._now()))
            if text.strip() == ",quit":
                return False

    async def _submit_lines(self, receive: Receive) -> None:
        while True:
            inbound = await self._lines.get()
            await receive(inbound)
            self._lines.task_done()

    async def _submit_stops(self, receive: Receive) -> None:
        while True:
            stop = await self._stops.get()
            with suppress(TimeoutError):  # the stop also applies to messages that are still being accepted
                async with asyncio.timeout(ACCEPT_TIMEOUT_SECONDS):
                    await self._lines.join()
            await receive(stop)

    async def _spin(self) -> None:
        while True:
            await asyncio.sleep(SPINNER_SECONDS)
            if self._live.busy:
                self._live.frame += 1
                self._redraw()

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Make one part for the text, of any length, and one for each file, which `send` saves."""
        return make_parts(outbound)

    async def send(self, part: MessagePart) -> Receipt:
        """Print the part: the model's answer as Markdown, the output of commands unchanged."""
        if part.file:
            part = structs.replace(part, text=await save_file(self._options, part.file))
        answer, self._live.answer = self._live.answer, ""
        question = self._take_question(part.reply_to)
        before = part.text.removesuffix(answer) if answer else part.text
        blocks = [self._wrap(before).rstrip("\n")] if before.strip() or not answer else []
        if answer and before != part.text:
            blocks.append(self._render(answer))
        elif answer:
            blocks = [self._wrap(part.text)]
        if question:
            blocks.insert(0, question)
        try:
            await self._print_and_wait("\n\n".join(blocks))
        except (OSError, ValueError) as error:
            raise DeliveryFailed(f"the terminal is gone ({error}); the answer waits for the next chat") from error
        return Receipt()

    def _take_question(self, external_id: str) -> str:
        """Return the question of an answer as one faint line; empty if it is right above, or was not typed here."""
        question, is_above = self._questions.pop(external_id, ""), external_id == self._question_above
        self._question_above = ""
        if not question or is_above:
            return ""
        width = max(2, self._output.get_size().columns - len(PROMPT) - 1)
        line = " ".join(neutralise(question).split())
        rows = fold_rows(line, width - 1, len(line) + 1)
        return dim(f"{PROMPT}{rows[0].rstrip()}{'…' if len(rows) > 1 else ''}", colour=self._colour)

    def preview(self, session: str, event: Preview) -> None:
        """See `ShowsPreviews`."""
        live = self._live
        if session != f"{self.name}:{self._chat}":
            return
        match event:
            case TurnStarted():
                self._live = _LiveScreen(busy=True, frame=live.frame)
                self._idle.clear()
            case TextStreamed(text):
                live.text += text
            case TextDiscarded():
                live.text = ""
            case ToolStarted():
                live.calls.append(event)
            case ToolFinished(name, arguments=arguments):
                self._put(dim(format_tool_call(arguments, event), colour=self._colour))
                if (ended := ToolStarted(name, arguments)) in live.calls:
                    live.calls.remove(ended)
            case StepFinished(_, calls) if calls and live.text:
                self._put(self._render(live.text))
                live.text = ""
            case TurnFinished(status):
                if live.text and status != "answered":  # no answer, but the text that people have seen stays
                    self._put(dim(neutralise(live.text), colour=self._colour))
                self._live = _LiveScreen(answer=live.text if status == "answered" else "", frame=live.frame)
                self._idle.set()
                self._forget_erased()
        self._redraw()

    def _render(self, text: str) -> str:
        return render_markdown(text, width=self._output.get_size().columns, colour=self._colour)

    def _wrap(self, text: str) -> str:
        """Break lines between words in a text that is not Markdown; keep lines with a shell command, so that people can copy
        them."""
        return wrap_text(neutralise(text), self._output.get_size().columns)

    def _put(self, text: str) -> None:
        """Queue a text to print."""
        self._prints.put_nowait((text, None))

    async def _print_and_wait(self, text: str) -> None:
        """Print a text and return when that is done."""
        if not self._open:
            self._write(text)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._prints.put_nowait((text, done))
        await done

    async def _print_all(self) -> None:
        """Print the queued texts above the line editor."""
        try:
            while True:
                text, done = await self._prints.get()
                try:
                    self._print(text)
                except (OSError, ValueError) as error:
                    if done is not None:
                        done.set_exception(error)
                        done = None
                if done is not None and not done.done():
                    done.set_result(None)
                self._prints.task_done()
        finally:
            while not self._prints.empty():
                text, done = self._prints.get_nowait()
                if done is None:
                    with suppress(OSError, ValueError):
                        self._write(text)
                elif not done.done():
                    done.set_exception(OSError("it was closed"))

    def _print(self, text: str) -> None:
        """Print above the line editor, which keeps the keyboard meanwhile."""
        app = self._session.app if self._session is not None else None
        if app is None or not app.is_running:
            self._write(text)
            return
        app.renderer.erase()
        self._write(text)
        app.renderer.render(app, app.layout)

    def _write(self, text: str) -> None:
        self._rows_above += text.count("\n") + 1
        self._output.write_raw(text.replace("\n", "\r\n") + "\r\n")
        self._output.flush()

    def _redraw(self) -> None:
        if self._session is not None:
            self._session.app.invalidate()

    def _forget_erased(self) -> None:
        """Drop an erased session's lines from the arrow keys; keep the text being typed."""
        if self._session is not None and self._history.was_erased():
            buffer = self._session.default_buffer
            buffer.reset(document=buffer.document)

    def _make_editor(self) -> PromptSession[str]:
        depth = None if self._colour else ColorDepth.DEPTH_1_BIT
        session: PromptSession[str] = PromptSession(
            self._prompt,
            multiline=True,
            prompt_continuation="  ",
            history=self._history,
            completer=self._completer,
            complete_while_typing=Condition(lambda: session.default_buffer.text.startswith(",")),
            reserve_space_for_menu=MENU_ROWS,
            key_bindings=self._make_keys(),
            style=Style.from_dict({"aside": "ansibrightblack" if self._colour else ""}),
            include_default_pygments_style=False,
            color_depth=depth,
            output=self._output,
        )
        session.app.min_redraw_interval = REDRAW_SECONDS
        session.app.layout.container = ParkedCursor(
            session.app.layout, lambda: self._live.busy and not session.app.is_done
        )
        return session

    def _prompt(self) -> StyleAndTextTuples:
        """Compose the text before the cursor: the text in progress, a spinner, the prompt."""
        live = self._live
        if not live.busy or (self._session is not None and self._session.app.is_done):
            return [("", PROMPT)]
        size = self._output.get_size()
        width = max(len(STOP_HINT) + 10, size.columns - 1)
        # No more than are above: tmux, folding rows, scrolls as many out at the top, where nothing can be erased.
        max_rows = min(MAX_LIVE_ROWS, max(MIN_LIVE_ROWS, self._rows_above), max(1, size.rows - MENU_ROWS - 2))
        call = live.calls[-1] if live.calls else None
        activity = f"{call.name} {call.arguments}" if call else "writing" if live.text else "working"
        clock = f" {time.monotonic() - live.started:.0f} s"
        status = fold_rows(" ".join(neutralise(activity).split()), width - len(clock + STOP_HINT) - 2, 99)[0].rstrip()
        text = fold_rows(live.text, width, max_rows) if live.text else []
        aside = f"{SPINNER_FRAMES[live.frame % len(SPINNER_FRAMES)]} {status}{clock}{STOP_HINT}"
        return [*[("", f"{row}\n") for row in text], ("class:aside", f"{aside}\n"), ("", PROMPT)]

    def _ask_to_stop(self) -> None:
        self._stops.put_nowait(StopRequest(self.name, self._chat))

    def _make_keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.current_line_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.newline(copy_margin=False)
            else:
                buffer.validate_and_handle()

        @keys.add("tab")
        def _complete(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            request = CompleteEvent(completion_requested=True)
            completions = list(self._completer.get_completions(buffer.document, request))
            if len(completions) == 1:  # at once: the menu comes a moment later
                buffer.apply_completion(completions[0])
            elif buffer.complete_state:
                buffer.complete_next()
            else:
                buffer.start_completion(insert_common_part=True)

        @keys.add("escape", "enter")
        @keys.add("escape", "c-j")  # the form in which it arrives if typed before the editor started
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _stop(event: KeyPressEvent) -> None:
            if self._live.busy:
                self._ask_to_stop()
                return
            event.current_buffer.reset()
            self._put(dim(LEAVE_HINT, colour=self._colour))

        return keys


@contextmanager
def _handle_interrupts(on_interrupt: Callable[[], None]) -> Iterator[None]:
    """Call `on_interrupt` for each SIGINT within the block; then restore the previous handler."""
    loop, previous = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, previous)


def create(options: ChannelOptions) -> TerminalChannel:
    return TerminalChannel(options)
