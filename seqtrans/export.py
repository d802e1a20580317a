"""Write a run in the format of another engine, and prove there that it computes the same."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import Field

from seqtrans.errors import DataError, Problem, SeqtransError, SettingsError
from seqtrans.reuse import read_command
from seqtrans.settings import Settings

if TYPE_CHECKING:
    from seqtrans.engine import Engine

Lines = Sequence[Sequence[int]]
REPORT = "parity.json"
CLOSE = 1e-3
"""No log-probability of a symbol may differ by more, or nothing is written."""
BATCH = 64
ROUNDS = 3
"""Of timing, one engine after the other."""


class ExportSettings(Settings):
    """What ``seqtrans export`` can be told."""

    run: Path = Field(description="the run folder")
    output: Path = Field(description="the folder to write; an earlier export there is replaced")
    format: Literal["ctranslate2"] = Field("ctranslate2", description="the format to write")
    step: str = Field(
        "best", description="the checkpoint: best, last, average, or an update's number"
    )
    positions: int = Field(
        1024,
        ge=2,
        description="how many positions are written for a scheme that has any number: longer "
        "sentences can't be read there",
    )
    sentences: int = Field(100, ge=1, description="how many inputs both engines are compared on")
    speed: bool = Field(False, description="time greedy search in both engines, too")


@dataclass(frozen=True)
class Parity:
    """How far another engine agrees with this one."""

    format: str
    """With its version."""
    run: str
    step: str
    inputs: str
    """Where they are from: dev, or random."""
    sentences: int
    identical: int
    """Of these sentences, how many have the same output by greedy search without a constraint."""
    tokens: int
    """Target symbols, eos included, whose log-probabilities were compared."""
    log_probability_difference: float
    """The largest."""
    tokens_a_second: dict[str, float] | None
    """Symbols, eos included, by greedy search in batches, if that was asked for."""

    def lines(self) -> list[str]:
        """For people."""
        found = [
            f"greedy search: {self.identical} of {self.sentences} outputs identical "
            f"({self.inputs} inputs)",
            f"log-probabilities of {self.tokens:,} symbols: at most "
            f"{self.log_probability_difference:.1e} apart",
        ]
        if self.tokens_a_second is not None:
            found += [
                f"{name}: {value:,.0f} symbols a second, greedy, batches of {BATCH}"
                for name, value in self.tokens_a_second.items()
            ]
        return found


def main(argv: list[str]) -> int:
    """Write a run in the format of another engine.

    usage: seqtrans export run=FOLDER output=FOLDER [format=ctranslate2] [step=best]
                           [positions=1024] [sentences=100] [speed=yes]

    CTranslate2 serves models on CPUs and GPUs: pip install 'seqtrans[ctranslate2]'. It holds
    sinusoidal, learned or no positions, full attention, and heads of width / heads; any other
    configuration is refused before anything is written. Symbol number i of its vocabularies is id
    i of the run's. What both engines make of the dev split, or of random ids where there is none,
    is compared and told in parity.json beside the model.

    example: seqtrans export run=runs/pairs format=ctranslate2 output=exported speed=yes
    """
    settings, changes = read_command(argv, ExportSettings)
    check_output(settings.output)
    unused = [f"{group}.{key}" for group, values in changes.tree.items() for key in values]
    if unused:
        raise SettingsError(*(Problem(key, "has no effect on what is exported") for key in unused))
    from seqtrans.engine import load
    from seqtrans.files import whole_folder

    form = format_of(settings.format)
    engine = load(settings.run, settings.step, "cpu")
    why = next(form.obstacles(engine), None)
    if why is not None:
        raise SeqtransError(f"{settings.run} can't be exported to {settings.format}: {why}.")
    needed(settings.format)
    with whole_folder(settings.output) as folder:
        form.write(engine, settings.positions, folder)
        parity = compare(engine, form.open(engine, folder), settings)
        if not parity.log_probability_difference <= CLOSE:
            raise SeqtransError(
                f"{settings.format} computes something else than this run: log-probabilities "
                f"differ by up to {parity.log_probability_difference:.1e}; nothing was written."
            )
        (folder / REPORT).write_text(json.dumps(asdict(parity), indent=1), encoding="utf-8")
    for line in (str(settings.output), *parity.lines()):
        print(line)
    return 0


def check_output(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier export: it would be replaced."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / REPORT).is_file():
        raise SettingsError(
            f"output={folder} holds something else than an export; name a new folder, or an "
            "earlier export to replace it."
        )


class Peer(Protocol):
    """An exported model in the engine that it was exported for."""

    version: str

    def greedy(self, sources: Lines, limit: int) -> list[list[int]]:
        """The output for each source, without eos, by greedy search; at most ``limit`` ids."""
        ...

    def score(self, sources: Lines, targets: Lines) -> list[list[float]]:
        """The log-probability of each symbol of each target, then of eos."""
        ...


@dataclass(frozen=True)
class Format:
    """A format that runs can be exported to. It is named like the package that it needs."""

    obstacles: Callable[[Engine], Iterator[str]]
    """For each setting that the format can't hold, the setting and why; without the package."""
    write: Callable[[Engine, int, Path], None]
    """Write the model into a folder, with so many positions where there is any number."""
    open: Callable[[Engine, Path], Peer]
    """Open what was written."""


