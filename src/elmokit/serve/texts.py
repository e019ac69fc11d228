"""Tokenize the sentences of a request, and find the words that it selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from elmokit.embed.tokenized import tokens_of, truncated_tokens, truncation_warning
from elmokit.errors import DataError
from elmokit.serve.errors import RequestRejected, check_limit
from elmokit.serve.service import Service
from elmokit.text.marked import Marked

#: Maximum number of characters to tokenize on the event loop; longer texts use another thread.
_SHORT = 4096


@dataclass(frozen=True)
class Texts:
    """The sentences of a request.

    Attributes:
        tokens: The tokens of each sentence.
        offsets: (start, end) of each token in its string; None for lists of tokens.
        read: The tokens as the model reads them: very long ones are truncated.
        warnings: Warnings for the client.
    """

    tokens: list[list[str]]
    offsets: list[list[tuple[int, int]] | None]
    read: list[list[str]]
    warnings: list[str]

    @property
    def lengths(self) -> list[int]:
        """The number of tokens in each sentence."""
        return [len(tokens) for tokens in self.tokens]

    def sentences(self) -> list[dict[str, Any]]:
        """Return the tokens and offsets of each sentence as JSON values."""
        rows = zip(self.tokens, self.offsets, strict=True)
        return [{"tokens": tokens, "offsets": offsets} for tokens, offsets in rows]

    def answer(self, model: str, state: str) -> dict[str, Any]:
        """Return the fields of every response about sentences."""
        usage = {"sentences": len(self.tokens), "tokens": sum(self.lengths)}
        return {"model": model, "state": state, "usage": usage, "warnings": self.warnings}


async def texts_of(
    service: Service, model: str, sentences: Sequence[str | list[str]], max_tokens: int = 10**9
) -> Texts:
    """Tokenize the sentences of a request for a model, and reject too many."""
    check_limit("max_sentences", service.limits.sentences, len(sentences), "sentences")

    def tokenize() -> list[tuple[list[str], list[tuple[int, int]] | None]]:
        return [tokens_of(sentence, i) for i, sentence in enumerate(sentences)]

    size = sum(len(sentence) for sentence in sentences if isinstance(sentence, str))
    tokenized = tokenize() if size <= _SHORT else await service.run_in_thread(tokenize)
    tokens = [words for words, _ in tokenized]
    max_tokens = min(service.limits.tokens, max_tokens)
    check_limit("max_tokens", max_tokens, sum(map(len, tokens)), "tokens")
    # The rest of a very long token does not change its vector, but would fill the token cache.
    longest = service.hosted.longest[model]
    read = [[token[:longest] for token in words] for words in tokens]
    config = service.hosted.models[model].config
    truncated = truncated_tokens(config, tokens)
    warnings = [truncation_warning(config, truncated)] if truncated else []
    return Texts(tokens, [offsets for _, offsets in tokenized], read, warnings)


class Uses(NamedTuple):
    """The uses of a word in a sentence.

    Attributes:
        tokens: The sentence, without brackets.
        offsets: Offsets of the tokens in the string; None if it has brackets or is a list.
        positions: The positions of the word.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]] | None
    positions: list[int]


def find_uses(sentences: Sequence[str | list[str]], word: str | None) -> list[Uses]:
    """Find the word in brackets, or the tokens that equal `word`, in each sentence."""
    uses = [_uses(sentence, i, word) for i, sentence in enumerate(sentences)]
    if not any(use.positions for use in uses):
        raise RequestRejected(
            422,
            f"The token '{word:.60}' does not occur in the sentences.",
            param="word",
        )
    return uses


def _uses(sentence: str | list[str], i: int, word: str | None) -> Uses:
    if isinstance(sentence, str) and (word is None or "[" in sentence):
        try:
            marked = Marked.read(sentence)
            return Uses(list(marked.tokens), None, [marked.position])
        except DataError as error:
            if word is None:
                message = f"Sentence {i}: {error} Alternatively, set `word`."
                raise RequestRejected(422, message, param="sentences") from error
    elif word is None:
        raise RequestRejected(
            422, f"Sentence {i} is a list of tokens: set `word` to select a token.", param="word"
        )
    tokens, offsets = tokens_of(sentence, i)
    positions = [k for k, token in enumerate(tokens) if token.casefold() == word.casefold()]
    return Uses(tokens, offsets, positions)
