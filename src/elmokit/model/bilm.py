"""The bidirectional language model, which computes R_k, the vectors of token t_k in all layers.

A forward LM predicts t_k from t_1..t_{k-1}, and a backward LM predicts t_k from t_{k+1}..t_T. They
share the token encoder and the softmax, but their LSTMs are separate. h_{k,j} is the concatenation
of the outputs of both LSTMs for token t_k in layer j.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.config import BiLMConfig
from elmokit.errors import DataError
from elmokit.model.charcnn import CharacterEncoder, WordEncoder
from elmokit.model.lexicon import Lexicon
from elmokit.model.lexicon_encoder import LexiconEncoder
from elmokit.model.lstm import LstmStack, LstmState
from elmokit.model.packing import Packing


class BiLMOutput(NamedTuple):
    """The output of the biLM for a batch.

    Attributes:
        layers: h_{k,j}, shape (L + 1, B, T, 2D); zero at padding positions.
        mask: True for tokens, shape (B, T).
        state: The final state of each row. Pass it to the next call to continue from there.
    """

    layers: Tensor
    mask: Tensor
    state: LstmState


class BiLM(nn.Module):
    """A bidirectional language model.

    The input must include the sentence boundaries `<S>` and `</S>`, because the models are trained
    with them. No state is kept between calls.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        d = config.lstm.projection_dim
        self.encoder: CharacterEncoder | LexiconEncoder | WordEncoder
        if config.char_cnn is not None:
            self.encoder = CharacterEncoder(config.char_cnn, d)
        elif config.lexicon is not None:
            self.encoder = LexiconEncoder(config.lexicon, d)
        else:
            assert config.n_words is not None  # BiLMConfig checks this
            self.encoder = WordEncoder(config.n_words, d)
        self.forward_lm = LstmStack(config.lstm)
        self.backward_lm = LstmStack(config.lstm)

    @property
    def lexicon(self) -> Lexicon | None:
        """The lexicon of the token encoder; None for other encoders."""
        return self.encoder.required_lexicon if isinstance(self.encoder, LexiconEncoder) else None

    def forward(self, ids: Tensor, state: LstmState | None = None) -> BiLMOutput:
        """Compute the layers of a batch of sentences.

        Args:
            ids: Character ids (B, T, C), word ids (B, T), or, for a model with a lexicon, the
                result of `Lexicon.batch_ids` (B, T, 1 + C). Rows may be padded with 0 at the end.
            state: The initial state of the rows. Default: the zero state.
        """
        mask = (ids > 0).any(dim=-1) if self.config.n_words is None else ids > 0  # (B, T)
        packing = _make_packing(mask)
        x = self.encoder(packing.pack(ids))  # (N, D)
        layers, state = self.contextualize(x, packing, state)
        padded = packing.unpack(layers)  # (L + 1, B, longest, 2D)
        if padded.shape[2] < mask.shape[1]:
            padded = nn.functional.pad(padded, (0, 0, 0, mask.shape[1] - padded.shape[2]))
        return BiLMOutput(padded, mask, state)

    def contextualize(
        self,
        x: Tensor,
        packing: Packing,
        state: LstmState | None = None,
        backward_x: Tensor | None = None,
    ) -> tuple[Tensor, LstmState]:
        """Compute the layers from token vectors.

        Args:
            x: x_k in packed order, shape (N, D).
            packing: The packing of the batch.
            state: The initial state of the rows, in the caller's order. Default: the zero state.
            backward_x: The input of the backward LM, if it differs from x. In text with several
                sentences, the two directions read different sentence boundaries.

        Returns:
            h_{k,j} in packed order, shape (L + 1, N, 2D), and the final state of each row.
        """
        if state is None:
            state = LstmState.zeros(self.config.lstm, len(packing.lengths), like=x)
        if backward_x is None:
            backward_x = x
        order = torch.from_numpy(packing.order).to(x.device)
        reversal = torch.from_numpy(packing.reversal).to(x.device)
        cell, hidden = state.select(order)
        forward, *forward_state = self.forward_lm(x, packing.active, cell[0], hidden[0])
        backward, *backward_state = self.backward_lm(
            backward_x[reversal], packing.active, cell[1], hidden[1]
        )
        layers = [torch.cat([x, backward_x], dim=-1)]  # h_{k,0} = [x_k; x_k]
        layers += [torch.cat([f, b[reversal]], -1) for f, b in zip(forward, backward, strict=True)]
        last = LstmState(*map(torch.stack, zip(forward_state, backward_state, strict=True)))
        return torch.stack(layers), last.select(torch.argsort(order))

    def extra_repr(self) -> str:
        n = sum(p.numel() for p in self.parameters())
        return f"{self.config.n_layers} layers of {self.config.output_dim}, {n:,} parameters"


def _make_packing(mask: Tensor) -> Packing:
    lengths = mask.sum(dim=1)
    expected = torch.arange(mask.shape[1], device=mask.device) < lengths.unsqueeze(1)
    if not torch.equal(mask, expected):
        row = int((mask != expected).any(dim=1).nonzero()[0, 0])
        raise DataError(
            f"Row {row} of the batch has padding (id 0) before its last token; expected padding "
            "only at the end of a row. Create ids with elmokit.batch_ids(sentences)."
        )
    return Packing.of(lengths.cpu().numpy())
