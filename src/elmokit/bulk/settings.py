"""The settings and the summary of a run that embeds a corpus."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, model_validator

from elmokit.bulk.formats.layout import DataType, Layout
from elmokit.config import BiLMConfig
from elmokit.embed.embedder import StatePolicy
from elmokit.embed.layer_choice import check_layer, check_mix
from elmokit.settings import Count, Settings, Size, invalid

#: Approximate bytes of text per chunk: about 50,000 tokens of English text. With the original
#: model, the vectors of these tokens in all layers take 640 MB. A resumed run repeats only
#: unfinished chunks.
CHUNK_BYTES = 2**18


class EmbedSettings(Settings):
    """The settings that, together with the model and the text, determine the vectors of a corpus.

    Attributes:
        layer: A layer number, "top", "average", "concat", "mix" or "all".
        mix: With layer "mix", the weights s, one per layer, which are not normalized.
        gamma: With layer "mix", the scale.
        dtype: "float32" or "float16".
        state: The initial state of each sentence; see `Embedder`.
        rows: With state="carry", the number of rows in a batch; see `Embedder`.
        tokenized: Whether the text is already tokenized, with tokens separated by whitespace.
        split: Whether to split lines into sentences. Otherwise, each line is a sentence.
        chunk_bytes: Approximate size of a chunk of text in bytes. An interrupted run resumes at the
            first unfinished chunk.
    """

    layer: Annotated[str, BeforeValidator(lambda layer: check_layer(layer))] = "all"
    mix: tuple[float, ...] | None = None
    gamma: float = 1.0
    dtype: DataType = "float32"
    state: StatePolicy = "reset"
    rows: Size = 1
    tokenized: bool = False
    split: bool = False
    chunk_bytes: Count = CHUNK_BYTES

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_mix([self.layer], self.mix, self.gamma)
        if self.rows != 1 and self.state != "carry":
            raise invalid(
                "rows",
                self.rows,
                "1 (larger values require state='carry'; on the command line: --state carry)",
            )
        return self

    def layout(self, config: BiLMConfig) -> Layout:
        """Return the layout of the vectors, for a model with this configuration."""
        return Layout(
            self.layer, self.dtype, config.n_layers, config.output_dim, self.mix, self.gamma
        )


@dataclass(frozen=True)
class Summary:
    """The result of a run.

    Attributes:
        output: The file or directory.
        sentences: Sentences in the output.
        tokens: Tokens in the output.
        truncated_tokens: Tokens that were truncated, because they are too long for the model.
        skipped_lines: Invalid lines that were skipped.
        resumed_sentences: Sentences that an interrupted run had already embedded.
        seconds: Duration of this run, excluding the time to load the model.
        tokens_per_second: Speed of this run.
        written_bytes: Size of the chunks that this run wrote, in bytes.
        stages: The busy time of each stage in seconds, divided by the number of its threads or
            processes.
        bottleneck: The stage with the longest busy time.
    """

    output: Path
    sentences: int
    tokens: int
    truncated_tokens: int
    skipped_lines: int
    resumed_sentences: int
    seconds: float
    tokens_per_second: float
    written_bytes: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    bottleneck: str = ""
