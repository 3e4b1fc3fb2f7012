"""Write small tales with a grammar, and train the embedded pocket model on them.

The pocket model lets every test, demo and tutorial run a whole multi-agent loop on a laptop,
offline. It is a Llama of about one million parameters that answers the instructions of
`motet.envs.story_length_ratio`, and their feedback form, with a tale of one to twelve sentences
that names the instruction's subject and stops by itself.

How a tale is made:
    1. A subject is drawn ("a city in the clouds"), with the instruction that asks for it.
    2. The number of sentences is drawn from 1..12, the ends a little more often. The words of the
       opening hint at it ("Once" and "Long ago"), so that a reinforcement learner can shift the
       length by few decisions.
    3. The opening comes first and the closing last; the middle sentences are a random subset, in
       order, of ten slots: place, character, wish, first step, helper, trouble, feeling, idea,
       turn, celebration. Each slot has sentences of its own, so the text says how far it is.
    4. In the feedback form the length is drawn the same way, whatever the feedback says: to follow
       it is left to reinforcement learning.

The tale begins with a space, so that "instruction:" + text reads well; it ends in `<|end|>`.

Run it with:
    python examples/pretrain_pocket.py --seed 0
"""

import json
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn import functional
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from motet.envs.story_length_ratio import (
    EVAL_PROMPTS,
    PROMPTS,
    length_feedback,
    length_ratio_reward,
)

END = "<|end|>"
PAD = "<|pad|>"
MAX_SENTENCES = 12
SENTENCE_WEIGHTS = (2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2)
MAX_NEW_TOKENS = 200
FEEDBACK_SHARE = 0.4
LISTED_SHARE = 0.35
REWORDED_SHARE = 0.1
IGNORED = -100
MEAN_TALE_TOKENS = 70


def words(text: str) -> list[str]:
    """Split a list written with spaces, or with bars where its entries hold spaces."""
    return text.split("|") if "|" in text else text.split()


FEMALE = words("Mira Ada Nora Ivy Ruth Wren Tilda")
MALE = words("Tom Oskar Finn Hugo Leo Kofi Ravi")

# Words that fill the sentences; a tale draws each list without repetition.
FILLERS = {
    key: words(text)
    for key, text in {
        "adj": "small bright strange gentle curious golden quiet tiny silver wonderful crooked",
        "look": "bright strange wonderful curious quiet peaceful gentle proud",
        "sound": "strange loud low soft heavy",
        "trait": "brave patient clever shy cheerful careful stubborn kind",
        "job": "baker sailor painter gardener teacher farmer tailor carpenter",
        "color": "blue red green yellow purple orange white",
        "weather": "sunny foggy windy snowy rainy cool warm",
        "storm": "sudden dark cold wild",
        "scent": "honey|cinnamon|mint|fresh rain|wild roses|warm milk",
        "food": "warm pancakes|sweet plums|hot porridge|fresh figs|ginger biscuits|lemon buns|"
        "roasted nuts|cherry tarts",
        "feel": "sad tired nervous lost lonely confused",
        "num": "two three four five six seven nine ten",
        "time": "sunset|midnight|winter|the next morning|the first snow",
        "place": "the old mill|the well|the tall tower|the town square|the hill|the station|"
        "the apple tree|the north gate|the bakery|the beach|the pond",
        "object": "lantern kite drum bell basket ladder feather blanket whistle letter teacup",
        "helper": "old fox|wise owl|brown hen|gray goat|little mouse|sleepy badger|fast hare|"
        "playful otter|black crow",
    }.items()
}

LEADS = (
    ("Once", "One day", "One quiet day", "This morning"),
    ("One evening", "Last spring", "Last week", "Some time ago"),
    ("Long ago", "Many years ago", "Far away", "Long before today"),
)

TAILS = (
    "and everyone smiled",
    "and that was enough",
    "and nobody ever forgot it",
    "and the whole town was glad",
    "and it was a good day",
)

