"""ELMo as a layer of a task model: a biLM, frozen by default, and one or more learned mixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError
from elmokit.model.bilm import BiLM
from elmokit.model.chars import BEGIN_SENTENCE, END_SENTENCE, batch_ids
from elmokit.model.lexicon import encoder_ids
from elmokit.model.lstm import LstmState
from elmokit.model.mix import LayerNorm, ScalarMix


class ElmoOutput(NamedTuple):
    """The output of `Elmo`.

    Attributes:
        representations: For each mix, a tensor of ELMo_k, shape (B, T, 2D); zero at padding
            positions.
        mask: True for tokens, shape (B, T).
        state: The final LSTM state of each sentence.
    """

    representations: list[Tensor]
    mask: Tensor
    state: LstmState


class Elmo(nn.Module):
    """One or more learned mixes of the layers of a biLM.

    The paper adds ELMo to the input of a task model, `[x_k; ELMo_k]`, and often also to the output
    of the task model's RNN, `[h_k; ELMo_k]`. With `outputs=2`, each of the two uses its own mix.

    Args:
        bilm: The biLM, for example `elmokit.load().bilm`.
        outputs: Number of mixes.
        dropout: Dropout rate for the mixed vectors.
        layer_norm: See `ScalarMix`.
        s: Fixed weights that sum to 1; see `ScalarMix`.
        w: Fixed weights before the softmax; see `ScalarMix`.
        gamma: Initial value of gamma.
        top_only: Use only the top layer.
        finetune: Also train the biLM. By default, it is frozen and stays in eval mode.
        word_boundaries: For a model that reads word ids, the indices of `<S>` and `</S>` in its
            vocabulary.
    """

    def __init__(
        self,
        bilm: BiLM,
        outputs: int = 1,
        *,
        dropout: float = 0.5,
        layer_norm: LayerNorm = False,
        s: Sequence[float] | None = None,
        w: Sequence[float] | None = None,
        gamma: float = 1.0,
        top_only: bool = False,
        finetune: bool = False,
        word_boundaries: tuple[int, int] = (0, 1),
    ) -> None:
        super().__init__()
        if not isinstance(bilm, BiLM):
            raise ConfigError(
                f"Invalid bilm of type {type(bilm).__name__}: expected a BiLM, such as "
                "elmokit.load().bilm."
            )
        if outputs < 1:
            raise ConfigError(f"Invalid outputs={outputs}: expected an integer of at least 1.")
        self.bilm = bilm
        self.finetune = finetune
        self.word_boundaries = word_boundaries
        self.bilm.requires_grad_(finetune)
        self.mixes = nn.ModuleList(
            ScalarMix(
                bilm.config.n_layers,
                layer_norm=layer_norm,
                s=s,
                w=w,
                gamma=gamma,
                top_only=top_only,
            )
            for _ in range(outputs)
        )
        self.dropout = nn.Dropout(dropout)
        self.train(self.training)

    @property
    def output_dim(self) -> int:
        """The size of a vector in each representation, 2 * D."""
        return self.bilm.config.output_dim

    def train(self, mode: bool = True) -> Elmo:
        """Set training or eval mode. A frozen biLM stays in eval mode, without dropout."""
        super().train(mode)
        if not self.finetune:
            self.bilm.eval()
        return self

    def forward(
        self, sentences: Tensor | Sequence[Sequence[str]], state: LstmState | None = None
    ) -> ElmoOutput:
        """Compute the representations of a batch of sentences.

        Args:
            sentences: Tokenized sentences without boundaries, or their ids: the result of
                `token_ids(sentences)`, shape (B, T, C), or, for a model that reads word ids, a
                tensor of word ids, shape (B, T).
            state: The initial state of the sentences. Default: the zero state.
        """
        if not isinstance(sentences, Tensor):
            sentences = self.token_ids(sentences).to(next(self.bilm.parameters()).device)
        with torch.set_grad_enabled(self.finetune and torch.is_grad_enabled()):
            layers, mask, state = self.bilm(self._with_boundaries(sentences), state)
        representations = self.mix(layers, mask)
        representations = [remove_boundaries(r, mask) for r in representations]
        return ElmoOutput(representations, mask[:, 2:], state)

    def mix(self, layers: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """Mix precomputed layers, for example from a layer cache.

        Shape:
            layers (L + 1, B, T, 2D), mask (B, T) -> (B, T, 2D) for each mix
        """
        return [self.dropout(mix(layers, mask)) for mix in self.mixes]

    def token_ids(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Return the ids of tokenized sentences, padded with zeros, as an input for `forward`."""
        if (lexicon := self.bilm.lexicon) is not None:
            return torch.from_numpy(lexicon.batch_ids(sentences))
        cnn = self.bilm.config.char_cnn
        if cnn is None:
            raise ConfigError("This biLM reads word ids: pass a tensor of ids, not tokens.")
        return torch.from_numpy(batch_ids(sentences, cnn.max_characters_per_token))

    def _with_boundaries(self, ids: Tensor) -> Tensor:
        """Add <S> before and </S> after each sentence: (B, T, ...) -> (B, T + 2, ...)."""
        config = self.bilm.config
        words = dict(zip((BEGIN_SENTENCE, END_SENTENCE), self.word_boundaries, strict=True))
        boundaries = encoder_ids(list(words), config, self.bilm.lexicon, words.__getitem__)
        begin, end = ids.new_tensor(boundaries)
        is_token = ids > 0 if config.n_words is not None else (ids > 0).any(dim=-1)
        return add_boundaries(ids, is_token.sum(dim=1), begin, end)


def add_boundaries(ids: Tensor, lengths: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    """Add boundary ids before the first and after the last token of each row.

    Shape:
        ids (B, T, ...), lengths (B,), begin and end (...) -> (B, T + 2, ...)
    """
    bounded = ids.new_zeros(ids.shape[0], ids.shape[1] + 2, *ids.shape[2:])
    bounded[:, 1:-1] = ids
    bounded[:, 0] = begin
    bounded[torch.arange(len(ids), device=ids.device), lengths + 1] = end
    return bounded


def remove_boundaries(vectors: Tensor, mask: Tensor) -> Tensor:
    """Remove the positions of <S> and </S>, and fill padding with zeros.

    Shape:
        vectors (B, T + 2, 2D), mask (B, T + 2) -> (B, T, 2D)
    """
    # If a row has n tokens between <S> and </S>, its first n positions of mask[:, 2:] are True.
    padding = ~mask[:, 2:].unsqueeze(-1)
    return vectors[:, 1:-1].masked_fill(padding, 0).contiguous()
