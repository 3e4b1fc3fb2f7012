"""The embedded pocket model keeps the promises of its card; its script runs and is seeded."""

import importlib.util
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from motet.agents.embedded import pocket_path
from motet.envs.story_length_ratio import (
    EVAL_PROMPTS,
    PROMPTS,
    length_feedback,
    length_ratio_reward,
)

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "pretrain_pocket.py"
MAX_NEW_TOKENS = 200
GENERATIONS_PER_PROMPT = 8

KEYWORDS = dict(
    zip(
        (*PROMPTS, *EVAL_PROMPTS),
        (
            *("city", "holiday", "dragon", "teleportation", "dinosaurs"),
            *("electricity", "superhero", "moon", "fruit", "playground"),
            *("library", "sport", "robot", "time travel", "penguins"),
            *("money", "villain", "river", "bread", "garden"),
        ),
        strict=True,
    )
)

VERBS = frozenset(
    """added agree asked became began belonged brought built called came carried changed cheered
    clapped cleared climbed counted cried danced discovered drank drew dreamed dropped enjoyed
    explained failed feared fell felt filled find forgot found frightened gave glowed got greeted
    had heard help hoped hugged hummed hung imagined invented is joined jumped knew lasted laughed
    lay learned liked listened lived looked lost loved made met missed named needed offered opened
    packed passed planned reached read remembered rolled said sang sat saw searched seemed shared
    shone shook showed sighed slept smelled smiled sold spoiled stayed stood stopped swayed takes
    talked thanked thought told took tried understood vanished visited waited walked wanted was
    went whispered wished woke wondered worked worried were wrote open did could""".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Sample:
    """One completion of the pocket model."""

    instruction: str
    text: str
    stopped: bool


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pretrain_pocket", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(pocket_path())


@pytest.fixture(scope="module")
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(pocket_path()).eval()


@pytest.fixture
def untouched_torch() -> Iterator[None]:
    """Undo what the script sets globally: the seed."""
    with torch.random.fork_rng():
        yield


def generate(model: Any, tokenizer: Any, instructions: list[str], prompts: list[str]) -> list[Any]:
    inputs = tokenizer(prompts, padding=True, return_tensors="pt")
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(7)
        tokens = model.generate(**inputs, do_sample=True, max_new_tokens=MAX_NEW_TOKENS)
    tokens = tokens[:, inputs["input_ids"].shape[1] :]
    stopped = (tokens == tokenizer.eos_token_id).any(dim=1).tolist()
    texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    return [Sample(*row) for row in zip(instructions, texts, stopped, strict=True)]


@pytest.fixture(scope="module")
def plain(model: Any, tokenizer: Any) -> list[Sample]:
    prompts = [*PROMPTS, *EVAL_PROMPTS] * GENERATIONS_PER_PROMPT
    return generate(model, tokenizer, prompts, prompts)


@pytest.fixture(scope="module")
def feedback(model: Any, tokenizer: Any) -> list[Sample]:
    instructions = [*PROMPTS, *EVAL_PROMPTS] * GENERATIONS_PER_PROMPT
    prompts = [
        length_feedback(prompt, ["x" * (i * 37 % 600), "x" * (20 + i * 53 % 900)], 2)[i % 2]
        for i, prompt in enumerate(instructions)
    ]
    return generate(model, tokenizer, instructions, prompts)


def split_sentences(text: str) -> list[str]:
    """Split after . ! or ?; what follows the last of them is an unfinished sentence."""
    return [part.strip() for part in re.findall(r'[^.!?]+(?:[.!?]"?|$)', text) if part.strip()]


def faults(sentence: str, vocabulary: set[str]) -> list[str]:
    """Name what is wrong with a sentence, by rules that do not come from the grammar."""
    words = re.findall(r"\w+", sentence.lower())
    checks = {
        "starts with a capital letter": re.match(r'"?[A-Z]', sentence),
        "ends in . ! or ?": re.search(r'[.!?]"?$', sentence),
        "contains a verb": VERBS.intersection(words),
        "uses known words": vocabulary.issuperset(words),
        "repeats no word": not re.search(r"\b(\w+) \1\b", sentence.lower()),
        "writes an before a vowel": not re.search(r"\b[Aa] [aeiou](?<!u)|\b[Aa] u(?!ni)", sentence),
        "writes a before a consonant": not re.search(r"\b[Aa]n ([^aeiou]|uni)", sentence),
        "balances its quotes": sentence.count('"') % 2 == 0,
        "has single spaces and no odd signs": re.fullmatch(r'[A-Za-z",.!? ]+', sentence)
        and "  " not in sentence,
    }
    return [rule for rule, holds in checks.items() if not holds]


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("the fox sat down.", "starts with a capital letter"),
        ("The fox sat down", "ends in . ! or ?"),
        ("The fox and the owl.", "contains a verb"),
        ("The foxling sat down.", "uses known words"),
        ("The fox sat sat down.", "repeats no word"),
        ("The fox met a old owl.", "writes an before a vowel"),
        ("The fox met an wise owl.", "writes a before a consonant"),
        ('"We have time, said the fox.', "balances its quotes"),
        ("The fox\nsat down.", "has single spaces and no odd signs"),
    ],
)
def test_the_sentence_check_finds_each_fault(script: ModuleType, sentence: str, rule: str) -> None:
    assert faults(sentence, script.vocabulary() | {"fox", "sat"}) == [rule]


