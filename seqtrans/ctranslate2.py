"""CTranslate2's format: whether it can hold a model, how it is written, and how it is read there.

What it can hold is asked of a model's parts, not of their names: a position scheme that only adds a
vector for each position can be held as a table, whatever it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from seqtrans.attend import texts
from seqtrans.attention import Attention, MultiHead
from seqtrans.engine import Engine
from seqtrans.export import BATCH, Format, Lines, needed
from seqtrans.position import PositionScheme
from seqtrans.task import Task, Vocabulary


def obstacles(engine: Engine) -> Iterator[str]:
    """What CTranslate2 can't hold: for each the setting, and why."""
    model, names = engine.model, engine.config.names
    shape = model.shape
    if not is_scaled_embedding(engine):
        yield f"source={names['source']} is more than an embedding scaled by the root of the width"
    if shape.pace is not None:
        yield f"model.pace={shape.pace} adds a bias to the look at the source"
    if not shape.causal:
        yield "model.causal=no lets a target position see what follows it"
    for key, width in (("key_width", shape.head), ("head_width", shape.value)):
        if width * shape.heads != shape.width:
            yield (
                f"model.{key} makes heads of {width}, which must be model.width / model.heads = "
                f"{shape.width / shape.heads:g}"
            )
    for scheme in (model.encoder.position, model.decoder.position):
        if not is_table(scheme, shape.width):
            yield (
                f"position={names['position']} does more than add a vector for each position to "
                "the embeddings"
            )
    for stack in ("encoder", "decoder"):
        pattern = getattr(engine.config.settings["attention"], stack)
        chosen = f".{stack}={','.join(pattern)}" if pattern else f"={names['attention']}"
        for layer in getattr(model, stack).layers:
            heads: MultiHead = layer.attention
            own = type(heads.attention)
            whole = own.forward is Attention.forward and own.sees is Attention.sees
            if not whole or own.extend is not Attention.extend:
                yield f"attention{chosen} is not full attention"
            elif heads.key_heads != shape.heads:
                yield f"attention{chosen} shares keys and values among heads"


def is_scaled_embedding(engine: Engine) -> bool:
    """Whether a source looks ids up in its ``embedding`` and multiplies by √D, and that is all."""
    source, vocabulary = engine.model.source, engine.task.source_vocabulary
    embedding = getattr(source, "embedding", None)
    if vocabulary is None or not isinstance(embedding, nn.Embedding):
        return False
    ids = torch.arange(min(16, vocabulary.size))[None]
    with torch.inference_mode():
        x, mask = source(ids, torch.ones_like(ids, dtype=torch.bool))
        wanted = embedding(ids) * engine.model.shape.width**0.5
    return x.shape == wanted.shape and bool(mask.all()) and torch.allclose(x, wanted)


