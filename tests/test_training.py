"""The training loop in this process: what an update is, validation, the dry run, how it ends."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from launching import metrics, train, words
from test_files import names

from seqtrans import assembly, checkpoint, rehearsal, training
from seqtrans.commands import run as command
from seqtrans.corpus import Corpus
from seqtrans.data import collate
from seqtrans.errors import CheckpointError, DataError, SeqtransError
from seqtrans.plugins import BUILTIN, Registry
from seqtrans.prepare import prepare
from seqtrans.rehearsal import check_positions, rehearse
from seqtrans.reporting import Reporter, counting, pace
from seqtrans.resolving import packaged, resolve
from seqtrans.settings import parse_words
from seqtrans.task import Score
from seqtrans.training import Training

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@contextmanager
def opened(folder: Path, *more: str, **settings: object) -> Iterator[Training]:
    """A training that is ready for its first update."""
    registry = Registry([*BUILTIN, "toy"])
    config = resolve(parse_words(words(folder, *more, **settings), packaged()), registry)
    accelerator = training.start_processes(config)
    prepare(config, registry)
    with Reporter(config.folder, accelerator.is_main_process) as reporter:
        task = assembly.build_task(config, registry)
        task.open(config.folder / "task")
        found = Training(config, registry, task, accelerator, reporter)
        found.enter_epoch()
        yield found


def gradients(found: Training, updates: int = 1) -> list[torch.Tensor]:
    """Those of the last of some updates."""
    kept: list[torch.Tensor] = []

    def keep(*_: object) -> None:
        kept[:] = [p.grad.clone() for p in found.model.parameters() if p.grad is not None]

    handle = found.inner_optimizer().register_step_pre_hook(keep)
    for _ in range(updates):
        found.update(found.next_update())
    handle.remove()
    return kept


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


# --- an update ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("accumulation", "over"), [(2, "others"), (4, "all"), (50, "all")])
def test_accumulation_changes_nothing_but_memory(
    tmp_path: Path, accumulation: int, over: str
) -> None:
    """With 50, most parts are empty."""
    found = []
    for n in (1, accumulation):
        more = ("model.dropout=0", f"training.smoothing_over={over}")
        with opened(tmp_path / str(n), *more, accumulation=n) as one:
            found.append((gradients(one, 3), float(one.window)))
    (whole, loss), (cut, its_loss) = found
    assert its_loss == pytest.approx(loss, rel=1e-6)
    for a, b in zip(whole, cut, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-6)


def test_the_loss_is_per_target_token_of_the_whole_update(tmp_path: Path) -> None:
    with opened(tmp_path, "model.dropout=0", accumulation=3, smoothing=0) as found:
        numbers = found.next_update()
        batch = collate(found.corpus, numbers, found.specials)
        logits = found.model(batch.source, batch.mask, batch.target_in)
        real = batch.target_out != found.specials[0]
        expected = torch.nn.functional.cross_entropy(logits[real], batch.target_out[real])
        mine = torch.autograd.grad(expected, list(found.model.parameters()))
        found.update(numbers)
        figure = float(found.window), found.progress.window_tokens
    with opened(tmp_path, "model.dropout=0", accumulation=3, smoothing=0) as found:
        for a, b in zip(mine, gradients(found), strict=True):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-6)
    assert figure == (0.0, 0), "it has been logged"
    for record in metrics(tmp_path):
        assert record["loss"] == pytest.approx(expected.item(), rel=1e-6)


def test_an_empty_part_has_loss_0_and_finite_gradients(tmp_path: Path) -> None:
    with opened(tmp_path) as found:
        loss = found.loss(collate(found.corpus, [], found.specials))
        loss.backward()
        assert loss.item() == 0
        assert all(not p.grad.any() for p in found.model.parameters() if p.grad is not None)


def test_noise_is_a_function_of_seed_update_and_part_alone(tmp_path: Path) -> None:
    def noise(folder: str, spoil: int, *more: str) -> list[torch.Tensor]:
        with opened(tmp_path / folder, "model.dropout=0.5", *more) as found:
            torch.manual_seed(spoil)
            np.random.seed(spoil)
            return gradients(found, 2)

    one, same, other = noise("a", 1), noise("b", 2), noise("c", 1, "run.seed=2")
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True) if a.any())


def test_the_rate_depends_on_the_update_alone(tmp_path: Path) -> None:
    rates = []
    for n in (1, 4):
        folder = tmp_path / str(n)
        assert train(words(folder, steps=6, accumulation=n)) == 0
        rates.append([record["lr"] for record in metrics(folder, "training")])
    assert rates[0] == rates[1]
    assert rates[0] == [8**-0.5 * min(n**-0.5, n * 5**-1.5) for n in range(1, 7)]


def test_no_update_without_examples(tmp_path: Path) -> None:
    for folder, more in (("none", []), ("long", ["data.longest_source=1", "task.giant=2"])):
        status, err = told(words(tmp_path / folder, "task.count=0", *more, steps=2))
        assert status == 2
        assert err.splitlines()[-1] == (
            "seqtrans: no training example is left: there are none, or all are longer than "
            "data.longest_source or data.longest_target."
        )


def test_no_validation_without_examples(tmp_path: Path) -> None:
    status, err = told(words(tmp_path, "task.dev=0", steps=2))
    assert (status, err.splitlines()[-1]) == (
        2,
        "seqtrans: the dev split is empty; validation needs an example at least.",
    )


def test_epochs_that_differ(tmp_path: Path) -> None:
    """The task is asked for each epoch's corpus, and all of it is used."""
    with opened(tmp_path, "task.fresh=true") as found:
        seen: dict[int, list[int]] = {}
        lengths = set()
        while found.progress.epoch < 3:
            numbers = found.next_update()
            seen.setdefault(found.progress.epoch, []).extend(numbers.tolist())
            lengths.add((found.progress.epoch, int(found.corpus.sources.lengths().sum())))
            found.update(numbers)
    del seen[3]
    assert [sorted(numbers) for numbers in seen.values()] == [list(range(60))] * 3
    assert len({length for _, length in lengths}) == len(lengths) == 4


