"""Neural translation with attention: does ELMo in the encoder help with unseen words?

The grammar below generates pairs of short English and German sentences, such as "today the old man
buys a small house" / "heute kauft der alte Mann ein kleines Haus". Word order and inflection differ
between the two languages. In the second test, every sentence has one word that does not occur in
the training data ("the large house", "the lady"). Without ELMo, it is an unknown word. With ELMo,
its vector is similar to that of a known word in the same context. With 600 training pairs, both
models translate all sentences of known words correctly. Without ELMo, 22% of the sentences with a
new word are translated correctly. With ELMo, 72% of them are. Nearly all remaining errors translate
"large" as "klein" (small), because antonyms occur in similar contexts.

    e_k = [x_k; ELMo_k]                                  ELMo at the encoder input
    h   = biGRU(e)
    s_t = GRU(s_{t-1}, [y_{t-1}; c_{t-1}])               the decoder
    c_t = sum_k softmax_k(v . tanh(W h_k + U s_t)) h_k   attention (Bahdanau et al. 2015)
    p(y_t) = softmax(V [s_t; c_t])

Usage: python examples/translate.py [TRAINING_PAIRS]         (takes a minute on two CPU cores)
"""

from __future__ import annotations

import random
import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

import elmokit

# The words held out from training are at the end of each dictionary. The gender of a noun is m, f
# or n.
PEOPLE = {
    "man": "Mann m", "woman": "Frau f", "child": "Kind n", "king": "König m", "girl": "Mädchen n",
    "teacher": "Lehrer m", "lady": "Frau f", "monarch": "König m",
}  # fmt: skip
THINGS = {
    "house": "Haus n", "letter": "Brief m", "flower": "Blume f", "book": "Buch n", "car": "Auto n",
    "garden": "Garten m", "city": "Stadt f", "automobile": "Auto n", "town": "Stadt f",
}  # fmt: skip
ADJECTIVES = {
    "old": "alt", "young": "jung", "small": "klein", "big": "groß", "beautiful": "schön",
    "little": "klein", "large": "groß",
}  # fmt: skip
VERBS = {
    "sees": "sieht", "loves": "liebt", "finds": "findet", "buys": "kauft",
    "describes": "beschreibt", "purchases": "kauft", "discovers": "findet",
}  # fmt: skip
TIMES = {"today": "heute", "now": "jetzt", "often": "oft"}
NEW = {
    "lady", "monarch", "automobile", "town", "little", "large", "purchases", "discovers"
}  # fmt: skip
ENDINGS = {  # (case, definite, gender): article and adjective ending
    ("nom", True, "m"): ("der", "e"), ("nom", True, "f"): ("die", "e"),
    ("nom", True, "n"): ("das", "e"), ("nom", False, "m"): ("ein", "er"),
    ("nom", False, "f"): ("eine", "e"), ("nom", False, "n"): ("ein", "es"),
    ("acc", True, "m"): ("den", "en"),
    ("acc", True, "f"): ("die", "e"), ("acc", True, "n"): ("das", "e"),
    ("acc", False, "m"): ("einen", "en"), ("acc", False, "f"): ("eine", "e"),
    ("acc", False, "n"): ("ein", "es"),
}  # fmt: skip
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
PAD, START, STOP, UNKNOWN = range(4)
Pair = tuple[list[str], list[str]]


def phrase(rng: random.Random, nouns: dict[str, str], case: str) -> Pair:
    """Generate a noun phrase such as "the old man" and its translation."""
    noun, adjective, definite = rng.choice([*nouns]), rng.choice([*ADJECTIVES]), rng.random() < 0.5
    german, gender = nouns[noun].split()
    article, ending = ENDINGS[case, definite, gender]
    indefinite = "an" if adjective[0] in "aeiou" else "a"
    return (
        ["the" if definite else indefinite, adjective, noun],
        [article, ADJECTIVES[adjective] + ending, german],
    )


def pair(rng: random.Random) -> Pair:
    """Generate a sentence and its translation, with the German verb in second position."""
    who, wer = phrase(rng, PEOPLE, "nom")
    what, wen = phrase(rng, THINGS, "acc")
    verb = rng.choice([*VERBS])
    if rng.random() < 0.5:
        return [*who, verb, *what], [*wer, VERBS[verb], *wen]
    time = rng.choice([*TIMES])
    return [time, *who, verb, *what], [TIMES[time], VERBS[verb], *wer, *wen]


def make_pairs(count: int, *, new: bool, seed: int) -> list[Pair]:
    """Generate pairs whose English sentence contains one word of `NEW` (if `new`) or none."""
    rng = random.Random(seed)
    pairs: list[Pair] = []
    while len(pairs) < count:
        candidate = pair(rng)
        if len(NEW.intersection(candidate[0])) == int(new):
            pairs.append(candidate)
    return pairs


class Vocabulary:
    """Mapping from words to ids."""

    def __init__(self, sentences: list[list[str]]) -> None:
        self.words = [*SPECIALS, *sorted({word for words in sentences for word in words})]
        self._ids = {word: i for i, word in enumerate(self.words)}

    def ids(self, sentences: list[list[str]]) -> Tensor:
        """Return the padded ids, (B, T)."""
        rows = [torch.tensor([self._ids.get(w, UNKNOWN) for w in s]) for s in sentences]
        return pad_sequence(rows, batch_first=True, padding_value=PAD)


