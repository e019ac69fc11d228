"""Token embeddings for flair, which replace flair's former ELMo embeddings.

    tagger = SequenceTagger(embeddings=ElmoEmbeddings(layer="top"), ...)

The biLM is frozen. Sentences are tokenized by flair and embedded independently. A saved flair model
contains the settings, and the name and fingerprint of the biLM, but not the weights of the biLM.
Import this module before you call `SequenceTagger.load`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from elmokit.errors import optional_imports
from elmokit.integrations.named import NamedModel

with optional_imports("flair", "ElmoEmbeddings"):
    import flair
    from flair.data import Sentence
    from flair.embeddings.base import TokenEmbeddings, register_embeddings


@register_embeddings  # type: ignore[untyped-decorator, unused-ignore]
class ElmoEmbeddings(TokenEmbeddings):  # type: ignore[misc]
    """Contextual vectors for flair's tokens.

    Args:
        model: A model for `elmokit.load`: a name, a path or `hf://user/model`. Default: the bundled
            model.
        layer: The vector of a token: a layer number, "top", "average", "mix", or "concat" (all
            layers concatenated, L + 1 times as long).
        mix: With layer "mix": the weights s, one per layer, not normalized.
        gamma: With layer "mix": the scale.
        precision: "exact" or "fast".
        batch_tokens: Maximum number of tokens per batch. Default: chosen by the model.
        fingerprint: The expected fingerprint of the model. Set when flair loads a saved model.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        layer: str | int = "average",
        mix: Sequence[float] | None = None,
        gamma: float = 1.0,
        precision: str = "exact",
        batch_tokens: int | None = None,
        fingerprint: str | None = None,
    ) -> None:
        super().__init__()
        self.name = f"elmo-{model or 'default'}-{layer}"
        self.static_embeddings = True
        self._model = NamedModel(
            *(model, precision, str(flair.device), batch_tokens, fingerprint, layer, mix, gamma)
        )
        with self._model.loaded() as elmo:
            self._choice = self._model.choice(elmo.config.n_layers)
            self._length = self._choice.dim(elmo.config.output_dim)
        self.eval()

    @property
    def embedding_length(self) -> int:
        """The dimension of a vector."""
        return self._length

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> None:
        with self._model.loaded() as elmo:
            embedded = elmo.embed([[token.text for token in sentence] for sentence in sentences])
        for sentence, vectors in zip(sentences, embedded, strict=True):
            rows = torch.from_numpy(self._choice.apply(vectors.layers)).to(flair.device)
            for token, row in zip(sentence, rows, strict=True):
                token.set_embedding(self.name, row)

    def to_params(self) -> dict[str, Any]:
        """Return the arguments to store in a saved flair model."""
        values = asdict(self._model) | {"fingerprint": self._model.identify()}
        del values["device"]  # always `flair.device`
        return {"model": values.pop("name"), **values}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> ElmoEmbeddings:
        """Create the embeddings from the arguments that `to_params` returned."""
        return cls(**params)
