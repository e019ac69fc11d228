"""AllenNLP's `_ElmoCharacterEncoder`: elmokit's encoder with weights in AllenNLP's layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import torch
from torch import Tensor

from elmokit.compat.allennlp.layout import CHARACTERS, HIGHWAY, SAME, AllenNlpModule, Layout
from elmokit.errors import DataError
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.chars import BEGIN_SENTENCE, END_SENTENCE, N_CHARACTERS, char_ids
from elmokit.model.elmo import add_boundaries


class EncoderOutput(TypedDict):
    """The output of the character encoder: (B, T + 2) and (B, T + 2, D)."""

    mask: Tensor
    token_embedding: Tensor


class _ElmoCharacterEncoder(AllenNlpModule):
    """Character ids -> x_k, for every position and the two boundaries.

    Args:
        encoder: The encoder to use.
        requires_grad: Whether its weights can be trained.
    """

    def __init__(self, encoder: CharacterEncoder, requires_grad: bool = False) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(requires_grad)
        self.requires_grad = requires_grad
        projection = encoder.projection
        n_filters = encoder.config.n_filters
        self.output_dim = n_filters if projection is None else projection.out_features

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
        x = self.encoder(torch.cat([ids[mask], ids.new_zeros(1, ids.shape[2])]))
        place = torch.full(mask.shape, len(x) - 1, device=ids.device)
        place[mask] = torch.arange(len(x) - 1, device=ids.device)
        return {"mask": mask, "token_embedding": x[place]}

    def _checked(self, ids: Tensor) -> Tensor:
        size = self.encoder.config.max_characters_per_token
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

    def parameter_layout(self) -> Iterator[tuple[str, tuple[str, ...], Layout]]:
        """See `AllenNlpModule`."""
        config = self.encoder.config
        yield "_char_embedding_weights", ("encoder.char_embed",), CHARACTERS
        for i in range(len(config.filters)):
            for kind in ("weight", "bias"):
                yield f"char_conv_{i}.{kind}", (f"encoder.convolutions.{i}.{kind}",), SAME
        for i in range(config.n_highway):
            for kind in ("weight", "bias"):
                highway = f"encoder.highways.{i}."
                ours = (f"{highway}transform.{kind}", f"{highway}carry.{kind}")
                yield f"_highways._layers.{i}.{kind}", ours, HIGHWAY
        if self.encoder.projection is not None:
            for kind in ("weight", "bias"):
                yield f"_projection.{kind}", (f"encoder.projection.{kind}",), SAME


def right_padded(mask: Tensor, remedy: str) -> Tensor:
    """Return the length of each row; raise an error for padding before the last token.

    Shape:
        (B, T) -> (B,)
    """
    lengths = mask.sum(dim=1)
    wrong = (mask != positions_up_to(lengths, mask.shape[1])).any(dim=1)
    if wrong.any():
        raise DataError(
            f"Row {int(wrong.nonzero()[0, 0])} of the batch has padding before its last token, "
            f"which AllenNLP would misread. Padding must be at the end of a row: {remedy}."
        )
    return lengths


def positions_up_to(lengths: Tensor, size: int) -> Tensor:
    """(B,) -> (B, size), True at each row's first positions."""
    return torch.arange(size, device=lengths.device) < lengths.unsqueeze(1)
