"""The WMT14 tasks: their recipes, where their data may lie, and what is said if it doesn't."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from seqtrans.downloads import Download
from seqtrans.errors import DataError
from seqtrans.fetch import offers
from seqtrans.plugins import registry
from seqtrans.resolving import Config, packaged, resolve
from seqtrans.settings import parse_words
from seqtrans_tasks.metrics.bleu import PAPER_EN_DE, PAPER_EN_FR, tokenised_bleu
from seqtrans_tasks.pairs.reading import Table, chunks, files_of
from seqtrans_tasks.wmt import WmtEnDeSettings, WmtEnFrSettings, catalogue
from seqtrans_tasks.wmt.layout import EN_DE, EN_FR, Layout, listed, parts

SPLITS = ("train", "dev", "test")


def put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = f"{name}\n".encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def found(layout: Layout, folder: Path, split: str) -> list[str]:
    """The names of a split's files, in their order."""
    (these,) = parts(layout, folder, [split]).values()
    return [str(path.relative_to(folder)) for part in these for path in files_of(part)]


# Where the data may lie


@pytest.mark.parametrize(
    ("layout", "download"), [(EN_DE, catalogue.EN_DE), (EN_FR, catalogue.EN_FR)]
)
def test_what_is_fetched_is_found(layout: Layout, download: Download, tmp_path: Path) -> None:
    kept = [name for file in download.files for name in file.kept]
    put(tmp_path, *kept)
    splits = parts(layout, tmp_path, SPLITS)
    used = [path.name for these in splits.values() for part in these for path in files_of(part)]
    assert sorted(used) == sorted(kept)
    assert [len(splits[split]) for split in SPLITS] == [len(layout.corpora), 1, 1]


@pytest.mark.parametrize(
    ("split", "names"),
    [
        ("train", ["train.en", "train.de"]),
        ("dev", ["valid.en", "valid.de"]),
        ("dev", ["newstest2013.en", "newstest2013.de"]),
        ("dev", ["newstest2013-src.en.sgm", "newstest2013-ref.de.sgm"]),
        ("test", ["test.tsv"]),
        ("test", ["newstest2014.en", "newstest2014.de"]),
        ("test", ["newstest2014.en-de.en", "newstest2014.en-de.de"]),
        ("test", ["newstest2014-deen-src.en.sgm", "newstest2014-deen-ref.de.sgm"]),
    ],
)
@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("below", ["", "inside/"])
def test_every_layout(
    split: str, names: list[str], ending: str, below: str, tmp_path: Path
) -> None:
    there = [f"{below}{name}{ending}" for name in names]
    put(tmp_path, *there)
    assert found(EN_DE, tmp_path, split) == there


def test_which_comes_first(tmp_path: Path) -> None:
    put(tmp_path, "newstest2014.en", "newstest2014.de")
    put(tmp_path, "b/test.en.gz", "b/test.de.gz", "a/test.en.gz")
    assert found(EN_DE, tmp_path, "test") == ["b/test.en.gz", "b/test.de.gz"]
    put(tmp_path, "b/test.en", "test.de.gz", "a/deep/test.en", ".hidden/test.en")
    assert found(EN_DE, tmp_path, "test") == ["b/test.en", "b/test.de.gz"]
    put(tmp_path, "a/test.de")
    assert found(EN_DE, tmp_path, "test") == ["a/test.en.gz", "a/test.de"]
    put(tmp_path, "test.en.gz", "test.en", "test.de")
    assert found(EN_DE, tmp_path, "test") == ["test.en", "test.de"]


def test_sides_in_different_folders_are_no_pair(tmp_path: Path) -> None:
    put(tmp_path, "a/newstest2014.en", "b/newstest2014.de")
    with pytest.raises(DataError) as caught:
        parts(EN_DE, tmp_path, ["test"])
    assert "(there is only a/newstest2014.en, b/newstest2014.de)" in str(caught.value)
    put(tmp_path, "c/newstest2014-deen-src.en.sgm", "c/newstest2014-deen-ref.de.sgm")
    assert found(EN_DE, tmp_path, "test")[0] == "c/newstest2014-deen-src.en.sgm"


def test_corpora_may_lie_in_different_folders(tmp_path: Path) -> None:
    names = [
        f"{n}/{name}" for n, corpus in enumerate(EN_DE.corpora) for name in EN_DE.sides(corpus)
    ]
    put(tmp_path, *names)
    assert found(EN_DE, tmp_path, "train") == names


