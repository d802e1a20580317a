"""Other toolkits at the same work as ours, each through its own code: `benchmarks.speed` runs them.

This file is a script for the interpreter of an environment that holds one toolkit and torch or
numpy; it needs nothing else: ``NAME/bin/python benchmarks/peers.py NAME WORK`` builds the toolkit's
model of the shape that the file WORK says, and then answers. Each line on standard input is the
number of a round; the line that comes back says how long it took and how much memory the process
ever had.

What is the same for all: fp32 (but for what is called int8), sinusoidal positions, embeddings
scaled by √D and tied with each other and with the projection, ReLU, dropout of embeddings and
sub-layers (section 5.4) and none of attention weights or inside feed-forward layers, label
smoothing, Adam in torch's fused form, no clipping, batches that are tensors before the clock
starts. A gradient is divided by the batch's target tokens. Where a toolkit has a loss of its own it
uses that, else torch's cross-entropy. What differs stands with each. In decoding every sentence
takes ``length`` steps, no more and no fewer.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

PAD, BOS, EOS, UNKNOWN = 0, 1, 2, 3
POSITIONS = 1024
"""How many are made ready, where a toolkit wants to know; no batch is as long."""
RATE = 1e-4
PENALTY = 0.6
"""Exponent of the length penalty in beam search, which all sentences share."""

Ids = list[list[int]]
Step = Callable[["Batch"], "Ids | None"]
"""An update on a batch; or its best outputs, without bos and eos."""


@dataclass(frozen=True)
class Work:
    """What is to be done."""

    training: bool
    layers: int
    """Of encoder and decoder each."""
    width: int
    inner: int
    heads: int
    vocabulary: int
    dropout: float
    smoothing: float
    beam: int
    """1: greedy search."""
    length: int
    """Steps for each output, a closing eos included where a toolkit makes one."""
    threads: int
    model: str
    """A folder with a model of this shape in CTranslate2's format, if that takes part."""
    rounds: list[list[tuple[Ids, Ids]]]
    """Of batches: sources, and targets without bos and eos."""
    int8: bool = False
    """Whether our own decoding is in 8 bits; the others have it in their names."""

    @classmethod
    def read(cls, path: str) -> Work:
        """What `write` has written."""
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")


class Batch:
    """Sentences, and their tensors as far as they are asked for."""

    def __init__(self, sources: Ids, targets: Ids) -> None:
        self.sources, self.targets = sources, targets
        self.tokens = sum(len(target) + 1 for target in targets)

    @cached_property
    def source(self) -> Tensor:
        """[B, S]."""
        return padded(self.sources)

    @cached_property
    def mask(self) -> Tensor:
        """[B, S], True where there is something."""
        return self.source != PAD

    @cached_property
    def lengths(self) -> Tensor:
        """[B], of the sources."""
        return self.mask.sum(1)

    @cached_property
    def target_in(self) -> Tensor:
        """[B, T], beginning with bos."""
        return padded([[BOS, *target] for target in self.targets])

    @cached_property
    def target_out(self) -> Tensor:
        """[B, T], ending with eos."""
        return padded([[*target, EOS] for target in self.targets])

    @cached_property
    def target(self) -> Tensor:
        """[B, T + 1], both."""
        return padded([[BOS, *target, EOS] for target in self.targets])


def padded(rows: Ids) -> Tensor:
    """Rows as one tensor."""
    import torch

    widest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (widest - len(row)) for row in rows])


class Words:
    """A vocabulary of numbers, as fairseq, OpenNMT-py and JoeyNMT ask of one."""

    pad_index, bos_index, eos_index, unk_index, sep_index = PAD, BOS, EOS, UNKNOWN, None
    specials: Sequence[str] = ()
    lang_tags: Sequence[str] = ()

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def pad(self) -> int:
        return PAD

    def bos(self) -> int:
        return BOS

    def eos(self) -> int:
        return EOS

    def unk(self) -> int:
        return UNKNOWN

    def lookup_token(self, token: str) -> int:
        return {"<blank>": PAD, "<s>": BOS, "</s>": EOS}.get(token, UNKNOWN)


