"""Markdown of models: what is drawn, and that nothing of it leads, loads or runs."""

from __future__ import annotations

import re

import pytest

from bubbot.features.trace.markdown import draw_markdown
from tests.trace.home import HOSTILE

ELEMENTS = "p|ul|ol|li|blockquote|strong|em|s|pre|code|table|thead|tbody|tr|th|td|hr|br|div|span"
TAG = re.compile(
    rf"</(?:{ELEMENTS})>|<(?:{ELEMENTS})>|<ol start=\"\d+\">|<div class=\"scroll\" tabindex=\"0\">|<pre class=\"code\" dir=\"ltr\">"
    r"|<(?:p|span) class=\"(?:heading|label|address|spoiler)\">"
)
"""Every tag that a drawing may have, with its attributes."""
LINKS = (
    "[a](https://evil.example/x)",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt&colon;alert(1))",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    "[a](//evil.example)",
    '[a](https://evil.example "><script>alert(1)</script>")',
    "<https://evil.example/>",
    "https://evil.example/bare",
    "[a]\n\n[a]: https://evil.example/defined 'x\" onmouseover=\"alert(1)'",
    "![a](https://evil.example/pixel.png)",
    "![<img src=x>](https://evil.example/pixel.png '\"><img src=x onerror=alert(1)>')",
    "[![a](https://evil.example/in.png)](https://evil.example/out)",
    "[a](https://evil.example/&quot;onload=alert(1))",
)


@pytest.mark.parametrize("text", [*HOSTILE, *LINKS, *(f"> - **{each}** | ~~{each}~~" for each in HOSTILE)])
def test_no_words_become_an_element_that_leads_loads_or_runs(text: str) -> None:
    for source in (text, f"```{text}\n{text}\n```", f"| {text} |\n|---|\n| {text} |", f"# {text}", f"`{text}`"):
        drawn = str(draw_markdown(source))
        assert re.findall("[<>]", TAG.sub("", drawn)) == [], drawn
        assert not re.search("[\u202e\x1b\ud800]", drawn)


def test_what_models_write_is_drawn() -> None:
    drawn = draw_markdown(
        "# Plan\n\n**Bold** and `code`\nhere:\n\n- one\n- two\n\n3. three\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    assert drawn == (
        '<p class="heading">Plan</p><p><strong>Bold</strong> and <code>code</code>\nhere:</p>'
        '<ul><li>one</li><li>two</li></ul><ol start="3"><li>three</li></ol>'
        '<div class="scroll" tabindex="0"><table><thead><tr><th>a</th><th>b</th></tr></thead>'
        "<tbody><tr><td>1</td><td>2</td></tr></tbody></table></div>"
    )
    assert draw_markdown("```python\nif a < b:\n```") == (
        '<p class="label">python</p><pre class="code" dir="ltr">if a &lt; b:\n</pre>'
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[the list](https://a.example/l)", 'the list <span class="address">(https://a.example/l)</span>'),
        ("[https://bank.example](https://evil.example)", 'https://bank.example <span class="address">(https://evil.example)</span>'),
        ("https://a.example/x", "https://a.example/x"),
        ("<https://a.example/x?a=1&b=2>", "https://a.example/x?a=1&amp;b=2"),
        ("![a cat](https://a.example/c.png)", '![a cat] <span class="address">(https://a.example/c.png)</span>'),
        ("&#x202e;gnp", "⟨U+202E⟩gnp"),
        ("[x](https://a.example/&#x202e;y)", None),
    ],
)  # fmt: skip
def test_an_address_stands_beside_its_words_and_nothing_hides(text: str, shown: str | None) -> None:
    drawn = draw_markdown(text)
    assert "\u202e" not in drawn
    assert shown is None or drawn == f"<p>{shown}</p>"


def test_a_huge_table_keeps_its_words() -> None:
    rows = "".join(f"| row {number} |\n" for number in range(1_000))
    drawn = draw_markdown(f"| a |\n|---|\n{rows}")
    assert drawn.count("<tr>") == 1_001
    assert "<td>row 999</td>" in drawn
