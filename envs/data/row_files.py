"""Read a file of dataset rows into memory.

JSON is read by the standard library, so that an error names the line; CSV and Parquet by pyarrow,
with the types that it infers or finds. What does not fit into memory goes through
`datasets.load_dataset(..., streaming=True)` instead.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

_MAX_BLOCK = 2**31 - 1  # bytes; what pyarrow's CSV reader takes at most


class FileRows(list[dict[str, Any]]):
    """A list of rows that knows where each was read from.

    Args:
        rows: the rows.
        path: the file.
        lines: the line of each row, counted from 1; None where a row has no line of its own.
    """

    def __init__(
        self, rows: Iterable[dict[str, Any]], path: Path, lines: list[int] | None = None
    ) -> None:
        super().__init__(rows)
        self.path = path
        self.lines = lines

    def place(self, index: int) -> str:
        """Return where a row is, for messages: "row 2 (line 3 of rows.jsonl)"."""
        line = "" if self.lines is None else f"line {self.lines[index]} of "
        return f"row {index} ({line}{self.path})"

    def select(self, indices: Iterable[int]) -> Self:
        """Return some of the rows, each with its line."""
        chosen = list(indices)
        lines = None if self.lines is None else [self.lines[i] for i in chosen]
        return type(self)((self[i] for i in chosen), self.path, lines)


def load_rows(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read all rows of a file into a list of dicts.

    Larger data than fit into memory go through `datasets.load_dataset(..., streaming=True)`.

    Args:
        path: a `.jsonl` file of one JSON object a line (blank lines are skipped), a `.json` file of
            one array of objects, a `.csv` file with a header, or a `.parquet` file.

    Returns:
        The rows, in the file's order.

    Raises:
        FileNotFoundError: where there is no such file.
        TypeError: where `path` is no path.
        ValueError: where the suffix is another, or the file is empty or malformed.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"Expected the path of a file of rows, got {path!r}.")
    file = Path(path)
    read = _READERS.get(file.suffix.lower())
    if read is None:
        raise ValueError(
            f"Expected a path that ends in {', '.join(_READERS)}, got {str(path)!r}; load a data "
            "set of the Hugging Face Hub with datasets.load_dataset."
        )
    if not file.is_file():
        got = "a folder" if file.is_dir() else "none"
        raise FileNotFoundError(f"Expected a file at {file.absolute()}, got {got}.")
    rows = read(file)
    if not rows:
        raise ValueError(f"Expected at least one row in {file}, got an empty file.")
    return rows


def _read_json_lines(file: Path) -> FileRows:
    rows, lines = [], []
    with file.open("rb") as stream:  # as bytes: only a line feed ends a line
        for number, line in enumerate(stream, start=1):
            text = _decoded(line, f"line {number} of {file}").removeprefix("\ufeff")
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except json.JSONDecodeError as exc:
                raise ValueError(
                    f"Expected a JSON object on line {number} of {file}, got {_shown(text)}: "
                    f"{exc.msg} at column {exc.colno}."
                ) from exc
            if not isinstance(row, dict):
                raise ValueError(  # noqa: TRY004  # what is wrong is the file
                    f"Expected a JSON object on line {number} of {file}, got {_shown(text)}."
                )
            rows.append(row)
            lines.append(number)
    return FileRows(rows, file, lines)


def _read_json(file: Path) -> FileRows:
    text = _decoded(file.read_bytes(), str(file)).removeprefix("\ufeff")
    if not text.strip():
        return FileRows((), file)
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as exc:
        advice = "; name a file of one object a line .jsonl" if exc.msg == "Extra data" else ""
        raise ValueError(
            f"Expected a JSON array of objects in {file}, got on line {exc.lineno}: {exc.msg} at "
            f"column {exc.colno}{advice}."
        ) from exc
    if not isinstance(rows, list):
        got = f"an object with the keys {list(rows)}" if isinstance(rows, dict) else _shown(text)
        raise ValueError(  # noqa: TRY004
            f"Expected a JSON array of objects in {file}, got {got}."
        )
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(  # noqa: TRY004
                f"Expected a JSON array of objects in {file}, got {_shown(repr(row))} as its "
                f"element {index}."
            )
    return FileRows(rows, file)


def _read_csv(file: Path) -> FileRows:
    import pyarrow as pa  # noqa: PLC0415  # only for such files
    from pyarrow import csv  # noqa: PLC0415

    size = file.stat().st_size
    if size == 0:
        return FileRows((), file)
    # One block: types come from all rows, and no quoted text straddles two blocks. One thread: then
    # errors count the rows.
    options = csv.ReadOptions(block_size=min(size, _MAX_BLOCK), use_threads=False)
    try:
        table = csv.read_csv(file, options, csv.ParseOptions(newlines_in_values=True))
    except pa.ArrowInvalid as exc:
        raise ValueError(
            f"Expected CSV with a header and as many values in each row, got a malformed file "
            f"{file} (the header is row 1): {exc}."
        ) from exc
    names = table.schema.names
    if len(set(names)) != len(names):
        raise ValueError(f"Expected different column names in {file}, got {names}.")
    for field in table.schema:
        if pa.types.is_binary(field.type):  # what pyarrow makes of text that it cannot decode
            raise ValueError(
                f"Expected UTF-8 text in {file}, got other bytes in the column {field.name!r}."
            )
    rows = FileRows(table.to_pylist(), file)
    _check_last_quote(rows, file)
    return rows


def _check_last_quote(rows: FileRows, file: Path) -> None:
    """Raise where a quote is never closed: pyarrow takes the rest of the file as its text."""
    last = list(rows[-1].values())[-1] if rows else None
    if not isinstance(last, str) or "\n" not in last:
        return
    content = file.read_bytes()
    if content.count(b'"') % 2 and not content.rstrip().endswith(b'"'):
        raise ValueError(
            f"Expected every quote of {file} to be closed, got one that opens the text "
            f"{_shown(last)} and goes on to the end."
        )


def _read_parquet(file: Path) -> FileRows:
    import pyarrow as pa  # noqa: PLC0415  # only for such files
    from pyarrow import parquet  # noqa: PLC0415

    try:
        table = parquet.read_table(file)
    except pa.ArrowInvalid as exc:
        raise ValueError(f"Expected a Parquet file, got {file}: {exc}.") from exc
    return FileRows(table.to_pylist(), file)


def _decoded(content: bytes, place: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ValueError(
            f"Expected UTF-8 text in {place}, got the byte {content[exc.start]:#04x} at "
            f"{exc.start}."
        ) from exc


def _shown(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 80 else f"{text[:80]}..."


_READERS: dict[str, Callable[[Path], FileRows]] = {
    ".jsonl": _read_json_lines,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
