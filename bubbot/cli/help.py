"""The texts of `--help` in the language of the bot, found by their English."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from bubbot.texts import Texts
from bubbot.texts.catalogue import read_catalogue

AREA = "help"
EXAMPLE = "example: "
"""The prefix of the last lines of a command's help, each with a command."""


class HelpTranslator:
    """Translates the help of commands. Untranslated texts, such as those of packages, stay English.

    Attributes:
        texts: in a language other than English.
    """

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    @cached_property
    def _own(self) -> Mapping[str, str]:
        """The translations of texts that only shells use, by their English."""
        catalogue = read_catalogue(self.texts.package, AREA, self.texts.tag)
        return {entry.singular: catalogue.find(name) for name, entry in catalogue.entries.items()}

    @cached_property
    def _of_chats(self) -> Mapping[str, str]:
        """The translations of texts about commands that chats use, too."""
        return self.texts.translate_commands()

    def translate(self, text: str) -> str:
        """Translate a text, or a line that was turned into a sentence."""
        if (found := self._own.get(text)) is not None:
            return found
        if text.startswith(EXAMPLE):
            return self.texts.say("help_example", command=text.removeprefix(EXAMPLE))
        if line := self._own.get(text[:1].lower() + text[1:].removesuffix(".")):
            return self.texts.say("help_sentence", text=line[:1].upper() + line[1:])
        if (found := self._of_chats.get(text)) is not None:
            return found
        sentence = self._of_chats.get(f"{text[:1].upper()}{text[1:]}.")
        return sentence.rstrip(".。") if sentence else text
