"""litellm, imported once and silenced. Import it from here: `from bubbot.models.litellm.quiet import litellm`.

This is the one place that *writes* environment variables. It has to do so first, because litellm reads them while it is
imported. `LITELLM_LOCAL_MODEL_COST_MAP`: use the packaged price list instead of fetching one from the network.
`LITELLM_MODE`: do not read a `.env` file in the working directory. `LITELLM_DISABLE_BUG_REPORT_LINK`: put no link with
facts about this machine in error texts.
"""

from __future__ import annotations

import logging
import os
import warnings

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # noqa: TID251 - written, not read; see above
os.environ["LITELLM_MODE"] = "PRODUCTION"  # noqa: TID251
os.environ["LITELLM_DISABLE_BUG_REPORT_LINK"] = "true"  # noqa: TID251

# Issued while its types are built and its answers copied; an operator cannot do anything about them.
for _pattern in ("Item '.*' on TypedDict class", "Pydantic serializer warnings"):
    warnings.filterwarnings("ignore", _pattern, UserWarning)

import litellm  # noqa: E402 - see above

__all__ = ["litellm"]

litellm.suppress_debug_info = True
"""Otherwise it prints advice on standard output."""
litellm.drop_params = True
"""Leave out a sampling setting that a model does not take, instead of refusing the request."""
litellm.disable_hf_tokenizer_download = True
"""Otherwise it downloads tokenizers during a call."""
litellm.disable_token_counter = True
"""If a provider counts no tokens, we estimate them; litellm would count with the tokenizer of another model."""
litellm.num_retries = 0
"""We retry ourselves, and count the cost."""

for _name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
    _log = logging.getLogger(_name)
    _log.handlers.clear()  # they write to stderr past our redaction
    _log.setLevel(logging.CRITICAL + 1)  # what matters comes as an exception
