"""What a result is: a row in a JSON file, and beside it the outputs it was computed from."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seqtrans.errors import DataError
from seqtrans.files import write_whole
from seqtrans.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
"""The repository."""

RESULTS = ROOT / "benchmarks" / "results"
FORMAT: Literal[1] = 1
SHA256 = r"^[0-9a-f]{64}$"
MEASURED = "measured-"
"""How the names of files begin that hold no row but a `Measurement`."""
SYNTHETIC = "synthetic"
"""How the names of data begin that a program wrote (`seqtrans.task.Task.data`)."""


class Part(BaseModel):
    """A row or a part of one: every field there, none besides, nothing converted."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )


AnyPart = TypeVar("AnyPart", bound=Part)


class Data(Part):
    """The data, and the SHA-256 of the split that was scored."""

    name: str = Field(min_length=1)
    fingerprint: str = Field(pattern=SHA256)


class Command(Part):
    """What to type at the root of the repository, with SEQTRANS_DATA set, to get this again."""

    training: str
    evaluation: str


class Training(Part):
    """What the whole training took, up to the newest checkpoint of the run."""

    updates: int = Field(ge=0)
    seconds: float = Field(ge=0)
    processes: int = Field(ge=1)
    threads: int = Field(ge=1)
    precision: str


class Seconds(Part):
    """Of the training up to the checkpoint that is scored, and of decoding the split."""

    training: float = Field(ge=0)
    decoding: float = Field(ge=0)


class Versions(Part):
    """The software, and which distribution provides each component by its kind."""

    python: str
    seqtrans: str
    torch: str
    accelerate: str
    tokenizers: str
    providers: dict[str, str]


class Hardware(Part):
    """The machine on which the row was recorded."""

    cpu: str
    cores: int = Field(ge=1)
    memory_gib: float = Field(ge=0)
    gpus: list[str]


class Hypotheses(Part):
    """The outputs: a gzip file beside the row, one line for each example, as the task publishes."""

    file: str = Field(pattern=r"^[^/\\]+$")
    sha256: str = Field(pattern=SHA256)
    lines: int = Field(ge=0)


class Row(Part):
    """One result."""

    format: Literal[1]
    task: str
    data: Data
    split: str
    recipe: str
    seed: int = Field(ge=0)
    metric: str
    better: Literal["higher", "lower"]
    value: float
    signature: str
    figures: dict[str, Any]
    """Everything that was measured, as the task's score has it."""
    parameters: int = Field(ge=0)
    step: str
    """The checkpoint as it was asked for: best, last, average or a number."""
    updates: int = Field(ge=0)
    """The update of the checkpoint; of the newest one, if it is an average."""
    training: Training
    seconds: Seconds
    command: Command
    settings: dict[str, Any]
    """Every setting under its full name (`seqtrans.resolving.Config.flat`), in use."""
    versions: Versions
    hardware: Hardware
    hypotheses: Hypotheses

    @property
    def name(self) -> str:
        """What the row's file is called."""
        return file_name(self.data.name, self.recipe, self.seed, self.split)

    @property
    def family(self) -> tuple[str, str]:
        """Data called ``sets/one`` is the member ``one`` of ``sets``; other data has no member."""
        name, _, member = self.data.name.partition("/")
        return name, member

    @property
    def synthetic(self) -> bool:
        """Whether a program wrote the data."""
        return self.data.name.startswith(SYNTHETIC)


class Measurement(Part):
    """One figure that no outputs give, such as a speed: measured by a program of this package."""

    format: Literal[1]
    recipe: str
    """What was measured."""
    metric: str
    better: Literal["higher", "lower"]
    value: float
    figures: dict[str, Any]
    """Everything that the value was computed from, and what was measured beside it."""
    command: str
    """What to type at the root of the repository to measure it again."""
    settings: dict[str, Any]
    """What decides the value, under the names that settings of a run have."""
    versions: Versions
    hardware: Hardware

    @property
    def name(self) -> str:
        """What its file is called."""
        return re.sub(r"[^\w.]+", "-", f"{MEASURED}{self.recipe}-{self.metric}") + ".json"


class Folder(Settings):
    """Where the rows are."""

    results: Path = Field(RESULTS, description="the folder of the rows")


def spread(ratios: Sequence[float]) -> list[float]:
    """The median of the rounds, the least and the greatest: how a ratio is kept."""
    return [median(ratios), min(ratios), max(ratios)]


