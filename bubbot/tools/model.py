"""The command about the model of a conversation."""

from __future__ import annotations

from pydantic import Field

from bubbot.errors import ConfigError, ModelError, ToolFailed, ToolRetry
from bubbot.ports.channel import Role
from bubbot.ports.model import Model
from bubbot.ports.tool import NoArgs, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.models import SessionModels
from bubbot.runtime.report import HealthReport, no_report
from bubbot.tape import entry as make
from bubbot.tape.anchor import SESSION_MODEL
from bubbot.views.model import SWITCHED

MAX_MODEL_NAME = 200


class ModelArgs(ToolArgs):
    """What `session.model` takes."""

    name: str = Field(default="", description="the model to switch to", max_length=MAX_MODEL_NAME)


def model_tool(models: SessionModels) -> Tool:
    """`session.model` over the models there are."""

    @tool("session.model", commands=("model",), for_model=False)
    async def session_model(turn: Turn, args: ModelArgs) -> str:
        """Say which model answers here, or switch this conversation to another one."""
        name = args.name.strip()
        if not name:
            current = await _current(models, turn)
            return turn.texts.say("model_choice", current=current, names=", ".join(models.names()))
        if not turn.role.at_least(Role.OWNER):
            raise ToolFailed(turn.texts.say("model_for_owner", role=turn.texts.role(turn.role)))
        try:
            wanted = models.named(name)
        except ConfigError as error:
            names = ", ".join(models.names())
            raise ToolRetry(turn.texts.say("model_unknown", name=name, problem=error, names=names)) from error
        return await _switch(models, turn, wanted.name)

    return session_model


def status_tools(models: SessionModels, report: HealthReport = no_report) -> list[Tool]:
    """`session.status` and `session.stop` as they answer where no turn is under way; else the gate answers them.

    `report`: how the whole bot is; admins and owners are told.
    """

    @tool("session.status", commands=("status",), for_model=False)
    async def session_status(turn: Turn, args: NoArgs) -> str:
        """Say whether I am busy here, which model answers, and how long the tape is."""
        idle = turn.texts.say("idle", model=await _current(models, turn), entries=await turn.tape.head())
        direct = all(one.inbound.direct for one in turn.inbounds)
        return "\n".join([idle, *await report(turn.role, direct=direct, own=1)])

    @tool("session.stop", commands=("stop",), for_model=False)
    async def session_stop(turn: Turn, args: NoArgs) -> str:
        """Stop the answer under way in this conversation."""
        return turn.texts.say("nothing_to_stop")

    return [session_status, session_stop]


async def _current(models: SessionModels, turn: Turn) -> str:
    try:
        return turn.texts.say("model_here", name=(await models.of(turn)).name)
    except ModelError as error:
        return turn.texts.say("model_nowhere", reason=turn.texts.reason(error))


async def _switch(models: SessionModels, turn: Turn, name: str) -> str:
    """Writes the fact. Models that are shown the conversation in another form begin with a new window."""
    wanted = models.named(name)
    try:
        before: Model | None = await models.of(turn)
    except ModelError:
        before = None
    if before is wanted:
        return turn.texts.say("model_same", name=name)
    await turn.tape.append([make.event(SWITCHED, {"model": name, "before": before.name if before else ""})])
    said = turn.texts.say("model_switched", name=name)
    if before and before.traits.short_prompt != wanted.traits.short_prompt:
        opened = await turn.tape.handoff(SESSION_MODEL, {"owner": "human", "model": name})
        said += turn.texts.say("model_window", entry=opened.id)
    return f"{said} {wanted.traits.notice}" if wanted.traits.notice else said