def training(model: nn.Module, loss: Callable[[Batch], Tensor]) -> Step:
    """An update of ``model`` by the summed ``loss`` of a batch."""
    import torch

    model.train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9, fused=True
    )

    def step(batch: Batch) -> None:
        (loss(batch) / batch.tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def decoding(model: nn.Module, search: Callable[[Batch], Ids]) -> Step:
    """A search without gradients and dropout."""
    import torch

    model.eval()

    def step(batch: Batch) -> Ids:
        with torch.inference_mode():
            return search(batch)

    return step


def cross_entropy(logits: Tensor, batch: Batch, smoothing: float) -> Tensor:
    """Torch's own, summed, of ``logits`` [B, T, V]."""
    from torch.nn import functional

    return functional.cross_entropy(
        logits.flatten(0, 1),
        batch.target_out.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
        reduction="sum",
    )


def sinusoids(width: int) -> Tensor:
    """[POSITIONS, D] of section 3.5."""
    import torch

    angles = torch.arange(POSITIONS)[:, None] * torch.exp(
        torch.arange(0, width, 2) * (-math.log(10000.0) / width)
    )
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)


def marian(work: Work) -> tuple[nn.Module | None, Step]:
    """Hugging Face's Marian: post-norm, its own static positions, attention by torch's kernel.

    The label smoothing of its Trainer takes longer than torch's cross-entropy, which is used. All
    its projections have biases, and it adds one to the logits that isn't trained.
    """
    transformers = import_module("transformers")
    config = transformers.MarianConfig(
        vocab_size=work.vocabulary,
        d_model=work.width,
        encoder_layers=work.layers,
        decoder_layers=work.layers,
        encoder_ffn_dim=work.inner,
        decoder_ffn_dim=work.inner,
        encoder_attention_heads=work.heads,
        decoder_attention_heads=work.heads,
        dropout=work.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=POSITIONS,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )
    model: Any = transformers.MarianMTModel(config)
    if work.training:

        def loss(batch: Batch) -> Tensor:
            logits = model(
                input_ids=batch.source,
                attention_mask=batch.mask,
                decoder_input_ids=batch.target_in,
                use_cache=False,
            ).logits
            return cross_entropy(logits, batch, work.smoothing)

        return model, training(model, loss)

    def search(batch: Batch) -> Ids:
        found: Ids = model.generate(
            input_ids=batch.source,
            attention_mask=batch.mask.long(),
            num_beams=work.beam,
            do_sample=False,
            min_new_tokens=work.length,
            max_new_tokens=work.length,
            length_penalty=PENALTY if work.beam > 1 else None,
        )[:, 1:].tolist()
        return found

    return model, decoding(model, search)


