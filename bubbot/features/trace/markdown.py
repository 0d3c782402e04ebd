"""Markdown of a model as elements that load nothing, lead nowhere and run nothing: everything else in it stays text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from bubbot.features.trace.words import reveal
from bubbot.ports.markdown import parse_tokens

if TYPE_CHECKING:
    from markdown_it.token import Token

ELEMENTS: Mapping[str, str] = MappingProxyType(
    {
        "paragraph": "p",
        "bullet_list": "ul",
        "ordered_list": "ol",
        "list_item": "li",
        "blockquote": "blockquote",
        "strong": "strong",
        "em": "em",
        "u": "u",
        "s": "s",
        "thead": "thead",
        "tbody": "tbody",
        "tr": "tr",
        "th": "th",
        "td": "td",
    }
)
"""The elements, none of them with attributes, by the names of the tokens that begin and end them."""
OPENED: Mapping[str, Markup] = MappingProxyType(
    {
        **{f"{name}_open": Markup("<{}>").format(tag) for name, tag in ELEMENTS.items()},
        **{f"{name}_close": Markup("</{}>").format(tag) for name, tag in ELEMENTS.items()},
        # The headings of a page are its own; a table may be wider than a screen.
        "heading_open": Markup('<p class="heading">'),
        "heading_close": Markup("</p>"),
        "table_open": Markup('<div class="scroll" tabindex="0"><table>'),
        "table_close": Markup("</table></div>"),
        "spoiler_open": Markup('<span class="spoiler">'),
        "spoiler_close": Markup("</span>"),
        "softbreak": Markup("\n"),
        "hardbreak": Markup("<br>"),
        "hr": Markup("<hr>"),
    }
)
"""What a token becomes that holds no words."""


def draw_markdown(text: str) -> Markup:
    """Draw a text. The address of a link or an image stands beside its words, as text."""
    return Markup("").join(_draw(parse_tokens(reveal(text))))


def _draw(tokens: Sequence[Token]) -> Iterator[Markup]:
    links: list[tuple[str, list[Markup]]] = []
    for token in tokens:
        if token.type == "link_open":
            links.append((_address(token, "href"), []))
            continue
        if token.type == "link_close":
            address, words = links.pop()
            parts = [Markup("").join(words)]
            if parts[0] != escape(address):
                parts += [Markup(" "), _show_address(address)]
        else:
            parts = list(_draw_token(token))
        if links:
            links[-1][1].extend(parts)
        else:
            yield from parts


def _draw_token(token: Token) -> Iterator[Markup]:
    info = reveal(token.info.strip())
    match token.type:
        case _ if token.hidden:  # a paragraph of a list without empty lines
            return
        case "ordered_list_open" if start := token.attrs.get("start"):
            yield Markup('<ol start="{}">').format(start)
        case "inline":
            yield from _draw(token.children or [])
        case "image":
            words = Markup("").join(_draw(token.children or []))
            yield Markup("![{}] {}").format(words, _show_address(_address(token, "src")))
        case "fence" | "code_block":
            if info:
                yield Markup('<p class="label">{}</p>').format(info)
            yield Markup('<pre class="code" dir="ltr">{}</pre>').format(reveal(token.content))
        case "code_inline":
            yield Markup("<code>{}</code>").format(reveal(token.content))
        case name:
            yield OPENED.get(name) or escape(reveal(token.content))


def _address(token: Token, name: str) -> str:
    """Return the address of a link or an image, with its title, hidden characters written out."""
    title = token.attrs.get("title")
    return reveal(f'{token.attrs.get(name, "")} "{title}"' if title else str(token.attrs.get(name, "")))


def _show_address(address: str) -> Markup:
    return Markup('<span class="address">({})</span>').format(address)