# --- validation -----------------------------------------------------------------------------------


def told(argv: list[str]) -> tuple[int, str]:
    """The status of a training, and its standard error."""
    kept, sys.stderr = sys.stderr, io.StringIO()
    try:
        status = command(train, argv)
        return status, sys.stderr.getvalue()
    finally:
        sys.stderr = kept


def test_a_validation_shows_three_hypotheses_beside_their_references(tmp_path: Path) -> None:
    status, err = told(words(tmp_path, steps=2, validate_every=2))
    assert status == 0
    lines = err.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("validation after update 2: "))
    assert re.fullmatch(
        r"validation after update 2: digits \d+\.\d\d  loss \d\.\d{4}  \(best so far\)  \d+\.\d s"
        r"  \[digits in their place\]",
        lines[at],
    )
    shown = lines[at + 1 : at + 7]
    assert [line[:13] for line in shown] == ["  output     ", "  reference  "] * 3
    dev = json.loads((tmp_path / "task/numbers.json").read_text())["dev"]
    assert [line[13:] for line in shown[1::2]] == [number[::-1] for number in dev[:3]]


def test_equal_scores_are_no_better_and_patience_ends_it(tmp_path: Path) -> None:
    argv = words(tmp_path, "task.constant=true", steps=50, validate_every=2, patience=3, keep=1)
    status, err = told(argv)
    assert status == 0
    assert err.splitlines()[-1] == "no better score in 3 validations: stopped after update 8."
    assert checkpoint.read_validations(tmp_path).best == 2
    assert checkpoint.steps(tmp_path) == [2, 8], "the best is kept"
    status, err = told(argv)
    assert status == 0
    assert err.splitlines()[-1] == (
        f"{tmp_path} has stopped at update 8, out of patience; nothing to do. "
        "Raise training.patience to go on."
    )
    assert (
        told(words(tmp_path, "task.constant=true", steps=50, validate_every=2, patience=4))[0] == 0
    )
    assert checkpoint.steps(tmp_path)[-1] == 10