def torch_transformer(work: Work) -> tuple[nn.Module | None, Step]:
    """``torch.nn.Transformer``, post-norm, with embeddings and projection as in its tutorial.

    It would drop attention weights and the inside of feed-forward layers, too, and normalise once
    more after the last layer: switched off. It has no search.
    """
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(work.vocabulary, work.width, PAD)
            nn.init.normal_(self.embedding.weight, std=work.width**-0.5)
            self.stacks = nn.Transformer(
                work.width,
                work.heads,
                work.layers,
                work.layers,
                work.inner,
                work.dropout,
                batch_first=True,
            )
            self.stacks.encoder.norm = self.stacks.decoder.norm = None
            for layer in (*self.stacks.encoder.layers, *self.stacks.decoder.layers):
                layer.dropout.p = 0.0
                for module in layer.modules():
                    if isinstance(module, nn.MultiheadAttention):
                        module.dropout = 0.0
            self.dropout = nn.Dropout(work.dropout)
            self.register_buffer("positions", sinusoids(work.width))

        def enter(self, ids: Tensor) -> Tensor:
            x = self.embedding(ids) * work.width**0.5
            return self.dropout(x + self.positions[: ids.shape[1]])  # type: ignore[index,no-any-return]

        def forward(self, source: Tensor, absent: Tensor, target: Tensor) -> Tensor:
            x = self.stacks(
                self.enter(source),
                self.enter(target),
                tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.shape[1]),
                src_key_padding_mask=absent,
                memory_key_padding_mask=absent,
                tgt_is_causal=True,
            )
            return nn.functional.linear(x, self.embedding.weight)

    if not work.training:
        raise SystemExit("torch.nn.Transformer has no search.")
    torch.manual_seed(1)
    model = Model()

    def loss(batch: Batch) -> Tensor:
        zeros = torch.zeros(batch.mask.shape).masked_fill(~batch.mask, -math.inf)
        return cross_entropy(model(batch.source, zeros, batch.target_in), batch, work.smoothing)

    return model, training(model, loss)


def xtransformers(work: Work) -> tuple[nn.Module | None, Step]:
    """x-transformers, post-norm, attention by torch's kernel (``attn_flash``).

    Its sinusoidal positions have a learned scale. Its search suppresses no eos in a beam and isn't
    measured.
    """
    from torch import nn

    library = import_module("x_transformers")
    if not work.training:
        raise SystemExit("the search of x-transformers can't be told to go on after eos.")
    layers = {
        "dim": work.width,
        "depth": work.layers,
        "heads": work.heads,
        "attn_dim_head": work.width // work.heads,
        "attn_flash": True,
        "attn_sublayer_dropout": work.dropout,
        "ff_mult": work.inner / work.width,
        "ff_custom_activation": nn.ReLU(),
        "ff_sublayer_dropout": work.dropout,
        "pre_norm": False,
    }
    around = {
        "num_tokens": work.vocabulary,
        "max_seq_len": POSITIONS,
        "scaled_sinu_pos_emb": True,
        "emb_dropout": work.dropout,
    }

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = library.TransformerWrapper(
                attn_layers=library.Encoder(**layers), return_only_embed=True, **around
            )
            self.decoder = library.TransformerWrapper(
                attn_layers=library.Decoder(cross_attend=True, **layers),
                tie_embedding=True,
                token_emb=self.encoder.token_emb,
                **around,
            )

        def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
            memory = self.encoder(source, mask=mask, return_embeddings=True)
            return self.decoder(target, context=memory, context_mask=mask)  # type: ignore[no-any-return]

    model = Model()

    def loss(batch: Batch) -> Tensor:
        logits = model(batch.source, batch.mask, batch.target_in)
        return cross_entropy(logits, batch, work.smoothing)

    return model, training(model, loss)


def fairseq(work: Work) -> tuple[nn.Module | None, Step]:
    """fairseq's ``transformer``, post-norm, with its own label-smoothed criterion and generator.

    Its projections have biases, and each layer of its encoder keeps a copy of its weights, for a
    fast path in decoding. Its smoothing divides by V - 1. Its generator starts with eos; training
    here starts with bos.
    """
    allow_hashless_defaults()
    transformer = import_module("fairseq.models.transformer")
    args = SimpleNamespace(
        encoder_embed_dim=work.width,
        encoder_ffn_embed_dim=work.inner,
        encoder_layers=work.layers,
        encoder_attention_heads=work.heads,
        decoder_layers=work.layers,
        decoder_attention_heads=work.heads,
        dropout=work.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        share_all_embeddings=True,
        max_source_positions=POSITIONS,
        max_target_positions=POSITIONS,
    )
    transformer.base_architecture(args)
    words = Words(work.vocabulary)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    model: Any = transformer.TransformerModel.build_model(args, task)
    if work.training:
        criteria = import_module("fairseq.criterions.label_smoothed_cross_entropy")
        criterion = criteria.LabelSmoothedCrossEntropyCriterion(task, False, work.smoothing)

        def loss(batch: Batch) -> Tensor:
            sample = {
                "net_input": {
                    "src_tokens": batch.source,
                    "src_lengths": batch.lengths,
                    "prev_output_tokens": batch.target_in,
                },
                "target": batch.target_out,
                "ntokens": batch.tokens,
            }
            summed: Tensor = criterion(model, sample)[0]
            return summed

        return model, training(model, loss)
    generator = import_module("fairseq.sequence_generator").SequenceGenerator(
        [model],
        words,
        beam_size=work.beam,
        max_len_a=0,
        max_len_b=work.length - 1,  # eos not counted
        min_len=work.length - 1,
        len_penalty=PENALTY,
    )

    def search(batch: Batch) -> Ids:
        sample = {"net_input": {"src_tokens": batch.source, "src_lengths": batch.lengths}}
        found = generator.generate([model], sample)
        return [best[0]["tokens"][:-1].tolist() for best in found]

    return model, decoding(model, search)


