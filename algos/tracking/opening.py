"""Which loggers a run opens by itself."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Protocol, runtime_checkable

from motet.algos.tracking.jsonl import JSONLLogger
from motet.algos.tracking.logger import Logger, Loggers
from motet.algos.tracking.run_ids import earlier_run_ids, write_run_ids
from motet.algos.tracking.trackers import TRACKERS, TrackedRun, TrackingSettings
from motet.algos.tracking.until_failure import UntilFailure


@runtime_checkable
class _HasRunId(Protocol):
    run_id: str


def chosen_trackers(
    config: TrackingSettings, wandb_config: Mapping[str, Any] | None
) -> dict[str, Mapping[str, Any]]:
    """Return the options of each tracker that a run reports to.

    Args:
        config: of the run.
        wandb_config: options of `wandb.init`, which turn Weights & Biases on; None gives none.
    """
    names = [*config.report_to]
    if wandb_config is not None and "wandb" not in names:
        names.append("wandb")
    return {name: (wandb_config or {}) if name == "wandb" else {} for name in names}


def open_loggers(
    config: TrackingSettings,
    wandb_config: Mapping[str, Any] | None = None,
    *,
    after: int | None = None,
) -> Loggers:
    """Open what a run logs to by itself; the caller closes it.

    A folder gets `metrics.jsonl`, and `tracking.json` with the ids of the runs that trackers made,
    so that a run that goes on there goes on in these. A tracker that cannot be opened stops the run
    before it begins; one that fails later is warned of and left out.

    Args:
        config: of the run.
        wandb_config: see `chosen_trackers`.
        after: env steps that a run goes on from; None for a new one.
    """
    folder = config.output_dir
    earlier = {} if folder is None else earlier_run_ids(folder, goes_on=after is not None)
    ids = {}
    with ExitStack() as opened:  # those that are open are closed where the next cannot be
        loggers: list[Logger] = []

        def keep(logger: Logger) -> None:
            opened.callback(logger.close)
            loggers.append(logger)

        if folder is not None:
            keep(JSONLLogger(TrackedRun(config).file("metrics.jsonl"), after=after))
        for name, options in chosen_trackers(config, wandb_config).items():
            logger = TRACKERS[name].open(TrackedRun(config, after, earlier.get(name), options))
            keep(UntilFailure(logger, name, TRACKERS[name].errors()))
            if isinstance(logger, _HasRunId):
                ids[name] = logger.run_id
        if folder is not None and ids:
            write_run_ids(folder, {**earlier, **ids})
        opened.pop_all()
    return Loggers(loggers)