# {A} and {friend} are people, {S} the subject in full, {s} in short, {N} at its first mention, {n}
# its bare noun, {x} what the world lacks or what the scene does; the rest are fillers.
OPENINGS = {
    "place": """
        {A} visited {N}
        {A} came to {N}
        {A} found the road to {N}
        {A} and {friend} saw {N}
        there was {N} with {num} {color} towers""",
    "design": """
        {A} built {N}
        {A} planned {N} with {friend}
        {A} drew {N} on {color} paper
        the people asked {A} to build {N}""",
    "invent": """
        {A} invented {N}
        {A} and {friend} made up {N}
        {A} explained {N} at {place}
        a {job} named {A} invented {N}""",
    "type": """
        {A} made {N}
        {A} discovered {N} near {place}
        {A} and {friend} invented {N}
        a {job} named {A} made {N}""",
    "bedtime": """
        {A} met {N} near {place}
        {N} could not sleep
        a {look} {n} waited behind {place}
        {A} read a story to {N}
        a {look} {n} came to {place}""",
    "idea": """
        {A} learned about {S}
        {A} explained {S} to {friend}
        {A} read an old book about {S}
        a {job} named {A} dreamed of {S}""",
    "joke": """
        {A} told a joke about {n}
        {num} {n} came to {place}
        {A} asked {num} {n} a funny question
        {num} {look} {n} told {A} a joke""",
    "world": """
        {A} woke up in {N}
        {A} came to {N}
        all {x} vanished from {place}
        {A} and {friend} imagined {N}""",
    "hero": """
        {N} came to {place}
        {A} met {N}
        {A} drew {N} on {color} paper
        a {job} named {A} became {N}""",
    "scene": """
        {S} {x} while {A} listened
        {A} heard how {S} {x}
        {S} {x} softly near {place}
        {S} {x}, and {A} came closer""",
}

POOLS = {
    "joke": ("any", "creature"),
    "bedtime": ("any", "creature"),
    "hero": ("any", "creature"),
    "scene": ("any", "creature"),
    "place": ("any", "place"),
    "design": ("any", "place"),
    "invent": ("any", "thing"),
    "type": ("any", "thing"),
    "idea": ("any", "idea"),
    "world": ("any", "world"),
}