def allow_hashless_defaults() -> None:
    """Let dataclasses have others as defaults, as Python before 3.11 did and fairseq needs."""
    import torch.optim

    plain: Any = dataclasses.dataclass
    assert torch.optim

    def lenient(cls: Any = None, /, **options: Any) -> Any:
        if cls is None:
            return lambda cls: lenient(cls, **options)
        return plain(cls, **({"unsafe_hash": "__hash__" not in vars(cls)} | options))

    dataclasses.dataclass = lenient


def onmt(work: Work) -> tuple[nn.Module | None, Step]:
    """OpenNMT-py's ``transformer``, with its own loss and statistics, and its translator.

    It is pre-norm, with a normalisation more after the last layer. It would drop the inside of
    feed-forward layers, too: switched off. Greedy search is the faster of its two.
    """
    import torch
    from torch import nn

    import_module("onmt")
    embeddings = import_module("onmt.modules").Embeddings(
        work.width, work.vocabulary, PAD, position_encoding=True, dropout=work.dropout
    )
    options = SimpleNamespace(
        enc_layers=work.layers,
        dec_layers=work.layers,
        enc_hid_size=work.width,
        dec_hid_size=work.width,
        heads=work.heads,
        transformer_ff=work.inner,
        dropout=work.dropout,
        attention_dropout=0.0,
        copy_attn=False,
        self_attn_type="scaled-dot",
        max_relative_positions=0,
        relative_positions_buckets=0,
        aan_useffn=False,
        full_context_alignment=False,
        alignment_layer=-3,
        alignment_heads=0,
        pos_ffn_activation_fn="relu",
        add_qkvbias=False,
        num_kv=0,
        add_ffnbias=True,
        parallel_residual=False,
        shared_layer_norm=False,
        layer_norm="standard",
        norm_eps=1e-6,
        use_ckpting=[],
        world_size=1,
        parallel_mode="data_parallel",
        sliding_window=0,
        rotary_interleave=True,
        rotary_theta=10000,
        rotary_dim=0,
        num_experts=0,
        num_experts_per_tok=2,
    )
    encoders, decoders = import_module("onmt.encoders"), import_module("onmt.decoders")
    model: Any = import_module("onmt.models").NMTModel(
        encoders.TransformerEncoder.from_opt(options, embeddings),
        decoders.TransformerDecoder.from_opt(options, embeddings),
    )
    model.generator = nn.Linear(work.width, work.vocabulary)
    model.generator.weight = embeddings.word_lut.weight
    for parameter in model.parameters():  # it leaves them as they lie in memory
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        elif not parameter.is_leaf or parameter.isnan().any() or parameter.abs().max() > 1:
            nn.init.zeros_(parameter)
    for module in model.modules():
        if hasattr(module, "dropout_1"):
            module.dropout_1.p = 0.0
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            module.reset_parameters()
    words = Words(work.vocabulary)
    if work.training:
        criterion = nn.CrossEntropyLoss(
            ignore_index=PAD, reduction="sum", label_smoothing=work.smoothing
        )
        compute = import_module("onmt.utils.loss").LossCompute(
            criterion, model.generator, vocab=words
        )

        def loss(batch: Batch) -> Tensor:
            target = batch.target[:, :, None]
            output, attentions = model(batch.source[:, :, None], target, batch.lengths)
            fields = {"tgt": target, "srclen": batch.lengths}
            summed: Tensor = compute(fields, output, attentions)[0]
            return summed

        return model, training(model, loss)
    translate = import_module("onmt.translate")
    translator = translate.Translator(
        model,
        {"src": words, "tgt": words, "decoder_start_token": "<s>"},
        min_length=work.length,
        max_length=work.length,
        max_length_ratio=0,
        beam_size=work.beam,
        random_sampling_topk=1 if work.beam == 1 else 0,
        global_scorer=translate.GNMTGlobalScorer(PENALTY, 0.0, "wu", "none"),
    )

    def search(batch: Batch) -> Ids:
        fields = {
            "src": batch.source[:, :, None],
            "srclen": batch.lengths,
            "ind_in_bucket": torch.arange(len(batch.sources)),
        }
        found = translator.translate_batch(fields, attn_debug=False)
        return [best[0].tolist() for best in found["predictions"]]

    return model, decoding(model, search)


