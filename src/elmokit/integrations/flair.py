"""Token embeddings for flair, in place of the class that flair lost together with AllenNLP.

    tagger = SequenceTagger(embeddings=ElmoEmbeddings(layer="top"), ...)

The biLM is frozen. Each sentence of flair is read by itself, its tokens as they are. A saved flair
model holds the settings, the name of the model and its fingerprint, not the weights of the biLM;
import this module before `SequenceTagger.load`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from elmokit.embed.layer_choice import LayerChoice
from elmokit.errors import optional_imports
from elmokit.integrations.named import NamedModel

with optional_imports("flair", "ElmoEmbeddings"):
    import flair
    from flair.data import Sentence
    from flair.embeddings.base import TokenEmbeddings, register_embeddings


@register_embeddings  # type: ignore[untyped-decorator, unused-ignore]
class ElmoEmbeddings(TokenEmbeddings):  # type: ignore[misc]
    """Contextual vectors of flair's tokens.

    Args:
        model: As for `elmokit.load`: a name, a path, `hf://user/model`; None is the bundled model.
        layer: The vector of a token: the number of a layer, "top", "average", "mix", or "concat"
            (all layers side by side, L + 1 times as long).
        mix: With layer "mix", the weights s, one per layer, used as they are.
        gamma: With layer "mix", a factor of the whole vector.
        precision: "exact" or "fast".
        batch_tokens: Tokens that run together at most; None leaves the model's own bound.
        fingerprint: What the model must have; `load` of flair passes what was saved.
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
        self._model = NamedModel(model, precision, str(flair.device), batch_tokens, fingerprint)
        self._chosen: dict[str, Any] = {"layer": layer, "mix": mix, "gamma": gamma}
        with self._model.loaded() as elmo:
            self._choice = LayerChoice.parse(
                layer, elmo.config.n_layers, mix, gamma, allow_all=False
            )
            self._length = self._choice.dim(elmo.config.output_dim)
        self.eval()

    @property
    def embedding_length(self) -> int:
        """The dimensions of a vector."""
        return self._length

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> None:
        with self._model.loaded() as elmo:
            found = elmo.embed([[token.text for token in sentence] for sentence in sentences])
        for sentence, vectors in zip(sentences, found, strict=True):
            rows = torch.from_numpy(self._choice.apply(vectors.layers)).to(flair.device)
            for token, row in zip(sentence, rows, strict=True):
                token.set_embedding(self.name, row)

    def to_params(self) -> dict[str, Any]:
        """Return what a saved flair model stores."""
        own = self._model
        return {
            "model": own.name,
            **self._chosen,
            "precision": own.precision,
            "batch_tokens": own.batch_tokens,
            "fingerprint": own.identify(),
        }

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> ElmoEmbeddings:
        """Make the embeddings that `to_params` described."""
        return cls(**params)
