"""The Transformer with cached keys and values decodes what torch's own layers decode without a cache."""

import math

import pytest
import torch

from headrace.batching import UsageError
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.networks.step_models import load_steps, run_alone
from headrace.host.workers.networks.steps import EOS, GO
from headrace.host.workers.networks.zoo.transformer import sinusoidal_positions


def torchs_layers(network: Network, modules) -> tuple[torch.nn.ModuleList, torch.nn.ModuleList]:
    """Return torch.nn's encoder and decoder layers with the same weights."""
    encoder, decoder = modules
    sizes = (network.hidden, network.heads, 4 * network.hidden, 0.0)
    settings = {"batch_first": True, "norm_first": network.norm_first}
    encoders, decoders = torch.nn.ModuleList(), torch.nn.ModuleList()
    for layer in encoder.layers:
        encoders.append(torch.nn.TransformerEncoderLayer(*sizes, **settings))
        encoders[-1].load_state_dict(layer.state_dict())
    for layer, memory in zip(decoder.layers, encoder.memory, strict=True):
        own = {name: value for name, value in layer.state_dict().items() if name.startswith(("linear", "norm"))}
        for kind in ("weight", "bias"):
            cross = (getattr(layer.cross_query, kind), getattr(memory, kind))
            own |= {
                f"self_attn.in_proj_{kind}": getattr(layer.self_in, kind),
                f"self_attn.out_proj.{kind}": getattr(layer.self_out, kind),
                f"multihead_attn.in_proj_{kind}": torch.cat(cross),
                f"multihead_attn.out_proj.{kind}": getattr(layer.cross_out, kind),
            }
        decoders.append(torch.nn.TransformerDecoderLayer(*sizes, **settings))
        decoders[-1].load_state_dict(own)
    return encoders.eval(), decoders.eval()


def embedded(embedding, tokens: list[int]) -> torch.Tensor:
    hidden = embedding.words.embedding_dim
    words = embedding.words(torch.tensor([tokens])) * math.sqrt(hidden)
    return words + sinusoidal_positions(len(tokens), hidden)


@torch.inference_mode()
def greedy(network: Network, modules, tokens: list[int], most: int) -> tuple[list[int], list[torch.Tensor]]:
    """Return the decoded tokens and the logits of each, by torch's layers over all tokens anew in each step."""
    encoder, decoder = modules
    encoders, decoders = torchs_layers(network, modules)
    memory = embedded(encoder.embedding, tokens)
    for layer in encoders:
        memory = layer(memory)
    memory = encoder.norm(memory)
    decoded, logits = [], []
    while len(decoded) < most and EOS not in decoded:
        x = embedded(decoder.embedding, [GO, *decoded])
        causal = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        for layer in decoders:
            x = layer(x, memory, tgt_mask=causal, tgt_is_causal=True)
        logits.append(decoder.projection(decoder.norm(x[0, -1])))
        decoded.append(int(logits[-1].argmax()))
    return decoded, logits


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_it_decodes_the_tokens_of_torchs_layers_without_a_cache(norm_first, seed, monkeypatch):
    network = Network("t", "transformer", 32, 40, seed=seed, heads=4, norm_first=norm_first, longest_output=24)
    loaded = load_steps(network)
    decoder = loaded.modules[1]
    seen, own = [], decoder.logits

    def logits(*given):
        answer = own(*given)
        seen.append(answer[0][0])
        return answer

    monkeypatch.setattr(decoder, "logits", logits)
    for tokens in ([5], [7, 3, 9, 22, 4], list(range(2, 30))):
        seen.clear()
        expected, expected_logits = greedy(network, loaded.modules, tokens, 24)
        assert run_alone(loaded, tokens, 24) == expected
        torch.testing.assert_close(torch.stack(seen), torch.stack(expected_logits), rtol=1e-4, atol=1e-4)


def test_positions_are_those_of_the_paper():
    positions = sinusoidal_positions(50, 6)
    for position in (0, 1, 49):
        for i in range(3):
            angle = position / 10_000 ** (2 * i / 6)
            expected = torch.tensor([math.sin(angle), math.cos(angle)])
            torch.testing.assert_close(positions[position, 2 * i : 2 * i + 2], expected)


def test_heads_that_do_not_divide_the_hidden_size_are_refused():
    with pytest.raises(UsageError, match="heads that divide"):
        Network("t", "transformer", 30, 40, heads=4)
