"""The feature: exports when enough turns were rated, and newer weights by a rule. Without either it reads its own tape at the start, no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from bubbot.command import make_tools
from bubbot.errors import BubbotError
from bubbot.feature import Apply, Around, Feature, Kernel, Lifecycle
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.features.learn.weights.facts import ExportReady, OwnerTold, WeightsAccepted
from bubbot.features.learn.weights.health import NAME, learn_health
from bubbot.features.learn.weights.service import WeightsRules, WeightsService
from bubbot.features.learn.weights.switching import WeightsSwitcher
from bubbot.features.learn.weights.trial import FindTrial
from bubbot.gateway.quarantine_view import QuarantineView
from bubbot.gateway.requests import NotifyOwner
from bubbot.ports.health import FeatureHealth, HealthContext
from bubbot.runtime.models import SessionModels
from bubbot.settings.loader import Settings
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.fork import MergeResult
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts

if TYPE_CHECKING:
    from bubbot.features.learn.weights.turns import RewardedTurns

log = logging.getLogger(__name__)

LOOK_SECONDS = 15.0
"""Seconds after which it looks although no turn ended: reactions and shells judge without one."""
OFFER_TIMEOUT_SECONDS = 3_600.0
"""The longest time that the weights of an offer may take to be read."""


class WeightsFeature:
    """Counts rated turns, exports them, accepts what has passed, and lets sessions use it.

    Attributes:
        service: the one writer of the facts, and the commands.
        trouble: why the last export or acceptance failed; empty if it did not.
    """

    def __init__(
        self,
        kernel: Kernel,
        store: TapeStore,
        settings: Settings,
        *,
        open_turns: Callable[[LearnSettings], RewardedTurns],
        find_models: Callable[[], SessionModels],
        find_trial: FindTrial,
        notify_owner: NotifyOwner,
    ) -> None:
        """Build it without reading anything.

        Args:
            store: all tapes.
            settings: all settings.
            open_turns: returns what counts turns with a reward under these settings.
            find_models: returns the models of sessions under the settings in force.
            find_trial: returns what an evaluation says of an offer.
            notify_owner: notifies an owner in a direct chat.
        """
        self._kernel, self._store = kernel, store
        self._open_turns, self._find_models, self._notify_owner = open_turns, find_models, notify_owner
        self._section = settings.section(LearnSettings)
        self._turns: RewardedTurns | None = None
        self._woken = asyncio.Event()
        self._looked_at = -1
        self._is_held = False
        self.trouble = ""
        rules = WeightsRules(
            lambda: self._section,
            lambda: find_models().default.name,
            self._check_model,
            find_trial,
            self._find_turns,
        )
        self.service = WeightsService(
            store, kernel.open_tape, rules, projections=kernel.projections, on_changed=self._woken.set
        )
        self._switcher = WeightsSwitcher(lambda: self.service.state, find_models, kernel.stage)

    def feature(self) -> Feature:
        """Build the record."""
        return Feature(
            name=NAME,
            tools=make_tools(WeightsService, lambda: self.service, learn_offer={"timeout": OFFER_TIMEOUT_SECONDS}),
            services=(self.service,),
            around=Around(turn=(self._switcher.around_turn,), model=(self._switcher.around_model,)),
            on_merged=(self._wake,),
            lifecycle=Lifecycle(
                lifespan=self._lifespan, background={"exports and newer weights": self.run}, prepare=self._prepare
            ),
            health=self._report,
        )

    def _check_model(self, name: str) -> None:
        """Raise `ConfigError` if there can be no model of this name."""
        self._find_models().get_model(name)

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        await self.service.load()
        # In quarantine the original bot exports and accepts: what people allow may have changed there.
        self._is_held = await self._kernel.open_tape(HOME_TAPE).read(QuarantineView()) is not None
        yield

    @property
    def _is_waiting(self) -> bool:
        """True if something that no command tells may make it act."""
        state, section = self.service.state, self._section
        may_act = section.after or state.untold or (section.evaluation and state.open_offer)
        return bool(may_act) and not self._is_held

    async def _wake(self, _merged: MergeResult) -> None:
        if self._is_waiting:
            self._woken.set()

    @property
    def count(self) -> int:
        """Turns with a reward that no export has, at the last look."""
        return self._turns.count if self._turns else 0

    def _report(self, context: HealthContext) -> FeatureHealth:
        return learn_health(context, self._section.after, self.count, self.trouble)

    async def _prepare(self, settings: Settings) -> Apply:
        section = settings.section(LearnSettings)

        def apply() -> None:
            self._section, self._turns, self._looked_at = section, None, -1  # other sections say what judgements mean
            self._woken.set()

        return apply

    def _find_turns(self) -> RewardedTurns | None:
        """Return what counts turns; None if nothing is exported."""
        if self._turns is None and self._section.after:
            self._turns = self._open_turns(self._section)
        return self._turns

    async def run(self) -> None:
        """Do what is due, at the start, after turns and now and then, until cancelled."""
        while True:
            self._woken.clear()
            await self.try_to_act()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if self._is_waiting else None):
                    await self._woken.wait()

    async def try_to_act(self) -> None:
        """Do what is due. Report and log why something cannot be done now."""
        try:
            await self.act()
        except BubbotError as error:
            if str(error) != self.trouble:
                log.warning("export or acceptance failed: %s", error, extra={"action": "learn.failed"})
            self.trouble, self._looked_at = str(error), -1

    async def act(self) -> None:
        """Accept what has passed, export what is due, and tell an owner. Raise `BubbotError` if something cannot be done now."""
        if not self._is_waiting:
            return
        entries = self._kernel.ordered_entries
        position = await entries.newest_position() if entries is not None else 0
        if entries is not None and position == self._looked_at:
            return
        if self._section.evaluation and self.service.state.open_offer is not None:
            await self.service.accept_by_rule()
        if (turns := self._find_turns()) is not None:
            exports = [*self.service.state.exports]
            if await turns.look(exports) >= self._section.after:
                await self._export(turns)
        await self._tell_owner()
        self.trouble, self._looked_at = "", position

    async def _export(self, turns: RewardedTurns) -> None:
        # Imported here: a bot that exports nothing loads nothing of this.
        from bubbot.features.learn.weights.export import write_export

        exports, home = [*self.service.state.exports], self._kernel.home
        number = exports[-1].fact.number + 1 if exports else 1
        fact = await write_export(turns, self._section.folder, home, number, exports)
        await self.service.write(fact, key=f"ready:{number}")
        turns.forget()
        await turns.look([*self.service.state.exports])
        log.info("turns exported for training", extra={"action": "learn.ready", "turns": fact.turns})

    async def _tell_owner(self) -> None:
        """Tell an owner once of each export and of what the rule accepted; without a direct chat of one, try again later."""
        for number in [*self.service.state.untold]:
            part = IdRanges(((number, number),))
            (found,) = await self._store.fetch([TapeQuery(LEARN_TAPE, part)])
            fact = ExportReady.try_of(found[0]) if found and found[0].name in ExportReady.EVENTS else None
            accepted = WeightsAccepted.try_of(found[0]) if found and fact is None else None
            told = OwnerTold(number)

            def write(
                texts: Texts, fact: ExportReady | None = fact, accepted: WeightsAccepted | None = accepted
            ) -> tuple[str, None]:
                if fact is not None:
                    return texts.say("learn_ready", count=fact.turns, file=fact.file, format=fact.format), None
                assert accepted is not None
                back = texts.format_commands(",learn.back")
                said = texts.say("learn_accepted_rule", model=accepted.model, evaluation=accepted.evaluation, back=back)
                return said, None

            key = f"learn:{number}"
            if (fact is None and accepted is None) or await self._notify_owner(
                LEARN_TAPE, key, write, told.to_entry(key=f"told:{number}")
            ):
                await self.service.catch_up()
