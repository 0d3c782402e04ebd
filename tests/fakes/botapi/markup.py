"""The three parse modes. Each gives the bare text and its entities, or refuses in the words of the real server."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

from tests.fakes.botapi.errors import Json, Refusal, bad
from tests.fakes.botapi.text import in_order, units

_RESERVED = "_*[]()~`>#+-=|{}.!"
_TAGS = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
    "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "tg-spoiler": "spoiler", "span": "spoiler",
    "code": "code", "pre": "pre", "a": "text_link", "blockquote": "blockquote", "tg-emoji": "custom_emoji",
}  # fmt: skip
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)((?:\s+[\w-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s>]+))?)*)\s*>")
_ATTRIBUTE = re.compile(r"([\w-]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+)))?")
_NAMED = re.compile(r"&(?:lt|gt|amp|quot|#\d+|#x[0-9A-Fa-f]+);")
_STYLES = {"*": "Bold", "_": "Italic", "__": "Underline", "~": "Strikethrough", "||": "Spoiler"}


def parse(text: str, mode: str) -> tuple[str, list[Json]]:
    """Reads a text in a parse mode; an unknown mode is refused. The empty mode is plain text."""
    match mode.lower():
        case "":
            return text, []
        case "html":
            return _html(text)
        case "markdownv2":
            return _Markdown(text).read()
        case "markdown":
            return _legacy(text)
    raise bad("unsupported parse_mode")


def _wrong(sentence: str) -> Refusal:
    return bad(f"can't parse entities: {sentence}")


def _byte(text: str, place: int) -> int:
    return len(text[:place].encode())


def _html(text: str) -> tuple[str, list[Json]]:
    done, entities, place = "", [], 0
    opened: list[tuple[str, str, int]] = []
    while place < len(text):
        if text[place] == "<":
            tag = _TAG.match(text, place)
            if tag is None:
                raise _wrong(f"Unclosed start tag at byte offset {_byte(text, place)}")
            closing, name, attributes = tag[1] == "/", tag[2].lower(), tag[3]
            if closing:
                entities += _closed(text, place, name, opened, done)
            else:
                if name not in _TAGS or (name == "span" and "tg-spoiler" not in attributes):
                    raise _wrong(f'Unsupported start tag "{name}" at byte offset {_byte(text, place)}')
                opened.append((name, attributes, units(done)))
            place = tag.end()
        elif named := _NAMED.match(text, place):
            done, place = done + html.unescape(named[0]), named.end()
        else:
            done, place = done + text[place], place + 1
    if opened:
        raise _wrong(f'Can\'t find end tag corresponding to start tag "{opened[-1][0]}"')
    return done, in_order(_joined(entities))


def _closed(text: str, place: int, name: str, opened: list[tuple[str, str, int]], done: str) -> list[Json]:
    if not opened:
        raise _wrong(f"Unexpected end tag at byte offset {_byte(text, place)}")
    begun, raw, start = opened.pop()
    if begun != name:
        expected = f'expected "</{begun}>", found "</{name}>"'
        raise _wrong(f"Unmatched end tag at byte offset {_byte(text, place)}, {expected}")
    entity: Json = {"offset": start, "length": units(done) - start, "type": _TAGS[name]}
    given = {found[0].lower(): html.unescape("".join(found[1:])) for found in _ATTRIBUTE.findall(raw)}
    if name == "a":
        entity["url"] = given.get("href", "")
        if not entity["url"]:
            return []
    if name == "tg-emoji":
        entity["custom_emoji_id"] = given.get("emoji-id", "")
    if name == "blockquote" and "expandable" in given:
        entity["type"] = "expandable_blockquote"
    if name == "code" and given.get("class", "").startswith("language-"):
        entity["language"] = given["class"].removeprefix("language-")
    return [entity] if entity["length"] else []


def _joined(entities: list[Json]) -> list[Json]:
    """`<pre><code class="language-x">` is one entity; `<code>` outside of `<pre>` has no language."""
    kept = []
    for one in entities:
        around = [other for other in entities if other["type"] == "pre" and _same(one, other)]
        if one["type"] == "code" and around:
            around[0].update({"language": one["language"]} if "language" in one else {})
        else:
            kept.append({key: value for key, value in one.items() if key != "language" or one["type"] == "pre"})
    return kept


def _same(one: Json, other: Json) -> bool:
    return bool(one["offset"] == other["offset"] and one["length"] == other["length"])


@dataclass(slots=True)
class _Markdown:
    """MarkdownV2: every reserved character is a mark or stands after a backslash."""

    text: str
    place: int = 0
    done: str = ""
    entities: list[Json] = field(default_factory=list)
    opened: list[tuple[str, int, int]] = field(default_factory=list)

    def read(self) -> tuple[str, list[Json]]:
        while self.place < len(self.text):
            self._step()
        for mark, _, at in reversed(self.opened):
            if mark not in (">", ">**"):
                raise _wrong(
                    f"Can't find end of {_STYLES.get(mark, 'TextUrl')} entity at byte offset {_byte(self.text, at)}"
                )
        while self.opened:
            self._end_quote(expandable=False)
        return self.done, in_order(self.entities)

    def _step(self) -> None:
        text, place = self.text, self.place
        here = text[place]
        if here == "\\" and place + 1 < len(text) and 0 < ord(text[place + 1]) <= 126:
            self._add(text[place + 1], 2)
        elif here == "\n":
            self._line()
        elif (here == ">" and (place == 0 or text[place - 1] == "\n")) or text.startswith("**>", place):
            if not self._quoted():
                self.opened.append((">", units(self.done), place))
            self.place += 3 if text.startswith("**>", place) else 1
        elif here not in _RESERVED:
            self._add(here, 1)
        else:
            self._mark()

    def _add(self, character: str, width: int) -> None:
        self.done += character
        self.place += width

    def _quoted(self) -> bool:
        return any(mark == ">" for mark, *_ in self.opened)

    def _line(self) -> None:
        if self.opened and self.opened[-1][0] == ">" and not self.text.startswith("\n>", self.place):
            self._end_quote(expandable=False)
        self._add("\n", 1)

    def _end_quote(self, *, expandable: bool) -> None:
        _, start, _ = self.opened.pop()
        self._entity(start, "expandable_blockquote" if expandable else "blockquote")

    def _entity(self, start: int, kind: str, **more: str) -> None:
        if units(self.done) > start:
            self.entities.append({"offset": start, "length": units(self.done) - start, "type": kind, **more})

    def _mark(self) -> None:
        text, place = self.text, self.place
        double = text[place : place + 2]
        if text[place] == "`":
            self._code()
        elif double == "||" and self.opened and self.opened[-1][0] == ">" and text[place + 2 : place + 3] in ("", "\n"):
            self.place += 2
            self._end_quote(expandable=True)
        elif double in ("__", "||"):
            self._toggle(double)
        elif text[place] in "*_~":
            self._toggle(text[place])
        elif text[place] == "[":
            self.opened.append(("[", units(self.done), place))
            self.place += 1
        elif text[place] == "]" and self.opened and self.opened[-1][0] == "[":
            self._link()
        else:
            raise _wrong(f"Character '{text[place]}' is reserved and must be escaped with the preceding '\\'")

    def _toggle(self, mark: str) -> None:
        if self.opened and self.opened[-1][0] == mark:
            _, start, _ = self.opened.pop()
            self._entity(start, _STYLES[mark].lower())
        elif any(mark == begun for begun, *_ in self.opened):
            begun, _, at = self.opened[-1]
            raise _wrong(
                f"Can't find end of {_STYLES.get(begun, 'TextUrl')} entity at byte offset {_byte(self.text, at)}"
            )
        else:
            self.opened.append((mark, units(self.done), self.place))
        self.place += len(mark)

    def _code(self) -> None:
        mark = "```" if self.text.startswith("```", self.place) else "`"
        kind, start, begun = ("Pre" if mark == "```" else "Code"), units(self.done), self.place
        self.place += len(mark)
        language = ""
        if kind == "Pre" and (named := re.compile(r"([^\s`]+)\n").match(self.text, self.place)):
            language, self.place = named[1], named.end()
        elif kind == "Pre" and self.text.startswith("\n", self.place):
            self.place += 1
        while not self.text.startswith(mark, self.place):
            if self.place >= len(self.text):
                raise _wrong(f"Can't find end of {kind} entity at byte offset {_byte(self.text, begun)}")
            escaped = self.text[self.place] == "\\" and self.place + 1 < len(self.text)
            self._add(self.text[self.place + escaped], 1 + escaped)
        self.place += len(mark)
        self._entity(start, kind.lower(), **({"language": language} if language else {}))

    def _link(self) -> None:
        _, start, begun = self.opened.pop()
        self.place += 1
        if not self.text.startswith("(", self.place):
            return
        found = re.compile(r"\(((?:\\.|[^)\\])*)\)", re.DOTALL).match(self.text, self.place)
        if found is None:
            raise _wrong(f"Can't find end of a URL at byte offset {_byte(self.text, begun)}")
        self.place = found.end()
        url = re.sub(r"\\(.)", r"\1", found[1])
        if url:
            self._entity(start, "text_link", url=url)


def _legacy(text: str) -> tuple[str, list[Json]]:
    """Markdown without a version: no nesting, and only four characters can be escaped."""
    done, entities, place = "", [], 0
    marks = {"*": "bold", "_": "italic", "`": "code"}
    while place < len(text):
        here = text[place]
        if here == "\\" and text[place + 1 : place + 2] in ("_", "*", "`", "["):
            done, place = done + text[place + 1], place + 2
            continue
        link = re.compile(r"\[([^\]]*)\](?:\(([^)]*)\))?").match(text, place) if here == "[" else None
        if here not in "*_`[":
            done, place = done + here, place + 1
            continue
        mark = "```" if text.startswith("```", place) else here
        end = link.end() if link else text.find(mark, place + len(mark))
        if end < 0 or (here == "[" and link is None):
            raise _wrong(f"Can't find end of the entity starting at byte offset {_byte(text, place)}")
        inner = link[1] if link else text[place + len(mark) : end]
        kind = "text_link" if link else "pre" if mark == "```" else marks[mark]
        if inner and (link is None or link[2]):
            more = {"url": link[2]} if link else {}
            entities.append({"offset": units(done), "length": units(inner), "type": kind, **more})
        done, place = done + inner, end if link else end + len(mark)
    return done, entities