# The slots 1 to 10 are the middle of a tale, 11 its closing.
SENTENCES = {
    "any": """
        1 The morning was {weather}, and {place} lay quiet.
        1 It was a {weather} day near {place}.
        1 A soft wind carried the smell of {scent}.
        1 The streets around {place} smelled of {scent}.
        1 Outside, the {color} sky looked soft and wide.
        2 {A} was a {trait} {job} with {num} brothers.
        2 {A} always carried {object} in {her} bag.
        2 {A} lived near {place} with {friend}.
        2 Everyone knew {A} as a {trait} {job}.
        3 {A} wanted to learn everything about {S}.
        3 More than anything, {A} wished for {object}.
        3 {A} dreamed of {S} every night.
        3 "I want to know more about {S}," said {A}.
        3 {friend} had {num} questions about {S}.
        4 First, {A} packed {object} and some {food}.
        4 So {A} walked to {place} with {friend}.
        4 First, {A} asked the people of {place} about {S}.
        4 After breakfast, {A} drew a {color} picture of {S}.
        5 On the way, {A} met {helper}.
        5 There, {helper} offered {A} some {food}.
        5 Near {place}, {helper} sat on a {color} stone.
        5 "Good morning," said {helper} with a {look} smile.
        5 Soon {helper} joined {A} and talked about {S}.
        6 But suddenly, {A} dropped {object} into the mud.
        6 But a {storm} storm rolled over {place}.
        6 But nobody could agree about {S}.
        6 But {friend} got lost behind {place}.
        6 But then {A} heard a {sound} noise.
        7 {A} felt {feel} and sat down for a while.
        7 For a moment, {friend} looked very {feel}.
        7 {A} counted to {num} and took a deep breath.
        7 {A} thought about {S} and felt {feel}.
        7 "Do not worry," said {friend}, "we have time."
        8 Then {A} had a {look} idea about {S}.
        8 "We can use {object}," said {friend}.
        8 Then {friend} remembered an old song about {S}.
        8 "Perhaps {helper} can help," said {A}.
        9 At last, the {look} plan worked, and {friend} cheered.
        9 At last, {A} understood the secret of {S}.
        9 By some magic, {object} began to glow.
        9 At last, the clouds passed, and the {color} sky cleared.
        10 Everyone clapped and shared {food} near {place}.
        10 {A} hugged {friend} and laughed for a long time.
        10 The whole town sang a song about {S}.
        10 {friend} made {food} for {num} happy guests.
        10 To celebrate, {A} gave {object} to {friend}.
        11 In the end, {A} told everyone about {S}.
        11 That night, {A} slept well and dreamed of {S}.
        11 And so {A} went home with {object}.
        11 From then on, {friend} never forgot {S}.
        11 In the end, {A} and {friend} stayed friends.""",
    "place": """
        1 Around {s}, tall {color} flowers swayed in the wind.
        1 The {color} gates of {s} stood wide open.
        1 The air in {s} smelled of {scent}.
        2 {S} had {num} {color} towers and a {adj} door.
        2 In {s}, every window shone like a bright star.
        2 {S} looked {look} from far away.
        3 {A} wanted to see every corner of {s}.
        3 {A} hoped to stay in {s} until {time}.
        4 First, {A} climbed the {adj} stairs of {s}.
        4 First, {A} walked around {s} with {object}.
        5 In {s}, {helper} sold {food}.
        5 The keeper of {s} was {helper}.
        6 But one door of {s} would not open.
        6 But a {sound} noise shook the walls of {s}.
        7 Everyone in {s} looked {feel}.
        7 For a while, {s} felt cold and empty.
        8 Then {A} found an old map of {s}.
        8 Then {friend} remembered a secret path through {s}.
        9 At last, the lights of {s} shone again.
        9 At last, the {adj} door of {s} opened.
        10 Everyone in {s} danced until {time}.
        10 They hung {color} flags all over {s}.
        11 That night, {S} glowed like a pearl.
        11 In the end, {A} called {S} home.
        11 And {s} was never lonely again.""",
    "creature": """
        1 Everyone near {place} knew {S}.
        1 Under the {color} sky, {S} looked {look}.
        1 Around {S}, the air smelled of {scent}.
        2 {S} had a {look} voice and a {sound} laugh.
        2 {S} liked {food} more than gold.
        2 People said that {S} never told a lie.
        3 {S} wished for a good friend.
        3 More than anything, {S} wanted {object}.
        3 "I want to hear a story," said {S}.
        4 First, {A} showed {object} to {S}.
        4 First, {S} told {A} about {place}.
        4 So {A} sang a {look} song for {S}.
        5 Soon {helper} came to greet {S}.
        5 There, {helper} shared some {food} with {S}.
        6 But {S} heard a {sound} noise behind {place}.
        6 But a {storm} storm frightened {S}.
        6 But {S} could not find {object}.
        7 {S} felt {feel} and sighed.
        7 {A} saw that {S} looked {feel}.
        8 "I have a plan," whispered {S}.
        8 "Let us help {S}," said {friend}.
        8 Then {A} told {S} a {look} secret.
        9 At last, {S} laughed and thanked {A}.
        9 At last, {S} found the courage to speak.
        9 By some magic, {S} began to glow.
        10 {S} shared {food} with {friend}.
        10 {A} and {S} hummed a happy tune.
        10 Everyone cheered for {S}.
        11 That night, {S} dreamed under the silver stars.
        11 In the end, {A} and {S} became friends.
        11 And {S} never felt lonely again.""",
    "idea": """
        1 The books about {S} filled {num} shelves.
        1 The workshop was {look} and smelled of {scent}.
        2 {S} seemed {look}, but the idea was simple.
        2 People said that {S} began with a dream.
        3 {A} wanted to try {S} before {time}.
        3 {friend} asked, "How does {S} work?"
        4 First, {A} built a {adj} machine for {S}.
        4 First, {S} needed {object} and some {food}.
        5 There, {helper} knew the first rule of {S}.
        5 Soon {helper} came to test {S}.
        6 But the machine hummed, and {S} failed.
        6 But the first test of {S} went wrong.
        7 {A} feared that {S} was only a dream.
        7 "{S} takes patience," said {friend}.
        8 Then {A} changed one {color} wire and tried again.
        8 Then {friend} saw that {S} needed {object}.
        9 At last, {S} worked, and {A} jumped for joy.
        9 At last, the {color} light of {S} filled the room.
        10 Everyone came to {place} to try {S}.
        10 {friend} wrote a {look} book about {S}.
        11 In the end, {S} was as easy as a song.
        11 And that is how {S} came to town.
        11 From then on, {S} belonged to everyone.""",
    "world": """
        1 Without {x}, the nights were {look} and long.
        1 The streets looked {look} without {x}.
        2 Nobody there remembered {x}.
        2 Without {x}, people told more stories.
        3 {A} wanted to know why {x} had gone.
        3 {A} wondered what {x} once meant.
        4 First, people learned to work without {x}.
        4 First, {A} searched for {x} near {place}.
        5 There, {helper} told {A} an old story about {x}.
        5 Soon {helper} asked {A} about {x}.
        6 But some things did not work without {x}.
        6 But {friend} missed {x} very much.
        7 Without {x}, {A} felt {feel}.
        7 For a while, everyone talked only about {x}.
        8 Then {A} made {object} to use instead of {x}.
        8 "We do not need {x}," said {friend}.
        9 At last, the people found joy without {x}.
        9 At last, {A} stopped looking for {x}.
        10 Everyone danced without {x} and laughed.
        10 Even without {x}, the party lasted until {time}.
        11 In the end, life without {x} was good.
        11 And nobody missed {x} anymore.
        11 That night, {A} fell asleep and forgot {x}.""",
    "thing": """
        1 The news about {S} reached {place}.
        1 Everyone near {place} talked about {S}.
        2 {S} was {look}, {look} and a little funny.
        2 {A} named {S} after {friend}.
        2 The best part of {S} was the surprise.
        3 {A} wanted everyone to enjoy {S}.
        3 {A} hoped that {S} would make people smile.
        4 First, {A} showed {S} to {friend}.
        4 First, {S} needed {object} and {num} helpers.
        5 There, {helper} tried {S} and smiled.
        5 Soon {helper} asked for {S} too.
        6 But some people did not understand {S}.
        6 But the rain nearly spoiled {S}.
        7 {A} worried that {S} was too {look}.
        7 "{S} is not ready," said {friend}.
        8 Then {A} added some {scent} to {S}.
        8 Then {friend} found a better way to share {S}.
        9 At last, {S} was ready, and {A} cheered.
        9 At last, everyone loved {S}.
        10 The whole town enjoyed {S} with {food}.
        10 They made a {color} flag for {S}.
        11 In the end, {S} made the whole town happy.
        11 From then on, people loved {S} every summer.
        11 And that is how {S} came to {place}.""",
}

