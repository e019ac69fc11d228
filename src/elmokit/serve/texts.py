"""Sentences as clients give them -> tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elmokit.config import BiLMConfig
from elmokit.embed.tokenized import cut_tokens, longest_token, tokens_of
from elmokit.progress import plural
from elmokit.serve.service import Service

#: Characters that are cut into tokens at once on the thread that answers; more go aside.
_SHORT = 4096


@dataclass(frozen=True)
class Texts:
    """The sentences of a request.

    Attributes:
        tokens: Tokens of each sentence, as they were given.
        offsets: (start, end) of each in its string; None where tokens were given.
        read: The tokens as the models read them.
        warnings: What the client should know.
    """

    tokens: list[list[str]]
    offsets: list[list[tuple[int, int]] | None]
    read: list[list[str]]
    warnings: list[str]

    @property
    def lengths(self) -> list[int]:
        """Tokens in each sentence."""
        return [len(tokens) for tokens in self.tokens]


async def texts_of(
    service: Service,
    model: str,
    sentences: Sequence[str | list[str]],
    *,
    most_tokens: int | None = None,
    most_sentences: int | None = None,
) -> Texts:
    """Tokenize the sentences of a request for a model, and refuse too many."""
    service.limits.check_sentences(len(sentences), most_sentences)
    size = sum(len(sentence) for sentence in sentences if isinstance(sentence, str))
    if size <= _SHORT:
        found = [tokens_of(sentence, i) for i, sentence in enumerate(sentences)]
    else:
        found = await service.run_in_thread(
            lambda: [tokens_of(sentence, i) for i, sentence in enumerate(sentences)]
        )
    tokens = [words for words, _ in found]
    service.limits.check_tokens(tokens, most_tokens)
    # Of a token longer than any that is known the cache would keep the rest for nothing.
    longest = service.hosted.longest[model]
    read = [[token[:longest] for token in words] for words in tokens]
    note = cut_note(service.hosted.models[model].config, tokens)
    return Texts(tokens, [offsets for _, offsets in found], read, note)


def cut_note(config: BiLMConfig, sentences: Sequence[Sequence[str]]) -> list[str]:
    """Say which tokens are longer than the token encoder reads."""
    cut = cut_tokens(config, sentences)
    if not cut:
        return []
    return [
        f"Truncated {plural(len(cut), 'token')} to {longest_token(config)}; the first is "
        f"'{cut[0][:60]}'."
    ]
