"""PDFs that people send, read by the child process that reads those of the web."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bubbot.features.attachments.intake import PdfText

if TYPE_CHECKING:
    from bubbot.features.web.reading import PageReader


class PdfReader:
    """Reads PDFs, each in a child process with limits of time and memory."""

    def __init__(self) -> None:
        self._reader: PageReader | None = None

    async def read_pdf(self, data: bytes) -> PdfText:
        """Read the text of a PDF, or say why there is none."""
        # Imported here: a bot that is sent no PDF loads nothing of it.
        from bubbot.features.web.client import WebError
        from bubbot.features.web.reading import MAX_PDF_PAGES, PageReader, PdfLocked

        self._reader = self._reader or PageReader()
        try:
            page = await self._reader.read_pdf(data)
        except PdfLocked as error:
            return PdfText(fault="locked", reason=str(error))
        except WebError as error:
            return PdfText(fault="failed", reason=str(error))
        except OSError:  # no process or pipe can be had, as a machine without memory
            return PdfText(fault="failed", reason="no process could be started to read it")
        return PdfText(page.text, page.pages, min(page.pages, MAX_PDF_PAGES))
