"""The commands about the model and the status of a conversation."""

from pydantic import Field

from bubbot.errors import ConfigError, ModelError, ToolFailed, ToolRetry
from bubbot.ports.channel import Role
from bubbot.ports.health import HealthReport, report_nothing
from bubbot.ports.model import Model
from bubbot.ports.tool import ADMINISTERS, INSIDE, READS_OWN, CommandHelp, HelpTopic, NoArgs, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.model_choice import SWITCHED
from bubbot.runtime.models import SessionModels
from bubbot.tape import entry as make
from bubbot.tape.anchor import SESSION_MODEL

MAX_MODEL_NAME = 200


class ModelArgs(ToolArgs):
    """The arguments of `session.model`."""

    name: str = Field(default="", description="the model to switch to", max_length=MAX_MODEL_NAME)


def model_tool(models: SessionModels) -> Tool:
    """Build `session.model` for these models."""

    @tool(
        "session.model",
        effect=INSIDE,
        commands=("model",),
        for_model=False,
        help=CommandHelp(
            HelpTopic.SETTINGS,
            "See or change the model",
            (",model", ",model openai/gpt-5-mini"),
            in_menu=True,
            words=("settings",),
        ),
    )
    async def session_model(turn: Turn, args: ModelArgs) -> str:
        """Say which model answers here, or switch this conversation to another one."""
        name = args.name.strip()
        if not name:
            current = await _describe_current(models, turn)
            answer = turn.texts.say("model_choice", current=current, names=", ".join(models.list_names()))
            return "\n".join([answer, *await _describe_lessons(models, turn)])
        if not turn.role.at_least(Role.OWNER):
            raise ToolFailed(turn.texts.say("model_for_owner", role=turn.texts.role(turn.role)))
        try:
            model = models.get_model(name)
        except ConfigError as error:
            names = ", ".join(models.list_names())
            raise ToolRetry(turn.texts.say("model_unknown", name=name, problem=error, names=names)) from error
        return await _switch(models, turn, model.name)

    return session_model


class RelearnArgs(ToolArgs):
    """The arguments of `session.relearn`."""

    name: str = Field(
        default="", description="the model; without a name the one that answers here", max_length=MAX_MODEL_NAME
    )


def relearn_tool(models: SessionModels) -> Tool:
    """Build `session.relearn` for these models."""

    @tool(
        "session.relearn",
        effect=ADMINISTERS,
        commands=("model.relearn",),
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Ask a model again for what it refused",
            (",model.relearn", ",model.relearn ollama/gemma3:4b"),
            words=("settings",),
        ),
    )
    async def session_relearn(turn: Turn, args: RelearnArgs) -> str:
        """Forget what refusals taught about a model, after its server was changed: it is asked in the usual form again."""
        name = args.name.strip() or (await models.model_for_turn(turn)).name
        count = await models.lessons.forget(name)
        return turn.texts.say("model_relearns" if count else "model_learned_nothing", model=name)

    return session_relearn


def status_tools(models: SessionModels, report: HealthReport = report_nothing) -> list[Tool]:
    """Build `session.status` and `session.stop` for a session without a running turn; else the gate answers them.

    `report`: the health of the whole bot, for admins and owners.
    """

    @tool(
        "session.status",
        effect=READS_OWN,
        commands=("status",),
        for_model=False,
        help=CommandHelp(
            HelpTopic.SETTINGS, "How I am and what I am doing", (",status",), in_menu=True, words=("settings",)
        ),
    )
    async def session_status(turn: Turn, args: NoArgs) -> str:
        """Say whether I am busy here, which model answers, and how long the tape is."""
        idle = turn.texts.say("idle", model=await _describe_current(models, turn), entries=await turn.tape.head())
        direct = all(accepted.inbound.direct for accepted in turn.inbounds)
        return "\n".join([idle, *await report(turn.role, direct=direct, own=1, texts=turn.texts)])

    @tool(
        "session.stop",
        effect=INSIDE,
        commands=("stop",),
        for_model=False,
        help=CommandHelp(HelpTopic.TALK, "Stop the answer under way", (",stop",), in_menu=True, words=("cancel",)),
    )
    async def session_stop(turn: Turn, args: NoArgs) -> str:
        """Stop the answer under way in this conversation."""
        return turn.texts.say("nothing_to_stop")

    return [session_status, session_stop]


async def _describe_current(models: SessionModels, turn: Turn) -> str:
    try:
        return turn.texts.say("model_here", name=(await models.model_for_turn(turn)).name)
    except ModelError as error:
        return turn.texts.say("model_nowhere", reason=turn.texts.reason(error))


async def _describe_lessons(models: SessionModels, turn: Turn) -> list[str]:
    """Say what refusals taught about the model of this chat, if it is anything."""
    try:
        name = (await models.model_for_turn(turn)).name
    except ModelError:
        return []
    known = models.lessons.find_known(name)
    rules = ", ".join(lesson.rule for lesson in known if lesson.find_tokens("context") or not lesson.is_about_size)
    return [turn.texts.say("model_known", model=name, rules=rules)] if rules else []


async def _switch(models: SessionModels, turn: Turn, name: str) -> str:
    """Write the switch to the tape; open a new window if the new model needs the conversation in another form."""
    after = models.get_model(name)
    try:
        before: Model | None = await models.model_for_turn(turn)
    except ModelError:
        before = None
    if before is after:
        return turn.texts.say("model_same", name=name)
    await turn.tape.append([make.event(SWITCHED, {"model": name, "before": before.name if before else ""})])
    answer = turn.texts.say("model_switched", name=name)
    if before and before.traits.short_prompt != after.traits.short_prompt:
        opened = await turn.tape.handoff(SESSION_MODEL, {"owner": "human", "model": name})
        answer += turn.texts.say("model_window", entry=opened.id)
    return f"{answer} {after.traits.notice}" if after.traits.notice else answer
