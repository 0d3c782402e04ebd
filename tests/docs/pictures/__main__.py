"""`make pictures`: draw the pictures of docs/pictures, all or those that are named."""

from __future__ import annotations

import asyncio
import sys

from tests.docs.pictures.scenes import SCENES, draw, file_of


def main(names: list[str]) -> None:
    """Draw them, and print which of them changed."""
    for name in names or [*SCENES]:
        svg, file = asyncio.run(draw(name)), file_of(name)
        state = "unchanged" if file.exists() and file.read_text(encoding="utf-8") == svg else "drawn"
        file.parent.mkdir(exist_ok=True)
        file.write_text(svg, encoding="utf-8")
        print(f"{name}: {state}")


if __name__ == "__main__":
    main(sys.argv[1:])
