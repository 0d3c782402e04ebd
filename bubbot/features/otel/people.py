"""People inside texts: their ids, names, addresses and telephone numbers are replaced before a text goes out as `redacted`.

What cannot be known as somebody's is found by its form: a number of seven digits or more is taken for an id. Rather too much is
replaced than too little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from bubbot.runtime.context.quoting import clean_name
from bubbot.tape.entry import JsonObject, TapeEntry

MIN_ID_CHARS = 5
"""A known id of fewer characters is only replaced beside its channel or its name: any text has such numbers."""
MIN_NAME_CHARS = 3
MIN_WORD_CHARS = 4
"""Characters from which a name, and one word of a name, is replaced wherever it stands; two in scripts without capitals."""
MAX_PEOPLE = 500
"""People of one turn, the newest first, whose names are looked for."""

_MAIL = r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
_PHONE = (
    r"(?<![\w+])(?:(?:\+|00)[1-9](?:[ ()/.-]{0,2}[0-9]){6,14}|0[1-9][0-9]{1,3}[ /-][0-9]{4,8}"
    r"|\(?[2-9][0-9]{2}\)?[ .-][0-9]{3}[ .-][0-9]{4})(?![0-9A-Za-z])"
)
_SPEAKER = r"(?<=\(#)[\w-]+(?=\):)"
_HANDLE = r"(?<![\w@/.])@[A-Za-z_][\w.]{2,31}"
_NUMBER = r"(?<![0-9A-Za-z.,])-?[0-9]{7,20}(?![0-9A-Za-z]|[.,][0-9])"


class Person(NamedTuple):
    """Somebody whose words a turn has: the numeric id, and the name that the platform shows."""

    id: str
    name: str = ""


class PeopleRedactor:
    """Replacement of what tells who somebody is."""

    def __init__(
        self,
        identify: Callable[[str, str], str],
        *,
        session: str = "",
        people: Iterable[Person] = (),
        channels: Iterable[str] = (),
    ) -> None:
        """Take what is known of a turn.

        Args:
            identify: makes the pseudonym of a `user` or a `session`: the same as that of the span.
            session: of the turn.
            people: those who wrote in it, or before it.
            channels: the names of the channels, by which their chats are known in any turn; that of the turn is another.
        """
        self._identify = identify
        self._channel = session.partition(":")[0]
        self._people: dict[str, Person] = {}
        for person in list(dict.fromkeys(people))[:MAX_PEOPLE]:
            for form in _forms_of(person):
                self._people.setdefault(form, person)
        names = "|".join(map(re.escape, sorted({*channels, self._channel} - {""}, key=len, reverse=True)))
        session_name = rf"(?<![\w:])(?:{names}):-?\w*[0-9][\w:-]*(?<!:)" if names else r"(?!)"
        if session and self._channel:  # a chat may have a name without any digit
            session_name = rf"(?<![\w:]){re.escape(session)}(?![\w:-])|{session_name}"
        groups = {"session": session_name, "mail": _MAIL, "phone": _PHONE, "speaker": _SPEAKER, "handle": _HANDLE}
        if self._people:
            groups["known"] = _pattern_of(self._people)
        groups["number"] = _NUMBER
        self._pattern = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in groups.items()))

    def __call__(self, text: str) -> str:
        """Return the text with pseudonyms and placeholders instead of them."""
        return self._pattern.sub(self._replace, text)

    def redact_json(self, value: object, *, numbers: bool = True) -> object:
        """Return a value of JSON with each text in it replaced, and each number, too, unless those are no ids."""
        if isinstance(value, Mapping):
            return {self(str(name)): self.redact_json(each, numbers=numbers) for name, each in value.items()}
        if isinstance(value, list):
            return [self.redact_json(each, numbers=numbers) for each in value]
        if isinstance(value, str):
            return self(value)
        if numbers and isinstance(value, int) and not isinstance(value, bool):
            shown = self(str(value))
            return value if shown == str(value) else shown
        return value

    def _replace(self, match: re.Match[str]) -> str:
        found = match.group()
        match match.lastgroup:
            case "session":
                return f"[chat {self._identify('session', found)}]"
            case "speaker" | "number":
                return self._name(found)
            case "known":
                return self._name(self._people[found].id)
            case "handle":
                return "[name]"
            case kind:
                return f"[{kind}]"

    def _name(self, person: str) -> str:
        return f"[person {self._identify('user', f'{self._channel}:{person}')}]"


def find_people(entries: Iterable[TapeEntry]) -> list[Person]:
    """Return who wrote these entries, or was quoted in them, in order."""
    found: dict[Person, None] = {}
    for entry in entries:
        quote = entry.meta.get("quote")
        for place in (entry.meta, quote if isinstance(quote, Mapping) else {}):
            if (person := _person_of(place)) is not None:
                found[person] = None
    return list(found)


def _person_of(place: JsonObject) -> Person | None:
    sender = place.get("sender")
    if not isinstance(sender, Mapping) or sender.get("bot"):
        return None
    person = Person(str(sender.get("id", "")), str(sender.get("name", "")))
    return person if any(person) else None


def _forms_of(person: Person) -> list[str]:
    """Return the forms in which a person stands in texts."""
    names = dict.fromkeys([person.name.strip(), clean_name(person.name)])
    forms = [name for name in names if len(name) >= (MIN_NAME_CHARS if _has_capitals(name) else 2)]
    words = [word for name in names for word in re.findall(r"[^\W\d_]+", name)]
    forms += [word for word in words if len(word) >= (MIN_WORD_CHARS if _has_capitals(word) else 2)]
    return [*forms, *([person.id] if len(person.id) >= MIN_ID_CHARS else [])]


def _has_capitals(text: str) -> bool:
    """Return true for a script with capitals, which also writes blanks between words."""
    return any(char.lower() != char.upper() for char in text)


def _pattern_of(forms: Iterable[str]) -> str:
    """Return the pattern of names and ids as words; an id is found beside letters, and a name within a script without blanks."""
    found: dict[str, list[str]] = {"": [], r"[0-9]": [], r"\w": []}
    for form in sorted(forms, key=len, reverse=True):
        kind = r"[0-9]" if form.lstrip("-").isdecimal() else r"\w" if _has_capitals(form) else ""
        found[kind].append(form)
    patterns = []
    for beside, group in found.items():
        if group:
            first = "".join(re.escape(char) for char in sorted({form[0] for form in group}))
            among = "|".join(map(re.escape, group))
            # The first character is looked at before the forms: a text is long, and the forms are many.
            patterns.append(rf"(?=[{first}])(?<!{beside})(?:{among})(?!{beside})" if beside else f"(?:{among})")
    return "|".join(patterns)
