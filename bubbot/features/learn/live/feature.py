"""The feature: the proxy's model answers listed chats, and records them. Off by default; then it wraps no call and sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from bubbot.errors import ConfigError
from bubbot.feature import Apply, Around, Feature, Kernel, Lifecycle
from bubbot.features.learn.live.recorder import LiveRecorder
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.ports.model import Model
from bubbot.ports.people import AsksConsent
from bubbot.settings.loader import Settings


class LiveFeature:
    """Records chats for training while that is on."""

    def __init__(
        self,
        kernel: Kernel,
        settings: Settings,
        consents: AsksConsent,
        open_model: Callable[[Settings, str, str, str], Model],
    ) -> None:
        """Build it without reading anything.

        Args:
            open_model: makes a model under settings: its name, its address, and the key. Raises `ConfigError`.

        Raises:
            ConfigError: the settings have a proxy without its key.
        """
        self._settings = _check(settings)
        self._recorder = LiveRecorder(
            kernel, self._section, consents, lambda name, url, key: open_model(self._settings, name, url, key)
        )

    @property
    def _section(self) -> LearnSettings:
        return self._settings.section(LearnSettings)

    def feature(self) -> Feature:
        """Build the record under the settings in force."""
        recorder, is_on = self._recorder, self._section.endpoint_is_on
        host = urlsplit(self._section.endpoint or "").netloc if is_on else ""
        return Feature(
            name="learn.live",
            traces=(LEARN_TAPE,),
            on_merged=(recorder.on_merged,) if is_on else (),
            around=Around(model=(recorder.around_model,) if is_on else ()),
            lifecycle=Lifecycle(
                lifespan=recorder.lifespan,
                background={"recording for training": recorder.run},
                prepare=self._prepare,
                renew=self.feature,
            ),
            health=lambda context: recorder.health.report(context, host),
        )

    async def _prepare(self, settings: Settings) -> Apply:
        _check(settings)

        def apply() -> None:
            self._settings = settings
            self._recorder.settings = self._section
            self._recorder.wake()

        return apply


def _check(settings: Settings) -> Settings:
    """Return the settings. Raise `ConfigError` for a proxy without its key."""
    section = settings.section(LearnSettings)
    is_missing = section.endpoint_key is None and settings.missing_secret("learn", "endpoint_key") is None
    if section.endpoint and is_missing:
        raise ConfigError("[learn] endpoint is set, but not endpoint_key: give the admin key of the proxy.")
    return settings