def joey(work: Work) -> tuple[nn.Module | None, Step]:
    """JoeyNMT's transformer, post-norm, with its own loss, its count of hits, and its searches.

    It would drop attention weights and the inside of feed-forward layers, too: switched off. It
    keeps nothing between the steps of a search.
    """
    library = import_module("joeynmt.model")
    words = Words(work.vocabulary)
    stack = {
        "type": "transformer",
        "num_layers": work.layers,
        "num_heads": work.heads,
        "embeddings": {"embedding_dim": work.width, "scale": True, "dropout": work.dropout},
        "hidden_size": work.width,
        "ff_size": work.inner,
        "dropout": work.dropout,
        "layer_norm": "post",
    }
    config = {
        "encoder": stack,
        "decoder": stack,
        "tied_embeddings": True,
        "tied_softmax": True,
    }
    words.lookup = lambda token: UNKNOWN  # type: ignore[attr-defined]
    model: Any = library.build_model(config, words, words)
    model.loss_function = "crossentropy", work.smoothing
    layers = import_module("joeynmt.transformer_layers")
    for module in model.modules():
        if isinstance(module, layers.MultiHeadedAttention):
            module.dropout.p = 0.0
        if isinstance(module, layers.PositionwiseFeedForward):
            module.pwff_layer[2].p = 0.0
    if work.training:

        def loss(batch: Batch) -> Tensor:
            summed: Tensor = model(
                return_type="loss",
                src=batch.source,
                src_length=batch.lengths,
                src_mask=batch.mask[:, None],
                trg=batch.target_out,
                trg_input=batch.target_in,
                trg_mask=(batch.target_out != PAD)[:, None],
            )[0]
            return summed

        return model, training(model, loss)
    searches = import_module("joeynmt.search")

    def search(batch: Batch) -> Ids:
        mask = batch.mask[:, None]
        memory, hidden, _, _ = model(
            return_type="encode", src=batch.source, src_length=batch.lengths, src_mask=mask
        )
        same = {"max_output_length": work.length, "min_output_length": work.length}
        if work.beam == 1:
            found = searches.transformer_greedy(
                mask, work.length, model, memory, hidden, min_output_length=work.length
            )
        else:
            found = searches.beam_search(
                model, work.beam, memory, hidden, mask, alpha=PENALTY, n_best=1, **same
            )
        outputs: Ids = found[0].tolist()
        return outputs

    return model, decoding(model, search)


