"""The same as `transformers`, with one product over a prompt for all its completions in place of one each.

Faster on a CPU (in bfloat16 by far), and of other bits: a run's results belong to the decoder that it names. A GPU
decodes in place, and there it makes no difference.
"""

from __future__ import annotations

from typing import ClassVar

from ..decoder import DECODERS
from ..growing_rows import GrowingRows, SharingRows
from .transformers import TransformersDecoder


@DECODERS.register("shared_prompts")
class SharedPromptsDecoder(TransformersDecoder):
    """The policy's own model and forward pass, with the keys and values of a prompt kept and read once."""

    grows: ClassVar[type[GrowingRows]] = SharingRows
