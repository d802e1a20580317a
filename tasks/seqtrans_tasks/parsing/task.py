"""The parsing task: from a treebank to symbols and back to trees, and their labelled F1."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

import torch
from torch import Tensor

from seqtrans.corpus import Corpus
from seqtrans.errors import DataError
from seqtrans.files import read_json
from seqtrans.task import Constraint, Score, Task, Vocabulary
from seqtrans_tasks.parsing import ParsingSettings, evalb, grammar, repair, treebank
from seqtrans_tasks.parsing.augment import Variations
from seqtrans_tasks.parsing.cleaning import Account, Steps, clean
from seqtrans_tasks.parsing.drawing import draw, svg
from seqtrans_tasks.parsing.linear import FIRST, Linearisation, Symbol
from seqtrans_tasks.parsing.parameters import parameters_named
from seqtrans_tasks.parsing.tags import Tagger
from seqtrans_tasks.parsing.tree import (
    Node,
    copy,
    escape,
    escape_quotes,
    leaves,
    read_tree,
    read_tree_lines,
    unescape,
    write_tree,
)
from seqtrans_tasks.subwords import Subwords

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Sentence:
    """What is parsed: words as the treebank writes them, and their tags if they are given."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Parse:
    """A tree over exactly the words of a sentence, and how often each repair was needed for it."""

    tree: Node
    repairs: Counter[str] = field(default_factory=Counter)


