"""Embeds and components of Discord's messages, as the text that people read on the screen from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from urllib.parse import quote

from bubbot.formatting import clean_label
from channels.platform.json_values import Raw, find_object, require_number, require_objects, require_text

POLL_RESULT_EMBED = "poll_result"
"""The type of the embed that Discord adds to a poll which has ended."""


def write_note(kind: str, words: str = "", address: str = "") -> str:
    """Write content other than text, such as a button: `[button Log (https://example.org)]`."""
    return f"[{_with_address(f'{kind} {clean_label(words)}'.strip(), address)}]"


def _with_address(words: str, address: str) -> str:
    signs = (char if char == clean_label(char) else quote(char, errors="replace") for char in "".join(address.split()))
    address = "".join(signs)
    return f"{words} ({address})" if address else words


def embed_texts(embed: Raw) -> Iterator[str]:
    """Yield the texts of an embed: what programs write, and the preview of a page."""
    if embed.get("type") == POLL_RESULT_EMBED:
        yield _poll_result(embed)
        return
    texts = [text for text in _embed_words(embed) if text.strip()]
    # The small picture is decoration, except if there is nothing else.
    pictures = ("image", "video") if texts else ("image", "video", "thumbnail")
    yield from texts
    for name in pictures:
        if media := find_object(embed, name):
            kind = "video" if name == "video" else "image"
            yield write_note(kind, require_text(media.get("description")), require_text(media.get("url")))
    if footer := _footer(embed):
        yield footer
    yield from component_texts(embed.get("components"))


def _embed_words(embed: Raw) -> Iterator[str]:
    for name in ("provider", "author"):
        if origin := find_object(embed, name):
            yield _linked(origin.get("name"), origin.get("url") if name == "author" else None)
    yield _linked(embed.get("title"), embed.get("url"))
    yield require_text(embed.get("description"))
    for field in require_objects(embed.get("fields")):
        yield require_text(field.get("name"))
        yield require_text(field.get("value"))


def _linked(words: object, address: object) -> str:
    """Return words with the address that they lead to; without words there is nothing to press."""
    text = require_text(words)
    return _with_address(text, require_text(address)) if text.strip() else ""


def _footer(embed: Raw) -> str:
    footer = find_object(embed, "footer") or {}
    words, stamp = require_text(footer.get("text")), require_text(embed.get("timestamp"))
    time = f"<t:{int(datetime.fromisoformat(stamp).timestamp())}>" if stamp else ""
    return " ".join(part for part in (words, time) if part.strip())


def _poll_result(embed: Raw) -> str:
    fields = {
        require_text(field.get("name")): require_text(field.get("value"))
        for field in require_objects(embed.get("fields"))
    }
    answer = fields.get("victor_answer_text") or fields.get("victor_answer_emoji_name")
    votes = f"{fields.get('victor_answer_votes', '0')} of {fields.get('total_votes', '0')} votes"
    result = f"{answer}, {votes}" if answer else "no winner"
    return write_note("poll result", f"{fields.get('poll_question_text', '')}: {result}")


def walk_components(components: object) -> Iterator[Raw]:
    """Yield components with all that are within them, in the order of the screen."""
    for component in require_objects(components):
        yield component
        yield from walk_components(component.get("components"))
        for name in ("component", "accessory"):
            if inner := find_object(component, name):
                yield from walk_components([inner])


def component_texts(components: object) -> Iterator[str]:
    """Yield the texts of components; one of an unknown type is named."""
    for component in walk_components(components):
        kind = require_number(component.get("type"))
        if read := COMPONENT_READERS.get(kind):
            yield from (text for text in read(component) if text.strip())
        elif kind not in FRAMES:
            yield f"[unsupported component: type {kind}]"


def uploaded_media(components: object) -> Iterator[tuple[Raw, str]]:
    """Yield the files of the message that its components show, with their names; empty for one without."""
    for component in walk_components(components):
        for medium, name, _ in _media(component):
            if medium.get("attachment_id"):
                yield medium, name


def _media(component: Raw) -> Iterator[tuple[Raw, str, str]]:
    """Yield each medium of a component with its name and its description."""
    items = require_objects(component.get("items")) if component.get("type") == GALLERY else [component]
    for item in items:
        for name in ("media", "file"):
            if medium := find_object(item, name):
                yield medium, require_text(item.get("name")), require_text(item.get("description"))


def _button(component: Raw) -> Iterator[str]:
    emoji = find_object(component, "emoji") or {}
    words = require_text(component.get("label")) or require_text(emoji.get("name"))
    yield write_note("button", words, require_text(component.get("url")))


def _menu(component: Raw) -> Iterator[str]:
    yield "\n".join([write_note("menu", require_text(component.get("placeholder"))), *_options(component)])


def _options(component: Raw) -> Iterator[str]:
    for option in require_objects(component.get("options")):
        words = [require_text(option.get(name)) for name in ("label", "description")]
        yield f"- {': '.join(clean_label(text) for text in words if text.strip())}"


def _text(component: Raw) -> Iterator[str]:
    yield require_text(component.get("content"))


def _pictures(component: Raw) -> Iterator[str]:
    kind = "file" if component.get("type") == FILE else "picture"
    for medium, name, description in _media(component):
        if not medium.get("attachment_id"):
            yield write_note(kind, name or description, require_text(medium.get("url")))
        elif description:  # the medium itself is a file of the message
            yield write_note(kind, description)


def _form(component: Raw) -> Iterator[str]:
    """Describe a part of a form; messages contain none today."""
    yield from (require_text(component.get(name)) for name in ("label", "description"))
    yield require_text(component.get("value")) or require_text(component.get("placeholder"))
    yield from _options(component)


GALLERY, FILE = 12, 13
COMPONENT_READERS: Mapping[int, Callable[[Raw], Iterator[str]]] = {
    2: _button, 3: _menu, 4: _form, 5: _menu, 6: _menu, 7: _menu, 8: _menu, 10: _text, 11: _pictures,
    GALLERY: _pictures, FILE: _pictures, 18: _form, 19: _form, 21: _form, 22: _form, 23: _form,
}  # fmt: skip
"""What is read of a component, by its type."""
FRAMES = frozenset({1, 9, 14, 17})
"""Types of components that hold others, which are read one by one, or are a line between them."""
