"""The feature: taking in attachments, and sending files."""

from __future__ import annotations

from bubbot.feature import Feature
from bubbot.features.attachments.commands import file_tools
from bubbot.features.attachments.intake import AttachmentIntake, MeterTranscription, ReadPdf
from bubbot.features.attachments.settings import AttachmentSettings
from bubbot.ports.model import TranscribesAudio
from bubbot.texts import Texts


def attachments_feature(
    settings: AttachmentSettings,
    texts: Texts,
    transcriber: tuple[str, TranscribesAudio] | None,
    meter: MeterTranscription | None,
    read_pdf: ReadPdf,
) -> tuple[Feature, AttachmentIntake]:
    """Build the feature from its settings, and what takes attachments in; a reload builds both again.

    `AttachmentIntake` says what the others are.
    """
    intake = AttachmentIntake(
        max_bytes=settings.max_bytes,
        max_inline=settings.max_inline,
        transcriber=transcriber,
        meter=meter,
        read_pdf=read_pdf,
        texts=texts,
    )
    return Feature(name="attachments", tools=file_tools(settings.max_bytes)), intake
