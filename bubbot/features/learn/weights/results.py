"""What the commands about weights take, and what they say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller
from bubbot.features.learn.weights.facts import WeightsAccepted, WeightsOffered, WeightsWithdrawn
from bubbot.features.learn.weights.health import format_missing
from bubbot.features.learn.weights.trial import Trial
from bubbot.folder_digest import PREFIX
from bubbot.shell_command import Argument, IsoTime

MAX_LISTED = 20
"""Chats that the text names; JSON has all."""


def _find_path(text: str) -> str:
    """Return a folder that is typed in a shell as it is from everywhere; a digest stays as it is."""
    if not text or text.startswith(PREFIX):
        return text
    folder = Path(os.path.expanduser(text))  # noqa: PTH111 - a user that there is not is no error of it
    return text if text.startswith("~") and not folder.is_absolute() else str(folder.absolute())


class OfferArgs(Args, frozen=True):
    """A model with newer weights."""

    model: Annotated[
        str, Meta(description="the model, as the configured server has it: provider/name", min_length=1, max_length=200)
    ]
    weights: Annotated[
        str,
        Meta(
            description="the folder with its weights, or their digest as sha256:HEX (default: the name of the model, if that is a folder)",
            max_length=4_000,
        ),
        Argument(metavar="FOLDER_OR_DIGEST", parse=_find_path),
    ] = ""


class WeightsOffer(Struct, frozen=True):
    """Weights that are offered.

    Attributes:
        model: the model.
        weights: the digest of its weights.
        evaluation: what they have to pass; empty: an owner accepts them.
        changed: false if they were offered before.
    """

    model: str
    weights: str
    evaluation: str
    changed: bool = True

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return "evaluated" if self.evaluation else "by_hand"


class WeightsChange(Struct, frozen=True):
    """Weights that were accepted.

    Attributes:
        model: the model.
        weights: the digest of its weights.
    """

    model: str
    weights: str


class WeightsBack(Struct, frozen=True):
    """Weights that were taken back.

    Attributes:
        model: the model.
        weights: the digest of its weights.
        instead: the model that answers instead.
        was_accepted: false if they were only offered.
    """

    model: str
    weights: str
    instead: str
    was_accepted: bool

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return "accepted" if self.was_accepted else "offered"


class OfferedWeights(Struct, frozen=True):
    """Weights, and what became of them.

    Attributes:
        model: the model.
        weights: the digest of its weights.
        at: when they were offered, accepted or taken back.
        evaluation: the evaluation by which they were accepted; empty for none.
        run: the id of that.
    """

    model: str
    weights: str
    at: IsoTime
    evaluation: str = ""
    run: str = ""

    @classmethod
    def of(cls, fact: WeightsOffered | WeightsAccepted | WeightsWithdrawn, date: str) -> OfferedWeights:
        """Read a fact."""
        if isinstance(fact, WeightsAccepted):
            return cls(fact.model, fact.weights, date, fact.evaluation, fact.run)
        return cls(fact.model, fact.weights, date)

    def values(self) -> dict[str, str]:
        """Return the values of sentences about it."""
        return {"model": self.model, "weights": self.weights, "at": self.at[:16].replace("T", " ")}


class SessionOnWeights(Struct, frozen=True):
    """A chat that the rule switched.

    Attributes:
        session: the chat.
        model: the model that answers there.
        weights: the digest of its weights.
        goes_back: they were taken back, and it goes back with its next message.
    """

    session: str
    model: str
    weights: str
    goes_back: bool


class LearnStatus(Struct, frozen=True):
    """How exports and newer weights stand.

    Attributes:
        after: turns with a reward after which there is an export; 0: none is written.
        turns: those that no export has.
        missing: how many more are needed.
        export: the file of the newest export; empty for none.
        number: its number.
        offered: the weights that are offered and not accepted; None for none.
        evaluation: what they have to pass; empty: an owner accepts them.
        pass_share: the share of its results that have to pass.
        trial: what it says of them; None if nothing is offered, or nothing has to be passed.
        has_passed: they have passed it.
        accepted: the weights in use, the newest first: windows that open now are answered by that.
        withdrawn: what was taken back, the newest first.
        configured: the configured model.
        sessions: the chats that were switched.
        changed: models whose folder has other files than when they were offered: answers name no digest.
    """

    is_text: ClassVar = True
    after: int
    turns: int
    missing: int
    export: str
    number: int
    offered: OfferedWeights | None
    evaluation: str
    pass_share: float
    trial: Trial | None
    has_passed: bool
    accepted: tuple[OfferedWeights, ...]
    withdrawn: tuple[OfferedWeights, ...]
    configured: str
    sessions: tuple[SessionOnWeights, ...]
    changed: tuple[str, ...]

    def describe(self, caller: Caller) -> str:
        """Say all of it in lines."""
        say = caller.texts.say
        lines = [format_missing(caller.texts, self.turns, self.after)]
        if self.export:
            lines.append(say("learn_exported", number=self.number, file=self.export))
        if self.offered is not None:
            lines.append(say("learn_offered", **self.offered.values()))
            lines.append(self._describe_trial(caller))
        lines += [say("learn_accepted", **each.values()) for each in self.accepted] or [
            say("learn_configured", model=self.configured)
        ]
        lines += [say("learn_withdrawn", **each.values()) for each in self.withdrawn[:1]]
        lines += [say("learn_changed", model=model) for model in self.changed]
        lines += [
            say("learn_session_back" if each.goes_back else "learn_session", session=each.session, model=each.model)
            for each in self.sessions[:MAX_LISTED]
        ]
        if len(self.sessions) > MAX_LISTED:
            lines.append(say("learn_more", count=len(self.sessions) - MAX_LISTED))
        return "\n".join(lines)

    def _describe_trial(self, caller: Caller) -> str:
        """Say what has to happen before the offered weights are accepted."""
        say, trial = caller.texts.say, self.trial
        values = {"evaluation": self.evaluation, "model": self.offered.model if self.offered else ""}
        if not self.evaluation:
            is_in_shell = caller.turn is None
            accept = "bubbot learn accept" if is_in_shell else caller.texts.format_commands(",learn.accept")
            return say("learn_by_hand", accept=accept)
        if trial is None or not trial.run:
            return say("learn_not_run", **values)
        values |= {"run": trial.run, "passed": str(trial.passed), "results": str(trial.results)}
        if trial.stand_in:
            return say("learn_stand_in", other=trial.stand_in, **values)
        if trial.regression:
            return say("learn_regression", other=trial.regression, **values)
        if not trial.is_compared:
            return say("learn_not_compared", **values)
        sentence = "learn_passed" if self.has_passed else "learn_failed"
        return say(sentence, share=f"{self.pass_share:.0%}", **values)