def test_a_table_has_the_columns_of_the_settings(tmp_path: Path) -> None:
    put(tmp_path, "train.tsv")
    (part,) = parts(EN_DE, tmp_path, ["train"], "english", "german")["train"]
    assert part == Table(tmp_path / "train.tsv", "english", "german")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "train.en").mkdir()
    assert listed(tmp_path) == {}


def test_the_real_sets(shared: Path) -> None:
    folder = shared / "data" / "wmt-newstest"
    for layout in (EN_DE, EN_FR):
        splits = parts(layout, folder, ["dev", "test"])
        counts = {split: sum(map(len, chunks(these[0]))) for split, these in splits.items()}
        assert counts == {"dev": 3000, "test": 3003}


# What is said if it isn't there


def test_nothing_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        parts(EN_DE, Path("data/wmt14-en-de"), SPLITS)
    assert str(caught.value).splitlines() == [
        "data/wmt14-en-de is not there; get it by: seqtrans fetch wmt14-en-de",
        "or put it there, plain or as .gz, both sides in one folder, or say by task.folder= where "
        "it is:",
        "  train: train.{en,de}; or train.tsv; or europarl-v7.de-en.{en,de}, "
        "commoncrawl.de-en.{en,de}, news-commentary-v9.de-en.{en,de}",
        "  dev: dev.{en,de}; or valid.{en,de}; or dev.tsv; or valid.tsv; or "
        "newstest2013.{en,de}; or newstest2013-{src.en,ref.de}.sgm; or "
        "newstest2013-src.{en,de}.sgm",
        "  test: test.{en,de}; or test.tsv; or newstest2014.{en,de}; or "
        "newstest2014.en-de.{en,de}; or newstest2014-deen-{src.en,ref.de}.sgm",
        "or name the files by task.train_source=, task.train_target=, task.dev_source=, "
        "task.dev_target=, task.test_source= and task.test_target=.",
    ]


def test_something_is_missing(tmp_path: Path) -> None:
    put(tmp_path, "newstest2013.en", "newstest2013.fr", "training/europarl-v7.fr-en.en", "test.fr")
    with pytest.raises(DataError) as caught:
        parts(EN_FR, tmp_path, SPLITS)
    assert str(caught.value).splitlines() == [
        f"{tmp_path} has no data for train and test; get it by: seqtrans fetch wmt14-en-fr "
        f"folder={tmp_path}",
        "or put it there, plain or as .gz, both sides in one folder, or say by task.folder= where "
        "it is:",
        "  train: train.{en,fr}; or train.tsv; or europarl-v7.fr-en.{en,fr}, "
        "commoncrawl.fr-en.{en,fr}, news-commentary-v9.fr-en.{en,fr}, undoc.2000.fr-en.{en,fr}, "
        "giga-fren.release2.fixed.{en,fr} (there is only training/europarl-v7.fr-en.en)",
        "  test: test.{en,fr}; or test.tsv; or newstest2014.{en,fr}; or "
        "newstest2014.en-fr.{en,fr}; or newstest2014-fren-{src.en,ref.fr}.sgm (there is only "
        "test.fr)",
        "or name the files by task.train_source=, task.train_target=, task.test_source= and "
        "task.test_target=.",
    ]


# What the tasks do with it


def small(folder: Path, other: str) -> None:
    """A folder of a dozen pairs to train on, three for dev and two for test."""
    for split, count in (("train", 12), ("dev", 3), ("test", 2)):
        for language in ("en", other):
            lines = [f"{split} {language} {number}\n" for number in range(count)]
            (folder / f"{split}.{language}").write_text("".join(lines))


def test_a_folder_is_prepared(tmp_path: Path) -> None:
    from seqtrans_tasks.wmt.task import WmtEnDe

    data, prepared = tmp_path / "data", tmp_path / "prepared"
    data.mkdir()
    prepared.mkdir()
    small(data, "de")
    task = WmtEnDe(WmtEnDeSettings(folder=data))
    task.prepare(prepared)
    task.open(prepared)
    assert [example.target for example in task.examples("test")] == ["test de 0", "test de 1"]
    assert task.data("test")[0] == "wmt14-en-de"
    assert [line for line in task.describe() if "the whole set" in line] == [
        f"warning: {split} has {pairs} pairs, not the {whole} of the whole set that the paper's "
        "figures are about"
        for split, pairs, whole in (("dev", 3, "3,000"), ("test", 2, "3,003"))
    ]


