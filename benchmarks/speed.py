"""How fast we train and decode beside other toolkits: same shapes, same batches, one run.

Each contestant is a process with an interpreter of its own: `benchmarks.peers` under that of an
environment that holds the toolkit, and ours in this one. They take turns, round by round, so that
whatever else the machine does meets all of them. What counts are the ratios within a round: their
median, and the least and the greatest.

Sentences are made up: lengths as those of WMT's English (log-normal, mean 26), ids as words are
distributed. Ours trains through `seqtrans.loss.Objective`, as ``seqtrans train`` does, and decodes
through the decoders that everyone gets; so do the peers through theirs.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from benchmarks import machine, peers
from benchmarks.commands import measuring_command
from benchmarks.machine import processor
from benchmarks.results import FORMAT, ROOT, Measurement, spread, write_measurement
from seqtrans import costs
from seqtrans.commands import run
from seqtrans.config import MODELS, DataSettings, Shape, TrainingSettings
from seqtrans.corpus import Corpus, Ragged
from seqtrans.data import WINDOW, Epoch
from seqtrans.errors import SeqtransError, SettingsError
from seqtrans.settings import AnySettings, Settings, fill, parse_words
from seqtrans.task import Vocabulary
from seqtrans.words import did_you_mean, there_are

if TYPE_CHECKING:
    from torch import nn

    from seqtrans.model import Transducer

OURS = "seqtrans"
VOCABULARY = 10_000
"""Of source and target together."""
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "width": 128, "inner": 256, "heads": 4},
    "small": MODELS["small"],
    "base": MODELS["base"],
}
POSITIONS = 4096
"""Padded positions of a training batch, source and target together."""
LENGTH = 40
"""Steps for each sentence in decoding."""
POOL = 20_000
"""Sentences of which batches are made."""
MEAN, DEVIATION, LONGEST, SPREAD = 26, 17, 150, 0.2
"""Symbols of a source, and how much longer or shorter a target is, log-normally."""
BATCHES: Mapping[str, Mapping[str, int]] = {
    "train": {"tiny": 10, "small": 5, "base": 2},
    "decode": {"tiny": 4, "small": 2, "base": 1},
    "decode one": {"tiny": 16, "small": 8, "base": 4},
}
"""Batches of a round: ten seconds or so."""
DECODERS: Mapping[str, int] = {"greedy": 1, "beam4": 4}
"""Hypotheses of a sentence."""
TRAINERS = ("marian", "torch", "xtransformers", "fairseq", "onmt", "joey")
SEARCHERS = ("ctranslate2", "marian", "fairseq", "onmt", "joey", "ctranslate2_int8")

Pairs = list[tuple[list[int], list[int]]]


class SpeedSettings(Settings):
    """What both measurements can be told."""

    preset: Literal["tiny", "small", "base"] = Field("small", description="the shape of the model")
    rounds: int = Field(5, ge=1, description="how often all contestants take turns")
    batches: int | None = Field(
        None, ge=1, description="batches of a round; none: as fit the preset"
    )
    peers: tuple[str, ...] | None = Field(
        None, description="the other contestants, commas between; none: all that are installed"
    )
    peers_folder: Path = Field(
        Path("peers"), description="where each peer NAME has its environment, NAME/bin/python"
    )
    threads: int | None = Field(None, ge=1, description="CPU threads of each; none: all cores")
    seed: int = Field(1, ge=0, description="of the sentences")
    report: Path | None = Field(
        None, description="a folder for what was measured, as a row; none: print it only"
    )


class TrainSettings(SpeedSettings):
    """Training."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        check_names(self.peers, TRAINERS)
        return self


class DecodeSettings(SpeedSettings):
    """Decoding."""

    decoder: Literal["greedy", "beam4"] = Field("greedy", description="the search")
    batch: int = Field(64, ge=1, le=POOL, description="sentences that are decoded together")
    precision: Literal["fp32", "int8"] = Field("fp32", description="that of our own contestant")

    @model_validator(mode="after")
    def _known(self) -> Self:
        check_names(self.peers, SEARCHERS)
        return self


def check_names(given: Sequence[str] | None, names: Sequence[str]) -> None:
    """Refuse a peer that is none of ``names``."""
    for name in given or ():
        if name not in names:
            raise ValueError(f"no peer is called {name!r} here; there are {', '.join(names)}")


