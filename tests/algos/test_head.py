"""The head a chunk at a time: log-probabilities and entropies of all logits, in less memory."""

import pytest
import torch
from families import LLAMA_LIKE, SHARING, SIZES, model_of
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import CohereConfig, Gemma2Config, LlamaConfig, MambaConfig

from motet.agents import GenerationConfig
from motet.agents.distribution import token_log_probs, token_log_probs_and_entropies
from motet.algos.updates import head
from motet.algos.updates.head import has_plain_head, head_log_probs, head_log_probs_and_entropies

GENERATIONS = {
    "plain": GenerationConfig(),
    "tempered": GenerationConfig(temperature=0.6),
    "top-k": GenerationConfig(top_k=9),
    "top-p": GenerationConfig(top_p=0.7),
    "all": GenerationConfig(temperature=0.7, top_k=20, top_p=0.8),
}


def leaves(rows=40, bias=False):
    torch.manual_seed(0)
    layer = torch.nn.Linear(16, 97, bias=bias)
    hidden = (3 * torch.randn(rows, 16)).requires_grad_()
    return layer, hidden, torch.randint(0, 97, (rows,)), torch.randn(rows)


def gradients(log_probs, weights, layer, hidden):
    inputs = [hidden, *layer.parameters()]
    return torch.autograd.grad((log_probs * weights).sum(), inputs)


@pytest.mark.parametrize("generation", GENERATIONS.values(), ids=GENERATIONS.keys())
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 40, 1024])
def test_chunks_equal_all_logits_at_once(monkeypatch, generation, bias, chunk):
    monkeypatch.setattr(head, "CHUNK_ROWS", chunk)
    layer, hidden, tokens, weights = leaves(bias=bias)
    expected = token_log_probs(layer(hidden), tokens, generation)
    chosen = head_log_probs(hidden, layer, tokens, generation)
    torch.testing.assert_close(chosen, expected, rtol=1e-5, atol=1e-6)
    theirs = gradients(expected, weights, layer, hidden)
    ours = gradients(chosen, weights, layer, hidden)
    for own, reference in zip(ours, theirs, strict=True):
        assert float((own - reference).norm()) <= 1e-5 * float(reference.norm())


@pytest.mark.parametrize("generation", GENERATIONS.values(), ids=GENERATIONS.keys())
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 40, 1024])
def test_entropies_in_chunks_equal_those_of_all_logits_at_once(
    monkeypatch, generation, bias, chunk
):
    monkeypatch.setattr(head, "CHUNK_ROWS", chunk)
    layer, hidden, tokens, weights = leaves(bias=bias)
    expected = token_log_probs_and_entropies(layer(hidden), tokens, generation)
    found = head_log_probs_and_entropies(hidden, layer, tokens, generation)
    assert torch.equal(found[0], head_log_probs(hidden, layer, tokens, generation))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    for mixed in ((0.0, 1.0), (1.0, 0.0), (1.0, -3.0)):  # of log-probabilities and of entropies
        ours, reference = (
            gradients(mixed[0] * log_probs + mixed[1] * entropies, weights, layer, hidden)
            for log_probs, entropies in (
                head_log_probs_and_entropies(hidden, layer, tokens, generation),
                token_log_probs_and_entropies(layer(hidden), tokens, generation),
            )
        )
        for own, slow in zip(ours, reference, strict=True):
            assert float((own - slow).norm()) <= 1e-5 * float(slow.norm())


@pytest.mark.parametrize("chunk", [7, 1024])
def test_what_a_model_rules_out_itself_adds_nothing(monkeypatch, chunk):
    monkeypatch.setattr(head, "CHUNK_ROWS", chunk)
    layer, hidden, tokens, weights = leaves(bias=True)
    few, fewer = torch.nn.Linear(16, 96), tokens.clamp(max=95)
    with torch.no_grad():
        few.weight.copy_(layer.weight[:96])
        few.bias.copy_(layer.bias[:96])
        layer.bias[96] = -torch.inf
    found, without = (
        head_log_probs_and_entropies(hidden, each, fewer, GenerationConfig())
        for each in (layer, few)
    )
    torch.testing.assert_close(found[1], without[1])
    for own, slow in zip(
        gradients(found[0] + found[1], weights, layer, hidden),
        gradients(without[0] + without[1], weights, few, hidden),
        strict=True,
    ):
        torch.testing.assert_close(own[: len(slow)], slow)
        assert not own[len(slow) :].any()


