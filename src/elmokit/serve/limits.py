"""How much one request may ask for, and how much may wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elmokit.serve.errors import RequestRejected

#: Tokens whose cosines with each other are one answer: a matrix grows with the square.
MATRIX_TOKENS = 256
#: Uses of a word on one plane.
POINTS = 512
#: Places of which the language models list what they expect: each costs a whole softmax.
PLACES = 128
#: Words or neighbors in a list.
LISTED = 100
#: Queries of neighbors: each is compared with every token of the index.
QUERIES = 16


@dataclass(frozen=True)
class Limits:
    """The limits that `elmo serve` has options for.

    Attributes:
        body: Bytes of a request.
        tokens: Tokens in the sentences of a request.
        sentences: Sentences of a request.
        answer: Numbers in the vectors of an answer.
        queue: Requests that may wait; further ones are rejected.
        connections: Connections that are open at once; idle ones make room for new ones.
        timeout: Seconds for sending a request, for computing the answer, and for reading that.
    """

    body: int = 2 * 2**20
    tokens: int = 4096
    sentences: int = 256
    answer: int = 2**24
    queue: int = 256
    connections: int = 1024
    timeout: float = 60.0

    def check_sentences(self, n: int, most: int | None = None) -> None:
        """Reject a request of too many sentences; `most` is a limit of the route's own."""
        limit = self.sentences if most is None else min(most, self.sentences)
        if n > limit:
            raise RequestRejected.over_limit(
                "max_sentences", limit, n, "sentences", "Split them into several requests."
            )

    def check_tokens(self, sentences: Sequence[Sequence[str]], most: int | None = None) -> int:
        """Reject a request of too many tokens, and return how many there are."""
        n = sum(map(len, sentences))
        limit = self.tokens if most is None else min(most, self.tokens)
        if n > limit:
            raise RequestRejected.over_limit(
                "max_tokens", limit, n, "tokens", "Split them into several requests."
            )
        return n

    def check_answer(self, numbers: int) -> None:
        """Reject a request whose vectors would be too large, before they are computed."""
        if numbers > self.answer:
            raise RequestRejected.over_limit(
                "max_answer",
                self.answer,
                numbers,
                "values in the response",
                "Request fewer layers, or split the sentences into several requests.",
            )
