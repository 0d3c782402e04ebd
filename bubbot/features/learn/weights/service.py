"""Offers of newer weights: the one writer of their facts, and the commands of owners."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from bubbot.command import Caller, command
from bubbot.errors import CommandRefused, ConfigError, ValueInvalid
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.features.learn.weights.digest import digest_weights, is_unchanged
from bubbot.features.learn.weights.facts import (
    ExportReady,
    OwnerTold,
    WeightFile,
    WeightsAccepted,
    WeightsOffered,
    WeightsWithdrawn,
)
from bubbot.features.learn.weights.results import (
    LearnStatus,
    OfferArgs,
    OfferedWeights,
    SessionOnWeights,
    WeightsBack,
    WeightsChange,
    WeightsOffer,
)
from bubbot.features.learn.weights.state import LEARN_PROJECTION, LearnState
from bubbot.features.learn.weights.trial import FindTrial, Trial
from bubbot.folder_digest import DIGEST, PREFIX
from bubbot.ports.channel import Role
from bubbot.ports.session_names import read_session
from bubbot.runtime.model_choice import switch_query
from bubbot.tape.events import ModelSwitched
from bubbot.tape.fact import Cited
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import TapeService
from bubbot.tape.store import SYSTEM_TAPE_PREFIX, TapeStore
from bubbot.tool import ADMINISTERS, READS_PEOPLE, CommandHelp, HelpTopic

if TYPE_CHECKING:
    from bubbot.features.learn.weights.turns import RewardedTurns

log = logging.getLogger(__name__)


class WeightsRules(Struct, frozen=True):
    """What the service goes by.

    Attributes:
        find_section: returns `[learn]` of the settings in force.
        find_configured: returns the name of the configured model.
        check_model: raises `ConfigError` if there can be no such model.
        find_trial: returns what an evaluation says of an offer.
        find_turns: returns what counts turns with a reward; None while nothing counts them.
    """

    find_section: Callable[[], LearnSettings]
    find_configured: Callable[[], str]
    check_model: Callable[[str], None]
    find_trial: FindTrial
    find_turns: Callable[[], RewardedTurns | None]


class WeightsService:
    """What was offered, accepted and taken back. Changes are durable when they return."""

    def __init__(
        self,
        store: TapeStore,
        open_tape: Callable[[str], TapeService],
        rules: WeightsRules,
        *,
        projections: ProjectionRunner | None = None,
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Read nothing yet; see `load`. `on_changed` is called after each change."""
        self._store = store
        self._open_tape = open_tape
        self.rules = rules
        self._tape = open_tape(LEARN_TAPE)
        projections = projections or ProjectionRunner()
        self._projected = projections.project(LEARN_PROJECTION, self._tape)
        self._lock = projections.lock(self._tape.name)
        self._on_changed = on_changed

    async def load(self) -> None:
        """Read the tape, once; later changes update the state."""
        await self._projected.ensure_loaded()

    @property
    def state(self) -> LearnState:
        """What holds now. It reads nothing."""
        return self._projected.state

    async def catch_up(self) -> LearnState:
        """Read what was appended since, and return what holds now."""
        return await self._projected.catch_up()

    async def write(
        self,
        fact: WeightsOffered | WeightsAccepted | WeightsWithdrawn | ExportReady | OwnerTold,
        key: str | None = None,
    ) -> None:
        """Append a fact, unless its key is there, and follow it."""
        await self._projected.append(fact.to_entry(key=key))

    @command(
        "learn offer <model>",
        chat=("learn.offer",),
        form="<model> [weights]",
        example="openai//srv/models/second --weights /srv/models/second",
        role=Role.OWNER,
        effect=ADMINISTERS,
        is_direct=True,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Offer a model with newer weights",
            (",learn.offer openai//srv/models/second", ",learn.offer openai/second weights=/srv/models/second"),
        ),
    )
    async def offer(self, caller: Caller, args: OfferArgs) -> WeightsOffer:
        """Offer a model with newer weights. Nothing changes until they are accepted: by the evaluation of the settings, or by you."""
        model = args.model.strip()
        try:
            self.rules.check_model(model)
        except ConfigError as error:
            raise ValueInvalid("learn_model_unknown", model=model, problem=error) from error
        weights, folder, files = await asyncio.to_thread(_read_weights, model, args.weights.strip())
        section = self.rules.find_section()
        async with self._lock:
            state = await self.catch_up()
            before = state.open_offer
            is_new = before is None or (before.fact.model, before.fact.weights, before.fact.files) != (
                model,
                weights,
                files,
            )
            if is_new:
                await self.write(WeightsOffered(model, weights, folder, files, _find_place(caller)))
        log.info("weights offered", extra={"action": "learn.offered", "model": model})
        self._on_changed()
        return WeightsOffer(model, weights, section.evaluation, is_new)

    @command(
        "learn accept",
        chat=("learn.accept",),
        role=Role.OWNER,
        effect=ADMINISTERS,
        is_direct=True,
        undo="learn back",
        help=CommandHelp(HelpTopic.ADMIN, "Accept the weights that were offered", (",learn.accept",)),
    )
    async def accept(self, caller: Caller) -> WeightsChange:
        """Let windows that open from now on be answered by the offered weights, unless a person chose a model for the chat.

        Only without `[learn] evaluation`: with it, the weights have to pass that.
        """
        section = self.rules.find_section()
        async with self._lock:
            state = await self.catch_up()
            if (offer := state.open_offer) is None:
                raise CommandRefused("learn_no_offer")
            if section.evaluation:
                raise CommandRefused("learn_not_by_hand", evaluation=section.evaluation, model=offer.fact.model)
            await self._check_folder(offer.fact)
            await self._accept(offer, by=_find_place(caller))
        self._on_changed()
        return WeightsChange(offer.fact.model, offer.fact.weights)

    @command(
        "learn back",
        chat=("learn.back",),
        role=Role.OWNER,
        effect=ADMINISTERS,
        is_direct=True,
        help=CommandHelp(HelpTopic.ADMIN, "Take newer weights back", (",learn.back",)),
    )
    async def back(self, caller: Caller) -> WeightsBack:
        """Take back the newest weights that were accepted, else those that are offered: chats go back with their next message.

        They go back to the weights that were accepted before, if those were not taken back, else to the configured model.
        """
        async with self._lock:
            state = await self.catch_up()
            accepted, offer = state.newest_accepted, state.open_offer
            if accepted is not None:
                fact = WeightsWithdrawn(
                    accepted.fact.offer, accepted.fact.model, accepted.fact.weights, _find_place(caller)
                )
            elif offer is not None:
                fact = WeightsWithdrawn(offer.id, offer.fact.model, offer.fact.weights, _find_place(caller))
            else:
                raise CommandRefused("learn_nothing_back")
            await self.write(fact, key=f"withdrawn:{fact.offer}")
            newest = self.state.newest_accepted
        log.info("weights taken back", extra={"action": "learn.withdrawn", "model": fact.model})
        self._on_changed()
        model = newest.fact.model if newest else self.rules.find_configured()
        return WeightsBack(fact.model, fact.weights, model, was_accepted=accepted is not None)

    @command(
        "learn status",
        chat=("learn.status", "learn"),
        role=Role.OWNER,
        effect=READS_PEOPLE,
        is_direct=True,
        help=CommandHelp(HelpTopic.ADMIN, "Exports for training, and newer weights", (",learn",)),
    )
    async def status(self) -> LearnStatus:
        """Say which weights were offered, accepted and taken back, which chats are on them, and how many rated turns are missing."""
        section, state = self.rules.find_section(), await self.catch_up()
        turns = self.rules.find_turns() if section.after else None
        count = await turns.look([*state.exports]) if turns is not None else 0
        offer, export = state.open_offer, state.newest_export
        trial = await self.find_trial() if offer is not None and section.evaluation else None
        return LearnStatus(
            after=section.after,
            turns=count,
            missing=max(0, section.after - count),
            export=export.fact.file if export else "",
            number=export.fact.number if export else 0,
            offered=None if offer is None else OfferedWeights.of(offer.fact, offer.date),
            evaluation=section.evaluation,
            pass_share=section.pass_share,
            trial=trial,
            has_passed=trial is not None and trial.has_passed(section.pass_share),
            accepted=tuple(OfferedWeights.of(each.fact, each.date) for each in reversed([*state.accepted])),
            withdrawn=tuple(OfferedWeights.of(each.fact, each.date) for each in reversed([*state.withdrawn])),
            configured=self.rules.find_configured(),
            sessions=tuple(await self._find_sessions()) if len(state.accepted) or len(state.withdrawn) else (),
            changed=tuple(await self._find_changed()),
        )

    async def _find_changed(self) -> list[str]:
        """Find the models in use, and the offered one, whose folder has other files now."""
        state, offer = self.state, self.state.open_offer
        known = [each for each in state.offers if each == offer or each.id in state.accepted]
        return [
            each.fact.model
            for each in known
            if each.fact.folder and not await asyncio.to_thread(is_unchanged, each.fact)
        ]

    async def find_trial(self) -> Trial:
        """Return what the evaluation of the settings says of the open offer."""
        section, offer = self.rules.find_section(), self.state.open_offer
        if offer is None or not section.evaluation:
            return Trial()
        newest = self.state.newest_accepted
        in_use = newest.fact.model if newest else self.rules.find_configured()
        return await self.rules.find_trial(self._open_tape, section.evaluation, offer.fact.model, in_use, offer.date)

    async def accept_by_rule(self) -> bool:
        """Accept the open offer if it has passed the evaluation of the settings; return true if it did.

        Raises:
            ConfigError: its folder has other weights now.
        """
        async with self._lock:
            state, section = await self.catch_up(), self.rules.find_section()
            offer, trial = state.open_offer, await self.find_trial()
            if offer is None or not trial.has_passed(section.pass_share):
                return False
            await self._check_folder(offer.fact)
            await self._accept(offer, evaluation=section.evaluation, run=trial.run)
        return True

    async def _accept(self, offer: Cited[WeightsOffered], *, evaluation: str = "", run: str = "", by: str = "") -> None:
        newest, fact = self.state.newest_accepted, offer.fact
        before = newest.fact.model if newest else self.rules.find_configured()
        accepted = WeightsAccepted(offer.id, fact.model, fact.weights, evaluation, run, before, by)
        await self.write(accepted, key=f"accepted:{offer.id}")
        log.info("weights accepted", extra={"action": "learn.accepted", "model": fact.model})

    async def _check_folder(self, offer: WeightsOffered) -> None:
        """Raise `ConfigError` if the folder of an offer has other weights now."""
        if not offer.folder:
            return
        if not await asyncio.to_thread(_has_weights, offer):
            raise ConfigError(f"{offer.folder} has other weights now than those that were offered: offer them again")

    async def _find_sessions(self) -> Sequence[SessionOnWeights]:
        """Find the sessions that a rule switched, with the model that answers there."""
        found = list[SessionOnWeights]()
        for tape in await self._store.tapes():
            if tape.archived_from is not None or not tape.head or tape.name.startswith(SYSTEM_TAPE_PREFIX):
                continue
            (entries,) = await self._store.fetch([switch_query(tape.name)])
            switch = ModelSwitched.try_of(entries[0]) if entries else None
            if switch is not None and switch.accepted and isinstance(switch.weights, str):
                is_taken_back = all(each.id != switch.accepted for each in self.state.accepted)
                session = await read_session(self._store, tape.name) or tape.name
                found.append(SessionOnWeights(session, switch.model, switch.weights, is_taken_back))
        return sorted(found, key=lambda each: each.session)