def test_the_gradient_is_that_of_finite_differences():
    layer, hidden, tokens, weights = leaves(rows=3)
    direction = torch.randn_like(hidden)
    generation = GenerationConfig(temperature=0.8)

    def value(step):
        moved = hidden.detach() + step * direction
        log_probs = head_log_probs(moved, layer, tokens, generation)
        return float((log_probs * weights).sum().detach())

    chosen = head_log_probs(hidden, layer, tokens, generation)
    (gradient,) = torch.autograd.grad((chosen * weights).sum(), [hidden])
    slope = (value(1e-2) - value(-1e-2)) / 2e-2
    assert float((gradient * direction).sum()) == pytest.approx(slope, rel=2e-3)


@pytest.mark.parametrize("frozen", ["weight", "hidden"])
def test_what_is_frozen_gets_no_gradient(frozen):
    layer, hidden, tokens, _ = leaves()
    (layer.weight if frozen == "weight" else hidden).requires_grad_(requires_grad=False)
    head_log_probs(hidden, layer, tokens, GenerationConfig()).sum().backward()
    assert (layer.weight.grad is None) == (frozen == "weight")
    assert (hidden.grad is None) == (frozen == "hidden")


class LargestTensor(TorchDispatchMode):
    """Watch every operation, and keep the most bytes that live tensors of logits' width take."""

    def __init__(self, width):
        super().__init__()
        self.width, self.live, self.peak = width, {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.shape[-1:] == (self.width,):
                storage = tensor.untyped_storage()
                self.live[storage.data_ptr()] = (
                    torch.multiprocessing.reductions.StorageWeakRef(storage),
                    storage.nbytes(),
                )
        self.live = {k: v for k, v in self.live.items() if not v[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return result


@pytest.mark.parametrize("entropies", [False, True])
@pytest.mark.parametrize("num_chunks", [1, 4])
def test_logits_never_take_more_than_a_chunk(monkeypatch, num_chunks, entropies):
    """Peak of everything as wide as the vocabulary: chunk * V * 4 bytes and small change."""
    monkeypatch.setattr(head, "CHUNK_ROWS", 256)
    width, rows = 4_999, 256 * num_chunks
    layer = torch.nn.Linear(8, width, bias=False)
    hidden = torch.randn(rows, 8, requires_grad=True)
    tokens = torch.randint(0, width, (rows,))
    with LargestTensor(width) as watch:
        if entropies:
            found = head_log_probs_and_entropies(hidden, layer, tokens, GenerationConfig())
            (found[0] + found[1]).sum().backward()
        else:
            head_log_probs(hidden, layer, tokens, GenerationConfig()).sum().backward()
    assert 256 * width * 4 <= watch.peak <= 1.3 * 256 * width * 4


@pytest.mark.parametrize("generation", GENERATIONS.values(), ids=GENERATIONS.keys())
def test_all_chunks_are_in_the_precision_of_autocast(monkeypatch, generation):
    layer, hidden, tokens, weights = leaves()
    found = []
    for chunk in (8, 1024):
        monkeypatch.setattr(head, "CHUNK_ROWS", chunk)
        with torch.autocast("cpu", torch.bfloat16):
            chosen = head_log_probs(hidden, layer, tokens, generation)
        found.append([chosen, *gradients(chosen, weights, layer, hidden)])
    assert found[0][0].dtype == found[0][1].dtype == torch.float32
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-5)
    for one, other in zip(*found, strict=True):
        assert float((one - other).detach().norm()) <= 1e-2 * float(one.detach().norm())
    with torch.autocast("cpu", torch.bfloat16):
        naive = token_log_probs(layer(hidden), tokens, generation)
    torch.testing.assert_close(found[1][0], naive, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_models_that_cast_at_their_head_are_asked_in_their_own_precision(dtype, bf16):
    config = MambaConfig(hidden_size=32, state_size=4, num_hidden_layers=1, **SIZES)
    model = model_of(config).to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        assert has_plain_head(model)


def test_a_cap_shows_where_the_first_logits_are_small():
    small = Gemma2Config(head_dim=8, initializer_range=1e-3, **LLAMA_LIKE, **SIZES)
    assert not has_plain_head(model_of(small))


def test_which_heads_are_plain():
    assert has_plain_head(model_of(SHARING["llama"]()))
    assert has_plain_head(model_of(SHARING["gpt2"]()))
    assert not has_plain_head(model_of(SHARING["gemma2"]()))  # caps its logits
    assert not has_plain_head(model_of(CohereConfig(logit_scale=0.5, **LLAMA_LIKE, **SIZES)))
    adapted = model_of(LlamaConfig(**LLAMA_LIKE, **SIZES))
    assert has_plain_head(adapted)

    class Adapted(torch.nn.Linear):
        """Anything else than torch's own layer is asked, not read."""

    adapted.lm_head = Adapted(32, 97, bias=False)
    assert not has_plain_head(adapted)
