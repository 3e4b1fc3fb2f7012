"""`motet eval RUN`: play a team on held-out rows, alone or against another, as training does."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from motet import algos, envs
from motet.algos.cli.flags import Flag, parsed
from motet.algos.cli.members import joined, member_flags
from motet.algos.cli.mistakes import UsageError, as_mistakes
from motet.algos.cli.paths import check_file
from motet.algos.cli.positional import positional
from motet.algos.cli.run_settings import env_kwargs_of
from motet.algos.cli.show import console, print_json, print_table
from motet.algos.cli.tasks import env_flags, find_spec, held_out_env, make_env
from motet.algos.cli.team_source import (
    Source,
    check_apart,
    load_team,
    sampling_of,
    source_of,
    viewed,
)
from motet.algos.rollouts.joint_policy import Team
from motet.algos.schedule import eval_rows

COMMAND = "motet eval"
ABOUT = (
    "Play a team on held-out rows. TEAM is the folder of a run, of a team's models, or of one "
    "model; a name on the hub; or pocket. A run brings its task, its held-out rows and its "
    "sampling settings with it."
)
EVAL_FLAGS = [
    Flag("env", str | None, None, "id of the task; None for that of the run"),
    Flag("num_samples", int, 1, "episodes per row"),
    Flag("greedy", bool, False, "take the most likely tokens instead of sampling"),
    Flag("rows", tuple[str, ...], None, "which rows, such as 0-9 or 3 5 8; all by default"),
    Flag("eval_split", int | float | str | None, None, "where held-out rows come from, as of "
         "`motet train`; with none, the rows are those of the task as it is"),
    Flag("against", str | None, None, "another team, which plays the same episodes: who is paid "
         "more?"),
    Flag("output", str | None, None, "file for all transcripts, as JSONL"),
    Flag("json", bool, False, "print JSON, for other programs"),
    Flag("seed", int, 0, "makes the result reproducible"),
]  # fmt: skip
SAMPLING_FLAGS = [
    Flag("max_new_tokens", int | None, None, "most tokens of a completion"),
    Flag("temperature", float | None, None, "divides the logits"),
    Flag("top_p", float | None, None, "sample from the smallest set of tokens with this mass"),
    Flag("top_k", int | None, None, "sample from the k most likely tokens"),
    Flag("bf16", bool | None, None, "multiply matrices in bfloat16"),
]


def run(words: list[str]) -> None:
    """Run `motet eval TEAM ...`."""
    source, rest = _source_in(words)
    peeked = next(
        (rest[i + 1] for i, word in enumerate(rest[:-1]) if word == "--env"),
        next((word.partition("=")[2] for word in rest if word.startswith("--env=")), None),
    )
    in_file = source.file.values.get("env") if source else None
    id = peeked or (in_file.get("id") if isinstance(in_file, dict) else in_file)
    task = None if id is None else find_spec(str(id))
    groups = {
        "evaluation": EVAL_FLAGS,
        "sampling": SAMPLING_FLAGS,
        "team": _team_flags(),
        "task": [] if task is None else [f for f in env_flags(task) if f.name != "split"],
    }
    said = parsed(f"{COMMAND} TEAM", groups, joined(rest), ABOUT)
    if source is None:
        raise UsageError(f"Expected a team, as in `{COMMAND} runs/...` or `{COMMAND} pocket`.")
    if task is None:
        raise UsageError(
            f"Expected --env with {source.name}, which is of no run; `motet envs` lists the tasks."
        )
    _play(source, task, said)


def _team_flags() -> list[Flag]:
    return [flag for flag in member_flags() if flag.name not in ("lora_r", "lora_alpha", "frozen")]


def _source_in(words: Sequence[str]) -> tuple[Source | None, list[str]]:
    name, rest = positional(words, [*EVAL_FLAGS, *SAMPLING_FLAGS, *_team_flags()])
    return (None if name is None else source_of(name)), rest


def _play(source: Source, task: envs.EnvSpec, said: Mapping[str, Mapping[str, Any]]) -> None:
    own = {**{flag.name: flag.default for flag in EVAL_FLAGS}, **said["evaluation"]}
    if own["output"] is not None:
        check_file(own["output"], "--output")
    kwargs = env_kwargs_of(task, source.file, said["task"]) if task.id == _id_of(source) else {
        **said["task"]
    }  # fmt: skip
    env = make_env(task, kwargs)
    wanted = own["eval_split"] or source.file.values.get("eval_split")
    env, held_out, told = held_out_env(task, env, kwargs, wanted)
    played = env if held_out is None else held_out
    if own["against"] is not None:
        check_apart(source)
    played = viewed(source, played)
    team = load_team(source, played, said)
    rows = rows_of(own["rows"], played)
    options = {
        "num_samples": own["num_samples"], "do_sample": not own["greedy"], "seed": own["seed"]
    }  # fmt: skip
    if not own["json"]:
        how = "greedy" if own["greedy"] else "sampled"
        console().print(
            f"{task.id}, {told}: {len(rows)} rows, {own['num_samples']} {how} episodes each."
        )
    if own["against"] is not None:
        against = source_of(own["against"])
        check_apart(against)
        # a team of no run samples as the one that it is compared with, say before training
        theirs = {**sampling_of(source), **sampling_of(against), **said["sampling"]}
        other = load_team(against, played, {"team": {}, "sampling": theirs})
        _compare(played, team, other, rows, options, own)
        return
    with as_mistakes():
        evaluation = algos.evaluate(played, team, rows, **options)
    _show(evaluation, own)


def _id_of(source: Source) -> str | None:
    section = source.file.values.get("env")
    return section.get("id") if isinstance(section, dict) else section


def rows_of(said: Sequence[str] | None, env: Any) -> list[int]:
    """Return row numbers from words such as `3` and `0-9`; all rows where nothing is said.

    Raises:
        UsageError: where a word is none, or there is no such row.
    """
    all_rows = eval_rows(env, None)
    if said is None:
        return all_rows
    rows: list[int] = []
    for word in (part for each in said for part in each.split(",")):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"Expected rows such as 3 or 0-9, got {word!r}.")
        begin, end = int(first), int(last or first)
        if end < begin:
            raise UsageError(f"Expected rows such as 3 or 0-9, got {word!r}, which are none.")
        if isinstance(env.unwrapped, envs.TextEnv) and end >= len(all_rows):
            raise UsageError(f"Expected rows from 0 to {len(all_rows) - 1}, got {word!r}.")
        rows.extend(range(begin, end + 1))
    return rows


# --- results ------------------------------------------------------------------------------------


def _show(evaluation: algos.Evaluation, own: Mapping[str, Any]) -> None:
    if own["output"] is not None:
        evaluation.save_transcripts(own["output"])
    if own["json"]:
        print_json({"metrics": evaluation.metrics, "intervals": evaluation.intervals})
        return
    print_table(("metric", "mean", "95 % interval over rows"), metric_rows(evaluation))
    if own["output"] is not None:
        console().print(f"Transcripts: {own['output']}")


def metric_rows(evaluation: algos.Evaluation) -> list[tuple[str, str, str]]:
    """Return rows of the table of an evaluation: rewards by turn first, then what it cost."""
    order = sorted(evaluation.metrics, key=lambda name: not name.startswith("turn_"))
    return [
        (name, _number(evaluation.metrics[name]), _interval(evaluation.intervals.get(name)))
        for name in order
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 10 else f"{value:.3f}"


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"


def _compare(
    env: Any,
    team: Team,
    other: Team,
    rows: Sequence[int],
    options: Mapping[str, Any],
    own: Mapping[str, Any],
) -> None:
    with as_mistakes():
        compared = algos.compare_teams(env, team, other, rows, **options)
    if own["output"] is not None:
        compared.first.save_transcripts(own["output"])
    if own["json"]:
        print_json(
            {
                **{name: vars_of(compared)[name] for name in _COMPARED},
                "first": compared.first.metrics,
                "second": compared.second.metrics,
            }
        )
        return
    first, second = compared.first, compared.second
    names = sorted(first.metrics, key=lambda name: not name.startswith("turn_"))
    table = [
        (name, _number(first.metrics[name]), _number(second.metrics[name]))
        for name in names
        if name in second.metrics
    ]
    print_table(("metric", "team", f"against {own['against']}"), table)
    console().print(str(compared))


_COMPARED = (
    "wins", "ties", "losses", "win_rate", "win_rate_interval", "difference", "difference_interval",
)  # fmt: skip


def vars_of(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without going into them."""
    return {each.name: getattr(record, each.name) for each in fields(record)}