def test_files_that_are_named_come_before_the_folder(tmp_path: Path) -> None:
    from seqtrans_tasks.wmt.task import WmtEnFr

    small(tmp_path, "fr")
    mine = tmp_path / "mine"
    mine.mkdir()
    small(mine, "fr")
    sides = {"train_source": [mine / "train.en"], "train_target": [mine / "train.fr"]}
    task = WmtEnFr(WmtEnFrSettings.model_validate({"folder": tmp_path, **sides}))
    assert [files_of(part) for part in task.parts("train")] == [
        (mine / "train.en", mine / "train.fr")
    ]
    assert [files_of(part) for part in task.parts("dev")] == [
        (tmp_path / "dev.en", tmp_path / "dev.fr")
    ]
    assert task.name() == "mine"


def test_corpora_of_the_folder_have_weights(tmp_path: Path) -> None:
    from seqtrans_tasks.wmt.task import WmtEnDe

    small(tmp_path, "de")
    corpora = [name for corpus in EN_DE.corpora for name in EN_DE.sides(corpus)]
    for side in ("train.en", "train.de"):
        (tmp_path / side).unlink()
    put(tmp_path, *corpora)
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    settings = WmtEnDeSettings(folder=tmp_path, weights=(1, 2, 0.5))
    WmtEnDe(settings).prepare(prepared)
    task = WmtEnDe(settings)
    task.open(prepared)
    assert task.corpus.mixture == ((1, 1.0), (1, 2.0), (1, 0.5))
    with pytest.raises(DataError) as caught:
        WmtEnDe(WmtEnDeSettings(folder=tmp_path, weights=(1, 2))).prepare(prepared)
    assert str(caught.value) == (
        "task.weights needs a number for each file of train, 3 in all, which are "
        "europarl-v7.de-en.en, commoncrawl.de-en.en, news-commentary-v9.de-en.en, and has 2."
    )


def test_one_split_needs_no_other(tmp_path: Path) -> None:
    """Whoever scores a test set needs no training data."""
    from seqtrans_tasks.wmt.task import WmtEnDe

    put(tmp_path, "newstest2014.en", "newstest2014.de")
    task = WmtEnDe(WmtEnDeSettings(folder=tmp_path))
    task.open_split("test", tmp_path)
    assert [example.target for example in task.examples("test")] == ["newstest2014.de"]


def test_one_message_for_all_that_is_missing(tmp_path: Path) -> None:
    from seqtrans_tasks.wmt.task import WmtEnDe

    with pytest.raises(DataError) as whole:
        parts(EN_DE, tmp_path, SPLITS)
    with pytest.raises(DataError) as caught:
        WmtEnDe(WmtEnDeSettings(folder=tmp_path)).prepare(tmp_path)
    assert str(caught.value) == str(whole.value)


def test_scores_side_by_side() -> None:
    from seqtrans_tasks.pairs.task import Pair
    from seqtrans_tasks.wmt.task import WmtEnDe, WmtEnFr

    target = "Das Kabinett-Mitglied sagt, daß l'Europe es am 3. Mai weiß."
    examples = [Pair("Source", (target,)), Pair("Another source", (target,))]
    outputs = [target, target.replace("Mitglied", "Glied")]
    expected = {
        (WmtEnDe, WmtEnDeSettings): "tokenised BLEU (Moses, compounds split)",
        (WmtEnFr, WmtEnFrSettings): "tokenised BLEU (Moses)",
    }
    values = {}
    for (task, settings), tokenised in expected.items():
        score = task(settings(ter=True)).score(outputs, examples)
        names = [name for name, figure in score.figures.items() if isinstance(figure, dict)]
        assert names == ["BLEU", "chrF2", "TER", tokenised]
        assert score.metric == "BLEU"
        assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
        assert [line.partition(" = ")[0] for line in score.report.splitlines()] == names
        values[task] = score.figures[tokenised]["value"]
        assert "TER" not in task(settings()).score(outputs, examples).figures
        compared = task(settings()).compare({"a": outputs, "b": outputs}, examples)
        assert list(compared.figures["measures"]) == ["BLEU", "chrF2", tokenised]
    references = [[example.target for example in examples]]
    assert values == {
        WmtEnDe: tokenised_bleu(outputs, references, PAPER_EN_DE).value,
        WmtEnFr: tokenised_bleu(outputs, references, PAPER_EN_FR).value,
    }
    assert values[WmtEnDe] != values[WmtEnFr]


# The recipes