def test_a_finished_run_says_so(tmp_path: Path) -> None:
    argv = words(tmp_path, steps=3, validate_every=2, save_every=50)
    assert told(argv)[0] == 0
    assert [r["step"] for r in metrics(tmp_path, "validation")] == [2, 3], "the last is validated"
    before = weights(tmp_path / "step-3")
    for steps in (3, 2):
        status, err = told(words(tmp_path, steps=steps, validate_every=2, save_every=50))
        assert status == 0
        assert err.splitlines()[-1] == (
            f"{tmp_path} is already at update 3 of {steps}; nothing to do. "
            "Raise training.steps to go on."
        )
    assert weights(tmp_path / "step-3") == before
    assert told(words(tmp_path, steps=5, validate_every=2, save_every=50))[0] == 0
    assert [r["step"] for r in metrics(tmp_path, "training")] == [1, 2, 3, 4, 5]


def test_scores_of_another_kind_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Best and patience begin anew where a run goes on with another metric."""
    import toy

    argv = words(tmp_path, steps=2, validate_every=1)
    assert told(argv)[0] == 0
    assert checkpoint.read_validations(tmp_path).metric == "digits"
    monkeypatch.setattr(toy.Reversal, "score", lambda *_: Score("letters", -1.0, "x"))
    status, err = told(words(tmp_path, steps=4, validate_every=1))
    assert status == 0
    assert (
        err.count(
            "the validations so far are of digits, and dev is now scored by letters: best and "
            "patience begin anew."
        )
        == 1
    )
    assert list(checkpoint.read_validations(tmp_path).scores) == [3, 4]
    assert checkpoint.read_validations(tmp_path).metric == "letters"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_recorded_as_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    import toy

    monkeypatch.setattr(toy.Reversal, "score", lambda *_: Score("digits", value, "x"))
    assert told(words(tmp_path, steps=2, validate_every=1))[0] == 0
    assert [r["digits"] for r in metrics(tmp_path, "validation")] == [None, None]
    assert checkpoint.read_validations(tmp_path).best == 1


def test_a_loss_that_is_not_a_number_ends_it_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = Training.loss

    def spoilt(self: Training, batch: Any) -> torch.Tensor:
        loss = true(self, batch)
        return loss * math.nan if self.progress.step == 3 else loss

    monkeypatch.setattr(Training, "loss", spoilt)
    for every, folder in ((1, tmp_path / "a"), (50, tmp_path / "b")):
        status, err = told(words(folder, steps=9, save_every=2, log_every=every, validate_every=50))
        assert status == 2
        assert err.splitlines()[-1] == (
            "seqtrans: the loss or a weight is not finite after update 4: the training has "
            "diverged; try a lower training.lr, more training.warmup or training.clip=1."
        )
        assert checkpoint.steps(folder) == [2], "what is worth nothing is not saved"
        text = (folder / "metrics.jsonl").read_text()
        assert "NaN" not in text


# --- the dry run ----------------------------------------------------------------------------------


def test_a_dry_run_leaves_no_trace(tmp_path: Path) -> None:
    with opened(tmp_path) as found:
        for _ in range(2):
            found.update(found.next_update())
        found.model.register_buffer("counter", torch.zeros(1))

        def count(*_: object) -> None:
            found.model.get_buffer("counter").add_(1)

        found.model.source.register_forward_pre_hook(count)
        torch.manual_seed(5)
        before = state(found)
        rehearse(found)
        assert names(tmp_path) == sorted({*names(tmp_path)} - {".trial"})
        assert not [name for name in names(tmp_path) if name.endswith(".tmp")]
        after = state(found)
        assert before.keys() == after.keys()
        for name, value in before.items():
            assert torch.equal(value, after[name]), name
        assert all(p.grad is None for p in found.model.parameters())
        assert found.model.training


def state(found: Training) -> dict[str, torch.Tensor]:
    """Everything that the next update depends on."""
    values = {f"model.{k}": v.clone() for k, v in found.model.state_dict().items()}
    for number, moments in found.inner_optimizer().state_dict()["state"].items():
        values |= {f"{number}.{name}": value.clone() for name, value in moments.items()}
    values["random"] = torch.get_rng_state()
    values["window"] = found.window.clone()
    return values


def test_with_and_without_a_dry_run_it_learns_the_same(tmp_path: Path) -> None:
    for dry in ("true", "false"):
        assert told(words(tmp_path / dry, f"training.dry_run={dry}", steps=3))[0] == 0
    assert weights(tmp_path / "true/step-3") == weights(tmp_path / "false/step-3")
    assert names(tmp_path / "true") == names(tmp_path / "false")


def test_what_is_drawn_too_long_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No one knows how long it is before it is drawn."""

    def drawing(numbers: Any, window: int) -> Corpus:
        lengths = [(9, 4), (4, 8), (8, 7)] * len(numbers)
        return Corpus.of(([3] * s, [3] * t) for s, t in lengths[: len(numbers)])

    with opened(tmp_path, "position=learned", "position.limit=8") as found:
        corpus = replace(found.corpus, draw=drawing)
        monkeypatch.setattr(found.task, "training", lambda epoch, seed: corpus)
        found.enter_epoch()
        used = [number for update in found.updates for number in update.tolist()]
        assert used
        assert {number % 3 for number in used} == {2}
        assert "or than the model has positions for, and are left out." in capsys.readouterr().err
        found.update(found.next_update())


