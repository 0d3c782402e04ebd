"""The bot's own sentences: what people are told that no model wrote.

The languages are data: `en.py` and `zh.py`, one entry for each sentence. What models are told stays in English; the two
constants here are for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bubbot.errors import BubbotError
from bubbot.texts.en import ENGLISH
from bubbot.texts.language import Language
from bubbot.texts.zh import CHINESE

LANGUAGES: Mapping[str, Language] = MappingProxyType({"en": ENGLISH, "zh": CHINESE})
"""The languages there are, by tag."""

SILENT_MARK = "[SILENT]"
"""What a model answers where nothing is to be said."""
OUTCOME_UNKNOWN = "outcome unknown: the bot stopped before this call was finished; it may or may not have happened"
"""The result that a model is shown of a call without one."""

TRACE_DIGITS = 8
"""How much of a turn's id people are told with a failure."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The sentences in one language, given as a tag; `zh-Hans` is `zh`, and what nobody has translated is English."""

    language: str = "en"

    @property
    def translated(self) -> bool:
        """Whether there is this language."""
        return self._tag in LANGUAGES

    def say(self, name: str, /, **values: object) -> str:
        """The sentence of this name with the values of its placeholders; an int `count` chooses its form.

        Raises `KeyError` for a sentence that there is not, and for a value that is missing.
        """
        language = self._spoken
        sentence = language.sentences[name]
        if not isinstance(sentence, str):
            count = values["count"]
            assert isinstance(count, int)
            sentence = sentence.get(language.form(count), sentence["other"])
        return sentence.format_map(values)

    def failed(self, error: BubbotError, turn: str) -> str:
        """What people are told when an error ended the turn with this id."""
        return self.traced(self.say("failed", reason=self.reason(error).rstrip(".")), turn)

    def traced(self, sentence: str, turn: str) -> str:
        """A sentence about a failure, with what finds the turn in log and tape."""
        return self.say("traced", sentence=sentence, trace=turn[:TRACE_DIGITS])

    def reason(self, error: BubbotError) -> str:
        """An error as a reason; in English where its kind has no words of its own."""
        told = self._spoken.reasons.get(error.kind)
        detail = str(error)
        return detail if told is None else told.format_map({**vars(error), "detail": detail.rstrip(".")})

    def summary(self, tool: str, english: str) -> str:
        """What a tool does, as people read it."""
        return self._spoken.summaries.get(tool, english)

    def role(self, role: str) -> str:
        """What a role is called."""
        return self._spoken.roles.get(role, role)

    @property
    def _tag(self) -> str:
        return self.language.partition("-")[0].lower()

    @property
    def _spoken(self) -> Language:
        return LANGUAGES.get(self._tag, ENGLISH)
