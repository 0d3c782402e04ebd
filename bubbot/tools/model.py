"""The command about the model of a conversation."""

from __future__ import annotations

from pydantic import Field

from bubbot.channel import Role
from bubbot.errors import ConfigError, ModelError, ToolFailed, ToolRetry
from bubbot.model import Model
from bubbot.runtime.models import SessionModels
from bubbot.tape import entry as make
from bubbot.tape.anchor import SESSION_MODEL
from bubbot.tool import Tool, ToolArgs, tool
from bubbot.turn import Turn
from bubbot.views.model import SWITCHED

NAME_LIMIT = 200


class ModelArgs(ToolArgs):
    """What `session.model` takes."""

    name: str = Field(default="", description="the model to switch to", max_length=NAME_LIMIT)


def model_tool(models: SessionModels) -> Tool:
    """`session.model` over the models there are."""

    @tool("session.model", commands=("model",), for_model=False)
    async def session_model(turn: Turn, args: ModelArgs) -> str:
        """Say which model answers here, or switch this conversation to another one."""
        name = args.name.strip()
        if not name:
            return f"{await _current(models, turn)} There are: {', '.join(models.names())}. ,model NAME switches."
        if not turn.role.at_least(Role.OWNER):
            raise ToolFailed(f"only the owner switches models; you are a {turn.role} here")
        try:
            wanted = models.named(name)
        except ConfigError as error:
            raise ToolRetry(f"I cannot switch to {name}: {error}. There are: {', '.join(models.names())}.") from error
        return await _switch(models, turn, wanted.name)

    return session_model


async def _current(models: SessionModels, turn: Turn) -> str:
    try:
        return f"{(await models.of(turn)).name} answers here."
    except ModelError as error:
        return f"No model answers here: {error}."


async def _switch(models: SessionModels, turn: Turn, name: str) -> str:
    """Writes the fact. Models that are shown the conversation in another form begin with a new window."""
    wanted = models.named(name)
    try:
        before: Model | None = await models.of(turn)
    except ModelError:
        before = None
    if before is wanted:
        return f"{name} answers here already."
    await turn.tape.append([make.event(SWITCHED, {"model": name, "before": before.name if before else ""})])
    said = f"{name} answers here from now on, also after a restart."
    if before and before.traits.short_prompt != wanted.traits.short_prompt:
        opened = await turn.tape.handoff(SESSION_MODEL, {"owner": "human", "model": name})
        said += f" A new window opens here (entry {opened.id}); ,resume takes up an earlier anchor."
    return f"{said} {wanted.traits.notice}" if wanted.traits.notice else said