def test_a_source_that_is_too_long_is_told_before_the_first_update(tmp_path: Path) -> None:
    """It is alone in its update, which isn't the largest; a target takes one position more."""
    argv = words(tmp_path, "task.giant=20", "position=learned", "position.limit=15", steps=3)
    status, err = told(argv)
    assert status == 2
    assert err.splitlines()[-1] == (
        "seqtrans: 1 of 61 train examples is longer than the 15 positions that position=learned "
        "has, of which a target takes one more than it has symbols; leave them out by "
        "data.longest_source=15 and data.longest_target=14, or give it more (position.limit)."
    )
    assert "update" not in err
    assert checkpoint.steps(tmp_path) == []
    status, err = told([*argv, "data.longest_source=15"])
    assert status == 0, err
    assert (
        "1 of 61 training examples are longer than data.longest_source or data.longest_target, or "
        "than the model has positions for, and are left out."
    ) in err.splitlines()
    status, err = told([*argv, "data.longest_source=14"])
    assert status == 2
    assert "data.longest_source: is 15 in" in err


def test_all_that_is_too_long_is_counted_as_an_epoch_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever window it lies in, and without a dry run."""
    monkeypatch.setattr("seqtrans.rehearsal.WINDOW", 7)
    argv = ["position=learned", "position.limit=6"]
    with pytest.raises(DataError) as caught, opened(tmp_path, *argv):
        pass
    longest = [len(number) for number in numbers_of(tmp_path, "train")].count(6)
    assert longest > 1
    assert str(caught.value) == (
        f"{longest} of 60 train examples are longer than the 6 positions that position=learned "
        "has, of which a target takes one more than it has symbols; leave them out by "
        "data.longest_target=5, or give it more (position.limit)."
    )
    with opened(tmp_path, *argv, "data.longest_target=5") as found:
        assert sum(map(len, found.updates)) == 60 - longest
        trained = np.concatenate([lengths for _, lengths, _ in sides(found)])
        assert len(trained) == 60 - longest


def numbers_of(folder: Path, split: str) -> list[str]:
    """The examples of the toy task as they were prepared."""
    content = json.loads((folder / "task" / "numbers.json").read_text(encoding="utf-8"))
    return list(content[split])


def sides(found: Training) -> Any:
    """What is trained on, in all windows."""
    data = found.config.data
    return rehearsal.trained(found.corpus, (data.longest_source, data.longest_target))


def test_an_example_of_dev_that_is_too_long_is_told_before_the_first_update(
    tmp_path: Path,
) -> None:
    argv = words(tmp_path, "position=learned", "position.limit=6", "training.dry_run=no", steps=3)
    argv += ["data.longest_target=5"]
    status, err = told(argv)
    count = [len(number) for number in numbers_of(tmp_path, "dev")].count(6)
    assert status == 2
    assert err.splitlines()[-1] == (
        f"seqtrans: {count} of 9 dev examples {'is' if count == 1 else 'are'} longer than the 6 "
        "positions that position=learned has, of which a target takes one more than it has "
        "symbols; shorten them, or give it more (position.limit)."
    )
    assert checkpoint.steps(tmp_path) == []


def test_a_part_of_the_corpus_that_is_never_seen_may_be_too_long(tmp_path: Path) -> None:
    with opened(tmp_path, "position=learned", "position.limit=9") as found:
        corpus = Corpus.of([([3] * 4, [3] * 8), ([3] * 9, [3] * 2), ([3] * 10, [3] * 10)])
        check_positions(found, "train", replace(corpus, mixture=((2, 1.0), (1, 0.0))))
        with pytest.raises(DataError) as caught:
            check_positions(found, "train", corpus)
        assert str(caught.value).startswith("1 of 3 train examples is longer than the 9 positions")


def test_a_source_that_gives_fewer_positions_may_be_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that makes a vector of each pair of symbols, as of frames of sound."""
    with opened(tmp_path, "position=learned", "position.limit=9") as found:
        plain = found.model.source.forward

        def paired(source: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x, mask = plain(source, mask)
            return x[:, ::2], mask[:, ::2]

        monkeypatch.setattr(found.model.source, "forward", paired)
        check_positions(found, "train", Corpus.of([([3] * 18, [3])]))
        with pytest.raises(DataError) as caught:
            check_positions(found, "train", Corpus.of([([3] * 18, [3]), ([3] * 19, [3])]))
    assert "leave them out by data.longest_source=18, or" in str(caught.value)


# --- settings of a run that is gone on with -------------------------------------------------------


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    assert told(words(tmp_path, steps=2))[0] == 0
    path = tmp_path / "config.json"
    status, err = told(words(tmp_path, "model.width=16", "run.seed=9", "task.count=3", steps=4))
    assert status == 2
    assert err.splitlines() == [
        f"seqtrans: model.width: is 8 in {path} and 16 now",
        f"seqtrans: run.seed: is 1 in {path} and 9 now",
        f"seqtrans: task.count: is 60 in {path} and 3 now",
        f"seqtrans: {tmp_path} is a run of other settings; choose another folder by run=FOLDER.",
    ]
    status, err = told(words(tmp_path, "position=learned", "position.limit=99", steps=4))
    assert status == 2
    assert err.splitlines() == [
        f"seqtrans: position: is 'sinusoidal' in {path} and 'learned' now",
        f"seqtrans: {tmp_path} is a run of other settings; choose another folder by run=FOLDER.",
    ]


def test_what_may_change(tmp_path: Path) -> None:
    assert told(words(tmp_path, steps=2))[0] == 0
    more = ("task.marks=x", "decoder=beam", "training.validation_decoder=beam", "run.threads=2")
    status, err = told(
        words(
            tmp_path,
            *more,
            steps=4,
            keep=2,
            log_every=2,
            patience=9,
            accumulation=2,
            validate_every=3,
            save_every=3,
            save_minutes=1000,
        )
    )
    assert status == 0, err
    assert (
        "seqtrans: warning: this run had 1 process of 1 thread and now has 1 process of 2 threads: "
        "it goes on with the next update, each example once, but sums are rounded differently.\n"
    ) in err
    assert f"going on from {tmp_path / 'step-2'}, update 2 of 4.\n" in err
    assert json.loads((tmp_path / "config.json").read_text())["settings"]["task.marks"] == "x"


def test_a_preparation_that_failed_binds_nothing(tmp_path: Path) -> None:
    status, err = told(words(tmp_path, "task.fails=true", steps=2))
    assert (status, err) == (2, "seqtrans: the digits are not there.\n")
    assert names(tmp_path) == [".lock"]
    assert told(words(tmp_path, steps=2))[0] == 0


def test_what_was_prepared_is_not_prepared_again(tmp_path: Path) -> None:
    assert told(words(tmp_path, steps=2))[0] == 0
    path = tmp_path / "task/numbers.json"
    before = path.stat().st_mtime_ns
    assert told(words(tmp_path, steps=3))[0] == 0
    assert path.stat().st_mtime_ns == before
    size = path.stat().st_size
    path.write_text("{}")
    wrong = f"numbers.json has 2 bytes, not {size:,}"
    assert told(words(tmp_path, steps=4)) == (
        2,
        f"seqtrans: {tmp_path / 'task'} is damaged ({wrong}), and the checkpoints in "
        f"{tmp_path} depend on it; restore it, or choose another folder by run=FOLDER.\n",
    )
    for step in (2, 3):
        (tmp_path / f"step-{step}").rename(tmp_path / f"gone-{step}")
    assert told(words(tmp_path, "task.count=20", steps=4))[0] == 0, "nothing depends on it now"


def test_a_run_of_another_format(tmp_path: Path) -> None:
    assert told(words(tmp_path, steps=2))[0] == 0
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"format": 99}))
    assert told(words(tmp_path, steps=3)) == (
        2,
        f"seqtrans: {path} is of format 99; this version of seqtrans reads format 1.\n",
    )
    path.write_text("[]")
    assert told(words(tmp_path, steps=3)) == (
        2,
        f"seqtrans: {path} is of format None; this version of seqtrans reads format 1.\n",
    )


