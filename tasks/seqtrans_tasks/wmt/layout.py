"""Which files of a folder are a pair's train, dev and test: the layouts in which people have WMT.

A file may be plain or ``.gz``, and lie in the folder itself or in one directly below it; plain
comes before ``.gz``, the folder before those below, and they in the order of their names. A source
and its target lie in the same folder. Of a split's layouts the first that is there whole is taken:

- ``train.en`` and ``train.de``, and so ``dev`` or ``valid``, and ``test``;
- ``train.tsv``, and so the others: a table with the columns that the settings name;
- the corpora as WMT packs them, all of those that the paper trained on;
- ``newstest2013.en``, ``newstest2014.en`` and their counterparts, ``newstest2014.en-de.en`` too;
- the test sets as WMT packs them, ``newstest2014-deen-src.en.sgm`` and ``-ref.de.sgm``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seqtrans.errors import DataError
from seqtrans_tasks.pairs.reading import Files, Part, Table


@dataclass(frozen=True)
class Names:
    """The names of a source and its target, which differ in ``sides`` alone; or of a table."""

    before: str
    sides: tuple[str, str] | None = None
    after: str = ""

    def __iter__(self) -> Iterator[str]:
        for side in self.sides or ("",):
            yield f"{self.before}{side}{self.after}"

    def __str__(self) -> str:
        """Both names as a shell has them: ``train.{en,de}``."""
        braces = f"{{{','.join(self.sides)}}}" if self.sides else ""
        return f"{self.before}{braces}{self.after}"


Option = tuple[Names, ...]
"""All that a split's data is in, if it is in this layout."""


@dataclass(frozen=True)
class Layout:
    """The names of the files of each split, for one pair of languages."""

    source: str
    target: str
    download: str
    """What ``seqtrans fetch`` gets all of it by."""
    corpora: tuple[str, ...]
    """What is before ``.en`` in the names of the training corpora."""
    sizes: Mapping[str, int] = field(default_factory=lambda: {"dev": 3000, "test": 3003})
    """The pairs of newstest2013 and of newstest2014, which exists in a filtered form, too."""

    def options(self, split: str) -> tuple[Option, ...]:
        """The layouts of a split, the preferred one first."""
        names = {"dev": ("dev", "valid")}.get(split, (split,))
        sides = [(self.sides(name),) for name in names]
        tables = [(Names(f"{name}.tsv"),) for name in names]
        return (*sides, *tables, *self.as_published(split))

    def as_published(self, split: str) -> tuple[Option, ...]:
        """The layouts of a split that have WMT's names."""
        source, target = self.source, self.target
        if split == "train":
            return (tuple(self.sides(corpus) for corpus in self.corpora),)
        if split == "dev":
            return (
                (self.sides("newstest2013"),),
                (Names("newstest2013-", (f"src.{source}", f"ref.{target}"), ".sgm"),),
                # In WMT13's package every language is a source.
                (Names("newstest2013-src.", (source, target), ".sgm"),),
            )
        packed = f"newstest2014-{target}{source}-"
        return (
            (self.sides("newstest2014"),),
            (self.sides(f"newstest2014.{source}-{target}"),),
            (Names(packed, (f"src.{source}", f"ref.{target}"), ".sgm"),),
        )

    def sides(self, stem: str) -> Names:
        """The two files that are called ``stem``."""
        return Names(f"{stem}.", (self.source, self.target))


EN_DE = Layout(
    source="en",
    target="de",
    download="wmt14-en-de",
    corpora=("europarl-v7.de-en", "commoncrawl.de-en", "news-commentary-v9.de-en"),
)
EN_FR = Layout(
    source="en",
    target="fr",
    download="wmt14-en-fr",
    corpora=(
        "europarl-v7.fr-en",
        "commoncrawl.fr-en",
        "news-commentary-v9.fr-en",
        "undoc.2000.fr-en",
        "giga-fren.release2.fixed",
    ),
)


def parts(
    layout: Layout,
    folder: Path,
    splits: Sequence[str],
    source_column: str = "1",
    target_column: str = "2",
) -> dict[str, tuple[Part, ...]]:
    """The parts of each split that are found in a folder.

    Raises ``DataError`` if one has none: one message, for all of them.
    """
    there = [listed(place) for place in places(folder)]
    found: dict[str, tuple[Part, ...]] = {}
    for split in splits:
        for option in layout.options(split):
            paths = [together(names, there) for names in option]
            if all(paths):
                found[split] = tuple(
                    Files(files[0], files[1])
                    if len(files) == 2
                    else Table.of(files[0], source_column, target_column)
                    for files in paths
                )
                break
    lacking = [split for split in splits if split not in found]
    if lacking:
        raise DataError(missing(layout, folder, lacking, there))
    return found


def together(names: Names, there: Iterable[Mapping[str, Path]]) -> list[Path]:
    """The files of these names in the first folder that has all of them; empty if none has."""
    for files in there:
        if all(name in files for name in names):
            return [files[name] for name in names]
    return []


def listed(folder: Path) -> dict[str, Path]:
    """The files in a folder, by name without ``.gz``."""
    found: dict[str, Path] = {}
    for ending in ("", ".gz"):
        for path in sorted(folder.glob(f"*{ending}")):
            if (ending or path.suffix != ".gz") and path.is_file():
                found.setdefault(path.name.removesuffix(".gz"), path)
    return found


def places(folder: Path) -> Iterable[Path]:
    """The folder, then those directly below it."""
    if not folder.is_dir():
        return []
    below = sorted(path for path in folder.iterdir() if path.is_dir())
    return [folder, *(path for path in below if not path.name.startswith("."))]


def missing(
    layout: Layout, folder: Path, lacking: Sequence[str], there: Sequence[Mapping[str, Path]]
) -> str:
    """What a folder lacks, how to get it, and where else it may stand."""
    what = f"has no data for {listed_in_words(lacking)}" if folder.is_dir() else "is not there"
    get = f"seqtrans fetch {layout.download}"
    if folder != Path("data") / layout.download:
        get += f" folder={folder}"
    lines = [
        f"{folder} {what}; get it by: {get}",
        "or put it there, plain or as .gz, both sides in one folder, or say by task.folder= where "
        "it is:",
    ]
    for split in lacking:
        options = layout.options(split)
        told = "; or ".join(", ".join(map(str, option)) for option in options)
        names = dict.fromkeys(name for option in options for each in option for name in each)
        partly = ", ".join(
            str(files[name].relative_to(folder))
            for name in names
            for files in there
            if name in files
        )
        lines.append(f"  {split}: {told}" + (f" (there is only {partly})" if partly else ""))
    named = [f"task.{split}_{side}=" for split in lacking for side in ("source", "target")]
    return "\n".join([*lines, f"or name the files by {listed_in_words(named)}."])


def listed_in_words(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([*filter(None, [", ".join(words[:-1])]), words[-1]])