def main(argv: list[str]) -> int:
    """Measure training or decoding beside other toolkits.

    usage: python -m benchmarks.speed train  [preset=small] [rounds=5] [peers=NAME,…] [key=value …]
           python -m benchmarks.speed decode [preset=small] [decoder=greedy] [batch=64] …

      preset        tiny (4+4 layers, width 128), small or base
      rounds        how often all take turns; batches: of one turn
      peers         train: marian, torch, xtransformers, fairseq, onmt, joey
                    decode: ctranslate2, marian, fairseq, onmt, joey, ctranslate2_int8
      peers_folder  each peer's environment is NAME/bin/python in it
      decoder       greedy or beam4; batch: sentences at a time; always 40 symbols each
      precision     fp32, or int8 for our own contestant
      threads       of each contestant; seed; report=FOLDER gets all figures as a row

    The table goes to standard output. Nothing else should run on the machine meanwhile.

    example: python -m benchmarks.speed train preset=tiny peers_folder=/opt/peers
    """
    kind, words = argv[0], argv[1:]
    if kind == "train":
        training = read(words, TrainSettings)
        commands = interpreters(training, TRAINERS)
        work, figures = train_work(training)
        return measure(kind, training, work, commands, figures)
    if kind == "decode":
        decoding = read(words, DecodeSettings)
        commands = interpreters(decoding, SEARCHERS)
        return measure(kind, decoding, decode_work(decoding), commands, {})
    if kind == "serve" and len(words) == 1:
        serve(words[0])
        return 0
    kinds = ("train", "decode")
    raise SettingsError(
        f"no measurement is called {kind!r}{did_you_mean(kind, kinds)}; {there_are(kinds)}"
    )


def read(argv: list[str], schema: type[AnySettings]) -> AnySettings:
    """The settings of a command that has no groups. Raises ``SettingsError``."""
    values = {
        group if key == "name" else f"{group}.{key}": value
        for group, keys in parse_words(argv).tree.items()
        for key, value in keys.items()
    }
    return fill(schema, values, "")


def sentences(count: int, seed: int) -> Pairs:
    """Pairs of ids without bos and eos, as long as `lengths` says; often ids come often."""
    draw = np.random.default_rng((seed, 1))
    specials = peers.UNKNOWN + 1
    weights = 1 / (np.arange(VOCABULARY - specials) + 2.7)
    source, target = lengths(count, seed)
    drawn = draw.choice(len(weights), int((source + target).sum()), p=weights / weights.sum())
    parts = np.split(drawn + specials, np.cumsum(np.stack([source, target], 1).ravel())[:-1])
    return [
        (one.tolist(), other.tolist()) for one, other in zip(parts[::2], parts[1::2], strict=True)
    ]


