"""AllenNLP's `_ElmoBiLm`: character ids, or ids of cached words, to all layers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor, nn

from elmokit.compat.allennlp.encoder import (
    EncoderOutput,
    _ElmoCharacterEncoder,
    positions_up_to,
    right_padded,
)
from elmokit.compat.allennlp.lstm import ElmoLstm
from elmokit.errors import ConfigError
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.chars import BEGIN_SENTENCE, END_SENTENCE, char_ids_table
from elmokit.model.elmo import add_boundaries
from elmokit.sources.resolve import load_parts

_log = logging.getLogger(__name__)

# Words per batch of the character encoder when a vocabulary is cached.
_WORDS_AT_ONCE = 512


class BiLmOutput(TypedDict):
    """The output of the biLM: L + 1 tensors (B, T + 2, 2D), and (B, T + 2)."""

    activations: list[Tensor]
    mask: Tensor


class _ElmoBiLm(nn.Module):
    """The biLM: all layers of every position, including boundaries.

    Args:
        options_file: The `options.json`, or anything that `elmokit.load` accepts.
        weight_file: The HDF5 file.
        requires_grad: Whether the weights can be trained.
        vocab_to_cache: Words to encode in advance, for `word_inputs`. The first is padding.
        stateful: See `ElmoLstm`.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None = None,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        if options_file is None and weight_file is None:
            raise ConfigError("No model: specify options_file and weight_file.")
        bilm = load_parts(options_file, weight_file).bilm
        if not isinstance(bilm.encoder, CharacterEncoder):
            raise ConfigError(
                f"{options_file} is a model of word ids, which AllenNLP's classes do not support. "
                "Use elmokit.load and elmokit.Elmo instead."
            )
        self._requires_grad = requires_grad
        self._token_embedder = _ElmoCharacterEncoder(bilm.encoder, requires_grad)
        del bilm.encoder  # so that only `_token_embedder` has its parameters
        self._word_embedding: nn.Embedding | None = None
        self._bos_embedding: Tensor | None = None
        self._eos_embedding: Tensor | None = None
        if vocab_to_cache:
            if requires_grad:
                _log.warning(
                    "The vectors of vocab_to_cache are trained independently of the character CNN: "
                    "after training starts, they differ from its output."
                )
            self.create_cached_cnn_embeddings(vocab_to_cache)
        self._elmo_lstm = ElmoLstm(bilm, requires_grad, stateful)
        self.num_layers = bilm.config.n_layers

    def get_output_dim(self) -> int:
        """Return 2D."""
        return 2 * self._elmo_lstm.hidden_size

    def create_cached_cnn_embeddings(self, tokens: Sequence[str]) -> None:
        """Encode the words whose indices `word_inputs` can contain; index 0 is padding."""
        encoder = self._token_embedder.encoder
        words = [BEGIN_SENTENCE, END_SENTENCE, *tokens]
        ids = torch.from_numpy(char_ids_table(words, encoder.config.max_characters_per_token))
        ids = ids.to(encoder.char_embed.device)
        with torch.inference_mode(False), torch.no_grad():
            vectors = torch.cat([encoder(part) for part in torch.split(ids, _WORDS_AT_ONCE)])
            self._bos_embedding, self._eos_embedding = vectors[0], vectors[1]
            table = vectors[2:].clone()
            table[0] = 0
        self._word_embedding = nn.Embedding(
            len(table), table.shape[1], padding_idx=0, _weight=table
        )
        self._word_embedding.requires_grad_(self._requires_grad)

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> BiLmOutput:
        """Compute the layers of a batch.

        Args:
            inputs: Character ids (B, T, C); ignored if `word_inputs` are used.
            word_inputs: Indices into `vocab_to_cache` (B, T). If one of them is out of range, the
                whole batch is encoded from its characters.
        """
        encoded = None if word_inputs is None else self._look_up(word_inputs)
        if encoded is None:
            encoded = self._token_embedder(inputs)
        x, mask = encoded["token_embedding"], encoded["mask"]
        layers: Tensor = self._elmo_lstm(x, mask)
        first = torch.cat([x, x], dim=-1) * mask.unsqueeze(-1)  # h_{k,0} = [x_k; x_k]
        return {"activations": [first, *layers.unbind()], "mask": mask}

    def _look_up(self, words: Tensor) -> EncoderOutput | None:
        table, bos, eos = self._word_embedding, self._bos_embedding, self._eos_embedding
        if table is None or bos is None or eos is None:
            return None
        if words.numel() and not 0 <= int(words.min()) <= int(words.max()) < table.num_embeddings:
            return None
        lengths = right_padded(
            words > 0, "index 0 of vocab_to_cache means padding; put a word there that never occurs"
        )
        x: Tensor = table(words.long())
        x = add_boundaries(x, lengths, bos.to(x), eos.to(x))
        return {"mask": positions_up_to(lengths + 2, x.shape[1]), "token_embedding": x}
