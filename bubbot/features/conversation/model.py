"""The commands about the model and the status of a conversation."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command
from bubbot.errors import CommandRefused, ConfigError, ModelError, ValueInvalid
from bubbot.ports.channel import Role
from bubbot.ports.health import HealthReport
from bubbot.ports.model import Model
from bubbot.ports.turn import Turn
from bubbot.runtime.model_choice import switch_model
from bubbot.runtime.models import SessionModels
from bubbot.texts import Texts
from bubbot.tool import ADMINISTERS, INSIDE, READS_OWN, CommandHelp, HelpTopic

MAX_MODEL_NAME = 200


class ModelArgs(Args, frozen=True):
    """A model to switch to."""

    name: Annotated[str, Meta(description="the model to switch to", max_length=MAX_MODEL_NAME)] = ""


class RelearnArgs(Args, frozen=True):
    """A model that refused something."""

    name: Annotated[
        str, Meta(description="the model; without a name the one that answers here", max_length=MAX_MODEL_NAME)
    ] = ""


class ModelHere(Struct, frozen=True):
    """The model that answers in a chat.

    Attributes:
        name: its name; empty if none can answer.
        reason: why none can, as an error says it.
    """

    name: str = ""
    reason: str = ""

    def say(self, texts: Texts) -> str:
        """Say which one it is."""
        return texts.say("model_here", name=self.name) if self.name else texts.say("model_nowhere", reason=self.reason)


class ModelChoice(Struct, frozen=True):
    """The models of a chat.

    Attributes:
        current: the one that answers here.
        names: those to choose from.
        rules: what refusals taught about the current one.
    """

    current: ModelHere
    names: tuple[str, ...]
    rules: tuple[str, ...]

    def describe(self, caller: Caller) -> str:
        """Name them, and say what is known of the current one."""
        texts, names = caller.texts, ", ".join(self.names)
        lines = [texts.say("model_choice", current=self.current.say(texts), names=names)]
        if self.rules:
            lines.append(texts.say("model_known", model=self.current.name, rules=", ".join(self.rules)))
        return "\n".join(lines)


class ModelSwitch(Struct, frozen=True):
    """The model of a chat after a switch.

    Attributes:
        name: the model.
        changed: false if it answered here before.
        entry: the anchor of the window that was opened for it; 0 if it goes on in the same one.
        notice: what people should know of it; None for nothing.
    """

    name: str
    changed: bool = True
    entry: int = 0
    notice: str | None = None

    def describe(self, caller: Caller) -> str:
        """Say what answers from now on."""
        if not self.changed:
            return caller.texts.say("ModelSwitch.same", name=self.name)
        answer = caller.texts.say("ModelSwitch", name=self.name)
        answer += caller.texts.say("ModelSwitch.window", entry=self.entry) if self.entry else ""
        return f"{answer} {self.notice}" if self.notice else answer


class ModelRelearned(Struct, frozen=True):
    """A model of which nothing is known any more.

    Attributes:
        model: its name.
        variant: `nothing` if nothing was known before.
    """

    model: str
    variant: Literal["again", "nothing"]


class SessionIdle(Struct, frozen=True):
    """A chat in which nothing else runs.

    Attributes:
        current: the model that answers here.
        entries: how many entries its tape has.
        health: lines about the whole bot, for those who may know.
    """

    current: ModelHere
    entries: int
    health: tuple[str, ...]

    def describe(self, caller: Caller) -> str:
        """Say all of it."""
        idle = caller.texts.say("SessionIdle", model=self.current.say(caller.texts), entries=self.entries)
        return "\n".join([idle, *self.health])


class NothingToStop(Struct, frozen=True):
    """A chat in which no answer is under way."""


class ModelCommands:
    """The commands about what answers in a chat, for the turns of a bot."""

    def __init__(self, models: SessionModels, report: HealthReport | None = None) -> None:
        """Build them.

        Args:
            models: the models of each session.
            report: the health of the whole bot, for admins and owners.
        """
        self._models = models
        self._report = report

    @command(
        "session model",
        chat=("session.model", "model"),
        in_shell=False,
        effect=INSIDE,
        help=CommandHelp(
            HelpTopic.SETTINGS,
            "See or change the model",
            (",model", ",model openai/gpt-5-mini"),
            in_menu=True,
            words=("settings",),
        ),
    )
    async def model(self, caller: Caller, args: ModelArgs) -> ModelChoice | ModelSwitch:
        """Say which model answers here, or switch this conversation to another one."""
        turn, name, names = caller.required_turn, args.name.strip(), self._models.list_names()
        if not name:
            current = await self._find_current(turn)
            return ModelChoice(current, tuple(names), self._list_rules(current.name))
        if not turn.role.at_least(Role.OWNER):
            raise CommandRefused("model_for_owner", role=turn.role)
        try:
            after = self._models.get_model(name)
        except ConfigError as error:
            raise ValueInvalid("model_unknown", name=name, problem=error, names=", ".join(names)) from error
        return await self._switch(turn, after)

    @command(
        "session relearn",
        chat=("session.relearn", "model.relearn"),
        in_shell=False,
        role=Role.OWNER,
        effect=ADMINISTERS,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Ask a model again for what it refused",
            (",model.relearn", ",model.relearn ollama/gemma3:4b"),
            words=("settings",),
        ),
    )
    async def relearn(self, caller: Caller, args: RelearnArgs) -> ModelRelearned:
        """Forget what refusals taught about a model, after its server was changed: it is asked in the usual form again."""
        name = args.name.strip() or (await self._models.model_for_turn(caller.required_turn)).name
        return ModelRelearned(name, "again" if await self._models.lessons.forget(name) else "nothing")

    @command(
        "session status",
        chat=("session.status", "status"),
        in_shell=False,
        effect=READS_OWN,
        help=CommandHelp(
            HelpTopic.SETTINGS, "How I am and what I am doing", (",status",), in_menu=True, words=("settings",)
        ),
    )
    async def status(self, caller: Caller) -> SessionIdle:
        """Say whether I am busy here, which model answers, and how long the tape is."""
        turn, report = caller.required_turn, self._report
        current, entries = await self._find_current(turn), await turn.tape.head()
        health = await report(turn.role, direct=caller.is_direct, own=1, texts=turn.texts) if report else ()
        return SessionIdle(current, entries, tuple(health))

    @command(
        "session stop",
        chat=("session.stop", "stop"),
        in_shell=False,
        effect=INSIDE,
        help=CommandHelp(HelpTopic.TALK, "Stop the answer under way", (",stop",), in_menu=True, words=("cancel",)),
    )
    async def stop(self) -> NothingToStop:
        """Stop the answer under way in this conversation."""
        return NothingToStop()  # of a turn that runs, the gate ends it before

    async def _find_current(self, turn: Turn) -> ModelHere:
        try:
            return ModelHere((await self._models.model_for_turn(turn)).name)
        except ModelError as error:
            return ModelHere(reason=turn.texts.reason(error))

    def _list_rules(self, name: str) -> tuple[str, ...]:
        """Return what refusals taught about a model; nothing without one."""
        known = self._models.lessons.find_known(name) if name else ()
        return tuple(lesson.rule for lesson in known if lesson.find_tokens("context") or not lesson.is_about_size)

    async def _switch(self, turn: Turn, after: Model) -> ModelSwitch:
        """Write the switch to the tape; open a new window if the new model needs the conversation in another form."""
        try:
            before: Model | None = await self._models.model_for_turn(turn)
        except ModelError:
            before = None
        if before is after:
            return ModelSwitch(after.name, changed=False)
        anchor = await switch_model(turn.tape, before, after)
        return ModelSwitch(after.name, entry=anchor.id if anchor else 0, notice=after.traits.notice)
