"""Gradient checkpointing: the same gradients, for less memory, and nothing left behind."""

import pytest
import torch
from tiny import caught_gradients, letter_agent, tiny_agent, tiny_llama
from torch import nn
from transformers import AutoModelForCausalLM, BloomConfig, GPT2Config, PreTrainedModel

from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.algos.updates.checkpointing import checkpointed, checkpointing_layers
from motet.envs import make

NAMES = ("agent_0", "agent_1")
IDS = torch.arange(1, 61).unsqueeze(0) % 97

FAMILIES = {
    "llama": tiny_llama,
    "gpt2": lambda: of(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=97)),
    "bloom": lambda: of(BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=97)),
}


def of(config) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()


def saved_bytes(model: PreTrainedModel, layers: list[nn.Module]) -> tuple[int, list[torch.Tensor]]:
    """Bytes that a forward pass saves outside of checkpoints, and the gradients."""
    sizes = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, nn.Parameter):
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    model.zero_grad()
    with checkpointed(layers):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = model(input_ids=IDS, use_cache=False).logits.log_softmax(-1)[..., 3].sum()
        loss.backward()
    return sum(sizes.values()), [weight.grad.clone() for weight in model.parameters()]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_gradients_from_less_memory(family: str) -> None:
    model = FAMILIES[family]()
    layers = checkpointing_layers(model)
    assert len(layers) == 2
    plain, expected = saved_bytes(model, [])
    least, gradients = saved_bytes(model, layers)
    for gradient, reference in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-6, atol=1e-6)
    logits = IDS.shape[1] * model.config.vocab_size * 4  # saved either way, in front of the loss
    inputs = IDS.shape[1] * 32 * 4  # of each layer, of the last norm and of the head
    assert least < 2 * logits + 12 * inputs
    assert plain - least > 2 * 10 * inputs


def updated(gradient_checkpointing: bool) -> tuple[dict[str, dict[str, torch.Tensor]], int]:
    """Gradients of an update, and how often attention ran beyond once for each layer's call."""
    team = {name: tiny_agent(i, max_new_tokens=8) for i, name in enumerate(NAMES)}
    config = MAGRPOConfig(gradient_checkpointing=gradient_checkpointing, progress_bar=False)
    trainer = MAGRPOTrainer(make("story-length-ratio-v0", num_turns=2), team, config)
    rollout = trainer.collect([0])
    calls = []
    for layer in team["agent_0"].model.model.layers:
        layer.register_forward_hook(lambda *_: calls.append("layer"))
        layer.self_attn.register_forward_hook(lambda *_: calls.append("inside"))
    caught = caught_gradients(trainer)
    trainer.update(rollout)
    assert "layer" in calls
    return caught, calls.count("inside") - calls.count("layer")


def test_an_update_with_it_is_the_update_without() -> None:
    expected, once = updated(gradient_checkpointing=False)
    gradients, again = updated(gradient_checkpointing=True)
    assert once == 0
    assert again > 0
    for name in NAMES:
        for key, gradient in expected[name].items():
            torch.testing.assert_close(gradients[name][key], gradient, rtol=1e-6, atol=1e-7)


def test_layers_are_as_before_also_after_an_error() -> None:
    model = tiny_llama()
    layers = checkpointing_layers(model)
    hooked = layers[1].forward
    layers[1].forward = hooked  # as some libraries do
    with pytest.raises(RuntimeError, match="in between"), checkpointed(layers):
        assert all("forward" in vars(layer) for layer in layers)
        raise RuntimeError("in between")
    assert "forward" not in vars(layers[0])
    assert layers[1].forward is hooked


class Plain(nn.Module):
    """A layer that its library does not mark."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(layer.children())


def test_a_model_without_such_layers_is_refused_at_once() -> None:
    agent = letter_agent()
    agent.model.model.layers = nn.ModuleList(Plain(layer) for layer in agent.model.model.layers)
    config = MAGRPOConfig(gradient_checkpointing=True, progress_bar=False)
    with pytest.raises(ValueError, match=r"layers that can be checkpointed .* LlamaForCausalLM"):
        MAGRPOTrainer(make("story-length-ratio-v0"), dict.fromkeys(NAMES, agent), config)