def test_no_damaged_checkpoint_is_trained_on(tmp_path: Path) -> None:
    """Nor does it keep its place: when the run comes there again, it is written anew."""
    assert told(words(tmp_path, steps=6, save_every=2, keep=2))[0] == 0
    good = weights(tmp_path / "step-6")
    os.truncate(tmp_path / "step-6/model.safetensors", 50)
    status, err = told(words(tmp_path, steps=6, save_every=2, keep=2))
    assert status == 0
    assert "step-6 is damaged (model.safetensors has 50 bytes, not " in err
    assert weights(tmp_path / "step-6") == good
    assert checkpoint.steps(tmp_path) == [4, 6]
    assert checkpoint.choose(tmp_path, "last") == tmp_path / "step-6"
    assert [r["step"] for r in metrics(tmp_path, "training")] == [1, 2, 3, 4, 5, 6]
    for step in (4, 6):
        os.truncate(tmp_path / f"step-{step}/model.safetensors", 50)
    with pytest.raises(CheckpointError, match="every checkpoint in "):
        train(words(tmp_path, steps=6))


def test_it_begins_with_the_weights_of_another_run(tmp_path: Path) -> None:
    """And once it has checkpoints of its own, goes on with these."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert told([*words(first, steps=4, validate_every=2)])[0] == 0
    taken = (f"training.start={first}", "training.start_step=2", "run.seed=2")
    with opened(second, *taken) as found:
        found.resume()
        wanted = checkpoint.read_tensors(checkpoint.step_folder(first, 2) / checkpoint.WEIGHTS)
        for name, value in checkpoint.tensors(found.model).items():
            assert torch.equal(value, wanted[name])
        found.update(found.next_update())
        found.save()
        kept = [p.detach().clone() for p in found.model.parameters()]
    with opened(second, *taken) as found:
        found.resume()
        assert found.progress.step == 1
        assert all(map(torch.equal, kept, found.model.parameters()))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            ("training.start={first}", "model.width=32"),
            "the weights of {first} don't fit this model: model.width is 8 there and 32 here.",
        ),
        (
            ("training.start={first}", "position=none"),
            "the weights of {first} don't fit this model: position is sinusoidal there and none "
            "here.",
        ),
        (("training.start={first}x",), "there is no run folder {first}x."),
        (
            ("training.start={first}", "training.start_step=3"),
            "{first} holds no checkpoint '3'; step is best, last, average or one of 2.",
        ),
    ],
)
def test_weights_that_can_not_be_taken_over(
    tmp_path: Path, given: tuple[str, ...], problem: str
) -> None:
    first = tmp_path / "first"
    assert told([*words(first, steps=2, validate_every=2)])[0] == 0
    more = [word.format(first=first) for word in given]
    with opened(tmp_path / "second", *more) as found, pytest.raises(CheckpointError) as raised:
        found.resume()
    assert str(raised.value) == problem.format(first=first)


def test_a_full_disk_ends_it_and_the_run_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(words(tmp_path / "whole", steps=4, save_every=2))[0] == 0
    true = checkpoint.write_tensors

    def full(path: Path, values: Any) -> None:
        if "step-4" in str(path):
            raise OSError(28, "No space left on device")
        true(path, values)

    monkeypatch.setattr(checkpoint, "write_tensors", full)
    status, err = told(words(tmp_path / "full", steps=4, save_every=2))
    assert status == 2
    assert err.splitlines()[-1] == (
        f"seqtrans: {tmp_path / 'full/step-4'} can't be written: no space left on the device; "
        "what was there before is intact."
    )
    assert checkpoint.steps(tmp_path / "full") == [2]
    assert not [name for name in names(tmp_path / "full") if name.endswith(".tmp")]
    monkeypatch.undo()
    assert told(words(tmp_path / "full", steps=4, save_every=2))[0] == 0
    assert weights(tmp_path / "full/step-4") == weights(tmp_path / "whole/step-4")
    assert metrics(tmp_path / "full") == metrics(tmp_path / "whole")


def test_a_checkpoint_by_the_clock(tmp_path: Path) -> None:
    assert told(words(tmp_path, steps=3, save_minutes=1e-9, save_every=50, keep=9))[0] == 0
    assert checkpoint.steps(tmp_path) == [1, 2, 3]


# --- what it tells --------------------------------------------------------------------------------


def test_the_figures_in_the_files(tmp_path: Path) -> None:
    assert told(words(tmp_path, steps=4, log_every=2, validate_every=3))[0] == 0
    records = metrics(tmp_path)
    assert [(r["step"], r["kind"]) for r in records] == [
        (2, "training"),
        (3, "validation"),
        (4, "training"),
        (4, "validation"),
    ]
    assert set(records[0]) == {"step", "kind", "loss", "lr", "epoch", "gradient_norm"}
    assert set(records[1]) == {"step", "kind", "digits", "loss"}
    (events,) = (tmp_path / "tensorboard").iterdir()
    content = events.read_bytes()
    for tag in (b"training/loss", b"training/lr", b"validation/digits"):
        assert tag in content


def test_what_a_kill_left_in_the_figures_is_cut_off(tmp_path: Path) -> None:
    def line(step: int, kind: str) -> str:
        return json.dumps({"step": step, "kind": kind}) + "\n"

    path = tmp_path / "metrics.jsonl"
    path.write_text(
        *[
            line(1, "training")
            + line(2, "training")
            + line(2, "validation")
            + line(4, "training")
            + line(4, "validation")
            + line(5, "training")
            + '[]\n{"step": 6, "ki'
        ]
    )
    with Reporter(tmp_path, main=True) as reporter:
        reporter.begin(4, 9, validated={2: 0.5})
        reporter.record(5, "training", {"loss": 1.5})
    assert path.read_text() == (
        line(1, "training")
        + line(2, "training")
        + line(2, "validation")
        + line(4, "training")
        + '{"step": 5, "kind": "training", "loss": 1.5}\n'
    )


def test_only_the_main_process_speaks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(tmp_path, main=False) as reporter:
        reporter.begin(0, 9)
        reporter.say("x")
        reporter.warn("x")
        reporter.tick(1, "x")
        reporter.record(1, "training", {"loss": 1.5})
        reporter.sync()
        assert reporter.bar is None
    assert capsys.readouterr() == ("", "")
    assert names(tmp_path) == []
    with Reporter(tmp_path, main=True) as reporter:
        reporter.say("[bold]:smile:[/bold] " + "long " * 100)
        reporter.warn("careful")
    assert capsys.readouterr() == (
        "",
        "[bold]:smile:[/bold] " + "long " * 100 + "\nseqtrans: warning: careful\n",
    )


def test_speed_is_that_of_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `seqtrans plan throughput=` takes it: one of two processes has half of the update."""
    assert pace(1234.0, 1) == "1,234 tok/s"
    assert pace(1234.0, 8) == "1,234 tok/s in all"
    with opened(tmp_path) as found:
        numbers = found.next_update()
        found.world, found.last = 2, 0.0
        monkeypatch.setattr(found, "tell", lambda loss: loss)
        monkeypatch.setattr("time.monotonic", lambda: 4.0)
        found.update(numbers)
        tokens = int(found.corpus.targets.lengths(numbers).sum()) + len(numbers)
        assert len(numbers) > 1
        assert found.speed == pytest.approx(tokens / 4)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_needs_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", Screen())
    with Reporter(tmp_path, main=True) as reporter:
        reporter.begin(3, 9)
        reporter.tick(4, "99 tok/s")
        assert reporter.bar is not None
        reporter.bar.refresh()
        shown = sys.stderr.getvalue()
    assert ("99 tok/s" in shown) is terminal
    assert ("4/9" in shown) is terminal
    with counting("decoding", 3) as bar:
        assert bar.disable is not terminal


