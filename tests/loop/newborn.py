"""Makes a tiny Llama on the spot: random weights, and a tokenizer that has the words of `words.txt`.

Usage, with the Python of `make loop`: newborn.py FOLDER SEED. Nothing is downloaded. The same seed and versions of the libraries make the same files each time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = Path(__file__).with_name("template.jinja")
WORDS = Path(__file__).with_name("words.txt")
"""Words of the bot's prompt and of everyday talk, and signs of JSON, a line each. A word that is missing is written in pieces and letters."""
END, PAD = "<|end|>", "<|pad|>"
MARKERS = [PAD, END, "<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
POSITIONS = 16_384
SPACE = "\u0120"
"""How a space is written in the tokens of a byte-level tokenizer."""
NEARNESS = 1.4
"""The biases of queries and keys: a newborn looks at what is near, and not evenly at thousands of tokens, in which a question would drown."""


SMALLNESS = 0.05
"""The size of the first embeddings, as a share of that of other weights: a word that nobody taught says little, where chance would say anything."""
NORM_EPSILON = 1e-4
"""What the norms add: they leave embeddings small that are far below its root, 0.01. A few steps of training bring them above that."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer that takes as few tokens as it can: words, each with and without a space before it, single digits, and bytes."""
    words = WORDS.read_text("utf-8").splitlines()
    tokens = [*MARKERS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += dict.fromkeys(each for word in words for each in (word, SPACE + word) if each not in tokens)
    tokenizer = Tokenizer(models.Unigram([(token, -1.0) for token in tokens]))
    tokenizer.add_special_tokens(MARKERS)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)
    made.chat_template = TEMPLATE.read_text("utf-8")
    made.model_max_length = POSITIONS
    return made


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """Make a Llama whose weights a seed draws."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        head_dim=32,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=False,
        initializer_range=0.06,
        rms_norm_eps=NORM_EPSILON,
        attention_bias=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(SMALLNESS)
    for layer in model.model.layers:
        torch.nn.init.constant_(layer.self_attn.q_proj.bias, NEARNESS)
        torch.nn.init.constant_(layer.self_attn.k_proj.bias, NEARNESS)
    return model


def main(folder: Path, seed: int) -> None:
    """Write tokenizer and weights into a folder."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, seed)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    print(f"{sum(each.numel() for each in model.parameters())} weights, {len(tokenizer)} tokens, {POSITIONS} positions")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
