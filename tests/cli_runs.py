"""Small runs of the command line for tests, in this process and in others."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from motet.algos.cli import main

TASK = "story-length-ratio-v0"
SHORT = (
    "--max-new-tokens", "4", "--num-generations", "2", "--rollout-batch-size", "5",
    "--agent-learning-rate", "1e-3", "--eval-num-samples", "1", "--no-progress-bar",
)  # fmt: skip


def motet(*words: object) -> int:
    """Run a command in this process, and return its exit status."""
    return main([str(word) for word in words])


def train(folder: Path, *words: object) -> Path:
    """Train for a second; return the folder of the run."""
    assert motet("train", TASK, *SHORT, "--output-dir", folder, *words) == 0
    return folder


def process(
    *words: object,
    cwd: Path,
    env: dict[str, str] | None = None,
    code: Sequence[str] = (),
    input: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a command as a process of its own, piped; `code` instead of the command line."""
    return subprocess.run(
        [sys.executable, *(code or ("-m", "motet.algos")), *map(str, words)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        input=input,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def weights(run: Path) -> dict[str, bytes]:
    """The models of a run, by name of the file."""
    found = {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted((run / "models").rglob("*.safetensors"))
    }
    assert found
    return found