PAPER = {
    "wmt14-en-de-base": ("base", "bpe", 37_000, 0.1, 100_000, 5),
    "wmt14-en-de-big": ("big", "bpe", 37_000, 0.3, 300_000, 20),
    "wmt14-en-fr-base": ("base", "wordpiece", 32_000, 0.1, 100_000, 5),
    "wmt14-en-fr-big": ("big", "wordpiece", 32_000, 0.1, 300_000, 20),
}


def resolved(*words: str) -> Config:
    return resolve(parse_words(words, packaged()), registry())


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes(name: str) -> None:
    config = resolved(f"config={name}")
    task, shape, training = config.settings["task"], config.shape, config.training
    size, subwords, vocabulary, dropout, steps, keep = PAPER[name]
    assert config.names["task"] == "-".join(("wmt", *name.split("-")[1:3]))
    assert config.names["model"] == size
    assert (shape.norm, shape.tie, shape.dropout) == ("post", "all", dropout)
    assert (shape.attention_dropout, shape.relu_dropout) == (0, 0)
    assert (task.level, task.subwords, task.vocabulary, task.shared) == (
        "subword",
        subwords,
        vocabulary,
        True,
    )
    assert config.data.tokens == 25_000
    assert (training.schedule, training.lr, training.warmup) == ("paper", 1.0, 4000)
    assert (training.optimizer, training.beta1, training.beta2) == ("adam", 0.9, 0.98)
    assert (training.epsilon, training.smoothing, training.clip) == (1e-9, 0.1, None)
    assert (training.steps, training.keep, training.save_minutes) == (steps, keep, 10)
    decoder = config.settings["decoder"]
    assert config.names["decoder"] == "beam"
    assert (decoder.width, decoder.alpha, decoder.extra) == (4, 0.6, 50)


def test_todays_recipe_says_that_it_is_not_the_papers() -> None:
    config = resolved("config=wmt14-en-de-today")
    assert (config.shape.norm, config.training.beta2, config.training.warmup) == (
        "pre",
        0.997,
        8000,
    )
    peak = config.training.lr * (config.shape.width * config.training.warmup) ** -0.5
    assert peak == pytest.approx(0.001, rel=0.01)
    assert "not the paper's recipe" in packaged()["wmt14-en-de-today"].read_text()


@pytest.mark.parametrize("name", [*PAPER, "wmt14-en-de-today"])
def test_the_commands_of_a_recipe(name: str) -> None:
    """What its head says to type names what there is."""
    text = packaged()[name].read_text()
    task = f"wmt-{'-'.join(name.split('-')[1:3])}"
    config = resolved(f"config={name}")
    assert f"config={name}\n" in text
    assert f"average run={config.folder} last={config.training.keep}\n" in text
    (download,) = registry().get("task", task).downloads
    assert f"seqtrans fetch {download}\n" in text
    assert config.settings["task"].folder == Path("data") / download


# What can be fetched


@pytest.mark.parametrize("download", [catalogue.EN_DE, catalogue.EN_FR])
def test_everything_has_a_checksum(download: Download) -> None:
    for file in download.files:
        assert file.checksum is not None
        assert file.name not in file.kept
        assert file.urls[0].startswith("https://")
        # Nothing but the wanted languages, and no name that the archive chooses.
        assert len(file.members) == 2


def test_both_are_offered() -> None:
    offered = offers(registry())
    assert offered["wmt14-en-de"].download is catalogue.EN_DE
    assert offered["wmt14-en-fr"].download is catalogue.EN_FR


def test_sizes() -> None:
    assert catalogue.EN_DE.size == 657_632_379 + 918_311_367 + 80_418_416
    assert catalogue.EN_FR.size == catalogue.EN_DE.size + 2_365_634_246 + 2_595_102_720


def test_the_test_sets_are_sacrebleus() -> None:
    """Its catalogue has the same addresses, checksums and members."""
    from sacrebleu.dataset import DATASETS

    for other, download in (("de", catalogue.EN_DE), ("fr", catalogue.EN_FR)):
        dev, test = download.files[:2]
        for file, name in ((dev, "wmt13"), (test, "wmt14/full")):
            theirs = DATASETS[name]
            assert list(file.urls) == theirs.data
            assert [file.checksum] == [f"md5:{value}" for value in theirs.md5 or ()]
            assert list(file.members) == theirs.langpairs[f"en-{other}"]


@pytest.mark.parametrize("task", ["wmt-en-de", "wmt-en-fr"])
def test_the_score_is_bleu_whatever_the_units(task: str) -> None:
    found = resolve(parse_words([f"task={task}", "task.level=character"]), registry())
    assert found.settings["task"].measure == "bleu"