# --- processes ------------------------------------------------------------------------------------

STRANGERS = (
    "the launcher started 2 processes (WORLD_SIZE), but they can't see each other and would all "
    "train the same; start one, or use accelerate launch --multi_gpu --num_processes N or torchrun."
)


@pytest.mark.parametrize("address", [None, "127.0.0.1"])
def test_processes_that_cannot_see_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    if address is not None:
        monkeypatch.setenv("MASTER_ADDR", address)

        class Alone:
            num_processes = 1

            def __init__(self, **_: object) -> None:
                pass

        monkeypatch.setattr(training, "Accelerator", Alone)
    with pytest.raises(SeqtransError) as error:
        train(words(tmp_path / "run", steps=2))
    assert str(error.value) == STRANGERS
    assert not (tmp_path / "run").exists()


def test_only_one_file_imports_accelerate() -> None:
    sources = {path.name: path.read_text("utf-8") for path in (ROOT / "seqtrans").glob("*.py")}
    imports = re.compile(r"^\s*(from|import) accelerate\b", re.MULTILINE)
    assert [name for name, text in sources.items() if imports.search(text)] == ["processes.py"]


def test_nothing_that_is_loaded_can_run_code() -> None:
    roots = [ROOT / "seqtrans", ROOT / "plugins", ROOT / "tasks"]
    words = re.compile(
        r"(?<!safetensors\.)torch\.(load|save)\b|\bpickle\b|\bmarshal\b|\bshelve\b|joblib|cloudpickle"
    )
    found = [
        f"{path.name}: {line.strip()}"
        for root in roots
        for path in root.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if words.search(line)
    ]
    assert found == []


