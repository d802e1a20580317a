"""BLEU, chrF and TER as the field reports them today, and BLEU as the Transformer paper has it.

The field's are sacreBLEU's, over plain text, and can be compared between papers by their
signatures. The paper's is ``multi-bleu.perl`` over tokens: what the tokens are decides the value,
so that it goes by a name which says what was done to the text. The two are never comparable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from seqtrans_tasks.metrics import compounds, moses
from seqtrans_tasks.metrics.guards import check_lines

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEUScore

# multi-bleu.perl reads bytes: no other white space splits, and no letter beyond ASCII has a case.
WHITE_SPACE = re.compile(r"[ \t\n\v\f\r]+")
LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True)
class Value:
    """One figure with what it was computed by."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} = {self.value:.2f}"

    @property
    def line(self) -> str:
        """For people: name, value and signature."""
        return f"{self}  [{self.signature}]"


@dataclass(frozen=True)
class Bleu(Value):
    """BLEU with what it is made of; shares are in percent."""

    precisions: tuple[float, ...]
    brevity_penalty: float
    output_length: int
    reference_length: int
    matches: tuple[int, ...]
    """N-grams of each order that a reference has too."""
    totals: tuple[int, ...]
    """N-grams of each order in the outputs."""

    @property
    def ratio(self) -> float:
        """Length of the outputs over that of the references."""
        return self.output_length / self.reference_length if self.reference_length else 0.0

    def __str__(self) -> str:
        """The line that ``multi-bleu.perl`` prints."""
        precisions = "/".join(f"{share:.1f}" for share in self.precisions)
        return (
            f"{self.name} = {self.value:.2f}, {precisions} (BP={self.brevity_penalty:.3f}, "
            f"ratio={self.ratio:.3f}, hyp_len={self.output_length}, "
            f"ref_len={self.reference_length})"
        )


@dataclass(frozen=True)
class Preparation:
    """What is done to the lines of both sides before ``multi-bleu.perl`` counts."""

    language: str | None = None
    """Tokenise with Moses's rules for this language; none: lines are tokens already."""
    compounds: bool = False
    """Split compounds at their hyphens."""
    punctuation: Literal["kept", "outputs", "both"] = "kept"
    """Whose typographic punctuation is made ASCII. tensor2tensor's script did it to the outputs
    alone from April 2018 on; the paper is older."""
    last_stop: bool = False
    """See `moses.tokenise`."""

    @property
    def name(self) -> str:
        """What the value must be called."""
        steps = ["Moses" if self.language else "lines as given"]
        if self.compounds:
            steps.append("compounds split")
        if self.punctuation != "kept":
            steps.append("punctuation replaced")
        return f"tokenised BLEU ({', '.join(steps)})"

    @property
    def signature(self) -> str:
        """The same for a signature, to the last choice."""
        parts = [f"moses-{self.language}" if self.language else "none"]
        if self.language and self.last_stop:
            parts.append("last-stop")
        if self.punctuation != "kept":
            parts.append(f"punctuation-{self.punctuation}")
        if self.compounds:
            parts.append("compounds")
        return "+".join(parts)

    def outputs(self, lines: Sequence[str]) -> list[str]:
        """Prepared lines of a system."""
        replaced = lines if self.punctuation == "kept" else moses.replace_punctuation(lines)
        return self.tokens(replaced)

    def references(self, lines: Sequence[str]) -> list[str]:
        """Prepared lines of one set of references."""
        replaced = moses.replace_punctuation(lines) if self.punctuation == "both" else lines
        return self.tokens(replaced)

    def tokens(self, lines: Sequence[str]) -> list[str]:
        if self.language:
            lines = moses.tokenise(lines, self.language, last_stop=self.last_stop)
        return compounds.split_compounds(lines) if self.compounds else list(lines)


AS_GIVEN = Preparation()
PAPER_EN_DE = Preparation("de", compounds=True)
"""How the paper's 27.3 and 28.4 were computed (tensor2tensor, ``get_ende_bleu.sh`` of 2017)."""
PAPER_EN_FR = Preparation("fr")


def bleu(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False
) -> Bleu:
    """BLEU of plain text by sacreBLEU's defaults: its own tokens (13a), exponential smoothing.

    ``references`` is a list of sets, each with one line for each output; so everywhere here. Raises
    ``DataError`` if the numbers of lines differ.
    """
    from sacrebleu.metrics.bleu import BLEU

    check_lines(outputs, references)
    metric = BLEU(lowercase=lowercase, force=True)
    score = metric.corpus_score(outputs, references)
    return as_bleu("BLEU", score, str(metric.get_signature()))


def chrf(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Value:
    """chrF2 of plain text by sacreBLEU's defaults."""
    from sacrebleu.metrics.chrf import CHRF

    return library_value(CHRF(), outputs, references)


def ter(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Value:
    """TER of plain text by sacreBLEU's defaults; less is better. Some seconds for a thousand lines,
    several times what the others take.
    """
    from sacrebleu.metrics.ter import TER

    return library_value(TER(), outputs, references)


def library_value(
    metric: Any, outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> Value:
    check_lines(outputs, references)
    score = metric.corpus_score(outputs, references)
    return Value(score.name, float(score.score), str(metric.get_signature()))


def tokenised_bleu(
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    preparation: Preparation = AS_GIVEN,
    *,
    lowercase: bool = False,
) -> Bleu:
    """BLEU as ``multi-bleu.perl`` computes it: tokens between ASCII white space, no smoothing.

    Equal to the program's value wherever it gives one; where it stops at a division by zero,
    because all outputs are blank, this is 0. ``lowercase`` is its ``-lc``: ASCII letters alone.
    Raises ``DataError`` if the numbers of lines differ; the program would say nothing.
    """
    check_lines(outputs, references)
    metric = multi_bleu(preparation, lowercase)
    prepared = [preparation.references(lines) for lines in references]
    score = metric.corpus_score(
        opaque(preparation.outputs(outputs), lowercase),
        [opaque(lines, lowercase) for lines in prepared],
    )
    return as_bleu(preparation.name, score, str(metric.get_signature()))


def multi_bleu(preparation: Preparation, lowercase: bool = False) -> Any:
    """sacreBLEU's metric over lines that are `opaque`; its signature says what was done to them."""
    from sacrebleu.metrics.bleu import BLEU, BLEUSignature

    def signature(settings: dict[str, Any]) -> BLEUSignature:
        found = BLEUSignature(settings)
        found.update("case", "lc-ascii" if lowercase else "mixed")
        return found

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    metric.tokenizer_signature = preparation.signature
    metric._SIGNATURE_TYPE = signature  # type: ignore[assignment]
    return metric


def opaque(lines: Sequence[str], lowercase: bool = False) -> list[str]:
    """Each token in hexadecimal: what sacreBLEU splits at blanks is then what ``multi-bleu.perl``
    does, and a no-break space, in Python white space, stays inside its token.
    """
    result = []
    for line in lines:
        text = line.translate(LOWER) if lowercase else line
        tokens = [token for token in WHITE_SPACE.split(text) if token]
        result.append(" ".join(token.encode().hex() for token in tokens))
    return result


def as_bleu(name: str, score: BLEUScore, signature: str) -> Bleu:
    return Bleu(
        name,
        min(float(score.score), 100.0),  # all right is 100.00000000000004 by floating point
        signature,
        tuple(map(float, score.precisions)),
        float(score.bp),
        int(score.sys_len),
        int(score.ref_len),
        tuple(map(int, score.counts)),
        tuple(map(int, score.totals)),
    )
