"""What decides the vectors of a corpus, and what is told about the work on it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BeforeValidator, model_validator

from elmokit import __version__
from elmokit.bulk.files.layout import Layout, NumberType
from elmokit.config import BiLMConfig
from elmokit.embed.embedder import Embedder, StatePolicy
from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.layer_choice import check_layer, check_mix
from elmokit.settings import Count, Settings, Size, invalid

#: Tokens in a part, about: what is held in memory (200 MB of the original model's vectors), and
#: what at most is computed again after a kill.
PART_TOKENS = 16384


class EmbedSettings(Settings):
    """What decides the vectors of a corpus, besides the model and the text.

    Attributes:
        layer: A layer number, "top", "average", "concat", "mix" or "all".
        mix: With "mix", the weights s, one per layer, used as they are.
        gamma: With "mix", the scale.
        dtype: "float32" or "float16".
        state: What each sentence starts from, see `Embedder`.
        rows: With state="carry", the number of texts that are read side by side.
        tokenized: Tokens are what whitespace separates; else lines are tokenised.
        split: Lines are paragraphs whose sentences are found; else a line is a sentence.
        part_tokens: Tokens in a part, about.
    """

    layer: Annotated[str, BeforeValidator(lambda layer: check_layer(layer))] = "all"
    mix: tuple[float, ...] | None = None
    gamma: float = 1.0
    dtype: NumberType = "float32"
    state: StatePolicy = "reset"
    rows: Size = 1
    tokenized: bool = False
    split: bool = False
    part_tokens: Count = PART_TOKENS

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_mix([self.layer], self.mix, self.gamma)
        if self.rows != 1 and self.state != "carry":
            raise invalid("rows", self.rows, "1 unless state is 'carry'")
        return self

    def layout(self, config: BiLMConfig) -> Layout:
        """Return what is stored for each token of a model of this shape."""
        return Layout(
            self.layer, self.dtype, config.n_layers, config.output_dim, self.mix, self.gamma
        )


class Progress(NamedTuple):
    """How far the work has gone; `total_bytes` is None if the input cannot be read ahead."""

    tokens: int
    n_bytes: int
    total_bytes: int | None


@dataclass(frozen=True)
class Summary:
    """What was done.

    Attributes:
        output: The file.
        sentences: Sentences in it.
        tokens: Tokens in it.
        cut_tokens: Tokens too long for the model, of which only the beginning was read.
        skipped_lines: Bad lines left out.
        resumed_sentences: How many of the sentences an interrupted run had already embedded.
        seconds: Time taken by this run.
        tokens_per_second: Speed of this run.
    """

    output: Path
    sentences: int
    tokens: int
    cut_tokens: int
    skipped_lines: int
    resumed_sentences: int
    seconds: float
    tokens_per_second: float


def run_manifest(model: Embedder[Any], settings: EmbedSettings) -> dict[str, Any]:
    """Return all that decides the bytes of the output, besides the text, as JSON values."""
    values = {
        "elmokit": __version__,
        "model": fingerprint(model, settings.state),
        "batch_tokens": model.batch_tokens,
        "precision": model.precision,
        **settings.to_dict(),
    }
    return dict(json.loads(json.dumps(values)))
