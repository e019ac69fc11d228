"""Select the sentences of each measurement: the same for all implementations, new in every round.

The first sentences of the text fill elmokit's token cache. After them, there are new sentences for
each batch size and round: two batches, or twelve single sentences, because the other
implementations are slow. "Sorted" orders the sentences of all rounds of a batch size by length.
Each round gets one batch of short sentences and one batch of equally extreme long sentences.
"""

from __future__ import annotations

from dataclasses import dataclass

from elmokit.embed.bench import SentenceSupply

Sentences = list[list[str]]

SINGLES = 12


@dataclass(frozen=True)
class Plan:
    """The sentences of a run.

    Attributes:
        check: Sentences whose vectors are compared.
        warm_up: Sentences that fill elmokit's token cache before the measurement.
        unsorted: (batch, round) -> sentences in text order.
        ranked: (batch, round) -> sentences of the same pool, sorted by length.
        long_run: Further sentences for one long run.
    """

    check: Sentences
    warm_up: Sentences
    unsorted: dict[tuple[int, int], Sentences]
    ranked: dict[tuple[int, int], Sentences]
    long_run: Sentences

    def vocabulary(self) -> list[str]:
        """Return all words of the measurement, for a cache that is filled in advance."""
        rows = [*self.check, *(row for sentences in self.unsorted.values() for row in sentences)]
        return sorted({token for row in rows for token in row})


def make_plan(
    sentences: Sentences, batches: list[int], rounds: int, tokens: int, n_check: int = 32
) -> Plan:
    """Select the sentences. `tokens` is the size of the warm-up and of the long run."""
    supply = SentenceSupply(sentences)
    warm_up = supply.take(tokens, batch=n_check)
    unsorted, ranked = {}, {}
    for batch in batches:
        size = 2 * batch if batch > 1 else SINGLES
        pool: Sentences = []
        for number in range(rounds):
            sentences = supply.take(1, batch=size)
            unsorted[batch, number] = sentences
            pool += sentences
        pool.sort(key=len)
        half = size // 2
        for number in range(rounds):
            end = len(pool) - number * half
            ranked[batch, number] = (
                pool[number * half : (number + 1) * half] + pool[end - half : end]
            )
    long_run = supply.take(tokens, batch=max(batches))
    if supply.n_restarts:
        raise ValueError(
            "The text is too short for this benchmark. Specify a longer one with --text."
        )
    return Plan(warm_up[:n_check], warm_up, unsorted, ranked, long_run)