class Translator(nn.Module):
    """Encoder with or without ELMo, and decoder with attention."""

    def __init__(self, source: int, target: int, elmo_dim: int, dim: int = 96) -> None:
        super().__init__()
        self.x = nn.Embedding(source, dim, padding_idx=PAD)
        self.mix = elmokit.ScalarMix(3) if elmo_dim else None
        self.encoder = nn.GRU(dim + elmo_dim, dim, bidirectional=True, batch_first=True)
        self.y = nn.Embedding(target, dim, padding_idx=PAD)
        self.decoder = nn.GRUCell(3 * dim, 2 * dim)
        self.key, self.query = nn.Linear(2 * dim, dim), nn.Linear(2 * dim, dim, bias=False)
        self.v = nn.Linear(dim, 1, bias=False)
        self.out = nn.Linear(4 * dim, target)
        self.dropout = nn.Dropout(0.3)

    def encode(self, ids: Tensor, layers: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return h_k and the mask of non-padding positions."""
        mask = ids != PAD
        if self.training:  # word dropout, to train the vector of unknown words
            ids = ids.masked_fill(mask & (torch.rand(ids.shape) < 0.15), UNKNOWN)
        e = self.x(ids)
        if self.mix is not None and layers is not None:
            e = torch.cat([e, self.mix(layers)], dim=2)  # [x_k; ELMo_k]
        return self.encoder(self.dropout(e))[0], mask

    def forward(self, ids: Tensor, layers: Tensor | None, target: Tensor | None) -> Tensor:
        """Return the scores of the next words, (B, T, V). Decode greedily if there is no target."""
        h, mask = self.encode(ids, layers)
        keys = self.key(h)
        s, c = h.new_zeros(len(h), h.shape[2]), h.new_zeros(len(h), h.shape[2])
        word, scores = torch.full((len(h),), START), []
        for t in range(12 if target is None else target.shape[1]):
            s = self.decoder(torch.cat([self.y(word), c], dim=1), s)
            weights = self.v(torch.tanh(keys + self.query(s).unsqueeze(1))).squeeze(2)
            c = (weights.masked_fill(~mask, -torch.inf).softmax(1).unsqueeze(2) * h).sum(1)
            scores.append(self.out(self.dropout(torch.cat([s, c], dim=1))))
            word = scores[-1].argmax(1) if target is None else target[:, t]
        return torch.stack(scores, dim=1)


class Data:
    """Sentence pairs as tensors, with the frozen ELMo layers if `elmo` is given."""

    def __init__(
        self,
        pairs: list[Pair],
        source: Vocabulary,
        target: Vocabulary,
        elmo: elmokit.ElmoModel | None,
    ) -> None:
        english = [words for words, _ in pairs]
        self.german = [words for _, words in pairs]
        self.ids = source.ids(english)
        self.target_ids = target.ids([[*words, "</s>"] for words in self.german])
        self.layers: Tensor | None = None
        if elmo is not None:
            layers = [torch.from_numpy(v.layers).transpose(0, 1) for v in elmo.embed(english)]
            self.layers = pad_sequence(layers, batch_first=True).permute(
                2, 0, 1, 3
            )  # (3, B, T, 2D)

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the ids, layers and target ids of the given rows."""
        return (
            self.ids[rows],
            None if self.layers is None else self.layers[:, rows],
            self.target_ids[rows],
        )


def train(model: Translator, data: Data, epochs: int = 30) -> None:
    """Train the model on all pairs."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model.train()
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(data.ids)), 32):
            ids, layers, target_ids = data.batch(rows)
            loss = F.cross_entropy(
                model(ids, layers, target_ids).flatten(0, 1), target_ids.flatten(), ignore_index=PAD
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


@torch.no_grad()
def translate(model: Translator, data: Data, target: Vocabulary) -> list[list[str]]:
    """Translate all sentences by greedy decoding."""
    model.eval()
    best = model(data.ids, data.layers, None).argmax(2).tolist()
    sentences = []
    for row in best:
        row = row[: row.index(STOP)] if STOP in row else row
        sentences.append([target.words[i] for i in row])
    return sentences


def main() -> None:
    """Train both models and report the share of sentences translated exactly."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    training = make_pairs(count, new=False, seed=0)
    tests = {
        "known words": make_pairs(200, new=False, seed=1),
        "a new word": make_pairs(200, new=True, seed=2),
    }
    source, target = (
        Vocabulary([english for english, _ in training]),
        Vocabulary([german for _, german in training]),
    )
    for name, elmo in (("without ELMo", None), ("with ELMo", elmokit.load(device="cpu"))):
        torch.manual_seed(0)
        dim = 0 if elmo is None else elmo.config.output_dim
        model = Translator(len(source.words), len(target.words), dim)
        train(model, Data(training, source, target, elmo))
        for what, pairs in tests.items():
            data = Data(pairs, source, target, elmo)
            output = translate(model, data, target)
            correct = [a == b for a, b in zip(output, data.german, strict=True)]
            print(
                f"{name}, {what}: {sum(correct) / len(pairs):.0%} of {len(pairs)} sentences correct"
            )
        by_word = {word: [i for i, p in enumerate(pairs) if word in p[0]] for word in sorted(NEW)}
        counts = (f"{word} {sum(correct[i] for i in n)}/{len(n)}" for word, n in by_word.items())
        print(f"  {', '.join(counts)}")
        for i in [correct.index(value) for value in (True, False) if value in correct]:
            english, german = (" ".join(words) for words in pairs[i])
            note = "" if correct[i] else f" (expected: {german})"
            print(f"  {english} -> {' '.join(output[i])}{note}")


if __name__ == "__main__":
    main()
