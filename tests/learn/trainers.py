"""TRL's trainers prepare exports as they would for training: this file runs with the Python of an environment that has TRL.

On standard input it gets lines, each with the name of a trainer and a path; it answers each with a line of JSON: how many rows the file
has, how many the trainer prepared, and what the first one teaches. The model is made on the spot, and is not trained.
"""

# mypy: ignore-errors

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
END, PAD = "<|end|>", "<|pad|>"
TEMPLATE = (
    "{%- if tools %}{{ '<|system|>' + (tools | tojson) + '<|end|>' }}{%- endif %}"
    "{%- for message in messages %}{{- '<|' + message.role + '|>' }}"
    "{%- if message.role == 'assistant' %}{% generation %}{{- message.content or '' }}"
    "{%- if message.tool_calls %}{{ message.tool_calls | tojson }}{%- endif %}{{- '<|end|>' }}{% endgeneration %}"
    "{%- else %}{{- (message.content or '') + '<|end|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)


def make_model(folder: str) -> tuple[Any, Any]:
    """Make a tiny model that reads bytes, and its tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token=END, pad_token=PAD, additional_special_tokens=[*ROLES]
    )
    tokenizer.chat_template = TEMPLATE
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), num_key_value_heads=2, max_position_embeddings=2**17, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)
    return LlamaForCausalLM.from_pretrained(folder), tokenizer


def prepare(name: str, path: Path, folder: str) -> dict[str, Any]:
    """Load a file, and let a trainer prepare it."""
    import trl
    from datasets import load_dataset

    kinds = {"sft": "SFT", "dpo": "DPO", "kto": "KTO"}
    trainer, config = (getattr(trl, f"{kinds[name]}{part}") for part in ("Trainer", "Config"))
    rows = load_dataset("json", data_files=str(path), cache_dir=folder)["train"]
    model, tokenizer = make_model(folder)
    arguments = config(
        output_dir=folder, report_to=[], use_cpu=True, max_length=None, per_device_train_batch_size=2, disable_tqdm=True
    )
    found = trainer(model=model, processing_class=tokenizer, train_dataset=rows, args=arguments)
    first, key = found.train_dataset[0], {"dpo": "chosen_ids", "kto": "completion_ids"}.get(name, "")
    taught = first[key] if key else [token for token in first["labels"] if token != -100]
    return {"rows": len(rows), "prepared": len(found.train_dataset), "taught": tokenizer.decode(taught)}


def main() -> None:
    """Answer each line."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        name, path = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(prepare(name, Path(path), folder)), file=answers, flush=True)


if __name__ == "__main__":
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    main()
