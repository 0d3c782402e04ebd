"""Makes a tiny Llama on the spot: random weights, and a tokenizer that has read the texts of a folder.

Usage, with the Python of `make loop`: newborn.py TEXTS FOLDER. TEXTS is a folder with Markdown files. Nothing is downloaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = Path(__file__).with_name("template.jinja")
END, PAD = "<|end|>", "<|pad|>"
MARKERS = [PAD, END, "<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
POSITIONS = 16_384
VOCABULARY = 6_144
NEARNESS = 1.4
"""The biases of queries and keys: a newborn looks at what is near, and not evenly at thousands of tokens, in which a question would drown."""


def make_tokenizer(texts: Path) -> PreTrainedTokenizerFast:
    """Make a byte-level BPE tokenizer from the Markdown files of a folder."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=MARKERS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train([str(path) for path in sorted(texts.rglob("*.md")) if "zh" not in path.parts], trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)
    made.chat_template = TEMPLATE.read_text("utf-8")
    made.model_max_length = POSITIONS
    return made


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Make a Llama whose weights are chance, the same chance each time."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        head_dim=32,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=False,
        initializer_range=0.06,
        attention_bias=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    for layer in model.model.layers:
        torch.nn.init.constant_(layer.self_attn.q_proj.bias, NEARNESS)
        torch.nn.init.constant_(layer.self_attn.k_proj.bias, NEARNESS)
    return model


def main(texts: Path, folder: Path) -> None:
    """Write tokenizer and weights into a folder."""
    tokenizer = make_tokenizer(texts)
    model = make_model(tokenizer)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    print(f"{sum(each.numel() for each in model.parameters())} weights, {len(tokenizer)} tokens, {POSITIONS} positions")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
