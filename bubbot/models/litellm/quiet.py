"""litellm, imported once and told to keep quiet. Take it from here: `from bubbot.models.litellm.quiet import litellm`.

The one place that *writes* environment variables, and it has to before the import, because litellm looks there while
it is imported. `LITELLM_LOCAL_MODEL_COST_MAP`: take the price list that came with the package, else it is fetched
from the network. `LITELLM_MODE`: do not read a `.env` file of the working directory. `LITELLM_DISABLE_BUG_REPORT_LINK`:
no link with facts about this machine in error texts.
"""

from __future__ import annotations

import logging
import os
import warnings

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # noqa: TID251 - written, not read; see above
os.environ["LITELLM_MODE"] = "PRODUCTION"  # noqa: TID251
os.environ["LITELLM_DISABLE_BUG_REPORT_LINK"] = "true"  # noqa: TID251

# Said while its types are built and its answers copied; nobody who runs a bot can do anything about them.
for _words in ("Item '.*' on TypedDict class", "Pydantic serializer warnings"):
    warnings.filterwarnings("ignore", _words, UserWarning)

import litellm  # noqa: E402 - see above

__all__ = ["litellm"]

litellm.suppress_debug_info = True
"""Prints advice on standard output otherwise."""
litellm.drop_params = True
"""A sampling setting that a model does not take is left out; the request is not refused for it."""
litellm.disable_hf_tokenizer_download = True
"""Tokenizers would be fetched while a call runs."""
litellm.disable_token_counter = True
"""A provider that counts no tokens is estimated by us; litellm would count with the tokenizer of another model."""
litellm.num_retries = 0
"""We retry, and count what it costs."""

for _name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
    _log = logging.getLogger(_name)
    _log.handlers.clear()  # they write to stderr past our redaction
    _log.setLevel(logging.CRITICAL + 1)  # what matters comes as an exception
