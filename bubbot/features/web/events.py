"""The payloads of the facts about what the web tools kept."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypedDict

from bubbot.tape.references import BlobDigest


class WebImageKept(TypedDict):
    """`web/image`"""

    address: str
    media_type: str
    size: int
    digest: BlobDigest


WEB_EVENTS: Mapping[str, type] = MappingProxyType({"web/image": WebImageKept})