PLACES = words(
    "city library village castle school hotel theater harbor playground garden park kitchen house "
    "zoo stadium palace farm museum"
)
LOCATIONS = words(
    "in the clouds|under the sea|on Mars|on the moon|on Venus|on Saturn|on a comet|on a giant "
    "turtle|inside a volcano|behind a waterfall|under the ice|in a hollow log|at the end of the "
    "rainbow|on the back of a whale"
)
INVENTIONS = words(
    "holiday|sport|game|dance|language|machine|instrument|law|toy|greeting|tool|hobby|festival|race"
)
TYPES = words(
    "fruit bread cheese soup cake hat chair flower tea pie candy music clock boat paint ice pizza "
    "vegetable"
)
CREATURES = words(
    "dragon robot bear wizard pirate giant mermaid knight witch whale ghost unicorn astronaut "
    "kitten troll elf lion snail puppy king queen elephant turtle"
)
IDEAS = words(
    "teleportation|time travel|invisibility|telepathy|weather control|cloud farming|dream sharing|"
    "moon travel|space travel|levitation|mind reading|shadow painting|star fishing|magic"
)
JOKERS = words(
    "dinosaurs penguins cats dogs ducks pirates doctors elephants cows robots chickens monkeys "
    "computers ghosts frogs sharks camels dragons bananas kings"
)
MISSING = words(
    "electricity money sleep gravity clocks books sugar wheels mirrors shadows fire cars words "
    "phones maps doors numbers paper shoes holidays"
)
HEROES = words("superhero villain detective wizard monster spy captain inventor")
TRAITS = words(
    "a unique power|a strange weakness|a secret|a silver cape|a loud laugh|a tiny pet|an odd hobby|"
    "a magic hat|a long beard|a broken watch"
)
SPEAKERS = words(
    "moon river sun wind sea mountain forest clock lighthouse bridge piano statue star teapot"
)
VERBS = {
    "talks": "talked",
    "sings": "sang",
    "laughs": "laughed",
    "whispers": "whispered",
    "dreams": "dreamed",
    "dances": "danced",
    "cries": "cried",
}


@dataclass(frozen=True)
class Subject:
    """What an instruction asks about, in the forms that a tale needs.

    Attributes:
        family: key of `OPENINGS` and `POOLS`.
        instruction: the prompt, which ends in a colon.
        full: the definite form ("the city in the clouds").
        short: the same without its attributes ("the city").
        first: the form of the first mention ("a city in the clouds").
        noun: the bare noun ("city").
        extra: what the world lacks, or what the scene does in the past tense.
    """

    family: str
    instruction: str
    full: str
    short: str
    first: str
    noun: str
    extra: str = ""


@dataclass(frozen=True)
class Example:
    """A prompt and the tale that answers it, which begins with a space."""

    prompt: str
    tale: str


@dataclass(frozen=True)
class Config:
    """Options of the pretraining run.

    Attributes:
        output: folder that receives the model, the tokenizer and the model card.
        seed: of the grammar, the initial weights and the samples.
        num_steps: optimizer steps.
        batch_size: examples per step.
        learning_rate: peak of the schedule: linear warmup, then cosine to zero.
        num_warmup_steps: steps of the warmup.
        weight_decay: of AdamW.
        vocab_size: upper bound on the tokens, the two special ones included.
        num_tokenizer_texts: examples that the tokenizer is trained on.
        num_generations: samples per prompt for the statistics at the end.
        num_threads: CPU threads; the weights depend on it in the last digits.
    """

    output: Path = Path(__file__).resolve().parent.parent / "agents" / "assets" / "pocket"
    seed: int = 0
    num_steps: int = 3000
    batch_size: int = 32
    learning_rate: float = 3e-3
    num_warmup_steps: int = 100
    weight_decay: float = 0.05
    vocab_size: int = 2048
    num_tokenizer_texts: int = 20_000
    num_generations: int = 16
    num_threads: int = 1


