"""The data of a language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Forms: TypeAlias = Mapping[str, str]
"""A sentence that depends on a number: its forms by the names that `Language.form` returns; `other` is always there."""
Sentence: TypeAlias = str | Forms
"""A text with placeholders in braces, as in `str.format`. The number that chooses a form is called `count`."""


@dataclass(frozen=True, slots=True)
class Language:
    """One language as data. Entries that are missing in the last three attributes appear in English.

    Attributes:
        form: returns the name of the form for a number.
        sentences: sentences by name.
        reasons: texts of errors by kind; they may use `{detail}`, the error in English, and the error's attributes.
        summaries: summaries of commands by the name of the tool.
        roles: names of roles.
    """

    form: Callable[[int], str]
    sentences: Mapping[str, Sentence]
    reasons: Mapping[str, str] = field(default_factory=dict)
    summaries: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