def ctranslate2(work: Work, kind: str = "float32") -> tuple[nn.Module | None, Step]:
    """CTranslate2 with the very model that ours is, in its own format."""
    library = import_module("ctranslate2")
    if work.training:
        raise SystemExit("CTranslate2 doesn't train.")
    folder = Path(work.model)
    names = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    ids = {name: id for id, name in enumerate(names)}
    translator = library.Translator(
        str(folder), compute_type=kind, inter_threads=1, intra_threads=work.threads
    )

    def step(batch: Batch) -> Ids:
        results = translator.translate_batch(
            [[names[id] for id in source] for source in batch.sources],
            beam_size=work.beam,
            length_penalty=PENALTY if work.beam > 1 else 0,
            max_batch_size=len(batch.sources),
            max_input_length=0,
            min_decoding_length=work.length,
            max_decoding_length=work.length,
            suppress_sequences=[[names[PAD]], [names[BOS]]],
        )
        return [[ids[name] for name in result.hypotheses[0]] for result in results]

    return None, step


def ctranslate2_int8(work: Work) -> tuple[nn.Module | None, Step]:
    """The same in int8: other outputs, and no like-for-like; a mark to look at."""
    return ctranslate2(work, "int8")


PEERS: dict[str, tuple[str, Callable[[Work], tuple[nn.Module | None, Step]]]] = {
    "marian": ("transformers", marian),
    "torch": ("torch", torch_transformer),
    "xtransformers": ("x-transformers", xtransformers),
    "fairseq": ("fairseq", fairseq),
    "onmt": ("OpenNMT-py", onmt),
    "joey": ("joeynmt", joey),
    "ctranslate2": ("ctranslate2", ctranslate2),
    "ctranslate2_int8": ("ctranslate2", ctranslate2_int8),
}
"""By the name of its environment: the distribution, and what builds it."""


def serve(work: Work, build: Callable[[Work], tuple[nn.Module | None, Step]], name: str) -> None:
    """Build a contestant and do the rounds that standard input asks for, until it closes.

    The first batch is done once before the clock starts. In training it is in every round, since
    after each one what is free is given back to the system: who waits holds no more than it must.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a toolkit prints is no answer
    model, step = build(work)
    parameters = None if model is None else sum(p.numel() for p in model.parameters())
    print(json.dumps({"name": name, "parameters": parameters}), file=answers, flush=True)
    warm = False
    for line in sys.stdin:
        batches = [Batch(*sentences) for sentences in work.rounds[int(line)]]
        if not warm:
            step(batches[0])
        warm = not work.training
        for batch in batches:
            touch(batch, work.training)
        began = time.perf_counter()
        outputs = [step(batch) for batch in batches]
        seconds = time.perf_counter() - began
        answer = {"seconds": seconds, "peak": peak(), "outputs": outputs}
        print(json.dumps(answer), file=answers, flush=True)
        if work.training and sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)


def peak() -> float:
    """The most memory that this process ever had, in MB.

    Linux hands the ``ru_maxrss`` of whoever started a process on to it, which may be more.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        fields = dict(
            line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines()
        )
        return int(fields["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def touch(batch: Batch, training: bool) -> None:
    """Make a batch's tensors before the clock starts."""
    if "torch" in sys.modules:
        _ = batch.source, batch.mask, batch.lengths
        if training:
            _ = batch.target_in, batch.target_out, batch.target


def main(name: str, path: str) -> None:
    """Serve as the peer ``name``."""
    sys.path[:1] = []  # this folder, whose modules may be called like a toolkit's
    work = Work.read(path)
    if "ctranslate2" not in name:
        import torch

        torch.set_num_threads(work.threads)
        torch.manual_seed(1)
    distribution, build = PEERS[name]
    note = " int8" if build is ctranslate2_int8 else ""
    serve(work, build, f"{distribution} {version(distribution)}{note}")


if __name__ == "__main__":
    main(*sys.argv[1:])
