"""What all pictures share. Matplotlib is imported by those who draw, and only its figures are used.

Nothing goes through pyplot, whose figures and settings belong to the program that calls us.
"""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's, which those who do not tell red from green tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

TITLE_SIZE, TEXT_SIZE = 12, 10.5


MISSING = 'Expected matplotlib for pictures; pip install "motet[plots]".'


def has_matplotlib() -> bool:
    """Tell whether pictures can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def require_matplotlib() -> None:
    """Raise where matplotlib is not installed.

    Raises:
        ImportError: with what to type.
    """
    if not has_matplotlib():
        raise ImportError(MISSING)


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of a size in inches.

    Raises:
        ImportError: where matplotlib is not installed, with what to type.
    """
    require_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415  # slow to import, and an extra

    return Figure(figsize=(width, height), layout="constrained")


def label_axes(axes: "Axes", *, title: str, x: str, y: str) -> None:
    """Write what axes show; no dollar sign in it starts a formula."""
    axes.set_title(title, fontsize=TITLE_SIZE, loc="left", parse_math=False)
    axes.set_xlabel(x, fontsize=TEXT_SIZE, parse_math=False)
    axes.set_ylabel(y, fontsize=TEXT_SIZE, parse_math=False)
    axes.tick_params(labelsize=TEXT_SIZE - 0.5)
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: "Figure", path: str | Path) -> Path:
    """Write a figure as the format that the file's name ends in says, and return the path."""
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(place, dpi=150)
    return place