def format_of(name: str) -> Format:
    """The format of that name."""
    from seqtrans.ctranslate2 import FORMAT

    return {"ctranslate2": FORMAT}[name]


def needed(package: str) -> Any:
    """Import what an extra of the same name installs. Raises ``SeqtransError`` if it isn't."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise SeqtransError(
            f"{package} is not installed; pip install 'seqtrans[{package}]'."
        ) from None


def compare(engine: Engine, peer: Peer, settings: ExportSettings) -> Parity:
    """What both engines make of the same inputs."""
    most = min(settings.positions, engine.model.encoder.position.limit or settings.positions)
    where, sources = inputs(engine, settings.sentences, most)
    extra = engine.decoder("greedy").extra
    limit = min(max(map(len, sources)) + extra, settings.positions)
    if engine.model.longest is not None:
        limit = min(limit, engine.model.longest)
    outputs = greedy(engine, sources, limit)
    others = peer.greedy(sources, limit - 1)
    pairs = zip(score(engine, sources, outputs), peer.score(sources, outputs), strict=True)
    differences = [abs(a - b) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True)]
    return Parity(
        format=f"{settings.format} {peer.version}",
        run=str(settings.run),
        step=engine.weights.name,
        inputs=where,
        sentences=len(sources),
        identical=sum(a == b for a, b in zip(outputs, others, strict=True)),
        tokens=len(differences),
        log_probability_difference=max(differences),
        tokens_a_second=timed(engine, peer, settings.format, sources, limit)
        if settings.speed
        else None,
    )


def inputs(engine: Engine, count: int, most: int) -> tuple[str, list[list[int]]]:
    """The first inputs of dev of at most ``most`` ids, or random ids if there are none."""
    import torch

    task, vocabulary = engine.task, engine.task.source_vocabulary
    assert vocabulary is not None
    try:
        examples = task.examples("dev")
    except DataError:
        examples = ()
    encoded = (task.encode_source(task.input(example)).tolist() for example in examples)
    fitting = (source for source in encoded if 0 < len(source) <= most)
    sources = [source for source, _ in zip(fitting, range(count), strict=False)]
    if sources:
        return "dev", sources
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, min(40, most) + 1, (count,), generator=draw).tolist()
    first = max(vocabulary.pad, vocabulary.bos, vocabulary.eos) + 1
    return "random", [
        torch.randint(first, vocabulary.size, (length,), generator=draw).tolist()
        for length in lengths
    ]


def greedy(engine: Engine, sources: Lines, limit: int) -> list[list[int]]:
    """The output of this engine for each source, without eos, in batches of like length."""
    import torch

    from seqtrans.data import pad
    from seqtrans.decoding import Request

    decoder = engine.decoder("greedy")
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    found: dict[int, list[int]] = {}
    with torch.inference_mode():
        for first in range(0, len(order), BATCH):
            numbers = order[first : first + BATCH]
            source, mask = pad([torch.tensor(sources[number]) for number in numbers])
            request = Request(source, mask, torch.full((len(numbers),), limit))
            for number, best in zip(numbers, decoder.decode(engine.model, request), strict=True):
                found[number] = list(best[0].ids)
    return [found[number] for number in range(len(sources))]


def score(engine: Engine, sources: Lines, targets: Lines) -> Iterator[list[float]]:
    """The log-probability of each symbol of each target, then of eos, by this engine."""
    import torch

    vocabulary = engine.model.vocabulary
    for source, target in zip(sources, targets, strict=True):
        with torch.inference_mode():
            read = torch.tensor([[vocabulary.bos, *target]])
            state = engine.model.start(
                torch.tensor([source]), torch.ones(1, len(source), dtype=torch.bool)
            )
            logits = engine.model.advance(read, state)[0].float()
            follows = torch.tensor([*target, vocabulary.eos])
            yield logits.log_softmax(-1).gather(1, follows[:, None])[:, 0].tolist()


def timed(engine: Engine, peer: Peer, name: str, sources: Lines, limit: int) -> dict[str, float]:
    """Symbols a second of both, eos included: the median of rounds that take turns."""
    searches: dict[str, Callable[[], list[list[int]]]] = {
        "seqtrans": lambda: greedy(engine, sources, limit),
        name: lambda: peer.greedy(sources, limit - 1),
    }
    rates: dict[str, list[float]] = {each: [] for each in searches}
    for _ in range(ROUNDS):
        for each, search in searches.items():
            began = time.perf_counter()
            symbols = sum(len(ids) + 1 for ids in search())
            rates[each].append(symbols / (time.perf_counter() - began))
    return {each: median(values) for each, values in rates.items()}


if __name__ == "__main__":
    from seqtrans.commands import run

    sys.exit(run(main, sys.argv[1:]))