def test_the_sentence_check_accepts_a_unique_power(script: ModuleType) -> None:
    known = script.vocabulary()
    assert faults('"I met a superhero with a unique power," said an old fox.', known) == []


def test_it_is_small(model: Any, tokenizer: Any) -> None:
    assert 700_000 <= sum(parameter.numel() for parameter in model.parameters()) <= 1_300_000
    assert (pocket_path() / "model.safetensors").stat().st_size <= 4_000_000
    assert len(tokenizer) <= 2048
    assert model.config.vocab_size == len(tokenizer)


def test_it_loads_in_single_precision(model: Any) -> None:
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_its_special_tokens_agree(model: Any, tokenizer: Any) -> None:
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|end|>", "<|pad|>")
    for config in (model.config, model.generation_config):
        assert config.eos_token_id == tokenizer.eos_token_id
        assert config.pad_token_id == tokenizer.pad_token_id


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n", "Once", " Once", "a\n\tb  c ", "🐉 été, 汉字: ½", "12.50 times"]
)
def test_the_tokenizer_returns_any_text(tokenizer: Any, text: str) -> None:
    tokens = tokenizer(text)["input_ids"]
    assert tokenizer.decode(tokens) == text
    assert not {tokenizer.eos_token_id, tokenizer.pad_token_id}.intersection(tokens)


def test_it_stops_by_itself(plain: list[Sample], feedback: list[Sample]) -> None:
    for samples in (plain, feedback):
        assert statistics.mean(sample.stopped for sample in samples) >= 0.95


def test_it_follows_the_subject(plain: list[Sample], feedback: list[Sample]) -> None:
    for samples in (plain, feedback):
        hits = [KEYWORDS[sample.instruction] in sample.text.lower() for sample in samples]
        assert statistics.mean(hits) >= 0.9


def test_its_sentences_are_grammatical(
    script: ModuleType, plain: list[Sample], feedback: list[Sample]
) -> None:
    known = script.vocabulary()
    sentences = [part for sample in plain + feedback for part in split_sentences(sample.text)]
    failed = {part: faults(part, known) for part in sentences if faults(part, known)}
    rate = 1 - sum(part in failed for part in sentences) / len(sentences)
    assert rate >= 0.95, failed


def test_a_tale_begins_with_one_space(plain: list[Sample], feedback: list[Sample]) -> None:
    begun = [re.match(r" [A-Z]", sample.text) is not None for sample in plain + feedback]
    assert statistics.mean(begun) >= 0.99


def test_its_lengths_vary_widely(plain: list[Sample], feedback: list[Sample]) -> None:
    for samples in (plain, feedback):
        counts = [len(split_sentences(sample.text)) for sample in samples]
        assert min(counts) == 1
        assert max(counts) >= 10
        characters = [len(sample.text) for sample in samples]
        assert statistics.stdev(characters) / statistics.mean(characters) >= 0.4


def test_two_untrained_copies_leave_much_to_learn(plain: list[Sample]) -> None:
    half = len(plain) // 2  # a whole number of passes through the prompts: texts pair by prompt
    texts = [sample.text for sample in plain]
    reward = statistics.mean(length_ratio_reward(texts[:half], texts[half:]))
    assert 0.25 <= reward <= 0.47


@pytest.mark.usefixtures("untouched_torch")
def test_the_script_runs_and_is_seeded(script: ModuleType, tmp_path: Path) -> None:
    weights = []
    for name, seed in (("first", 3), ("again", 3), ("other", 4)):
        script.main(
            script.Config(
                output=tmp_path / name,
                seed=seed,
                num_steps=2,
                batch_size=4,
                num_warmup_steps=1,
                num_tokenizer_texts=300,
                num_generations=1,
                num_threads=torch.get_num_threads(),
            )
        )
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
        names = {path.name for path in (tmp_path / name).iterdir()}
        assert names == {path.name for path in pocket_path().iterdir()}
    assert weights[0] == weights[1] != weights[2]
