"""What Weights & Biases wrote to disk: its `.wandb` file, read record by record.

The file is LevelDB's log format: after a header of 7 bytes, blocks of 32 KiB that hold chunks with
a checksum (4 bytes), a length (2) and a kind (1): whole, first, middle or last of a record.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE_HEADER, CHUNK_HEADER, BLOCK = 7, 7, 32 * 1024
WHOLE, LAST = 1, 4


@contextlib.contextmanager
def own_wandb() -> Iterator[None]:
    """Have W&B read its environment anew, and end its service, which would stay otherwise."""
    import wandb

    wandb.teardown()
    try:
        yield
    finally:
        wandb.teardown()


def records(path: Path, *, timeout_s: float = 60.0) -> list[Any]:
    """Return the records of a run that has finished; its last bytes may be on their way yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = list(_records_so_far(path))
        if any(each.WhichOneof("record_type") == "exit" for each in found):
            return found
        assert time.monotonic() < deadline, f"{path} has no end: {len(found)} records"
        time.sleep(0.1)


def _records_so_far(path: Path) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    data = path.read_bytes()
    assert data[:4] == b":W&B"
    position, record = FILE_HEADER, b""
    while position + CHUNK_HEADER <= len(data):
        if BLOCK - position % BLOCK < CHUNK_HEADER:  # too short for a chunk: padding
            position += BLOCK - position % BLOCK
            continue
        length = int.from_bytes(data[position + 4 : position + 6], "little")
        kind = data[position + 6]
        start = position + CHUNK_HEADER
        if start + length > len(data):  # the rest is on its way
            return
        record += data[start : start + length]
        position = start + length
        if kind in (WHOLE, LAST):
            yield Record.FromString(record)
            record = b""


def history(path: Path) -> list[dict[str, Any]]:
    """Return the entries that were logged, in order."""
    return [
        {
            ".".join(item.nested_key) or item.key: json.loads(item.value_json)
            for item in each.history.item
        }
        for each in records(path)
        if each.WhichOneof("record_type") == "history"
    ]


def settings(path: Path) -> dict[str, Any]:
    """Return the config as it was in the end."""
    found: dict[str, Any] = {}
    for each in records(path):
        kind = each.WhichOneof("record_type")
        update = each.run.config if kind == "run" else each.config if kind == "config" else None
        if update is not None:
            for item in update.update:
                found[".".join(item.nested_key) or item.key] = json.loads(item.value_json)
    return found


def axes(path: Path) -> dict[str, str]:
    """Return what metrics are drawn over, by name or pattern."""
    return {
        each.metric.name or each.metric.glob_name: each.metric.step_metric
        for each in records(path)
        if each.WhichOneof("record_type") == "metric"
    }


def run_of(path: Path) -> Any:
    """Return what the run is called and belongs to."""
    (run,) = (each.run for each in records(path) if each.WhichOneof("record_type") == "run")
    return run
