"""The rule that lets sessions use accepted weights: from the beginning of a window on, announced, and taken back as soon as they are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bubbot.errors import ConfigError, ModelError
from bubbot.features.learn.weights.digest import is_unchanged
from bubbot.features.learn.weights.facts import WeightsAccepted, WeightsOffered
from bubbot.features.learn.weights.state import LearnState
from bubbot.middleware import CallNext, ModelCall
from bubbot.ports.channel import Outbound, Role
from bubbot.ports.model import Model, ModelReply
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.model_choice import switch_model, switch_query
from bubbot.runtime.models import SessionModels
from bubbot.tape.entry import TapeEntry, text_field
from bubbot.tape.events import ModelSwitched
from bubbot.tape.fact import Cited
from bubbot.tape.query import OpeningAnchor, TapeQuery

log = logging.getLogger(__name__)


class WeightsSwitcher:
    """Switches the model of sessions, and knows which weights answered a call."""

    def __init__(
        self,
        find_state: Callable[[], LearnState],
        find_models: Callable[[], SessionModels],
        stage: Callable[[Turn, str, Outbound], bool],
    ) -> None:
        """Take what it goes by.

        Args:
            find_state: returns what was accepted and taken back.
            find_models: returns the models of sessions under the settings in force.
            stage: adds a message to what a turn sends.
        """
        self._find_state = find_state
        self._find_models = find_models
        self._stage = stage

    async def around_turn(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Switch the model of the session before its turn, if the rule says so."""
        state = self._find_state()
        if (len(state.accepted) or len(state.withdrawn)) and turn.role is not Role.STRANGER:
            await self._follow_rule(turn, state)
        return await call_next(turn)

    async def around_model(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        """Note which weights answered, if that is certain."""
        name, state = call.model.name, self._find_state()
        offer = state.offers.find(name)
        weights = await _find_weights(call.turn, offer.fact) if offer is not None else ""
        reply = await call_next(call)
        if weights and reply.model in ("", name) and call.model.name == name:
            call.weights = weights
        return reply

    async def _follow_rule(self, turn: Turn, state: LearnState) -> None:
        opening = TapeQuery(turn.tape.name, OpeningAnchor(), missing="empty")
        anchors, switches = await turn.tape.fetch([opening, switch_query(turn.tape.name)])
        switch = ModelSwitched.try_of(switches[0]) if switches else None
        if not anchors or (switch is not None and switch.is_choice):
            return
        due, current = state.find_accepted(anchors[0].date), switch.accepted if switch is not None else 0
        if (due.id if due else 0) == current:
            if switch is not None and _is_of_interrupted(turn, switches[0]):  # whoever it told was not told
                self._announce(turn, switch.model, due)
            return
        models = self._find_models()
        try:
            after = models.get_model(due.fact.model) if due else models.default
        except ConfigError as error:
            log.warning(
                "accepted weights cannot be used: %s", error,
                extra={"action": "learn.unusable", "session": turn.session},
            )  # fmt: skip
            return
        await switch_model(
            turn.tape,
            await _find_current(models, turn),
            after,
            owner="agent",
            weights=due.fact.weights if due else "",
            accepted=due.id if due else 0,
        )
        self._announce(turn, after.name, due)

    def _announce(self, turn: Turn, model: str, due: Cited[WeightsAccepted] | None) -> None:
        """Say it once in the chat: with the answer to a person, else in a message of its own."""
        text = (
            turn.texts.say("weights_answer", model=model, weights=due.fact.weights)
            if due
            else turn.texts.say("weights_taken_back", model=model)
        )
        if turn.is_typed:
            turn.alerts.append(text)
            return
        channel, chat, *thread = turn.session.split(":", 2)
        self._stage(turn, f"weights:{turn.id}", Outbound(channel, chat, text, "".join(thread)))


async def _find_current(models: SessionModels, turn: Turn) -> Model | None:
    try:
        return await models.model_for_tape(turn.tape)
    except ModelError:
        return None


async def _find_weights(turn: Turn, offer: WeightsOffered) -> str:
    """Return the digest of the weights of a model that was offered; empty if it is not certain.

    It is as long as its folder has the same files. If only the digest was given, it is an owner's word, which holds where the rule
    has switched to exactly these weights.
    """
    if offer.folder:
        return offer.weights if await asyncio.to_thread(is_unchanged, offer) else ""
    (entries,) = await turn.tape.fetch([switch_query(turn.tape.name)])
    switch = ModelSwitched.try_of(entries[0]) if entries else None
    is_switched = switch is not None and (switch.model, switch.weights) == (offer.model, offer.weights)
    return offer.weights if is_switched else ""


def _is_of_interrupted(turn: Turn, switch: TapeEntry) -> bool:
    """Return true if a turn wrote this switch that was interrupted, and is run again now."""
    written = text_field(switch.meta, "turn")
    return bool(written) and any(each.interrupted_turn == written for each in turn.inbounds)