def lengths(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Symbols of each source and target."""
    draw = np.random.default_rng((seed, 0))
    sigma = math.sqrt(math.log(1 + (DEVIATION / MEAN) ** 2))
    source = np.exp(draw.normal(math.log(MEAN) - sigma**2 / 2, sigma, count))
    target = source * np.exp(draw.normal(0, SPREAD, count))
    return source.clip(1, LONGEST).astype(np.int64), target.clip(1, LONGEST).astype(np.int64)


def training_batches(pairs: Pairs, seed: int) -> list[Pairs]:
    """Pairs of like length, up to `POSITIONS` together with padding, in a random order."""
    batches: list[Pairs] = []
    widest = 0
    for pair in sorted(pairs, key=lambda pair: (len(pair[1]), len(pair[0]))):
        source, target = len(pair[0]), len(pair[1]) + 1
        widest = max(widest, source) if batches else source
        if not batches or (len(batches[-1]) + 1) * (widest + target) > POSITIONS:
            batches.append([])
            widest = source
        batches[-1].append(pair)
    order = np.random.default_rng((seed, 2)).permutation(len(batches))
    return [batches[i] for i in order]


def decoding_batches(pairs: Pairs, size: int, seed: int) -> list[Pairs]:
    """Sentences of like length, ``size`` at a time, in a random order."""
    ordered = sorted(pairs, key=lambda pair: len(pair[0]))
    starts = range(0, len(ordered) - size + 1, size)
    batches = [ordered[first : first + size] for first in starts]
    order = np.random.default_rng((seed, 2)).permutation(len(batches))
    return [batches[i] for i in order]


def real(batch: Pairs) -> int:
    """Positions that are no padding, eos of the targets included."""
    return sum(len(source) + len(target) + 1 for source, target in batch)


def padding(batches: Sequence[Pairs]) -> float:
    """The share of positions that are padding."""
    positions = sum(
        len(batch) * (max(len(s) for s, _ in batch) + max(len(t) for _, t in batch) + 1)
        for batch in batches
    )
    return 1 - sum(map(real, batches)) / positions


def own_padding(seed: int, count: int = WINDOW) -> float:
    """The share of padding in the updates that ``seqtrans train`` makes by default of as many
    pairs as it sorts together.
    """
    source, target = lengths(count, seed)

    # Of the ids themselves nothing is asked.
    sources, targets = (
        Ragged(np.zeros(0, np.int32), np.concatenate([[0], np.cumsum(side)]))
        for side in (source, target)
    )
    corpus = Corpus(sources, targets)
    positions = 0
    for numbers in Epoch(corpus, DataSettings().tokens, seed, 0).updates(0):
        positions += len(numbers) * int(source[numbers].max() + target[numbers].max() + 1)
    return 1 - float((source + target + 1).sum()) / positions


def in_rounds(batches: list[Pairs], rounds: int, size: int) -> list[list[tuple[Any, Any]]]:
    """``size`` batches for each round, each as sources and targets; from the start at their end."""
    chosen = [batches[i % len(batches)] for i in range(rounds * size)]
    sides = [([s for s, _ in batch], [t for _, t in batch]) for batch in chosen]
    return [sides[first : first + size] for first in range(0, len(sides), size)]


def common(settings: SpeedSettings) -> dict[str, Any]:
    """What `peers.Work` says of the model."""
    shape = Shape(**SHAPES[settings.preset])
    return {
        "layers": shape.encoder_layers,
        "width": shape.width,
        "inner": shape.inner,
        "heads": shape.heads,
        "vocabulary": VOCABULARY,
        "dropout": shape.dropout,
        "smoothing": TrainingSettings().smoothing,
        "length": LENGTH,
        "threads": settings.threads or len(os.sched_getaffinity(0)),
        "model": "",
    }


def train_work(settings: TrainSettings) -> tuple[peers.Work, dict[str, float]]:
    """The updates of all rounds, and the shares of padding."""
    batches = training_batches(sentences(POOL, settings.seed), settings.seed)
    size = settings.batches or BATCHES["train"][settings.preset]
    rounds = in_rounds(batches, settings.rounds, size)
    work = peers.Work(training=True, beam=1, rounds=rounds, **common(settings))
    return work, {
        "padding of these batches": padding(batches),
        "padding of seqtrans train": own_padding(settings.seed),
    }


def decode_work(settings: DecodeSettings) -> peers.Work:
    """The sentences of all rounds."""
    pool = sentences(POOL, settings.seed)
    batches = decoding_batches(pool, settings.batch, settings.seed)
    kind = "decode" if settings.batch > 1 else "decode one"
    size = settings.batches or BATCHES[kind][settings.preset]
    rounds = in_rounds(batches, settings.rounds, size)
    beam = DECODERS[settings.decoder]
    int8 = settings.precision == "int8"
    return peers.Work(training=False, beam=beam, rounds=rounds, int8=int8, **common(settings))


@dataclass
class Contestant:
    """A process that does rounds, and what it has told of them."""

    name: str
    process: subprocess.Popen[str]
    log: IO[str]
    version: str = ""
    parameters: int | None = None
    seconds: list[float] = field(default_factory=list)
    peak: float = 0.0
    """The most memory that it ever had, in MB."""
    outputs: list[peers.Ids] = field(default_factory=list)
    """Of each batch of the last round."""

    @classmethod
    def start(cls, name: str, command: Sequence[str | Path], threads: int) -> Contestant:
        """Start it, and wait until its model stands. Raises ``SeqtransError``."""
        away = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"}
        environment = {key: value for key, value in os.environ.items() if key not in away} | {
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1",
        }
        log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  # closed with the process
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        contestant = cls(name, process, log)
        try:
            ready = contestant.hear()
        except BaseException:
            contestant.stop()
            raise
        contestant.version, contestant.parameters = ready["name"], ready["parameters"]
        return contestant

    def hear(self) -> dict[str, Any]:
        """Its next answer. Raises ``SeqtransError`` with its last words if it has died."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)  # type: ignore[no-any-return]
        self.log.seek(0)
        last = [line.strip() for line in self.log if line.strip()][-1:] or ["nothing"]
        raise SeqtransError(f"{self.name} failed; the last that it said is: {last[0]}")

    def round(self, number: int) -> None:
        """Let it do a round."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{number}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its last words tell why
        answer = self.hear()
        self.seconds.append(answer["seconds"])
        self.peak, self.outputs = answer["peak"], answer["outputs"]

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.communicate()
        self.log.close()


def interpreters(settings: SpeedSettings, names: Sequence[str]) -> dict[str, Path]:
    """Of each peer that takes part. Raises ``SettingsError`` if one that was named has none."""
    found: dict[str, Path] = {}
    for name in names if settings.peers is None else settings.peers:
        home = name.removesuffix("_int8")
        python = settings.peers_folder.absolute() / home / "bin" / "python"
        if python.exists():
            found[name] = python
        elif settings.peers is not None:
            raise SettingsError(
                f"peers={name}: there is no {python}; make an environment there with "
                f"{peers.PEERS[name][0]} in it, or set peers_folder."
            )
    return found


def measure(
    kind: str,
    settings: SpeedSettings,
    work: peers.Work,
    commands: Mapping[str, Path],
    figures: dict[str, float],
) -> int:
    """Let all contestants take turns, and print and write what came of it."""
    if settings.report is not None and not any(counts(name, settings) for name in commands):
        raise SettingsError(
            "report: there is no other toolkit to compare with; name a folder of their "
            "environments by peers_folder"
        )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if any(name.startswith("ctranslate2") for name in commands):
            work = export(work, folder / "model")
        path = folder / "work.json"
        work.write(path)
        script = Path(peers.__file__).resolve()
        contestants = []
        started: dict[str, list[str | Path]] = {
            OURS: [sys.executable, "-m", "benchmarks.speed", "serve", path],
            **{name: [python, script, name, path] for name, python in commands.items()},
        }
        for name, command in started.items():
            print(f"starting {name}", file=sys.stderr)
            contestant = Contestant.start(name, command, work.threads)
            stack.callback(contestant.stop)
            contestants.append(contestant)
        for number in range(len(work.rounds)):
            for contestant in contestants:
                contestant.round(number)
                print(
                    f"round {number + 1} of {len(work.rounds)}: {contestant.name} "
                    f"{contestant.seconds[-1]:.2f} s",
                    file=sys.stderr,
                )
                if not work.training:
                    check(contestant, work.length)
    result = describe(kind, settings, work, contestants, figures)
    print(table(result), end="")
    if settings.report is not None:
        write_measurement(row(result, settings), settings.report)
    return 0


def check(contestant: Contestant, length: int) -> None:
    """That every output took as many steps as was asked, whether or not the last one was eos."""
    for batch in contestant.outputs:
        for output in batch:
            if not length - 1 <= len(output) <= length:
                raise SeqtransError(
                    f"{contestant.name} made an output of {len(output)} symbols, not {length}: "
                    "its times can't be compared."
                )


def describe(
    kind: str,
    settings: SpeedSettings,
    work: peers.Work,
    contestants: Sequence[Contestant],
    figures: dict[str, float],
) -> dict[str, Any]:
    """All that was measured, as JSON has it."""
    import torch

    pairs = [
        [
            (source, target)
            for sources, targets in batches
            for source, target in zip(sources, targets, strict=True)
        ]
        for batches in work.rounds
    ]
    amounts = [real(batch) if work.training else len(batch) for batch in pairs]
    operations = [gigaflop(work, batch) for batch in pairs]
    ours = contestants[0]
    rows = []
    for contestant in contestants:
        ratios = [b / a for a, b in zip(ours.seconds, contestant.seconds, strict=True)]
        rates = [n / s for n, s in zip(amounts, contestant.seconds, strict=True)]
        row: dict[str, Any] = {
            "name": contestant.name,
            "version": contestant.version,
            "parameters": contestant.parameters,
            "seconds": [round(second, 4) for second in contestant.seconds],
            "rate": median(rates),
            "gflops": median(n / s for n, s in zip(operations, contestant.seconds, strict=True)),
            "peak": contestant.peak,
            "ratio": spread(ratios),
        }
        if not work.training:
            row["same"] = agreement(ours.outputs, contestant.outputs, work.length - 1)
        rows.append(row)
    return {
        "kind": kind,
        "settings": settings.model_dump(mode="json", exclude={"peers_folder", "report"}),
        "unit": "tokens" if work.training else "sentences",
        "machine": processor(),
        "threads": work.threads,
        "torch": torch.__version__,
        "batches": len(work.rounds[0]),
        **figures,
        "contestants": rows,
    }


def counts(name: str, settings: SpeedSettings) -> bool:
    """Whether we are measured by this contestant. What computes with int8 counts only where ours
    does too: it does other work.
    """
    ours = settings.precision if isinstance(settings, DecodeSettings) else "fp32"
    return name != OURS and (ours == "int8" or not name.endswith("_int8"))


def row(result: Mapping[str, Any], settings: SpeedSettings) -> Measurement:
    """How many times as fast as the fastest of the others that count ours is, with everything else
    beside it.
    """
    kind, preset = result["kind"], settings.preset
    what = [kind, preset]
    if isinstance(settings, DecodeSettings):
        what += [settings.decoder, str(settings.batch)]
        what += ["int8"] if settings.precision == "int8" else []
    others = [one for one in result["contestants"] if counts(one["name"], settings)]
    return Measurement(
        format=FORMAT,
        recipe="-".join(what),
        metric="times_the_fastest_peer",
        better="higher",
        value=min(one["ratio"][0] for one in others),
        figures=dict(result),
        command=measuring_command(f"benchmarks.speed {kind}", settings, "peers_folder"),
        settings={"model": preset, "vocabulary": VOCABULARY, "run.threads": result["threads"]},
        versions=machine.versions({one["name"]: one["version"] for one in others}),
        hardware=machine.hardware(),
    )


def shape_of(work: peers.Work) -> dict[str, int]:
    """The model as our settings name it."""
    return {
        "encoder_layers": work.layers,
        "decoder_layers": work.layers,
        "width": work.width,
        "inner": work.inner,
        "heads": work.heads,
    }


def gigaflop(work: peers.Work, pairs: Pairs) -> float:
    """10⁹ operations: 6 for each weight and real position in training (`costs.rule_of_thumb`), and
    2 in decoding, whose positions are its steps × hypotheses.
    """
    shape = Shape(**shape_of(work))
    symbols = costs.Vocabularies(work.vocabulary, work.vocabulary, shared=True)
    if work.training:
        done = costs.Work.of((len(source), len(target) + 1) for source, target in pairs)
        return costs.rule_of_thumb(shape, symbols, done) / 1e9
    source = sum(len(source) for source, _ in pairs)
    steps = len(pairs) * work.length * work.beam
    return costs.rule_of_thumb(shape, symbols, costs.Work(source, steps, 0, 0, 0)) / 3e9


def agreement(ours: list[peers.Ids], theirs: list[peers.Ids], length: int) -> float:
    """The share of sentences whose first ``length`` symbols are alike."""
    pairs = [
        one[:length] == other[:length]
        for batch, answer in zip(ours, theirs, strict=True)
        for one, other in zip(batch, answer, strict=True)
    ]
    return sum(pairs) / len(pairs)


def table(result: Mapping[str, Any]) -> str:
    """The result for people, in Markdown."""
    settings, training = result["settings"], result["kind"] == "train"
    head = f"{result['kind']}, {settings['preset']}"
    if not training:
        head += f", {settings['decoder']}, batches of {settings['batch']}"
    lines = [
        f"{head}: {many(settings['rounds'], 'round')} of {result['batches']}, "
        f"{settings.get('precision', 'fp32')}, "
        f"{many(result['threads'], 'thread')}, {result['machine']}, torch {result['torch']}",
    ]
    lines += [f"{key}: {value:.1%}" for key, value in result.items() if key.startswith("padding")]
    columns = ("", f"{result['unit']}/s", "GFLOPS", "peak MB", "seqtrans is faster by (from, to)")
    lines += ["", f"| {' | '.join(columns)} |", "| --- | ---: | ---: | ---: | --- |"]
    for row in sorted(result["contestants"], key=lambda row: -row["rate"]):
        ratio = "" if row["name"] == OURS else "{:.2f} ({:.2f}, {:.2f})".format(*row["ratio"])
        rate = f"{row['rate']:,.0f}" if row["rate"] >= 100 else f"{row['rate']:.2f}"
        lines.append(
            f"| {row['version']} | {rate} | {row['gflops']:.1f} | {row['peak']:,.0f} | {ratio} |"
        )
    for row in result["contestants"]:
        if row["name"] == "ctranslate2":
            lines += ["", f"CTranslate2 has our weights: {row['same']:.0%} of outputs are alike."]
    return "\n".join(lines) + "\n"


def many(count: int, noun: str) -> str:
    """A number of something."""
    return f"{count} {noun}{'s' if count > 1 else ''}"


class Numbers:
    """What of a task a model and its export need, where symbols are numbers."""

    shares_vocabulary = True

    def __init__(self, size: int) -> None:
        self.source_vocabulary = self.target_vocabulary = Vocabulary(
            size, peers.PAD, peers.BOS, peers.EOS
        )

    def units(self, ids: Sequence[int], side: str) -> list[str]:
        """A name for each id."""
        return [f"w{id}" for id in ids]


def model(work: peers.Work) -> tuple[Transducer, Numbers]:
    """Our model, the same whenever it is called."""
    import torch

    from seqtrans.model import Transducer
    from seqtrans.plugins import registry

    shape = Shape(**shape_of(work), dropout=work.dropout, tie="all")
    task = Numbers(work.vocabulary)
    vocabulary = task.target_vocabulary

    def part(kind: str, name: str, *arguments: Any) -> Any:
        component = registry().get(kind, name)
        return component.make(component.settings(), *arguments)

    torch.manual_seed(1)
    built = Transducer(
        shape,
        vocabulary,
        part("source", "tokens", shape, vocabulary),
        (part("position", "sinusoidal", shape), part("position", "sinusoidal", shape)),
        [part("attention", "full", shape) for _ in range(work.layers)],
        [part("attention", "full", shape) for _ in range(work.layers)],
        vocabulary,
    )
    return built, task


def ours(work: peers.Work) -> tuple[nn.Module, peers.Step]:
    """Our own contestant."""
    import torch

    from seqtrans.constraint import asked
    from seqtrans.decoding import Decoder, Request
    from seqtrans.frozen import frozen
    from seqtrans.loss import Objective
    from seqtrans.plugins import registry

    built, _ = model(work)
    if work.training:
        objective = Objective(built, work.smoothing, "all")

        def loss(batch: peers.Batch) -> torch.Tensor:
            summed: torch.Tensor = objective(
                batch.source, batch.mask, batch.target_in, batch.target_out
            )
            return summed

        return built, peers.training(objective, loss)
    name = "greedy" if work.beam == 1 else "beam"
    component = registry().get("decoder", name)
    options: dict[str, float] = (
        {} if work.beam == 1 else {"width": work.beam, "alpha": peers.PENALTY}
    )
    options["least"] = work.length - 1
    decoder = component.make(component.settings.model_validate(options))
    assert isinstance(decoder, Decoder)

    scorer = frozen(built.eval(), work.int8)

    def search(batch: peers.Batch) -> peers.Ids:
        limits = torch.full((len(batch.sources),), work.length)
        constraint = asked(built.vocabulary, limits, least=decoder.least)
        request = Request(batch.source, batch.mask, limits, constraint)
        return [list(best[0].ids) for best in decoder.decode(scorer, request)]

    return built, peers.decoding(built, search)


def export(work: peers.Work, folder: Path) -> peers.Work:
    """Write our model for CTranslate2; the work with its folder."""
    from seqtrans.ctranslate2 import write_ctranslate2

    built, task = model(work)
    engine: Any = SimpleNamespace(model=built.eval(), task=task)
    folder.mkdir()
    write_ctranslate2(engine, peers.POSITIONS, folder)
    return replace(work, model=str(folder))


def serve(path: str) -> None:
    """Be our own contestant."""
    import torch

    from seqtrans import __version__

    work = peers.Work.read(path)
    torch.set_num_threads(work.threads)
    torch.manual_seed(1)
    peers.serve(work, ours, f"{OURS} {__version__}")


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:] or ["--help"]))
