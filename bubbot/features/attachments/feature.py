"""The feature: taking in attachments, and sending files."""

from __future__ import annotations

from bubbot.feature import Feature
from bubbot.features.attachments.intake import AttachmentIntake, AttachmentLimits, MeterTranscription, ReadPdf
from bubbot.features.attachments.settings import AttachmentSettings
from bubbot.features.attachments.tools import file_tools
from bubbot.ports.model import TranscribesAudio
from bubbot.records import dataclass
from bubbot.texts import Texts


@dataclass(frozen=True, slots=True)
class Transcriber:
    """A model that transcribes recordings, and its name."""

    name: str
    model: TranscribesAudio


def attachments_feature(
    settings: AttachmentSettings,
    texts: Texts,
    transcriber: Transcriber | None,
    meter: MeterTranscription | None,
    read_pdf: ReadPdf,
) -> Feature:
    """Build the feature from its settings; a reload builds it again.

    Args:
        settings: the settings.
        texts: the bot's own sentences.
        transcriber: writes down recordings; None: recordings stay files.
        meter: reserves transcriptions; None if nobody counts.
        read_pdf: reads PDFs.
    """
    intake = AttachmentIntake(
        AttachmentLimits(settings.max_bytes, settings.max_inline),
        (transcriber.name, transcriber.model) if transcriber else None,
        meter=meter,
        read_pdf=read_pdf,
        texts=texts,
    )
    return Feature(name="attachments", tools=file_tools(settings.max_bytes), intake=intake)
