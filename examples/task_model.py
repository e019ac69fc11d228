"""Use ELMo in a task model: `[x_k; ELMo_k]` at the RNN input and `[h_k; ELMo_k]` at its output.

The model is a toy tagger that decides from context whether "read" is in the past tense (R) or not
(r). The biLM is frozen. Only the tagger's own weights and the two mixes of the layers are trained.

Usage: python examples/task_model.py [MODEL]
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import elmokit

SENTENCES = [
    ("I read the book yesterday .", "O R O O O O"),
    ("Can you read the letter now ?", "O O r O O O O"),
    ("She read it last week .", "O R O O O O"),
    ("We will read it tomorrow .", "O O r O O O"),
]
TAGS = ("O", "R", "r")


class Tagger(nn.Module):
    """BiLSTM tagger over its own word vectors x_k and ELMo_k."""

    def __init__(self, bilm: elmokit.BiLM, words: list[str], dim: int = 16) -> None:
        super().__init__()
        self.words = {word: i + 1 for i, word in enumerate(words)}
        self.embedding = nn.Embedding(len(words) + 1, dim, padding_idx=0)  # x_k of the task
        self.elmo = elmokit.Elmo(bilm, outputs=2, dropout=0.1)  # two mixes: input and output
        self.rnn = nn.LSTM(dim + self.elmo.output_dim, dim, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(2 * dim + self.elmo.output_dim, len(TAGS))

    def forward(self, sentences: list[list[str]]) -> tuple[Tensor, Tensor]:
        (at_input, at_output), mask, _ = self.elmo(sentences)  # (B, T, 2D) each, (B, T)
        ids = torch.zeros(mask.shape, dtype=torch.long)
        for row, sentence in enumerate(sentences):
            ids[row, : len(sentence)] = torch.tensor([self.words.get(w, 0) for w in sentence])
        x = torch.cat([self.embedding(ids), at_input], dim=-1)  # [x_k; ELMo_k]
        h, _ = self.rnn(x)
        return self.tag(torch.cat([h, at_output], dim=-1)), mask  # [h_k; ELMo_k]


def main() -> None:
    """Train the tagger and print the learned mixes."""
    torch.manual_seed(0)
    bilm = elmokit.load(sys.argv[1] if len(sys.argv) > 1 else None, device="cpu").bilm
    sentences = [text.split() for text, _ in SENTENCES]
    tagger = Tagger(bilm, sorted({word for sentence in sentences for word in sentence}))
    gold = [[TAGS.index(tag) for tag in tags.split()] for _, tags in SENTENCES]
    trainable = [p for p in tagger.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trainable, lr=0.02)
    for epoch in range(60):
        logits, mask = tagger(sentences)
        targets = torch.tensor([tag for tags in gold for tag in tags])
        loss = nn.functional.cross_entropy(logits[mask], targets)
        # lambda * ||w||^2 keeps the mixes close to the average of the layers.
        loss = loss + sum(mix.penalty(0.001) for mix in tagger.elmo.mixes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 20 == 19:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}")
    tagger.eval()
    logits, mask = tagger(sentences)
    accuracy = (logits[mask].argmax(-1) == targets).float().mean()
    print(f"accuracy on the training sentences: {accuracy:.2f}")
    for position, mix in zip(("input", "output"), tagger.elmo.mixes, strict=True):
        weights = ", ".join(f"s_{j} = {s:.2f}" for j, s in enumerate(mix.s.tolist()))
        print(f"mix at the {position}: gamma = {mix.gamma.item():.2f}, {weights}")


if __name__ == "__main__":
    main()