def file_name(data: str, recipe: str, seed: int, split: str) -> str:
    """``<data>-<recipe>-<seed>.json``, with the split behind it unless that is test."""
    parts = [data, recipe, str(seed), *([] if split == "test" else [split])]
    return re.sub(r"[^\w.]+", "-", "-".join(parts), flags=re.ASCII) + ".json"


def hypotheses_name(row: str) -> str:
    """What the file of hypotheses beside the row of that name is called."""
    return row.removesuffix(".json") + ".txt.gz"


def rows(folder: Path) -> list[Path]:
    """The files of rows, by name."""
    return [path for path in sorted(folder.glob("*.json")) if not path.name.startswith(MEASURED)]


def measurements(folder: Path) -> list[Path]:
    """The files of measurements, by name."""
    return sorted(folder.glob(f"{MEASURED}*.json"))


def read_row(path: Path) -> Row:
    """The row in a file. Raises ``DataError`` naming every field that is not as it must be."""
    return read_part(path, Row)


def read_measurement(path: Path) -> Measurement:
    """The measurement in a file. Raises ``DataError`` as `read_row` does."""
    return read_part(path, Measurement)


def read_part(path: Path, schema: type[AnyPart]) -> AnyPart:
    """What a file holds. Raises ``DataError`` naming every field that is not as it must be."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
        return schema.model_validate(content)
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise DataError("\n".join(f"{path}: {said(dict(detail))}" for detail in details)) from None
    except ValueError as error:
        raise DataError(f"{path}: the file is no JSON: {error}.") from None


def refuse(constant: str) -> None:
    """Python reads NaN and infinities, which are no JSON."""
    raise ValueError(f"it holds {constant}")


def said(detail: dict[str, Any]) -> str:
    """What pydantic found wrong with a field, as a sentence."""
    field = ".".join(map(str, detail["loc"]))
    if detail["type"] == "missing":
        return f"{field} is missing."
    if detail["type"] == "extra_forbidden":
        return f"{field} is no field of a row."
    message = str(detail["msg"]).removeprefix("Input ").lower()
    return f"{field or 'the row'} {message}, not {detail['input']!r:.60}."


def write_row(row: Row, folder: Path, lines: Sequence[str]) -> Path:
    """Write a row and its hypotheses (`packed`), these first; gives the row's path."""
    path = folder / row.name
    write_whole(folder / row.hypotheses.file, packed(lines))
    write_whole(path, json.dumps(row.model_dump(), indent=1, ensure_ascii=False) + "\n")
    return path


def write_measurement(measurement: Measurement, folder: Path) -> Path:
    """Write a measurement; gives its path."""
    path = folder / measurement.name
    content = json.dumps(measurement.model_dump(), indent=1, ensure_ascii=False)
    write_whole(path, content + "\n")
    return path


def packed(lines: Iterable[str]) -> bytes:
    """The lines as a gzip file without name and time, so that the same lines give the same bytes.

    Raises ``DataError`` for what is more than one line.
    """
    text = []
    for number, line in enumerate(lines, start=1):
        if "\n" in line:
            raise DataError(f"output {number} is published as several lines; it must be one.")
        text.append(f"{line}\n")
    return gzip.compress("".join(text).encode("utf-8"), mtime=0)


def sha256(content: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def read_hypotheses(row: Row, folder: Path) -> list[str]:
    """The lines beside a row. Raises ``DataError`` unless they are what the row says."""
    path = folder / row.hypotheses.file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"the hypotheses {path} cannot be read: {(error.strerror or str(error)).lower()}."
        ) from None
    found = sha256(content)
    if found != row.hypotheses.sha256:
        raise DataError(
            f"the hypotheses {path} have the SHA-256 {found[:12]}…, and the row says "
            f"{row.hypotheses.sha256[:12]}…."
        )
    try:
        text = gzip.decompress(content).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"the hypotheses {path} are no gzip file of UTF-8 text: {error}.") from None
    # Not splitlines, for which other characters end a line, too.
    lines = text.split("\n")
    if lines.pop() != "":
        raise DataError(f"the last line of the hypotheses {path} is cut off.")
    if len(lines) != row.hypotheses.lines:
        raise DataError(
            f"the hypotheses {path} have {len(lines)} lines, and the row says "
            f"{row.hypotheses.lines}."
        )
    return lines
