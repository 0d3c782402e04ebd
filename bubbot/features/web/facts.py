"""The facts about what the web tools kept."""

from __future__ import annotations

from bubbot.tape.fact import Fact
from bubbot.tape.references import BlobDigest


class WebImageKept(Fact):
    """An image from the web is kept with the tape.

    Attributes:
        address: where it came from.
        media_type: by its content.
        size: in bytes.
        digest: of its bytes; people and models name it as its handle.
    """

    EVENTS = ("web/image",)
    address: str
    media_type: str
    size: int
    digest: BlobDigest


FACTS: tuple[type[Fact], ...] = (WebImageKept,)
