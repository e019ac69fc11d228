"""AllenNLP's `_ElmoCharacterEncoder`: elmokit's encoder with weights in AllenNLP's layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import torch
from torch import Tensor, nn

from elmokit.compat.allennlp.layout import Mirror, Translation, characters, highway, same
from elmokit.compat.allennlp.padding import positions_up_to, right_padded
from elmokit.errors import DataError
from elmokit.model.blank import blank
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.chars import BEGIN_SENTENCE, END_SENTENCE, N_CHARACTERS, char_ids
from elmokit.model.elmo import add_boundaries


class EncoderOutput(TypedDict):
    """The output of the character encoder: (B, T + 2) and (B, T + 2, D)."""

    mask: Tensor
    token_embedding: Tensor


class Highway(nn.Module):
    """Holds the highway layers' weights."""

    def __init__(self, n_filters: int, n_layers: int) -> None:
        super().__init__()
        self._layers = nn.ModuleList(nn.Linear(n_filters, 2 * n_filters) for _ in range(n_layers))


class _ElmoCharacterEncoder(Mirror[CharacterEncoder]):
    """Character ids -> x_k, for every position and the two boundaries.

    Args:
        encoder: The encoder whose weights to copy.
        requires_grad: Whether they can be trained.
    """

    def __init__(self, encoder: CharacterEncoder, requires_grad: bool = False) -> None:
        super().__init__()
        self.config = cnn = encoder.config
        self.requires_grad = requires_grad
        projection = encoder.projection
        self.output_dim = cnn.n_filters if projection is None else projection.out_features
        with blank():
            self._char_embedding_weights = nn.Parameter(
                torch.empty(N_CHARACTERS, cnn.embedding_dim)
            )
            for i, (width, count) in enumerate(cnn.filters):
                self.add_module(f"char_conv_{i}", nn.Conv1d(cnn.embedding_dim, count, width))
            self._highways = Highway(cnn.n_filters, cnn.n_highway)
            self._projection = None
            if projection is not None:
                self._projection = nn.Linear(cnn.n_filters, self.output_dim)
        self._copy_weights(encoder, requires_grad)

    def get_output_dim(self) -> int:
        """Return D."""
        return self.output_dim

    def forward(self, inputs: Tensor) -> EncoderOutput:
        """Encode a batch.

        Args:
            inputs: Character ids (B, T, C), 0 = padding, only at the end of a row.
        """
        ids = self._checked(inputs)
        lengths = right_padded((ids > 0).any(dim=-1), "create ids with batch_to_ids(sentences)")
        begin, end = (
            ids.new_tensor(char_ids(token, ids.shape[-1]))
            for token in (BEGIN_SENTENCE, END_SENTENCE)
        )
        ids = add_boundaries(ids, lengths, begin, end)  # (B, T + 2, C)
        mask = positions_up_to(lengths + 2, ids.shape[1])
        # All padding positions have the same ids, so they share one vector: the last one here.
        x = self.encode(torch.cat([ids[mask], ids.new_zeros(1, ids.shape[2])]))
        place = torch.full(mask.shape, len(x) - 1, device=ids.device)
        place[mask] = torch.arange(len(x) - 1, device=ids.device)
        return {"mask": mask, "token_embedding": x[place]}

    def encode(self, ids: Tensor) -> Tensor:
        """(n, C) -> (n, D)."""
        x: Tensor = self.ours()(ids)
        return x

    def _checked(self, ids: Tensor) -> Tensor:
        size = self.config.max_characters_per_token
        if ids.dim() != 3 or ids.shape[-1] != size or ids.is_floating_point():
            raise DataError(
                f"Expected character ids, integers of shape (batch, tokens, {size}); found "
                f"{ids.dtype} of shape {list(ids.shape)}. Create them with batch_to_ids(sentences)"
                + ("." if size == 50 else f", or elmokit.batch_ids(sentences, {size}).")
            )
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < N_CHARACTERS:
            raise DataError(
                f"Character ids must be between 0 and {N_CHARACTERS - 1}; found {int(ids.min())} "
                f"to {int(ids.max())}. Create them with batch_to_ids(sentences)."
            )
        return ids.long()

    def _skeleton(self) -> CharacterEncoder:
        return CharacterEncoder(self.config, self.output_dim)

    def _translations(self) -> Iterator[Translation]:
        yield characters("_char_embedding_weights", "char_embed")
        for kind in ("weight", "bias"):
            for i in range(len(self.config.filters)):
                yield same(f"char_conv_{i}.{kind}", f"convolutions.{i}.{kind}")
            for i in range(self.config.n_highway):
                parts = (f"highways.{i}.{part}.{kind}" for part in ("transform", "carry"))
                yield highway(f"_highways._layers.{i}.{kind}", *parts)
            if self._projection is not None:
                yield same(f"_projection.{kind}", f"projection.{kind}")
