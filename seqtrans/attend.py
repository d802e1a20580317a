"""Attention maps: for each layer and head, what every token of a sentence looks at.

The weights are computed beside the model's own attention, from the queries and keys that it was
given, and checked against what it made of them; nothing that the model computes is changed. They
are shown as the paper shows them (Figures 3 to 5): encoder, decoder, and the decoder's look at the
source. S source time, T target time with bos, or with eos for a model that sees it from both sides
(``model.causal=no``), H heads.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from pydantic import Field

from seqtrans.errors import DataError
from seqtrans.fields import written
from seqtrans.lines import called, named, read_lines
from seqtrans.reuse import UseSettings, read_command

if TYPE_CHECKING:
    from torch import Tensor

    from seqtrans.attention import Attention
    from seqtrans.engine import Engine
    from seqtrans.model import Transducer
    from seqtrans.task import Task, Vocabulary

KINDS = ("encoder", "decoder", "cross")
DECIMALS = 5
"""Of the weights in JSON."""
MOST = 65_534
"""A weight of 1 in the page, whose weights are whole numbers of 16 bits."""


class AttendSettings(UseSettings):
    """What ``seqtrans attend`` can be told."""

    input: Path | None = Field(None, description="read this file; none: standard input")
    target: Path | None = Field(
        None,
        description="the target of each line, a line each as transduce writes it; none: what the "
        "decoder writes",
    )
    output: Path | None = Field(
        None,
        description="write the page here; none: to attention.html, or nowhere if weights is given",
    )
    weights: Path | None = Field(None, description="write all weights here, as JSON")


@dataclass(frozen=True)
class Maps:
    """The weights of one sentence in all layers. Rows look at columns; each row sums to 1, or to 0
    if it may look at nothing.

    A weight is 0 just where a row may not look: what is too small for any number is the smallest
    one. Row t of ``decoder`` and ``cross`` is what the model looks at when it has read target
    symbol t, counted from bos as 0, and is about to write the next one; with ``model.causal=no``
    what symbol t itself looks at, counted from the first as 0.
    """

    encoder: Tensor  # [layers, H, S, S]
    decoder: Tensor  # [layers, H, T, T]
    cross: Tensor  # [layers, H, T, S]


@dataclass(frozen=True)
class Sentence:
    """One input with its output as lines, the text of every row and column, and the maps."""

    input: str
    output: str
    source: list[str]
    read: list[str]
    """[T]: the target symbols, bos first; with ``model.causal=no`` eos last."""
    written: list[str]
    """[T]: what follows each of these, eos last; with ``model.causal=no`` the same as ``read``."""
    maps: Maps


def main(argv: list[str]) -> int:
    """Show what every head of a trained model looks at, for each line of the input.

    usage: seqtrans attend run=FOLDER [step=best] [input=FILE] [target=FILE]
                           [output=FILE.html] [weights=FILE.json]
                           [device=DEVICE] [tokens=N]
                           [decoder=NAME] [decoder.KEY=value …] [task.KEY=value …]

    The page holds everything it needs: any browser shows it, without a network. The weights are
    exact, those of reading the whole target at once, which the decoder writes unless it is given.
    Blank lines are left out.

    example: echo 'The old ferry left .' | seqtrans attend run=runs/parsing output=ferry.html
    """
    settings, changes = read_command(argv, AttendSettings)
    from seqtrans.engine import load
    from seqtrans.files import whole_file

    engine = load(settings.run, settings.step, settings.device, changes, settings.tokens)
    lines, where = read_lines(settings.input), named(settings.input)
    targets: list[str] | None = None
    if settings.target is not None:
        targets = read_lines(settings.target)
        if len(targets) != len(lines):
            raise DataError(
                f"{settings.target} has {len(targets)} lines and {where} has {len(lines)}; "
                "each line needs its target."
            )
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()]
    if not numbers:
        raise DataError(f"{where} has no line with text.")
    inputs = engine.read([lines[number - 1] for number in numbers], called(where, numbers))
    if targets is None:
        outputs: list[Sequence[int]] = [found[0][1].ids for found in engine.alternatives(inputs, 1)]
    else:
        outputs = engine.read_targets(
            [targets[number - 1] for number in numbers], called(str(settings.target), numbers)
        )
    page = settings.output
    if page is None and settings.weights is None:
        page = Path("attention.html")
    facts: dict[str, str | bool] = {
        "run": str(settings.run),
        "step": engine.weights.name,
        "task": engine.config.names["task"],
        "causal": engine.model.shape.causal,
    }
    with ExitStack() as stack:
        writers: list[Callable[[Sentence], None]] = []
        if page is not None:
            writers.append(
                stack.enter_context(as_page(stack.enter_context(whole_file(page)), facts))
            )
        if settings.weights is not None:
            file = stack.enter_context(whole_file(settings.weights))
            writers.append(stack.enter_context(as_json(file, facts)))
        for number, input, ids in zip(numbers, inputs, outputs, strict=True):
            try:
                sentence = look(engine, lines[number - 1], input, ids)
            except DataError as error:
                raise DataError(f"{where}, line {number}: {error}") from None
            for write in writers:
                write(sentence)
    for path in (page, settings.weights):
        if path is not None:
            print(f"{path}: {len(numbers)} sentence{'s' * (len(numbers) > 1)}")
    return 0


def look(engine: Engine, line: str, input: Any, ids: Sequence[int]) -> Sentence:
    """The maps of one input and the ``ids`` of its target, without bos and eos, with their texts.

    Raises ``DataError`` if an attention has no weights, or a position scheme not enough positions.
    """
    task, model = engine.task, engine.model
    source = task.encode_source(input)
    found = maps(model, source, ids)
    read, told = (texts(task, some, "target", model.vocabulary) for some in sides(model, ids))
    width, vocabulary = found.encoder.shape[-1], task.source_vocabulary
    if vocabulary is not None and source.shape == (width,):
        heard = texts(task, source.tolist(), "source", vocabulary)
    else:  # features, or a source that makes one vector of several ids
        heard = [str(place) for place in range(1, width + 1)]
    output = task.write(task.decode(ids, input))
    return Sentence(line, output, heard, read, told, found)


def sides(model: Transducer, target: Sequence[int]) -> tuple[list[int], list[int]]:
    """What the decoder reads of a whole ``target`` (ids without bos and eos), and what it tells at
    each place: the next symbol, or with ``model.causal=no`` the one that stands there.
    """
    whole = [*target, model.vocabulary.eos]
    return ([model.vocabulary.bos, *target] if model.shape.causal else whole), whole


def texts(
    task: Task, ids: Sequence[int], side: Literal["source", "target"], vocabulary: Vocabulary
) -> list[str]:
    """The text of each id; the three special ones have names of their own."""
    special = {vocabulary.pad: "<pad>", vocabulary.bos: "<s>", vocabulary.eos: "</s>"}
    return [special.get(id) or task.units([id], side)[0] for id in ids]


def maps(model: Transducer, source: Tensor, target: Sequence[int]) -> Maps:
    """The weights of ``model`` reading ``source`` [S, ...] and all of ``target`` (ids without bos
    and eos).

    Raises ``DataError`` if one of its attentions has no weights, or if either is too long for the
    position scheme.
    """
    import torch

    from seqtrans.engine import evaluating

    read, _ = sides(model, target)
    ids = torch.tensor([read], device=model.device)
    batch = source[None].to(model.device)
    mask = torch.ones(batch.shape[:2], dtype=torch.bool, device=model.device)
    with torch.inference_mode(), evaluating(model), recording(model) as found:
        model.advance(ids, model.start(batch, mask))
    return Maps(*(torch.stack([weights[0].cpu() for weights in found[kind]]) for kind in KINDS))


@contextmanager
def recording(model: Transducer) -> Iterator[dict[str, list[Tensor]]]:
    """For each kind the weights [B, H, T, K] of every look inside this block, first layer first;
    as in :class:`Maps` 0 just where a row may not look.

    All that the model computes is left as it is. Raises ``DataError`` where an attention has no
    weights, or others than it says.
    """
    found: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
    looks: list[tuple[str, str, Attention]] = []
    for number, layer in enumerate(model.encoder.layers, 1):
        looks.append(("encoder", f"encoder layer {number}", layer.attention.attention))
    for number, layer in enumerate(model.decoder.layers, 1):
        looks.append(("decoder", f"decoder layer {number}", layer.attention.attention))
        if layer.cross is not None:
            looks.append(("cross", f"decoder layer {number}", layer.cross.attention))
    with ExitStack() as stack:
        for kind, place, attention in looks:
            stack.enter_context(listening(attention, found[kind], place))
        yield found


@contextmanager
def listening(attention: Attention, found: list[Tensor], place: str) -> Iterator[None]:
    """Append the weights of each look of one attention to ``found``, once they explain its output.

    A look that begins a sequence may come by way of ``extend`` alone.
    """
    import torch

    from seqtrans.attention import for_each_query_head, view

    def record(attention: Attention, inputs: Any, named: Any, output: Tensor) -> None:
        q, k, v = inputs
        try:
            weights = attention.weigh(q, k, **named)
        except DataError as error:
            raise DataError(f"{place} has no map: {error}") from None
        heads = weights.to(v.dtype) @ for_each_query_head(v, q)
        if not torch.allclose(heads, output, rtol=1e-2, atol=1e-3):
            raise DataError(
                f"{place} has no map: {type(attention).__name__} computes something else than "
                "sums of values by the weights that it gives."
            )
        query_at, key_at = named["query_at"], named["key_at"]
        seen = view(
            attention.sees(query_at, key_at),
            named.get("key_mask"),
            query_at,
            key_at,
            named.get("causal", False),
        )
        # What is seen may be so little that it was rounded to 0, as far away under a bias.
        weights = weights.clamp(min=torch.finfo(weights.dtype).tiny)
        found.append(weights if seen is None else weights.masked_fill(~seen, 0.0))

    extend = attention.extend

    def extended(q: Tensor, k: Tensor, v: Tensor, **named: Any) -> Tensor:
        count = len(found)
        output = extend(q, k, v, **named)
        if len(found) == count:
            del named["cache"]
            at = named.pop("at")
            record(attention, (q, k, v), {**named, "query_at": at, "key_at": at}, output)
        return output

    handle = attention.register_forward_hook(record, with_kwargs=True)
    attention.extend = extended  # type: ignore[method-assign]
    try:
        yield
    finally:
        handle.remove()
        del attention.extend


@contextmanager
def as_json(file: TextIO, facts: dict[str, str | bool]) -> Iterator[Callable[[Sentence], None]]:
    """Writes sentences into a JSON file, one a line, as they come."""
    file.write(json.dumps(facts, ensure_ascii=False)[:-1] + ', "sentences": [')
    first = True

    def write(sentence: Sentence) -> None:
        nonlocal first
        values = {
            kind: getattr(sentence.maps, kind).double().round(decimals=DECIMALS).tolist()
            for kind in KINDS
        }
        file.write("\n" if first else ",\n")
        file.write(json.dumps({**axes(sentence), "maps": values}, ensure_ascii=False))
        first = False

    yield write
    file.write("\n]}\n")


@contextmanager
def as_page(file: TextIO, facts: dict[str, str | bool]) -> Iterator[Callable[[Sentence], None]]:
    """Writes sentences into a page that holds all it needs, as they come."""
    from importlib import resources

    template = resources.files("seqtrans").joinpath("attend.html").read_text(encoding="utf-8")
    for key, value in facts.items():
        template = template.replace(f"{{{{{key}}}}}", escape(written(value)))
    head, mark, tail = template.partition("<!-- sentences -->\n")
    assert mark
    file.write(head)

    def write(sentence: Sentence) -> None:
        values = {kind: packed(getattr(sentence.maps, kind)) for kind in KINDS}
        text = json.dumps({**axes(sentence), "maps": values}, ensure_ascii=True)
        file.write('<script type="application/json" class="sentence">')
        file.write(text.replace("<", "\\u003c"))  # nothing in it may end the script
        file.write("</script>\n")

    yield write
    file.write(tail)


def axes(sentence: Sentence) -> dict[str, Any]:
    """What stands beside the maps."""
    return {
        "input": sentence.input,
        "output": sentence.output,
        "source": sentence.source,
        "read": sentence.read,
        "written": sentence.written,
    }


def packed(weights: Tensor) -> dict[str, Any]:
    """Weights as text for the page: base64 of 16 bits each, 0 where a row may not look, else one
    more than the weight in parts of ``MOST``.
    """
    numbers = (weights.double() * MOST).round().long() + 1
    numbers = numbers.clamp(max=MOST + 1).masked_fill(weights == 0, 0)
    text = base64.b64encode(numbers.numpy().astype("<u2").tobytes()).decode("ascii")
    return {"shape": list(weights.shape), "weights": text}


if __name__ == "__main__":
    from seqtrans.commands import run

    sys.exit(run(main, sys.argv[1:]))
