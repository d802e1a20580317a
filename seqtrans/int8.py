"""A trained model in 8 bits on a CPU: a quarter of the weights to read, and faster products.

The weights of the linear layers of attention and feed-forward are rounded to 255 steps for each
output, and what comes in to 127 steps of its range (7 bits: without VNNI, a processor's sums of two
products of 8 bits overflow). Where the decoder is frozen the projection to the vocabulary is, too.
The range is that of all rows together, so what is decoded together matters a little, and a search
that reads several symbols at once may find others. Embeddings, normalisations and attention stay in
fp32. The products are FBGEMM's, as PyTorch brings them.
"""

from __future__ import annotations

import warnings
from typing import Any, cast

import torch
from torch import Tensor, nn

from seqtrans.attention import MultiHead
from seqtrans.errors import SeqtransError, SettingsError
from seqtrans.model import FeedForward

WORTH = 1 << 17
"""Weights of a matrix from which on there is something to gain; smaller ones stay as they are."""
quantized: Any = torch.ops.quantized
"""PyTorch's products in 8 bits."""


class Int8Product:
    """x ↦ xWᵀ + b for ``x`` [..., K], in 8 bits; as `seqtrans.frozen.Product` has it."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        weight = weight.detach().float()
        steps = weight.abs().amax(1).clamp_min(1e-12) / 127
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # PyTorch means to replace this kind of tensor one day
            warnings.filterwarnings(
                "ignore", message=".*quantize_per_channel", category=UserWarning
            )
            rounded = torch.quantize_per_channel(weight, steps, zeros, 0, torch.qint8)
        own = None if bias is None else bias.detach().float()
        self.packed: Any = quantized.linear_prepack(rounded, own)

    def __call__(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., M]."""
        return cast(Tensor, quantized.linear_dynamic(x, self.packed, True))

    def rectified(self, x: Tensor) -> Tensor:
        """max(0, xWᵀ + b)."""
        return cast(Tensor, quantized.linear_relu_dynamic(x, self.packed, True))

    def added(self, x: Tensor, to: Tensor) -> Tensor:
        """``to`` + xWᵀ + b."""
        return self(x).add_(to)


class Int8Linear(nn.Module):
    """Stands where a linear layer stood."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.product = Int8Product(linear.weight, linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., M]."""
        return self.product(x)


def check_int8(device: torch.device) -> None:
    """Raises ``SettingsError`` where there are no such products."""
    if device.type != "cpu":
        raise SettingsError(
            f"precision=int8 is for CPUs, and this is {device.type}; use precision=bf16 there, or "
            "device=cpu."
        )
    if not hasattr(quantized, "linear_dynamic") or "fbgemm" not in engines():
        raise SettingsError(
            "this PyTorch has no products in 8 bits for this processor; use precision=fp32."
        )


def engines() -> list[str]:
    """The kinds of products that PyTorch was built with."""
    return torch.backends.quantized.supported_engines


def shrink(model: nn.Module) -> None:
    """Put products in 8 bits in the place of the linear layers of attention and feed-forward."""
    for part in model.modules():
        if isinstance(part, (MultiHead, FeedForward)):
            for name, child in list(part.named_children()):
                if isinstance(child, nn.Linear) and child.weight.numel() >= WORTH:
                    setattr(part, name, Int8Linear(child))


def check_finite(model: nn.Module) -> None:
    """Raises ``SeqtransError`` for weights that can't be rounded."""
    if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        raise SeqtransError("the model's weights are not finite; it can't be used.")
