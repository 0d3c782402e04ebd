"""The bot's own sentences, for people; no model wrote them.

They are in catalogues, one for each area and language: `schedule.pot` in English, `zh/schedule.po` in Chinese. Texts for
models stay in English, such as `SILENT_MARK` and `OUTCOME_UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from bubbot.errors import BubbotError
from bubbot.records import dataclass
from bubbot.texts.catalogue import (
    SOURCE_LANGUAGE,
    Catalogue,
    find_areas,
    list_languages,
    read_catalogue,
)

COMMAND_PREFIX = ","
"""What commands begin with in texts of ours, and in a terminal."""
_COMMAND = re.compile(r"(?<![\w,]),((?=[a-z{])[a-z]*(?:\.[a-z]+)*)")

SILENT_MARK = "[SILENT]"
"""The answer with which a model stays silent."""
OUTCOME_UNKNOWN = "outcome unknown: the bot stopped before this call was finished; it may or may not have happened"
"""The result that a model sees for a call without one."""
NOT_RUN = "not run: the turn was cut off before this call began"
"""The result that a model sees for a call that never began."""
DEFECT_IN_ENGLISH = "I could not answer this: something went wrong inside me ({name})."
"""What people are told of a failed turn if the catalogues cannot be read any more."""

TRACE_DIGITS = 8
"""Digits of a turn's id in a message about a failure."""


@dataclass(frozen=True)
class Texts:
    """The sentences in one language. An area is read when its first sentence is said, and kept: pass one object on.

    Attributes:
        language: its tag; `zh-Hans` is `zh`, and untranslated languages are English.
        package: the package whose catalogues hold the sentences.
        command_prefix: what commands begin with where the sentences are read: `,`, or `/` on platforms with commands of
            their own, whose names have no dots.
    """

    language: str = SOURCE_LANGUAGE
    package: str = "bubbot.texts"
    command_prefix: str = COMMAND_PREFIX

    def with_command_prefix(self, prefix: str) -> Texts:
        """Return the same sentences for a place where commands begin with this."""
        if prefix == self.command_prefix:
            return self
        other = replace(self, command_prefix=prefix)
        # What is read once counts for both: a process may outlive the files.
        vars(other).update(_areas=self._areas, _catalogues=self._catalogues)
        if self.english is not self:
            vars(other).update(english=self.english)
        return other

    def format_commands(self, text: str) -> str:
        """Write the commands in a text of ours, such as `,memory.save`, as they are typed here: `/memory_save`."""
        if self.command_prefix == COMMAND_PREFIX:
            return text
        return _COMMAND.sub(lambda found: self.command_prefix + found[1].replace(".", "_"), text)

    @property
    def tag(self) -> str:
        """The language without its region, as the folder of its catalogues is named."""
        return self.language.partition("-")[0].lower()

    @property
    def is_translated(self) -> bool:
        """True if this language is available."""
        return self.tag == SOURCE_LANGUAGE or self.tag in list_languages(self.package)

    @cached_property
    def english(self) -> Texts:
        """The same sentences in English."""
        return self if self._available == SOURCE_LANGUAGE else Texts(package=self.package)

    def read_all(self) -> None:
        """Read every area now, for a process that outlives its files: an upgrade of the package replaces them."""
        for area in set(self._areas.values()):
            self._read(area)
        if self.english is not self:
            self.english.read_all()

    def say(self, name: str, /, **values: object) -> str:
        """Return the sentence of this name with the values of its placeholders; an int `count` chooses its form.

        Raise `KeyError` for an unknown sentence and for a missing value.
        """
        catalogue = self._catalogue(name)
        if not catalogue.entries[name].plural:
            return self.format_commands(catalogue.find(name)).format_map(values)
        count = values["count"]
        assert isinstance(count, int)
        return self.format_commands(catalogue.find(name, count)).format_map(values)

    def format_number(self, english: str) -> str:
        """Write a number, such as `1,234.5`, with the marks of this language, which its catalogue shows: `1.234,5`."""
        example = self.say("number_example")
        return english.translate({ord(","): example[1], ord("."): example[5]})

    def format_failure(self, error: BubbotError, turn: str) -> str:
        """Tell people that an error ended the turn with this id."""
        return self.add_trace(self.say("failed", reason=self.reason(error).rstrip(".")), turn)

    def add_trace(self, sentence: str, turn: str) -> str:
        """Add the turn's trace to a sentence about a failure, to find it in log and tape."""
        return self.say("traced", sentence=sentence, trace=turn[:TRACE_DIGITS])

    def reason(self, error: BubbotError) -> str:
        """Return an error as a reason; in English if nobody has translated its kind."""
        detail = self.format_commands(str(error))
        template = self.format_commands(self._translate(f"error.{error.kind}"))
        return template.format_map({**vars(error), "detail": detail.rstrip(".")}) if template else detail

    def summary(self, tool: str, english: str) -> str:
        """Return the summary of a tool for people."""
        return self.format_commands(self._translate(f"command.{tool}") or english)

    def brief(self, tool: str, english: str) -> str:
        """Return the meaning of a command in a few words."""
        return self._translate(f"brief.{tool}") or english

    def meaning(self, tool: str, argument: str, english: str) -> str:
        """Return what an argument of a tool means; the tools of a feature may share it."""
        for name in (f"meaning.{tool}.{argument}", f"meaning.{tool.partition('.')[0]}.{argument}"):
            # A tool of an installed package may have the name of one of ours, with other arguments.
            if (text := self._translate(name)) and self._catalogue(name).entries[name].singular == english:
                return self.format_commands(text)
        return self.format_commands(english)

    def strategy(self, name: str, english: str) -> str:
        """Return what a context strategy shows."""
        # A strategy of an installed package may have the name of one of ours.
        text = self._translate(f"strategy.{name}")
        is_ours = text and self._catalogue(f"strategy.{name}").entries[f"strategy.{name}"].singular == english
        return text if is_ours else english

    def panel(self, name: str, english: str) -> str:
        """Return the heading of a panel of the trace page; in English for those of installed packages."""
        return self._translate(f"panel.{name}") or english

    def topic(self, topic: str) -> str:
        """Return the heading of a part of the list of commands."""
        return self.say(f"topic.{topic}")

    def role(self, role: str) -> str:
        """Return the name of a role."""
        return self._translate(f"role.{role}") or role

    def status(self, status: str) -> str:
        """Return how a turn or a step of it ended."""
        return self._translate(f"status.{status}") or status

    def _translate(self, name: str) -> str:
        """Return the translation of what is also known in English, or an empty text."""
        if self._available == SOURCE_LANGUAGE or name not in self._areas:
            return ""
        catalogue = self._catalogue(name)
        text = catalogue.find(name)
        return "" if text == catalogue.entries[name].singular else text

    @cached_property
    def _available(self) -> str:
        return self.tag if self.is_translated else SOURCE_LANGUAGE

    def _catalogue(self, name: str) -> Catalogue:
        """Return the catalogue with this sentence. Raise `KeyError` if there is none."""
        return self._read(self._areas[name])

    def _read(self, area: str) -> Catalogue:
        """Return the catalogue of an area, which is read once."""
        if area not in self._catalogues:
            self._catalogues[area] = read_catalogue(self.package, area, self._available)
        return self._catalogues[area]

    @cached_property
    def _areas(self) -> Mapping[str, str]:
        """The area of each sentence, by the sentence's name."""
        return find_areas(self.package)

    @cached_property
    def _catalogues(self) -> dict[str, Catalogue]:
        """What was read so far, by area."""
        return {}
