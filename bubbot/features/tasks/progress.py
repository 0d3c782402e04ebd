"""The message in a chat that says how far a run is: it is edited until the run is over."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta

from bubbot.errors import ConfigError
from bubbot.feature import Kernel
from bubbot.features.tasks.definition import TaskDefinition
from bubbot.features.tasks.state import MARKS, RunState, format_node, say_reason
from bubbot.features.tasks.work import RunWork
from bubbot.ports.channel import Button, ButtonSet, Outbound
from bubbot.ports.session_names import split_session
from bubbot.ports.turn import Turn
from bubbot.texts import Texts

MAX_SHOWN_NODES = 20
"""Nodes that the message names; of more it says how many there are in each state."""
MIN_SECONDS = 3
"""Seconds between two edits while a run goes on."""
BUTTON_SECONDS = 30 * 86_400


class ProgressMessages:
    """Writes and edits the messages. None of them decides anything: `task status` reads the facts."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._shown: dict[str, tuple[str, datetime]] = {}

    def begin(self, turn: Turn, state: RunState, definition: TaskDefinition) -> None:
        """Add the message to what a turn sends."""
        text = format_progress(state, definition, turn.texts)
        self._kernel.stage(turn, progress_key(state.run), self._draw(turn, state, text))

    async def show(self, turn: Turn, work: RunWork) -> None:
        """Edit the message if it says something else now; where the channel cannot edit, it stays as it is."""
        state = work.state
        text = format_progress(state, work.definition, turn.texts)
        before, at = self._shown.get(state.run, ("", None))
        if work.definition.schema.progress != "message" or before == text:
            return
        is_soon = at is not None and turn.now() - at < timedelta(seconds=MIN_SECONDS)
        if is_soon and state.status == "running":  # platforms allow few edits; a later one says the rest
            return
        channel = turn.session.partition(":")[0]
        message = await self._kernel.find_sent(turn.session, channel, progress_key(state.run))
        if not message:
            return
        drawn, key = (
            self._draw(turn, state, text, edits=message),
            f"{progress_key(state.run)}:{turn.id}:{state.revision}",
        )
        if state.has_ended:
            self._shown.pop(state.run, None)
            self._kernel.stage(turn, key, drawn)
            return
        self._shown[state.run] = text, turn.now()
        with suppress(ConfigError):  # its channel does not run any more
            await self._kernel.send(turn.session, key, drawn, {})

    async def end(self, state: RunState, definition: TaskDefinition | None) -> None:
        """Edit the message of a run that somebody ended from anywhere; `definition` if it is at hand."""
        self._shown.pop(state.run, None)
        fact = state.queued.fact
        place = split_session(self._kernel.current_session(state.session))
        message = await self._kernel.find_sent(state.session, fact.channel, progress_key(state.run))
        if not message:
            return
        texts = await self._kernel.find_texts(fact.channel, fact.by, place.chat)
        status = texts.say(f"task_status_{state.status}")
        text = texts.say("RunChange.ended", run=state.run, status=status, reason="").strip()
        if definition is not None:
            text = format_progress(state, definition, texts)
        outbound = Outbound(fact.channel, place.chat, text, place.thread, edits=message)
        with suppress(ConfigError):  # its channel does not run any more
            await self._kernel.send(state.session, f"{progress_key(state.run)}:end", outbound, {})

    def _draw(self, turn: Turn, state: RunState, text: str, *, edits: str = "") -> Outbound:
        inbound = turn.inbounds[0].inbound
        cancel = Button(turn.texts.say("task_button_cancel"), f",task.cancel {state.run}")
        buttons = None if state.has_ended else ButtonSet((cancel,), lifetime_seconds=BUTTON_SECONDS)
        return Outbound(inbound.channel, inbound.chat, text, inbound.thread, buttons=buttons, edits=edits)


def progress_key(run: str) -> str:
    """Return the key of the message of a run."""
    return f"progress:{run}"


def format_progress(state: RunState, definition: TaskDefinition, texts: Texts) -> str:
    """Write the state of a run and of its nodes."""
    title = definition.schema.title or definition.name
    head = texts.say(
        "task_progress",
        title=title,
        run=state.run,
        status=texts.say(f"task_status_{state.status}"),
        mark=MARKS[state.status],
    )
    nodes = state.by_node
    if len(nodes) > MAX_SHOWN_NODES:
        counts = Counter(node.status for node in nodes.values())
        lines = [
            texts.say("task_progress_count", mark=MARKS[status], count=count, status=texts.say(f"task_status_{status}"))
            for status in MARKS
            if (count := counts[status])
        ]
    else:
        schema = definition.schema.nodes
        lines = [
            format_node(
                schema[name].title or name,
                node.status,
                texts,
                approval=node.approval,
                until=node.until,
                reason=say_reason(node.reason, texts),
            )
            for name, node in nodes.items()
        ]
    return "\n".join([head, *lines, *format_end(state, texts)])


def format_end(state: RunState, texts: Texts) -> list[str]:
    """Say why a run ended as it did, and what its harness says."""
    lines = [say_reason(state.reason, texts, state.run)] if state.reason else []
    verdicts = state.verdicts
    if state.has_ended and (verdicts.satisfied or verdicts.violated):
        lines.append(texts.say("task_verdicts", satisfied=verdicts.satisfied, violated=verdicts.violated))
    return lines