@dataclass(frozen=True)
class Statistics:
    """What the trained model does after a set of prompts, over all samples."""

    num_samples: int
    stop_rate: float
    subject_rate: float
    sentences_mean: float
    sentences_max: int
    characters_mean: float
    characters_variation: float
    untrained_reward: float


def with_articles(text: str) -> str:
    """Write "an" before a vowel sound: templates say "a" throughout."""
    return re.sub(r"\b([Aa]) (?=[aeiou])(?!uni)", r"\1n ", text)


def make_subjects() -> list[Subject]:
    """List every subject that the grammar knows, with its instruction."""
    return [
        *_named("invent", "Invent a new {} and explain it:", INVENTIONS, "a new {}"),
        *_named("type", "Invent a new type of {}:", TYPES, "a new type of {}"),
        *_named("bedtime", "Write a bedtime story for a {}:", CREATURES, "a {}"),
        *_named("joke", "Tell a joke about {}:", JOKERS, "{}"),
        *_located("place", "Describe a {} {}:"),
        *_located("design", "Design a {} {}:"),
        *_others(),
    ]


def _named(family: str, instruction: str, nouns: list[str], first: str) -> list[Subject]:
    return [
        Subject(
            family, instruction.format(noun), f"the {noun}", f"the {noun}", first.format(noun), noun
        )
        for noun in nouns
    ]


def _located(family: str, instruction: str) -> list[Subject]:
    return [
        Subject(
            family,
            instruction.format(noun, location),
            f"the {noun} {location}",
            f"the {noun}",
            f"a {noun} {location}",
            noun,
        )
        for noun in PLACES
        for location in LOCATIONS
    ]


def _others() -> Iterator[Subject]:
    for noun in IDEAS:
        yield Subject("idea", f"Explain how {noun} might work:", noun, noun, noun, noun)
    for noun in MISSING:
        forms = (f"the world without {noun}", "the world", f"a world without {noun}", "world")
        yield Subject("world", f"Describe a world without {noun}:", *forms, extra=noun)
    for noun in HEROES:
        for trait in TRAITS:
            forms = (f"the {noun}", f"the {noun}", f"a {noun} with {trait}", noun)
            yield Subject("hero", f"Create a {noun} with {trait}:", *forms)
    for noun in SPEAKERS:
        the_noun = f"the {noun}"
        for present, past in VERBS.items():
            instruction = f"Write a scene where {the_noun} {present}:"
            yield Subject("scene", instruction, the_noun, the_noun, the_noun, noun, extra=past)


class Grammar:
    """Draws examples: a prompt and its tale.

    Attributes:
        rng: the only source of randomness.
    """

    rng: random.Random

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        subjects = make_subjects()
        listed = {*PROMPTS, *EVAL_PROMPTS}
        self._listed = [subject for subject in subjects if subject.instruction in listed]
        if len(self._listed) != len(listed):
            known = {subject.instruction for subject in self._listed}
            raise ValueError(f"the grammar lacks the prompts {sorted(listed - known)}: add them")
        self._families = {
            family: [subject for subject in subjects if subject.family == family]
            for family in OPENINGS
        }

    def examples(self) -> Iterator[Example]:
        """Yield examples without end."""
        while True:
            subject = self.subject()
            yield Example(self.prompt(subject), " " + Tale(subject, self.rng).text())

    def subject(self) -> Subject:
        """Draw a subject: one of the environment's twenty, or one of a random family."""
        if self.rng.random() < LISTED_SHARE:
            return self.rng.choice(self._listed)
        return self.rng.choice(self._families[self.rng.choice(list(self._families))])

    def prompt(self, subject: Subject) -> str:
        """Write the instruction, sometimes in other words, often with feedback."""
        instruction = with_articles(subject.instruction)
        if self.rng.random() < REWORDED_SHARE:
            verb = self.rng.choice(("Tell a story about", "Write about", "Imagine", "Describe"))
            instruction = with_articles(f"{verb} {subject.first}:")
        if self.rng.random() >= FEEDBACK_SHARE:
            return instruction
        lengths = [0 if self.rng.random() < 0.02 else self.rng.randint(1, 700) for _ in range(2)]
        if self.rng.random() < 0.2:
            lengths[1] = self.rng.randint(1, 1500)
        low, high = (2, 3) if self.rng.random() < 0.85 else self.rng.choice(((1, 2), (1.5, 2.5)))
        texts = ["x" * length for length in lengths]
        prompts = length_feedback(instruction, texts, 2, ratio_min=low, ratio_max=high)
        return self.rng.choice(prompts)