def is_table(scheme: PositionScheme, width: int) -> bool:
    """Whether a scheme adds to the embeddings what depends on positions alone, and does no more."""
    if scheme.biased or type(scheme).rotate is not PositionScheme.rotate:
        return False
    at = torch.arange(min(16, scheme.limit or 16))
    x = torch.randn(1, len(at), width, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        return torch.allclose(scheme.embed(x, at) - x, table(scheme, width, len(at)), atol=1e-5)


def table(scheme: PositionScheme, width: int, count: int) -> Tensor:
    """What a scheme adds at the first ``count`` positions, [count, D]."""
    at = torch.arange(count)
    return scheme.embed(torch.zeros(1, count, width), at)[0]


def write_ctranslate2(engine: Engine, positions: int, folder: Path) -> None:
    """Write a model that has no :func:`obstacles`."""
    needed("ctranslate2")
    specs = importlib.import_module("ctranslate2.specs")
    model, shape = engine.model, engine.model.shape
    spec = specs.TransformerSpec.from_config(
        (shape.encoder_layers, shape.decoder_layers),
        shape.heads,
        pre_norm=shape.norm == "pre",
        activation=specs.common_spec.Activation.RELU,
    )

    def linear(spec: Any, *parts: nn.Linear) -> None:
        spec.weight = array(torch.cat([part.weight for part in parts]))
        if parts[0].bias is not None:
            spec.bias = array(parts[0].bias)

    def norm(spec: Any, part: Any) -> None:
        spec.gamma, spec.beta = array(part.weight), array(part.bias)

    def self_attention(spec: Any, heads: MultiHead) -> None:
        linear(spec.linear[0], heads.query, heads.key, heads.value)
        linear(spec.linear[1], heads.output)

    with torch.inference_mode():
        for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
            count = stack.position.limit or positions
            side.scale_embeddings = True
            side.position_encodings.encodings = array(table(stack.position, shape.width, count))
            if shape.norm == "pre":
                norm(side.layer_norm, stack.norm)
            for part, layer in zip(side.layer, stack.layers, strict=True):
                self_attention(part.self_attention, layer.attention)
                norm(part.self_attention.layer_norm, layer.attention_sublayer.norm)
                if layer.cross is not None and layer.cross_sublayer is not None:
                    linear(part.attention.linear[0], layer.cross.query)
                    linear(part.attention.linear[1], layer.cross.key, layer.cross.value)
                    linear(part.attention.linear[2], layer.cross.output)
                    norm(part.attention.layer_norm, layer.cross_sublayer.norm)
                linear(part.ffn.linear_0, layer.feed_forward.inner)
                linear(part.ffn.linear_1, layer.feed_forward.output)
                norm(part.ffn.layer_norm, layer.feed_forward_sublayer.norm)
        embedding: Any = model.source.embedding
        spec.encoder.embeddings[0].weight = array(embedding.weight)
        spec.decoder.embeddings.weight = array(model.embedding.weight)
        projection = model.embedding if model.projection is None else model.projection
        spec.decoder.projection.weight = array(projection.weight)
    source, target = vocabularies(engine)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    eos, bos = target[model.vocabulary.eos], target[model.vocabulary.bos]
    spec.config.unk_token = target[model.vocabulary.pad]  # else one more symbol is made up
    spec.config.bos_token = spec.config.decoder_start_token = bos
    spec.config.eos_token = eos
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def array(tensor: Tensor) -> Any:
    """A tensor as numpy has it, in fp32."""
    return tensor.detach().float().contiguous().numpy()


def vocabularies(engine: Engine) -> tuple[list[str], list[str]]:
    """A name for each id of source and target: the text of its unit, or its number where that
    stands for another, too, or is blank.
    """
    task, vocabulary = engine.task, engine.task.source_vocabulary
    assert vocabulary is not None
    return names(task, vocabulary, "source"), names(task, task.target_vocabulary, "target")


def names(task: Task, vocabulary: Vocabulary, side: Literal["source", "target"]) -> list[str]:
    """A name for each id of one side, no two alike."""
    units = texts(task, range(vocabulary.size), side, vocabulary)
    taken: set[str] = set()
    found = []
    for id, unit in enumerate(units):
        name = unit
        while not name.strip() or name in taken:
            name = f"<{id}>" if name == unit else f"<{name}>"
        taken.add(name)
        found.append(name)
    return found


class Translator:
    """An exported model in CTranslate2, in fp32, with as many threads as torch has."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        module = needed("ctranslate2")
        self.version: str = module.__version__
        self.source, self.target = vocabularies(engine)
        self.ids = {name: id for id, name in enumerate(self.target)}
        vocabulary = engine.model.vocabulary
        self.barred = [[self.target[vocabulary.pad]], [self.target[vocabulary.bos]]]
        self.translator = module.Translator(
            str(folder),
            compute_type="float32",
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )

    def written(self, lines: Lines, names: list[str]) -> list[list[str]]:
        """Ids as their names."""
        return [[names[id] for id in line] for line in lines]

    def greedy(self, sources: Lines, limit: int) -> list[list[int]]:
        results = self.translator.translate_batch(
            self.written(sources, self.source),
            beam_size=1,
            max_batch_size=BATCH,
            max_input_length=0,
            max_decoding_length=limit,
            suppress_sequences=self.barred,
        )
        return [[self.ids[name] for name in result.hypotheses[0]] for result in results]

    def score(self, sources: Lines, targets: Lines) -> list[list[float]]:
        results = self.translator.score_batch(
            self.written(sources, self.source),
            self.written(targets, self.target),
            max_batch_size=BATCH,
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]


FORMAT = Format(obstacles, write_ctranslate2, Translator)
