"""The conformance kit: what the engine relies on in each kind of component, checked by one call.

For authors of components, in a test of their own::

    from seqtrans.testing import check_position

    def test_my_scheme() -> None:
        check_position(lambda shape: MyScheme(shape.heads))

Each check takes a `Component`, with settings if its defaults don't suit, or a function of what the
hook of that kind says ``build`` is given after the settings. It builds tiny models around the
component, in well under a second or two, and raises an AssertionError whose sentence says what must
hold and by how much it doesn't. All but tasks are checked on the CPU and in fp32, or elsewhere with
``device="cuda"``, and all but tasks and decoders in another type with ``dtype=torch.bfloat16``.
Letters of shapes are those of ``seqtrans.model``.
"""

from __future__ import annotations

from seqtrans.testing.attentions import check_attention
from seqtrans.testing.decoders import check_decoder
from seqtrans.testing.models import check_model
from seqtrans.testing.parts import TINY, tiny_model
from seqtrans.testing.positions import check_position
from seqtrans.testing.sources import check_source
from seqtrans.testing.tables import NoRepeats, TableScorer, random_table
from seqtrans.testing.tasks import check_task

__all__ = [
    "TINY",
    "NoRepeats",
    "TableScorer",
    "check_attention",
    "check_decoder",
    "check_model",
    "check_position",
    "check_source",
    "check_task",
    "random_table",
    "tiny_model",
]
