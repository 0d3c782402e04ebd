"""The feature: commands about windows, answers and models, and tools about the tape and its results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from bubbot.command import make_tools
from bubbot.feature import Feature
from bubbot.features.conversation.commands import ConversationCommands
from bubbot.features.conversation.model import ModelCommands
from bubbot.features.conversation.reset import FindCopies, FindTraces, KeepsMemory, ResetCommands
from bubbot.features.conversation.tape import tape_tools
from bubbot.gateway.inbox_views import SessionTraceView
from bubbot.ports.health import HealthReport
from bubbot.ports.people import FindOwners
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import ComposedRequest
from bubbot.runtime.models import SessionModels
from bubbot.tool import Tool

HANDOFF_RULE = "When a phase is over, call tape_handoff with a summary and next steps: it opens a new window."


def conversation_feature(
    *,
    models: SessionModels,
    compose: Callable[[Turn], Awaitable[ComposedRequest]],
    list_tools: Callable[[], Sequence[Tool]],
    report: HealthReport | None,
    traces: Sequence[str],
    forget: Callable[[str], None],
    memory: KeepsMemory | None,
    view_traces: Callable[[str], SessionTraceView] = SessionTraceView,
    reserved_names: Sequence[str] = (),
    find_traces: FindTraces | None = None,
    wait_until_sent: Callable[[Turn], Awaitable[None]] | None = None,
    find_copies: FindCopies | None = None,
    name_tape: Callable[[str], Awaitable[str]] | None = None,
    find_owners: FindOwners | None = None,
    restart: Callable[[], None] = lambda: None,
    bot_name: str = "bubbot",
) -> Feature:
    """Build the record.

    Args:
        models: the models of each session.
        compose: builds the next request of a turn, for `,context`.
        list_tools: returns all tools, for `,help`.
        report: reports the health of the bot, for `,status`.
        traces: tapes with texts of sessions, for `,reset erase`.
        forget: removes the files that channels keep of a session.
        memory: the memory of sessions; None without one.
        view_traces: builds the view that finds the entries of a session on these tapes.
        reserved_names: what the name of a handoff may not begin with, nor that of an anchor to resume.
        find_traces: returns further such tapes, for the session of a turn.
        wait_until_sent: returns when nothing for the chat of a turn is being sent any more.
        find_copies: finds what other chats hold of a tape, for `,reset erase`.
        name_tape: returns the session of a tape.
        find_owners: names those who decide about the chats of a channel.
        restart: lets the bot start again.
        bot_name: the name of the bot, for `,start`.
    """
    talk = ConversationCommands(list_tools, compose, bot_name, reserved_names)
    model = ModelCommands(models, report)
    reset = ResetCommands(
        traces,
        forget,
        memory,
        view_traces=view_traces,
        find_traces=find_traces,
        wait_until_sent=wait_until_sent,
        find_copies=find_copies,
        name_tape=name_tape,
        find_owners=find_owners,
        restart=restart,
    )
    tools = [
        *make_tools(ConversationCommands, lambda: talk),
        *make_tools(ModelCommands, lambda: model),
        *make_tools(ResetCommands, lambda: reset),
        *tape_tools(reserved_names),
    ]
    return Feature(name="conversation", tools=tools, prompt=(HANDOFF_RULE,))