class Parsing(Task):
    """Words to a constituency tree (section 6.3)."""

    def __init__(self, settings: ParsingSettings) -> None:
        self.settings = settings
        self.parameters = parameters_named(settings.parameters)

    def prepare(self, folder: Path) -> None:
        splits: dict[str, list[Node]] = {}
        summary: dict[str, Any] = {"name": self.name(), "splits": {}}
        for split, raw in self.raw().items():
            trees, account = self.cleaned(split, raw)
            splits[split] = trees
            summary["splits"][split] = {
                "account": account.as_dict(),
                "counts": treebank.count(trees).as_dict(),
                "fingerprint": treebank.fingerprint(trees),
            }
            lines = "".join(write_tree(tree) + "\n" for tree in trees)
            (folder / f"{split}.trees").write_text(lines, encoding="utf-8")
        summary["shared sentences"] = {
            f"{a}, {b}": n
            for (a, b), n in treebank.overlap({s: splits[s] for s in SPLITS if s in splits}).items()
        }
        gold = splits["train"]
        training = gold + splits.get("silver", [])
        words = [word for tree in training for word in spelled(leaf.word for leaf in leaves(tree))]
        subwords = Subwords.learn(words, self.settings.subwords or size_for(len(words)))
        linearisation = Linearisation.learn(
            training,
            kind=self.settings.linearisation,
            closings=self.settings.closings,
            leaves=self.settings.leaves,
        )
        summary["subwords"] = len(subwords.pieces)
        summary["symbols"] = len(linearisation.symbols)
        (folder / "subwords.json").write_text(subwords.content, encoding="utf-8")
        for name, content in (
            ("linearisation", linearisation.as_json()),
            ("tagger", Tagger.learn(gold).as_json()),
            ("summary", summary),
        ):
            (folder / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")

    def name(self) -> str:
        """What the data is called in results."""
        settings = self.settings
        if settings.treebank is None and settings.train is None:
            return grammar.NAME
        return (settings.treebank or settings.train or Path()).resolve().name

    def cleaned(self, split: str, raw: Iterable[Node]) -> tuple[list[Node], Account]:
        """The trees of a split, cleaned. Raises ``DataError`` if none is left."""
        account, steps = Account(), self.steps(split)
        trees = [tree for node in raw if (tree := clean(node, steps, account)) is not None]
        if not trees:
            raise DataError(f"nothing is left of the {split} trees: {account.text()}.")
        return trees, account

    def steps(self, split: str) -> Steps:
        """What is done to the trees of a split."""
        settings, training = self.settings, split in ("train", "silver")
        return Steps(
            remove_traces=settings.remove_traces,
            strip_functions=settings.strip_functions,
            prt_advp=settings.prt_advp and training,
            collapse_same_unaries=settings.collapse_unaries,
            max_words=settings.max_words if training else None,
        )

    def raw(self) -> dict[str, Iterable[Node]]:
        """The trees of each split as they are in the files, those of the built-in treebank if none
        are given.
        """
        settings = self.settings
        if settings.treebank is None and settings.train is None:
            return dict(grammar.write_treebank())
        return {
            split: (
                node for _, node in treebank.read_files(files, one_tree_a_line=split == "silver")
            )
            for split, files in self.all_files().items()
        }

    def raw_files(self) -> list[Path]:
        settings = self.settings
        if settings.treebank is None and settings.train is None:
            return []
        lists = (settings.train_list, settings.dev_list, settings.test_list)
        files = [path for found in self.all_files().values() for path in found]
        return [*(path for path in lists if path is not None), *files]

    def all_files(self) -> dict[str, list[Path]]:
        """The files of all splits that there are, silver trees as well."""
        found = {split: files for split in SPLITS if (files := self.files(split))}
        if self.settings.silver is not None:
            found["silver"] = treebank.find_files(self.settings.silver)
        return found

    def files(self, split: str) -> list[Path]:
        """The files of a split, by paths, by a list, or by sections; a test split may be absent."""
        settings = self.settings
        path: Path | None = getattr(settings, split)
        listed: Path | None = getattr(settings, f"{split}_list")
        if settings.treebank is None:
            return [] if path is None else treebank.find_files(path)
        if settings.train_list is not None:
            return [] if listed is None else treebank.files_listed(settings.treebank, listed)
        return treebank.files_in_sections(settings.treebank, getattr(settings, f"{split}_sections"))

    def open(self, folder: Path) -> None:
        self.folder = folder
        self.summary: Any = read_json(folder / "summary.json")
        self.subwords = Subwords((folder / "subwords.json").read_text(encoding="utf-8"))
        content: Any = read_json(folder / "linearisation.json")
        self.linearisation = Linearisation.from_json(content)
        content = read_json(folder / "tagger.json")
        self.tagger = Tagger.from_json(content)
        self.loaded: dict[str, list[Node]] = {}
        self.corpus: Corpus | None = None
        self.variations: Variations | None = None

    def open_split(self, split: str, folder: Path) -> None:
        settings = self.settings
        raw: Iterable[Node] | None
        if settings.treebank is None and settings.train is None:
            raw = grammar.write_treebank().get(split)
        else:
            files = self.files(split) if split in SPLITS else []
            raw = (node for _, node in treebank.read_files(files)) if files else None
        if raw is None:
            raise DataError(f"the data {self.name()} has no split {split!r}.")
        trees, _ = self.cleaned(split, raw)
        fingerprint = treebank.fingerprint(trees)
        self.summary = {"name": self.name(), "splits": {split: {"fingerprint": fingerprint}}}
        self.loaded = {split: trees}

    @property
    def source_vocabulary(self) -> Vocabulary:
        return self.subwords.vocabulary()

    @property
    def target_vocabulary(self) -> Vocabulary:
        return self.linearisation.vocabulary()

    def examples(self, split: str) -> Sequence[Node]:
        if split not in self.loaded:
            path = self.folder / f"{split}.trees"
            if not path.is_file():
                there = ", ".join(sorted(p.stem for p in self.folder.glob("*.trees")))
                raise DataError(
                    f"there is no split {split!r} in {self.folder}; there are: {there}."
                )
            with path.open(encoding="utf-8", newline="\n") as lines:
                self.loaded[split] = [t for t in read_tree_lines(lines, str(path)) if t is not None]
        return self.loaded[split]

    def data(self, split: str) -> tuple[str, str]:
        if split not in self.summary["splits"]:
            there = ", ".join(self.summary["splits"])
            raise DataError(f"there is no split {split!r}; there are: {there}.")
        return self.summary["name"], self.summary["splits"][split]["fingerprint"]

    def label(self) -> str:
        """The name of the data, which says so if it is synthetic."""
        name: str = self.summary["name"]
        return name + (SYNTHETIC if name == grammar.NAME else "")

    def describe(self) -> Iterator[str]:
        yield f"treebank {self.label()}"
        for split, facts in self.summary["splits"].items():
            counts, account = facts["counts"], facts["account"]
            changes = ", ".join(
                f"{number:,} {what}"
                for what, number in account.items()
                if number and what not in ("read", "kept") and not what.startswith("dropped")
            )
            dropped = ", ".join(
                f"{number:,} {what}"
                for what, number in account.items()
                if number and what.startswith("dropped")
            )
            yield (
                f"  {split}: {account['read']:,} trees read = {account['kept']:,} kept"
                f"{' + ' + dropped if dropped else ''}; {counts['words']:,} words, "
                f"{counts['constituents']:,} constituents, longest {counts['longest']}; "
                f"fingerprint {facts['fingerprint'][:12]}"
            )
            if changes:
                yield f"    {changes}"
        shared = {
            pair: number for pair, number in self.summary["shared sentences"].items() if number
        }
        if shared:
            yield "  sentences of the later split that are in the earlier, too: " + ", ".join(
                f"{pair}: {number}" for pair, number in shared.items()
            )
        yield (
            f"  {self.summary['subwords']:,} sub-words, {self.summary['symbols']} symbols of trees "
            f"({self.settings.linearisation}, closings {self.settings.closings}, leaves "
            f"{self.settings.leaves})"
        )

    def training(self, epoch: int, seed: int) -> Corpus:
        settings = self.settings
        varied = bool(settings.swap or settings.word_swap)
        fixed = not (varied or settings.subword_dropout or settings.silver)
        if fixed and self.corpus is not None:
            return self.corpus
        random = Random(f"{seed} {epoch}")
        trees = list(self.examples("train"))
        if settings.silver is not None:
            for tree in self.examples("silver"):
                trees += [tree] * int(settings.silver_weight + random.random())
        if varied:
            if self.variations is None:
                self.variations = Variations(
                    self.examples("train"), settings.swap, settings.word_swap
                )
            trees = [self.variations.vary(tree, random) for tree in trees]
        encode: Callable[[str], tuple[int, ...]] = self.subwords.word
        if settings.subword_dropout:
            encode = self.subwords.varied(settings.subword_dropout, random)
        pairs = []
        for tree in trees:
            words = spelled(leaf.word for leaf in leaves(tree))
            source = [id for word in words for id in encode(word)]
            pairs.append((source, self.linearisation.encode(tree)))
        corpus = Corpus.of(pairs)
        self.corpus = corpus if fixed else None
        return corpus

    def input(self, example: Node) -> Sentence:
        """The words alone: no tag of the treebank is ever given to the parser."""
        return Sentence(tuple(leaf.word for leaf in leaves(example)))

    def read(self, line: str) -> Sentence:
        pieces = line.split()
        if not pieces:
            raise DataError("there are no words.")
        if self.settings.input == "raw":
            from nltk.tokenize.treebank import TreebankWordTokenizer

            pieces = TreebankWordTokenizer().tokenize(line)
        if self.settings.input == "tagged":
            split = [piece.rpartition("/") for piece in pieces]
            for piece, (word, _, tag) in zip(pieces, split, strict=True):
                if not word or not tag or set("()") & set(tag):
                    raise DataError(
                        f"{piece!r} isn't word/TAG; task.input=words reads words alone."
                    )
            words = tuple(escape(unescape(word)) for word, _, _ in split)
            return Sentence(words, tuple(tag for _, _, tag in split))
        return Sentence(tuple(escape_quotes([escape(unescape(word)) for word in pieces])))

    def encode_source(self, input: Sentence) -> Tensor:
        ids = self.subwords.encode(spelled(input.words))
        return torch.tensor(ids, dtype=torch.long)

    def encode_target(self, example: Node) -> list[int]:
        return self.linearisation.encode(example)

    def encode_prefix(self, text: str, input: Sentence) -> list[int]:
        """The ids of symbols, such as ``(S (NP DT``, between blanks."""
        ids = {str(symbol): id for symbol, id in self.linearisation.ids.items()}
        for symbol in text.split():
            if symbol not in ids:
                raise DataError(f"{symbol!r} is no symbol of the trees that were trained on.")
        return [ids[symbol] for symbol in text.split()]

    def tags(self, input: Sentence) -> Sequence[str]:
        """The tags given with a sentence, or else those that its words suggest."""
        return input.tags or self.tagger.tag(input.words)

    def constraint(self, inputs: Sequence[Sentence], limits: Tensor) -> Constraint | None:
        if not self.settings.constrained:
            return None
        choices = None
        if self.settings.leaves == "tags":
            choices = [self.choices(sentence) for sentence in inputs]
        return self.linearisation.constraint([len(s.words) for s in inputs], limits, choices)

    def choices(self, input: Sentence) -> Tensor:
        """Bool [n, V]: which leaf symbols may stand for each word; for a given tag only its own."""
        allowed = self.tagger.choices(input.words, self.linearisation)
        for place, tag in enumerate(input.tags or ()):
            if (symbol := self.linearisation.ids.get(Symbol("leaf", tag))) is not None:
                allowed[place] = False
                allowed[place, symbol] = True
        return allowed

    def decode(self, ids: Sequence[int], input: Sentence) -> Parse:
        tree, repairs = self.linearisation.decode(ids, input.words, self.tags(input))
        if input.tags is not None:
            for leaf, tag in zip(leaves(tree), input.tags, strict=True):
                leaf.tag = tag
        return Parse(tree, repairs)

    def reference(self, example: Node) -> Parse:
        return Parse(example)

    def write(self, output: Parse) -> str:
        return write_tree(output.tree)

    def publish(self, output: Parse) -> str:
        """The tree with the number of each word in its place; after a tab the repairs, if any."""
        numbered = copy(output.tree)
        for number, leaf in enumerate(leaves(numbered)):
            leaf.word = str(number)
        line = write_tree(numbered)
        return f"{line}\t{json.dumps(output.repairs)}" if output.repairs else line

    def recover(self, line: str, example: Node) -> Parse:
        tree, _, repairs = line.partition("\t")
        root = read_tree(tree, "the line")
        numbered, words = leaves(root), self.input(example).words
        if [leaf.word for leaf in numbered] != [str(number) for number in range(len(words))]:
            raise DataError(
                f"the leaves of the tree must be the numbers from 0 to {len(words) - 1} in order, "
                "one for each word of the sentence."
            )
        for leaf, word in zip(numbered, words, strict=True):
            leaf.word = word
        try:
            counts: Any = json.loads(repairs or "{}")
        except ValueError:
            counts = None
        if not isinstance(counts, dict) or not all(
            rule in repair.RULES and type(times) is int and times > 0
            for rule, times in counts.items()
        ):
            raise DataError(f"what follows the tree is no count of repairs: {repairs!r}.")
        return Parse(root, Counter(counts))

    def units(self, ids: Sequence[int], side: Literal["source", "target"]) -> list[str]:
        if side == "source":
            return [self.subwords.decode([id]) for id in ids]
        symbols = self.linearisation.symbols
        return [str(symbols[id - FIRST]) if id >= FIRST else "" for id in ids]

    def read_target(self, line: str) -> list[int]:
        return self.encode_target(read_tree(line, "the line"))

    def draw(self, output: Parse) -> str:
        return draw(output.tree)

    def picture(self, output: Parse) -> str:
        return svg(output.tree)

    def score(self, outputs: Sequence[Parse], examples: Sequence[Node]) -> Score:
        report = evalb.score(list(examples), [o.tree for o in outputs], self.parameters)
        repairs = [output.repairs for output in outputs]
        figures = report.as_dict()
        figures["repaired"] = repair.shares(repairs)
        constrained = "yes" if self.settings.constrained else "no"
        value = report.overall.f1
        return Score(
            "F1",
            0.0 if value != value else value,
            f"{report.signature}|data:{self.summary['name']}|constrained:{constrained}",
            figures,
            f"data: {self.label()}\nconstrained: {constrained}\n{report.text()}"
            f"{repair.report(repairs)}\n",
        )


SYNTHETIC = " (synthetic: written by a grammar; its F1 says nothing about a real treebank)"


def spelled(words: Iterable[str]) -> list[str]:
    """The words of a sentence as sub-words are learnt from them, each with a blank before it."""
    return [f" {unescape(word)}" for word in words]


def size_for(words: int) -> int:
    """How many pieces suit so many words of training text: one for 40, from 500 to the paper's
    16,000.
    """
    return min(16_000, max(500, words // 40))
