"""Read `metrics.jsonl`, with a place on each axis for every entry."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FILE_NAME = "metrics.jsonl"

XAxis = Literal["env_steps", "optimizer_steps", "seconds"]

_METRIC_OF: dict[XAxis, str] = {
    "env_steps": "step",
    "optimizer_steps": "time/optimizer_steps",
    "seconds": "time/elapsed_seconds",
}


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric, and where it is on an axis."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class MetricsLog:
    """The entries of a log.

    Attributes:
        entries: metrics by name, `step` among them, in the order in which they were logged.
    """

    entries: tuple[dict[str, float], ...]

    @classmethod
    def read(cls, source: str | Path) -> "MetricsLog":
        """Read the log of a run; a last line that was cut short is left out.

        Args:
            source: the run's folder, or the file.

        Raises:
            FileNotFoundError: where there is none.
            ValueError: where a line is no JSON object.
        """
        path = Path(source) / FILE_NAME if Path(source).is_dir() else Path(source)
        if not path.is_file():
            raise FileNotFoundError(
                f"Expected the folder of a run with {FILE_NAME} in it, or such a file, got "
                f"{source}; a learner writes one where its config has an output_dir."
            )
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1].split("\n")[:-1]
        return cls(tuple(_entry(path, number, line) for number, line in enumerate(whole, start=1)))

    @property
    def names(self) -> list[str]:
        """Names of all metrics, in the order in which they first came."""
        return list(dict.fromkeys(name for entry in self.entries for name in entry))

    def curve(self, name: str, axis: XAxis = "env_steps") -> list[Point]:
        """Return the values of a metric along an axis.

        An entry without a place of its own, as evaluations may be, has that of the entry before.

        Args:
            name: of the metric.
            axis: what to count a run by.

        Raises:
            ValueError: where the log does not count by it.
        """
        places = self._places(axis)
        return [
            Point(x, entry[name])
            for x, entry in zip(places, self.entries, strict=True)
            if name in entry
        ]

    def _places(self, axis: XAxis) -> list[float]:
        if axis not in _METRIC_OF:
            raise ValueError(f"Expected an axis of {list(_METRIC_OF)}, got {axis!r}.")
        metric = _METRIC_OF[axis]
        if all(metric not in entry for entry in self.entries):
            raise ValueError(
                f"Expected {metric} in the log for the axis {axis!r}, got none; choose 'env_steps'."
            )
        places, last = [], 0.0
        for entry in self.entries:
            last = entry.get(metric, last)
            places.append(last)
        return places


def _entry(path: Path, number: int, line: str) -> dict[str, float]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"Expected a JSON object in line {number} of {path}, got {line[:60]!r}."
        ) from error
    if not isinstance(entry, dict):
        raise ValueError(  # noqa: TRY004  # of a file's content
            f"Expected a JSON object in line {number} of {path}, got {line[:60]!r}."
        )
    return {name: float(value) for name, value in entry.items() if isinstance(value, int | float)}
