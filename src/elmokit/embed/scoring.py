"""Score sentences with the forward and backward language models.

The forward LM reads `<S> w1 .. wn` and predicts `w1 .. wn </S>`; the backward LM reads
`</S> wn .. w1` and predicts `wn .. w1 <S>`. The first symbol that a direction reads is never
predicted. As during training, input words are encoded from their characters, and target words that
are not in the vocabulary are scored as `<UNK>`. Log probabilities are natural logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.embed.precision import exact_products
from elmokit.errors import ConfigError
from elmokit.model.scoring import TextTypes
from elmokit.model.softmax import LMHead
from elmokit.progress import plural
from elmokit.text.vocab import BEGIN, END, SPECIALS, UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from elmokit.embed.model import ElmoModel

# A word that looks like a special symbol must not be mistaken for a boundary. It is treated as
# <UNK>, as in `elmo prepare`.
_AS_UNKNOWN = frozenset((*SPECIALS, "!!!MAXTERMID"))
_DARKEST = 12.0  # the value of -log p that has the darkest color in a notebook


@dataclass(frozen=True, repr=False)
class SentenceScore:
    """The scores of a sentence under both language models.

    Attributes:
        tokens: The tokens of the sentence.
        forward: log p of each token given the tokens before it.
        backward: log p of each token given the tokens after it.
        end: log p of `</S>` after the last token, under the forward LM.
        begin: log p of `<S>` before the first token, under the backward LM.
        unknown: Whether each token is out of vocabulary and was scored as `<UNK>`.
        state: The initial state of the sentence.
    """

    tokens: tuple[str, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    end: float
    begin: float
    unknown: tuple[bool, ...]
    state: str = "reset"

    @property
    def forward_perplexity(self) -> float:
        """The perplexity of the tokens and `</S>` under the forward LM."""
        return _perplexity([*self.forward, self.end])

    @property
    def backward_perplexity(self) -> float:
        """The perplexity of the tokens and `<S>` under the backward LM."""
        return _perplexity([*self.backward, self.begin])

    @property
    def perplexity(self) -> float:
        """The geometric mean of the two perplexities."""
        return math.sqrt(self.forward_perplexity * self.backward_perplexity)

    @property
    def known_perplexity(self) -> float:
        """The perplexity without the tokens that were scored as `<UNK>`."""
        pairs = zip(self.forward, self.backward, self.unknown, strict=True)
        return _perplexity(
            [p for f, b, u in pairs if not u for p in (f, b)] + [self.end, self.begin]
        )

    def to_dict(self, *, by_token: bool = True) -> dict[str, Any]:
        """Return a JSON-serializable dictionary, optionally without token log-probabilities."""
        values: dict[str, Any] = {
            "tokens": list(self.tokens),
            "perplexity": self.perplexity,
            "forward_perplexity": self.forward_perplexity,
            "backward_perplexity": self.backward_perplexity,
            "known_perplexity": self.known_perplexity,
            "targets": len(self.tokens) + 1,
            "unknown_tokens": sum(self.unknown),
            "state": self.state,
        }
        if by_token:
            names = ("forward", "backward", "end", "begin", "unknown")
            values |= {name: getattr(self, name) for name in names}
        return values

    def __repr__(self) -> str:
        return (
            f"<SentenceScore {plural(len(self.tokens), 'token')}, perplexity {self.perplexity:.2f} "
            f"(forward {self.forward_perplexity:.2f}, backward {self.backward_perplexity:.2f})>"
        )

    def _repr_html_(self) -> str:
        """Show the tokens in a notebook; darker tokens are more surprising to both models."""
        from elmokit import html

        pairs = list(zip(self.forward, self.backward, strict=True))
        shades = [-(f + b) / 2 / _DARKEST for f, b in pairs]
        titles = [
            f"forward {-f / math.log(2):.1f} bits\nbackward {-b / math.log(2):.1f} bits"
            for f, b in pairs
        ]
        note = f"perplexity {self.perplexity:.1f}: forward {self.forward_perplexity:.1f}, backward "
        note += f"{self.backward_perplexity:.1f}. Darker tokens are more surprising to both models."
        return html.chips(self.tokens, shades, titles) + html.caption(note)

    def __str__(self) -> str:
        """Return a table of the forward and backward log p, with one token per line."""
        width = max(len(name) for name in ("perplexity", *self.tokens))
        rows = [f"{'log p':<{width}} {'forward':>10} {'backward':>10}"]
        rows.append(f"{BEGIN:<{width}} {'':>10} {self.begin:>10.3f}")
        for token, f, b, unknown in zip(
            self.tokens, self.forward, self.backward, self.unknown, strict=True
        ):
            note = f"  {UNKNOWN}" if unknown else ""
            rows.append(f"{token:<{width}} {f:>10.3f} {b:>10.3f}{note}")
        rows.append(f"{END:<{width}} {self.end:>10.3f}")
        both = f"{self.forward_perplexity:>10.2f} {self.backward_perplexity:>10.2f}"
        rows.append(f"{'perplexity':<{width}} {both}  mean {self.perplexity:.2f}")
        return "\n".join(rows)


def score(model: ElmoModel, sentences: Sequence[Sequence[str]], state: str) -> list[SentenceScore]:
    """Score tokenized sentences. For sentences without tokens, only the boundaries are scored."""
    scorer, vocabulary = model.scorer(), language_model(model)[1]
    numbers: dict[str, int] = {BEGIN: 0, END: 1}
    texts = [
        np.array([numbers.setdefault(word, len(numbers)) for word in (*lm_inputs(words), END)])
        for words in sentences
    ]
    types = list(numbers)
    ids = np.array([vocabulary.index(word) for word in types], dtype=np.int64)
    text_types = TextTypes(
        encode=lambda numbers: model.cache.vectors([types[number] for number in numbers]),
        words=lambda numbers: ids[numbers],
        begin=0,
        end=1,
        unknown=vocabulary.index(UNKNOWN),
    )
    results: dict[int, SentenceScore] = {}
    initial = model.initial_state(state)
    with model.lock, exact_products(model.device):
        for i, (values, unknown) in scorer.losses(text_types, texts, initial):
            forward, backward = (-values).tolist()
            results[i] = SentenceScore(
                tokens=tuple(sentences[i]),
                forward=tuple(forward[:-1]),
                backward=tuple(backward[1:]),
                end=forward[-1],
                begin=backward[0],
                unknown=tuple(unknown[0, :-1].tolist()),
                state=state,
            )
    return [results[i] for i in range(len(sentences))]


def language_model(model: ElmoModel) -> tuple[LMHead, Vocabulary]:
    """Return the LM head and its vocabulary.

    Raises:
        ConfigError: The model has no LM head or no vocabulary.
    """
    if model.head is None or model.vocabulary is None:
        raise ConfigError(
            f"{model.source or 'This model'} has no LM head with a vocabulary; most published "
            "weights do not include one. Train a head with `elmo finetune`, or use a model that "
            "was trained with `elmo train`."
        )
    model.vocabulary.require_specials()
    return model.head, model.vocabulary


def lm_inputs(words: Iterable[str]) -> list[str]:
    """Return the input of the LMs, with `<UNK>` for words that look like special symbols."""
    return [UNKNOWN if word in _AS_UNKNOWN else word for word in words]


def _perplexity(log_probabilities: Sequence[float]) -> float:
    return math.exp(-math.fsum(log_probabilities) / len(log_probabilities))