class Tale:
    """One tale: it remembers who and what has been mentioned, and which words were used."""

    def __init__(self, subject: Subject, rng: random.Random) -> None:
        self._rng = rng
        self._subject = subject
        female, male = rng.choice(FEMALE), rng.choice(MALE)
        self._hero, self._friend = (female, male) if rng.random() < 0.5 else (male, female)
        self._her = "her" if self._hero == female else "his"
        self._object = rng.choice(FILLERS["object"])
        self._helper = rng.choice(FILLERS["helper"])
        self._mentioned: set[str] = set()
        self._decks: dict[str, list[str]] = {}

    def text(self) -> str:
        """Write the tale: an opening, a random ordered subset of the middle, and a closing."""
        (num_sentences,) = self._rng.choices(range(1, MAX_SENTENCES + 1), SENTENCE_WEIGHTS)
        opening = self._opening(num_sentences)
        if num_sentences == 1:
            return self._sentence(f"{opening}, {self._rng.choice(TAILS)}.")
        sentences = [self._sentence(f"{opening}.")]
        middle = self._rng.sample(range(1, MAX_SENTENCES - 1), num_sentences - 2)
        for slot in (*sorted(middle), MAX_SENTENCES - 1):
            pool = self._rng.choice(POOLS[self._subject.family])
            sentences.append(self._sentence(self._rng.choice(SLOTS[pool][slot])))
        return " ".join(sentences)

    def _opening(self, num_sentences: int) -> str:
        hint = min((num_sentences - 1) // 4, 2) if self._rng.random() < 0.75 else None
        leads = self._rng.choice(LEADS) if hint is None else LEADS[hint]
        start = self._rng.choice(_lines(OPENINGS[self._subject.family]))
        return f"{self._rng.choice(leads)}, {start}"

    def _sentence(self, template: str) -> str:
        text = re.sub(r"\{(\w+)\}", lambda match: self._fill(match[1]), template)
        first = 1 if text.startswith('"') else 0
        return with_articles(text[:first] + text[first].upper() + text[first + 1 :])

    def _fill(self, key: str) -> str:
        subject = self._subject
        fixed = {
            "A": self._hero,
            "her": self._her,
            "S": subject.full,
            "s": subject.short,
            "N": subject.first,
            "n": subject.noun,
            "x": subject.extra,
        }
        if key in fixed:
            return fixed[key]
        known = key in self._mentioned
        self._mentioned.add(key)
        if key == "friend":
            return self._friend if known else f"{self._her} friend {self._friend}"
        if key == "object":
            return f"the {self._object}" if known else f"a {self._draw('adj')} {self._object}"
        if key == "helper":
            return f"the {self._helper.split()[1]}" if known else f"a {self._helper}"
        return self._draw(key)

    def _draw(self, key: str) -> str:
        """Draw a filler without repetition until the list is used up."""
        deck = self._decks.setdefault(key, [])
        if not deck:
            deck.extend(self._rng.sample(FILLERS[key], len(FILLERS[key])))
        return deck.pop()


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _slots(text: str) -> dict[int, list[str]]:
    slots: dict[int, list[str]] = {}
    for line in _lines(text):
        slot, sentence = line.split(" ", 1)
        slots.setdefault(int(slot), []).append(sentence)
    return slots


SLOTS = {pool: _slots(text) for pool, text in SENTENCES.items()}


def vocabulary() -> set[str]:
    """Collect every word that a tale can contain, in lower case."""
    texts = [word for options in FILLERS.values() for word in options]
    texts += [*OPENINGS.values(), *SENTENCES.values(), *TAILS, *FEMALE, *MALE]
    texts += [lead for leads in LEADS for lead in leads]
    for subject in make_subjects():
        texts += [subject.full, subject.first, subject.noun, subject.extra]
    plain = re.sub(r"\{\w+\}", " ", " ".join(texts))
    return {"an", "her", "his", *re.findall(r"[a-z]+", plain.lower())}


def train_tokenizer(texts: Sequence[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE, which spells any Unicode text and adds nothing to it.

    Digits stay single: the lengths of the feedback would fill the vocabulary otherwise.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Build the untrained Llama: three layers of width 128, input and output embeddings tied."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        initializer_range=0.06,  # the default, 0.02, suits far wider layers
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    return LlamaForCausalLM(config)


def make_batches(
    grammar: Grammar, tokenizer: PreTrainedTokenizerFast, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs and labels, padded on the right, of examples of similar length.

    Yields:
        (B, P + T) token ids, and the same with everything but the tale and its end ignored.
    """
    examples = grammar.examples()
    while True:
        chunk = [next(examples) for _ in range(32 * batch_size)]
        prompts = tokenizer([example.prompt for example in chunk])["input_ids"]
        tales = tokenizer([example.tale + END for example in chunk])["input_ids"]
        rows = sorted(zip(prompts, tales, strict=True), key=lambda row: len(row[0]) + len(row[1]))
        batches = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
        grammar.rng.shuffle(batches)
        for batch in batches:
            width = max(len(prompt) + len(tale) for prompt, tale in batch)
            inputs = torch.full((len(batch), width), tokenizer.pad_token_id)
            labels = torch.full((len(batch), width), IGNORED)
            for row, (prompt, tale) in enumerate(batch):
                end = len(prompt) + len(tale)
                inputs[row, :end] = torch.tensor(prompt + tale)
                labels[row, len(prompt) : end] = torch.tensor(tale)
            yield inputs, labels


def train(
    model: LlamaForCausalLM, batches: Iterator[tuple[Tensor, Tensor]], config: Config
) -> float:
    """Minimise the cross entropy of the tales with AdamW; return the mean of the last losses."""
    decayed = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=config.learning_rate,
        betas=(0.9, 0.95),
    )
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, config.num_warmup_steps)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, max(1, config.num_steps - config.num_warmup_steps)
    )
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer, [warmup, cosine], [config.num_warmup_steps]
    )
    model.train()
    losses: list[float] = []
    start, num_tokens = time.perf_counter(), 0
    for step, (inputs, labels) in zip(range(1, config.num_steps + 1), batches, strict=False):
        hidden = model.model(input_ids=inputs).last_hidden_state[:, :-1]
        targets = labels[:, 1:]
        kept = targets != IGNORED  # only the tales pass through the output layer
        loss = functional.cross_entropy(model.lm_head(hidden[kept]), targets[kept], reduction="sum")
        optimizer.zero_grad()
        # Not the mean over the batch: in batches of similar length it would favour short tales.
        (loss / (len(inputs) * MEAN_TALE_TOKENS)).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses = [*losses[-99:], loss.item() / targets[kept].numel()]
        num_tokens += inputs.numel()
        if step % 100 == 0:
            speed = num_tokens / (time.perf_counter() - start)
            mean = sum(losses) / len(losses)
            print(f"step {step}  loss {mean:.3f}  {speed:,.0f} tokens/s", flush=True)
    return sum(losses) / len(losses)


def save(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> LlamaForCausalLM:
    """Store half-precision weights that load as float32, and return what will be loaded."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: tensor.half().contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # tied
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors lets nobody but the owner read it
    model.config.architectures = ["LlamaForCausalLM"]
    model.config.save_pretrained(folder)
    GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    loaded: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder)
    return loaded.eval()


@torch.no_grad()
def sample(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, prompts: Sequence[str]
) -> list[tuple[str, bool]]:
    """Answer every prompt once; return the texts and whether each stopped by itself."""
    inputs = tokenizer(list(prompts), padding=True, return_tensors="pt")
    tokens = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS)[
        :, inputs["input_ids"].shape[1] :
    ]
    stopped = (tokens == tokenizer.eos_token_id).any(1).tolist()
    return list(zip(tokenizer.batch_decode(tokens, skip_special_tokens=True), stopped, strict=True))


def measure(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, num_generations: int
) -> Statistics:
    """Sample after the twenty prompts, half of them with feedback, and print one tale each."""
    listed = {subject.instruction: subject for subject in make_subjects()}
    prompts, samples, rewards = [], [], []
    for generation in range(num_generations):
        batch: list[str] = [*PROMPTS, *EVAL_PROMPTS]
        if generation % 2:
            batch = [length_feedback(prompt, ["x" * 300, "x" * 400], 2)[0] for prompt in batch]
        answers = sample(model, tokenizer, batch)
        prompts += [*PROMPTS, *EVAL_PROMPTS]
        samples += answers
        if generation % 2 == 0:
            second = [text for text, _ in sample(model, tokenizer, batch)]
            rewards += length_ratio_reward([text for text, _ in answers], second)
    for prompt, (text, _) in zip(prompts[:20], samples[:20], strict=True):
        print(f"{prompt}{text}\n")
    nouns = [listed[prompt].extra or listed[prompt].noun for prompt in prompts]
    hits = [noun in text.lower() for noun, (text, _) in zip(nouns, samples, strict=True)]
    sentences = [len(re.findall(r"[.!?]", text)) for text, _ in samples]
    characters = torch.tensor([float(len(text)) for text, _ in samples])
    return Statistics(
        num_samples=len(samples),
        stop_rate=sum(stopped for _, stopped in samples) / len(samples),
        subject_rate=sum(hits) / len(hits),
        sentences_mean=sum(sentences) / len(sentences),
        sentences_max=max(sentences),
        characters_mean=characters.mean().item(),
        characters_variation=(characters.std() / characters.mean()).item(),
        untrained_reward=sum(rewards) / len(rewards),
    )


def model_card(statistics: Statistics, config: Config, facts: dict[str, Any]) -> str:
    """Write the README of the model folder."""
    return f"""---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
---

# Pocket

A language model of {facts["parameters"]:,} parameters that writes tales of one to twelve sentences.
It exists so that Motet's demo, tests and tutorials run offline on a CPU in seconds.
It is small, and knows nothing but the grammar that it was trained on.

| property | value |
|---|---|
| architecture | Llama: 3 layers, width 128, 4 heads, feed-forward 384, RoPE, tied embeddings |
| tokenizer | byte-level BPE, {facts["vocabulary"]:,} tokens, one per digit |
| weights | float16 on disk ({facts["megabytes"]:.1f} MB), float32 once loaded |
| prompt | the raw instruction; the tale begins with a space |
| training data | synthetic: the grammar in `examples/pretrain_pocket.py`, seed {config.seed} |
| training | {config.num_steps:,} steps of {config.batch_size} examples, AdamW, \
{facts["minutes"]:.0f} minutes on a CPU, threads: {config.num_threads} |
| final loss | {facts["loss"]:.3f} nats per token of the tale |

A tale ends in `{END}`, padding is `{PAD}`, and nothing marks the start of a text.

Measured on {statistics.num_samples} samples at temperature 1 after the twenty instructions of
`story-length-ratio-v0`, half of them in the feedback form:

| measure | value |
|---|---|
| stops by itself within {MAX_NEW_TOKENS} tokens | {statistics.stop_rate:.1%} |
| names the subject | {statistics.subject_rate:.1%} |
| sentences per tale | mean {statistics.sentences_mean:.1f}, at most {statistics.sentences_max} |
| characters per tale | mean {statistics.characters_mean:.0f}, coefficient of variation \
{statistics.characters_variation:.2f} |
| mean reward of two untrained copies | {statistics.untrained_reward:.2f} |

## How it was made

```
python examples/pretrain_pocket.py --seed {config.seed} --num-steps {config.num_steps}
```

## Limits

It answers only instructions like those of the grammar (about {facts["subjects"]} of them), in
English, and follows no other request: the lengths in the feedback form do not change what it
writes until it is trained to heed them. The twenty instructions of the environment, the held-out
ten included, are all in its pretraining data. It keeps
its people apart better than their things: a lantern may turn into a drum. A tale may repeat a step,
and so exceed {MAX_SENTENCES} sentences. The tales carry no meaning beyond their sentences.

`tests/agents/test_pocket.py` holds what is promised: at least 95% of samples stop by themselves,
90% name their subject, and 95% of sentences are grammatical.

License: Apache-2.0, as the rest of the repository.
"""


def main(config: Config) -> None:
    """Train the tokenizer and the model, store both, and print samples and statistics."""
    torch.set_num_threads(config.num_threads)
    torch.manual_seed(config.seed)
    start = time.perf_counter()
    grammar = Grammar(random.Random(config.seed))
    texts = [
        example.prompt + example.tale
        for _, example in zip(range(config.num_tokenizer_texts), grammar.examples(), strict=False)
    ]
    tokenizer = train_tokenizer(texts, config.vocab_size)
    model = make_model(tokenizer)
    loss = train(model, make_batches(grammar, tokenizer, config.batch_size), config)
    minutes = (time.perf_counter() - start) / 60
    loaded = save(model, tokenizer, config.output)
    statistics = measure(loaded, tokenizer, config.num_generations)
    facts = {
        "parameters": loaded.num_parameters(),
        "vocabulary": len(tokenizer),
        "megabytes": (config.output / "model.safetensors").stat().st_size / 1e6,
        "minutes": minutes,
        "loss": loss,
        "subjects": len(make_subjects()),
    }
    (config.output / "README.md").write_text(model_card(statistics, config, facts))
    print(json.dumps({**facts, **vars(statistics)}, indent=2))


if __name__ == "__main__":
    main(tyro.cli(Config))