# --- all that can be set --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "norm"), [("paper", "post"), ("constant", "pre"), ("linear", "pre")]
)
def test_every_option_trains(tmp_path: Path, schedule: str, norm: str) -> None:
    """A smoke test: it runs, and the digits become likelier."""
    over = "all" if norm == "post" else "others"
    more = (
        f"model.norm={norm}",
        f"training.smoothing_over={over}",
        f"training.schedule={schedule}",
    )
    rate = 1.0 if schedule == "paper" else 0.02
    optimizer = ("training.optimizer=adamw", "training.weight_decay=0.1", "training.clip=0.5")
    argv = words(tmp_path, *more, *optimizer, steps=16, accumulation=2, lr=rate, save_every=99)
    assert told(argv)[0] == 0
    losses = [record["loss"] for record in metrics(tmp_path, "training")]
    assert sum(losses[-4:]) < sum(losses[:4])
    stored = safetensors.torch.load_file(tmp_path / "step-16/model.safetensors")
    assert {value.dtype for value in stored.values()} == {torch.float32}


def test_gradients_are_clipped(tmp_path: Path) -> None:
    def norm(folder: str, **settings: object) -> float:
        with opened(tmp_path / folder, **settings) as found:
            return float(torch.cat([g.flatten() for g in gradients(found)]).norm())

    assert norm("free") > 0.5
    assert norm("clipped", clip=0.25) == pytest.approx(0.25, rel=1e-4)
