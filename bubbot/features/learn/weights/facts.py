"""The facts on the tape of exports and weights. They hold no words of people, and name no chat but by its tape."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bubbot.tape.fact import Fact


class ExportReady(Fact):
    """Enough turns with a reward had come, and an export of them is written.

    Attributes:
        number: of the export, from 1.
        file: its path; inside the home from there.
        sha256: that of the file, in hex.
        format: its format, as people type it.
        turns: how many turns are in it.
        heads: the newest entry of each tape then, and its hash in the chain.
        exported: the turns that are in it, as ranges of entries, by tape.
    """

    EVENTS = ("learn/ready",)
    number: int
    file: str
    sha256: str
    format: str
    turns: int
    heads: Mapping[str, tuple[int, str]]
    exported: Mapping[str, tuple[tuple[int, int], ...]]

    @property
    def subject(self) -> int:
        """The export."""
        return self.number


class WeightFile(Struct, frozen=True, array_like=True):
    """A file of weights when its digest was computed: its name, bytes, and time of change in nanoseconds."""

    name: str
    size: int
    changed: int


class WeightsOffered(Fact):
    """An owner offers a model with new weights. A later offer takes the place of an open one.

    Attributes:
        model: its name.
        weights: the digest of its weights, as `sha256:…`.
        folder: where they are on this machine; empty if only the digest was given.
        files: the files of the folder; as long as they are the same, the digest is certain.
        by: who offers it: `terminal` or `channel:id`.
    """

    EVENTS = ("learn/offered",)
    model: str
    weights: str
    folder: str
    files: tuple[WeightFile, ...]
    by: str

    @property
    def subject(self) -> str:
        """The model: of its name only the newest weights are known."""
        return self.model


class WeightsAccepted(Fact):
    """Windows that open from now on are answered by offered weights, unless a person chose a model for the chat.

    Attributes:
        offer: the entry of the offer on this tape.
        model: the model.
        weights: the digest of its weights.
        evaluation: the evaluation that it passed; empty if an owner accepted it by hand.
        run: the id of that evaluation.
        before: the model that new windows had before.
        by: who accepted it; empty for the rule.
    """

    EVENTS = ("learn/accepted",)
    offer: int
    model: str
    weights: str
    evaluation: str
    run: str
    before: str
    by: str

    @property
    def subject(self) -> int:
        """The offer."""
        return self.offer


class WeightsWithdrawn(Fact):
    """An owner takes an offer back, accepted or not. Sessions that the rule switched to it go back with their next turn.

    Attributes:
        offer: the entry of the offer on this tape.
        model: the model.
        weights: the digest of its weights.
        by: who took it back.
    """

    EVENTS = ("learn/withdrawn",)
    offer: int
    model: str
    weights: str
    by: str

    @property
    def subject(self) -> int:
        """The offer."""
        return self.offer


class OwnerTold(Fact):
    """An owner was told of a fact of this tape.

    Attributes:
        fact: its entry.
    """

    EVENTS = ("learn/told",)
    fact: int


FACTS: tuple[type[Fact], ...] = (ExportReady, WeightsOffered, WeightsAccepted, WeightsWithdrawn, OwnerTold)
