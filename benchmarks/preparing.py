"""What preparing a corpus takes, beside what is done elsewhere: time, processor time and memory."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median

from pydantic import Field

from benchmarks import board
from benchmarks.commands import measuring_command
from benchmarks.machine import hardware, versions
from benchmarks.results import FORMAT, Measurement, write_measurement
from seqtrans.commands import run
from seqtrans.errors import DataError, SeqtransError
from seqtrans.reuse import read_command
from seqtrans.settings import Settings

OURS = "seqtrans"
SIDES = ("source", "target")
EVERY = 0.25
"""Seconds between two looks at the memory."""
PAGE = os.sysconf("SC_PAGE_SIZE")

TRAIN_PIECES = """
import sys, sentencepiece
files, prefix, vocabulary, sample, threads = sys.argv[1:]
sentencepiece.SentencePieceTrainer.train(
    input=files, model_prefix=prefix, vocab_size=int(vocabulary), model_type="bpe",
    input_sentence_size=int(sample), shuffle_input_sentence=True, num_threads=int(threads),
    character_coverage=1.0, minloglevel=2,
)
"""
ENCODE_PIECES = """
import sys, itertools, sentencepiece
model, threads, read, write = sys.argv[1:]
pieces = sentencepiece.SentencePieceProcessor(model_file=model)
with open(read, encoding="utf-8", newline="\\n") as lines, open(write, "w", encoding="utf-8") as to:
    while chunk := [line[:-1] for line in itertools.islice(lines, 100_000)]:
        for found in pieces.encode(chunk, out_type=str, num_threads=int(threads)):
            to.write(" ".join(found) + "\\n")
"""


TELL_VERSIONS = """
import sys, json
from importlib.metadata import version
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""
PEERS = ("subword-nmt", "sentencepiece", "fairseq")
PLACES = ("corpus", "folder", "peers", "keep")
"""Settings that are paths of the machine."""


class PreparingSettings(Settings):
    """What is prepared, and by what."""

    corpus: Path = Field(description="the folder that benchmarks.generate has written")
    folder: Path = Field(description="a folder to work in; what is made there is deleted again")
    pairs: int | None = Field(None, ge=1, description="so many from the beginning; none: all")
    peers: Path | None = Field(
        None,
        description="the bin folder of an environment with subword-nmt, sentencepiece and fairseq, "
        "to measure those as well",
    )
    vocabulary: int = Field(37_000, ge=1, description="sub-words that are learnt")
    sample: int = Field(200_000, ge=1, description="pairs that they are learnt from")
    rounds: int = Field(1, ge=1, description="how often each is measured, one after the other")
    keep: Path | None = Field(None, description="where to put what seqtrans prepared, as a run")
    report: Path | None = Field(
        None, description="write all figures into this folder of results; none: only show them"
    )


@dataclass(frozen=True)
class Step:
    """A command, and what it took."""

    name: str
    seconds: float
    processor: float
    """Seconds of all its processes."""
    peak: int
    """Bytes that all its processes had resident together."""


@dataclass(frozen=True)
class Taken:
    """A way to prepare a corpus, and what its steps took."""

    name: str
    pairs: int
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        """Of all steps."""
        return sum(step.seconds for step in self.steps)


