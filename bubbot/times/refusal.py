"""Refusals of a time: the name of a sentence and its values. Who shows one says it in the language of the reader."""

from __future__ import annotations

from collections.abc import Mapping


class TimeRefused(Exception):
    """A time cannot be understood, or none like it can come.

    Attributes:
        code: the name of the sentence that says so.
        values: those of its placeholders. `nearest`: the readings that can be typed instead.
    """

    def __init__(self, code: str, /, **values: object) -> None:
        super().__init__(f"{code}: {', '.join(f'{name} {value}' for name, value in values.items())}".rstrip(": "))
        self.code = code
        self.values: Mapping[str, object] = values
