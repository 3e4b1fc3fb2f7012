"""Settings of teams that are played as they are: what evaluation reads, and nothing of training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from motet.agents import GenerationConfig, RandomAgent
from motet.agents.checks import check_fields
from motet.algos.fixed.discussion import DISCUSSION_TEMPLATE, shown_in_discussion
from motet.algos.fixed.pipeline import PIPELINE_TEMPLATE, shown_in_pipeline
from motet.algos.fixed.shown_texts import Template
from motet.algos.tracking.trackers import checked_report_to


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedConfig:
    """Settings that all fixed teams have.

    Attributes:
        eval_num_samples: held-out rows to evaluate on, the first ones; None takes all, which a
            stream has no number of, and 16 seeds of an env without a dataset.
        eval_episodes_per_row: episodes of each of these rows.
        eval_do_sample: sample while evaluating; False takes the most likely tokens.
        seed: of sampling.
        output_dir: folder for `metrics.jsonl` and for `evaluations/`, the episodes; None writes
            neither.
        report_to: where metrics go beside console and `metrics.jsonl`: any of "csv", "tensorboard",
            "wandb", "trackio" and "mlflow", in a list, or one by itself; see docs/tracking.md.
        project: what the run belongs to, for trackers: MLflow calls it an experiment.
        run_name: what trackers call the run; None has them make a name up.
        progress_bar: show one.
    """

    checked_apart: ClassVar[tuple[str, ...]] = ()
    """Fields that are neither numbers nor words."""

    eval_num_samples: int | None = None
    eval_episodes_per_row: int = 1
    eval_do_sample: bool = True
    seed: int = 42
    output_dir: str | None = None
    report_to: tuple[str, ...] = ()
    project: str = "motet"
    run_name: str | None = None
    progress_bar: bool = True

    def __post_init__(self) -> None:
        check_fields(self, others=(*self.checked_apart, "report_to"))
        object.__setattr__(self, "report_to", checked_report_to(self.report_to, self.output_dir))
        for name in ("eval_num_samples", "eval_episodes_per_row"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"Expected {name} of at least 1, got {value}.")
        if self.seed < 0:
            raise ValueError(f"Expected seed of at least 0, got {self.seed}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedConfig(FixedConfig):
    """Settings of `scripted`, which are those of `FixedConfig`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomConfig(FixedConfig):
    """Settings of `random`.

    Besides those of `FixedConfig`:

    Attributes:
        texts: what each agent picks from, all equally likely; None draws from its action space.
    """

    checked_apart: ClassVar[tuple[str, ...]] = ("texts",)

    texts: Sequence[str] | None = None

    def __post_init__(self) -> None:
        FixedConfig.__post_init__(self)
        _check_list("texts", self.texts)
        if self.texts is not None:
            RandomAgent(self.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig(FixedConfig):
    """Settings of fixed teams of language models.

    Besides those of `FixedConfig`:

    Attributes:
        max_new_tokens: overrides the agents' own; None leaves it.
        temperature: as `max_new_tokens`.
        top_p: as `max_new_tokens`.
        top_k: as `max_new_tokens`.
        bf16: as `max_new_tokens`.
    """

    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    bf16: bool | None = None

    def __post_init__(self) -> None:
        FixedConfig.__post_init__(self)
        GenerationConfig(**self.generation)

    @property
    def generation(self) -> dict[str, Any]:
        """Sampling settings that override the agents' own."""
        fields = ("max_new_tokens", "temperature", "top_p", "top_k", "bf16")
        return {name: getattr(self, name) for name in fields if getattr(self, name) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenConfig(SamplingConfig):
    """Settings of `frozen`, which are those of `SamplingConfig`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfNConfig(SamplingConfig):
    """Settings of `best-of-n`.

    Besides those of `SamplingConfig`:

    Attributes:
        num_generations: n, joint completions that are tried in each turn.
    """

    num_generations: int = 8

    def __post_init__(self) -> None:
        SamplingConfig.__post_init__(self)
        if self.num_generations < 1:
            raise ValueError(f"Expected num_generations of at least 1, got {self.num_generations}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig(SamplingConfig):
    """Settings of `pipeline`.

    Besides those of `SamplingConfig`:

    Attributes:
        template: what an agent reads that is not the first; see `Pipeline`.
        order: names in the order in which they write; None for that of the agents.
    """

    checked_apart: ClassVar[tuple[str, ...]] = ("template", "order")

    template: Template = PIPELINE_TEMPLATE
    order: Sequence[str] | None = None

    def __post_init__(self) -> None:
        SamplingConfig.__post_init__(self)
        shown_in_pipeline(self.template)
        _check_list("order", self.order)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscussionConfig(SamplingConfig):
    """Settings of `discussion`.

    Besides those of `SamplingConfig`:

    Attributes:
        template: what an agent reads before it writes its final text; see `Discussion`.
    """

    checked_apart: ClassVar[tuple[str, ...]] = ("template",)

    template: Template = DISCUSSION_TEMPLATE

    def __post_init__(self) -> None:
        SamplingConfig.__post_init__(self)
        shown_in_discussion(self.template)


def _check_list(name: str, value: object) -> None:
    if value is not None and not isinstance(value, list | tuple):
        raise TypeError(f"Expected a list of strings or None as {name}, got {value!r}.")