def main(argv: list[str]) -> int:
    """Measure what preparing a corpus takes, here and by what others have for it.

    usage: python -m benchmarks preparing corpus=FOLDER folder=FOLDER [pairs=NUMBER] [peers=FOLDER]
                                          [rounds=1] [report=FOLDER]

    Each way has the same pairs, learns from the same number of them, and is free to use all cores.
    The others are subword-nmt and sentencepiece, each followed by fairseq-preprocess. Memory is
    what all processes of a step have resident together, looked at four times a second.

    example: python -m benchmarks preparing corpus=corpus folder=prepared pairs=200000
    """
    settings, _ = read_command(argv, PreparingSettings)
    folder = settings.folder / "preparing"
    if folder.exists():
        raise DataError(f"{folder} is there already, and would be deleted.")
    try:
        (folder / "text").mkdir(parents=True)
        pairs = first_lines(settings.corpus, folder / "text", settings.pairs)
        taken: list[Taken] = []
        for _ in range(settings.rounds):
            for name, steps in ways(settings, folder).items():
                work = folder / "work"
                work.mkdir()
                taken.append(Taken(name, pairs, tuple(measured(steps, work, folder / "log"))))
                if name == OURS and settings.keep is not None and not settings.keep.exists():
                    shutil.move(work / "run", settings.keep)
                shutil.rmtree(work)
                print(f"{name}: {taken[-1].seconds:.0f} s", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = measurement(settings, taken)
    print(board.preparation(found), end="")
    if settings.report is not None:
        print(write_measurement(found, settings.report))
    return 0


def measurement(settings: PreparingSettings, taken: Sequence[Taken]) -> Measurement:
    """Everything; the value is our pairs a second, of several rounds the median."""
    pairs = taken[0].pairs
    return Measurement(
        format=FORMAT,
        recipe=f"prepare-{pairs}",
        metric="pairs_per_second",
        better="higher",
        value=median(pairs / one.seconds for one in taken if one.name == OURS),
        figures={"pairs": pairs, "taken": [asdict(one) for one in taken]},
        command=measuring_command("benchmarks preparing", settings, *PLACES)
        + " corpus=corpus folder=prepared"
        + (" peers=peers/bin" if settings.peers is not None else ""),
        settings={
            "task": "pairs",
            "task.vocabulary": settings.vocabulary,
            "task.sample": settings.sample,
        },
        versions=versions(peer_versions(settings.peers)),
        hardware=hardware(),
    )


def peer_versions(peers: Path | None) -> dict[str, str]:
    """Of the packages that are measured beside ours."""
    if peers is None:
        return {}
    asked = [str(peers.absolute() / "python"), "-c", TELL_VERSIONS, *PEERS]
    told: dict[str, str] = json.loads(subprocess.run(asked, stdout=-1, check=True).stdout)
    return told


def first_lines(corpus: Path, folder: Path, pairs: int | None) -> int:
    """Write as many lines of both sides into ``folder``; how many they are."""
    count = 0
    for side in SIDES:
        path = corpus / f"{side}.txt"
        if not path.is_file():
            raise DataError(f"{path} does not exist; write it by python -m benchmarks.generate.")
        count = 0
        with path.open("rb") as read, (folder / path.name).open("wb") as write:
            for line in islice(read, pairs):
                write.write(line)
                count += 1
    return count


def ways(settings: PreparingSettings, folder: Path) -> dict[str, dict[str, Sequence[str]]]:
    """The commands of each way to prepare the text, by names; all work in ``folder/work``."""
    work = folder / "work"
    texts = [str(folder / "text" / f"{side}.txt") for side in SIDES]
    cores = str(len(os.sched_getaffinity(0)))
    vocabulary, sample = str(settings.vocabulary), str(settings.sample)
    ours: dict[str, Sequence[str]] = {
        "prepare": [
            *(sys.executable, "-m", "seqtrans", "prepare", "task=pairs", f"run={work / 'run'}"),
            *(f"task.train_{side}={text}" for side, text in zip(SIDES, texts, strict=True)),
            *(f"task.vocabulary={vocabulary}", f"task.sample={sample}"),
        ]
    }
    if settings.peers is None:
        return {OURS: ours}
    python, subword_nmt, preprocess = (
        str(settings.peers.absolute() / name)
        for name in ("python", "subword-nmt", "fairseq-preprocess")
    )
    cut = [str(work / f"cut.{side}") for side in SIDES]
    both, codes, model = str(work / "both"), str(work / "codes"), str(work / "pieces")
    # What is learnt from is the beginning, which for a program's text is as good as any.
    head = ["sh", "-c", f"head -qn {sample} {shlex.join(texts)} > {shlex.quote(both)}"]
    fairseq = [
        *(preprocess, "--source-lang", SIDES[0], "--target-lang", SIDES[1], "--joined-dictionary"),
        *("--trainpref", str(work / "cut"), "--destdir", str(work / "run"), "--workers", cores),
    ]
    subwords = [subword_nmt, "learn-bpe", "--input", both, "-s", vocabulary, "-o", codes]
    apply = [subword_nmt, "apply-bpe", "-c", codes, "--num-workers", cores]
    return {
        OURS: ours,
        "subword-nmt, fairseq": {
            "sample": head,
            "learn": [*subwords, "--num-workers", cores],
            **{
                f"apply to {side}": [*apply, "--input", text, "--output", to]
                for side, text, to in zip(SIDES, texts, cut, strict=True)
            },
            "preprocess": fairseq,
        },
        "sentencepiece, fairseq": {
            "sample": head,
            "learn": [python, "-c", TRAIN_PIECES, both, model, vocabulary, sample, cores],
            **{
                f"apply to {side}": [python, "-c", ENCODE_PIECES, f"{model}.model", cores, text, to]
                for side, text, to in zip(SIDES, texts, cut, strict=True)
            },
            "preprocess": fairseq,
        },
    }


def measured(steps: Mapping[str, Sequence[str]], work: Path, log: Path) -> Iterator[Step]:
    """Run commands one after the other. Raises ``SeqtransError`` if one fails."""
    for name, command in steps.items():
        before, began, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), 0
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=work,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
            try:
                while process.poll() is None:
                    peak = max(peak, resident(process.pid))
                    time.sleep(EVERY)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        seconds = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            said = log.read_text("utf-8", "replace").strip().splitlines() or ["nothing"]
            raise SeqtransError(
                f"{shlex.join(command)[:200]} failed with {process.returncode} and said: {said[-1]}"
            )
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        yield Step(name, seconds, processor, peak)


def resident(group: int) -> int:
    """Bytes that all processes of a group have resident; shared pages count for each."""
    total = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                # After the name, which is in brackets: state, parent, group.
                stat = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if int(stat[2]) == group:
                    total += int((process / "statm").read_text("ascii").split()[1]) * PAGE
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
    return total


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
