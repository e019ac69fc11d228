"""Which sentences are timed when: the same ones for all, and new ones in every round.

The text begins with sentences that fill our cache. Then every batch size has a piece of new text
per round: two batches, or a dozen single sentences, because the peers are slow. "Sorted" reads the
sentences of all rounds of a batch size in order of length, as a user would who knows that trick;
each round gets one batch from the short end and its counterpart from the long end.
"""

from __future__ import annotations

from dataclasses import dataclass

from elmokit.embed.bench import Supply

Sentences = list[list[str]]

SINGLES = 12


@dataclass(frozen=True)
class Plan:
    """The sentences of a run.

    Attributes:
        check: The vectors of these are compared.
        filling: What our cache has seen before the steady state.
        pieces: (batch, round) -> sentences in natural order.
        ranked: (batch, round) -> sentences of the same pool, batches of equal length.
        further: What comes after all that, for one long run.
    """

    check: Sentences
    filling: Sentences
    pieces: dict[tuple[int, int], Sentences]
    ranked: dict[tuple[int, int], Sentences]
    further: Sentences

    def vocabulary(self) -> list[str]:
        """Return all words that a cache filled in advance must hold."""
        rows = [*self.check, *(row for piece in self.pieces.values() for row in piece)]
        return sorted({token for row in rows for token in row})


def make_plan(
    sentences: Sentences, batches: list[int], rounds: int, tokens: int, n_check: int = 32
) -> Plan:
    """Lay out a run; `tokens` is the size of the filling and of the long run."""
    supply = Supply(sentences)
    filling = supply.take(tokens, batch=n_check)
    pieces, ranked = {}, {}
    for batch in batches:
        size = 2 * batch if batch > 1 else SINGLES
        pool: Sentences = []
        for number in range(rounds):
            piece = supply.take(1, batch=size)
            pieces[batch, number] = piece
            pool += piece
        pool.sort(key=len)
        half = size // 2
        for number in range(rounds):
            end = len(pool) - number * half
            ranked[batch, number] = (
                pool[number * half : (number + 1) * half] + pool[end - half : end]
            )
    further = supply.take(tokens, batch=max(batches))
    if supply.rewound:
        raise ValueError("The text is too short for this plan: give a longer --text.")
    return Plan(filling[:n_check], filling, pieces, ranked, further)