def _find_place(caller: Caller) -> str:
    """Return `terminal`, or the channel of a caller. Not who it is: what they decided holds on if they are forgotten."""
    return caller.id.partition(":")[0]


def _has_weights(offer: WeightsOffered) -> bool:
    """Return true if the folder of an offer has its weights still; they are read only if its files seem to be the same."""
    return is_unchanged(offer) and digest_weights(Path(offer.folder))[0] == offer.weights


def _read_weights(model: str, text: str) -> tuple[str, str, tuple[WeightFile, ...]]:
    """Return the digest that a text names, or that of the folder which it names, with the folder and its files.

    Without a text the name of the model after its provider is the folder, as servers have it that load a folder by its path.

    Raises:
        ValueInvalid: it is neither.
        ConfigError: the folder has no weights, or cannot be read.
    """
    if text.startswith(PREFIX):
        if not DIGEST.fullmatch(text):
            raise ValueInvalid("learn_digest_invalid", value=text)
        return text, "", ()
    # Of `os.path`: a user that there is not and a name that is too long are no errors of it.
    folder = Path(os.path.expanduser(text or model.partition("/")[2]))  # noqa: PTH111
    if not folder.is_absolute() or not os.path.isdir(folder):  # noqa: PTH112
        raise ValueInvalid("learn_no_folder", value=text or model)
    weights, files = digest_weights(folder)
    return weights, str(folder), files
