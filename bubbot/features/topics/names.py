"""The names of topics, and of the anchors that mark them."""

from __future__ import annotations

import unicodedata

from msgspec import Struct

from bubbot.formatting import clean_label

TAKEN_UP = "topic/"
"""The beginning of the name of an anchor that takes up a topic and opens a window."""
LEFT = "topic-left/"
"""The beginning of the name of an anchor that marks where a topic was left; it opens no window."""
RESERVED_PREFIXES = (TAKEN_UP, LEFT)
"""What names of other anchors never begin with, or a model could change the topic by a handoff."""
MAIN_LINE = "-"
"""The key of the main line: whatever belongs to no topic."""
MAIN_LINE_WORDS = ("-", "off")
"""What a person types for the main line."""
BIND_WORD = "bind"
"""The first word of `,topic bind NAME`, which binds a thread; no name begins with it."""
MAX_TITLE_CHARS = 64


class TopicName(Struct, frozen=True):
    """The name of a topic.

    Attributes:
        key: the same for all spellings; the anchors have it.
        title: how it was written; of a known topic, how it was written first.
    """

    key: str
    title: str

    @property
    def is_main_line(self) -> bool:
        """True for the main line."""
        return self.key == MAIN_LINE

    @property
    def command(self) -> str:
        """The comma command that takes it up."""
        if any(sign in self.title for sign in '"='):
            return ',topic name="{}"'.format(self.title.replace('"', '""'))
        return f",topic {self.title}"


def parse_topic(text: str) -> TopicName | None:
    """Parse what a person or a model wrote as the name of a topic; None if it is empty, too long, or begins with `bind`.

    Upper and lower case, forms of the same character and further spaces make no difference. Control characters go, and
    brackets become `_`: a name stands among the bot's own marks.
    """
    title = clean_label(unicodedata.normalize("NFKC", text), MAX_TITLE_CHARS + 1)
    if not title or len(title) > MAX_TITLE_CHARS or title.partition(" ")[0].casefold() == BIND_WORD:
        return None
    key = unicodedata.normalize("NFKC", title.casefold())
    return TopicName(MAIN_LINE, MAIN_LINE) if key in MAIN_LINE_WORDS else TopicName(key, title)
