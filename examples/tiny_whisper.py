"""This program writes a small Whisper with random weights: python examples/tiny_whisper.py FOLDER.

It has the feature extractor, the special tokens and the architecture of Whisper, and 1 million parameters. Its
transcripts mean nothing, but they depend on every token and every sample.
"""

import sys
from pathlib import Path

import torch
import transformers
from tiny_qwen2_vl import byte_tokenizer, randomize

END = "<|endoftext|>"
CODES = """af ar hy az be bs bg ca zh hr cs da nl en et fi fr gl de el he hi hu is id it ja kn kk ko lv lt mk ms mr mi
ne no fa pl pt ro ru sr sk sl es sw sv tl ta th tr uk ur vi cy"""
SPECIAL = (
    END,
    "<|startoftranscript|>",
    *(f"<|{each}|>" for each in CODES.split()),
    *("<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
)


def whisper(folder: Path, weights: bool = False, **settings: object) -> Path:
    """Write a Whisper to a folder: its processor, and a small random network if vLLM is to run it.

    `settings` are those of the feature extractor."""
    tokens = byte_tokenizer(SPECIAL, None, END)
    transformers.WhisperProcessor(transformers.WhisperFeatureExtractor(**settings), tokens).save_pretrained(folder)
    number = tokens.convert_tokens_to_ids
    config = transformers.WhisperConfig(
        vocab_size=512,
        d_model=128,
        encoder_layers=2,
        encoder_attention_heads=2,
        encoder_ffn_dim=256,
        decoder_layers=2,
        decoder_attention_heads=2,
        decoder_ffn_dim=256,
        bos_token_id=number(END),
        eos_token_id=number(END),
        pad_token_id=number(END),
        decoder_start_token_id=number("<|startoftranscript|>"),
        begin_suppress_tokens=None,
        dtype="float32",
    )
    if not weights:
        config.save_pretrained(folder)
        return folder
    torch.manual_seed(0)
    network = transformers.WhisperForConditionalGeneration(config).float()
    randomize(network)
    with torch.no_grad():
        network.model.decoder.embed_tokens.weight[number(END)] = 0  # so that answers do not end early
    network.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    whisper(Path(sys.argv[1]), weights=True)
