"""Label-smoothed cross-entropy (section 5.4), as a sum over real target tokens.

Two conventions are in use for the smoothed target over V symbols. ``all`` spreads ε over all of
them, the right one included: it gets 1 - ε + ε/V (Szegedy et al., 2016, whom the paper cites).
``others`` gives the right one 1 - ε and each other ε/(V - 1), as the paper's own code did. For the
same ε the losses differ.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def smoothed_loss(
    logits: Tensor, target: Tensor, pad: int, smoothing: float = 0.0, over: str = "all"
) -> Tensor:
    """Sum in fp32 of the cross-entropy of ``logits`` [..., V] with ``target`` [...], pads apart."""
    logits, target = logits.flatten(0, -2).float(), target.flatten()
    if over == "others":
        # With a = εV/(V-1) spread over all, the right one gets 1 - a + a/V = 1 - ε and any other
        # a/V = ε/(V-1).
        symbols = logits.shape[-1]
        smoothing = smoothing * symbols / (symbols - 1)
    return F.cross_entropy(
        logits, target, ignore_index=pad, label_smoothing=smoothing, reduction="sum"
    )
