"""A pipe of spaCy: contextual vectors of spaCy's own tokens.

    nlp = spacy.blank("en")
    nlp.add_pipe("elmokit", config={"layer": "top"})
    doc = nlp("She sat on the bank of the river.")
    doc[4].vector, doc._.elmo.word("bank")

It sets

    doc._.elmo       `SentenceVectors` of the whole doc, a column per token of spaCy: all layers
    doc.tensor       (T, D), one vector per token as `layer` chooses
    .vector, .similarity() of tokens, spans and docs

Each sentence is read by itself: those of the doc if a component before has set them, else those
that elmokit finds. Tokens of whitespace are not read; their vectors are zero, and a span's or a
doc's vector is the mean of the others.

With a pipeline the settings are stored, the name of the model and its fingerprint, not the weights.
A doc that comes back from bytes, a `DocBin` or another process has its vectors, but spaCy does not
store hooks: `attach(doc)` sets them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.vectors import FloatArray, SentenceVectors
from elmokit.errors import DataError, optional_imports
from elmokit.integrations.named import NamedModel
from elmokit.text.sentences import split_sentences

with optional_imports("spacy", "The spaCy pipe"):
    import srsly
    from spacy.language import Language
    from spacy.tokens import Doc, Span, Token

#: Where the layers of a doc lie in `doc.user_data`, and the choice that makes one vector of them.
LAYERS = "elmokit_layers"
CHOICE = "elmokit_choice"

# Tokens of a stream of docs that are read together.
_WINDOW_TOKENS = 16384
_FILE = "elmokit.json"


class ElmoPipe:
    """The pipe; `nlp.add_pipe("elmokit", config={...})` makes one.

    Args:
        model: What to load, when the first doc comes.
        layer: The vector of a token: the number of a layer, "top", "average", "concat" or "mix".
        mix: With "mix", the weights s, one per layer, used as they are.
        gamma: With "mix", the scale.
    """

    def __init__(
        self,
        model: NamedModel,
        layer: str | int = "average",
        mix: Sequence[float] | None = None,
        gamma: float = 1.0,
    ) -> None:
        self.model = model
        self.layer = layer
        self.mix = None if mix is None else [float(weight) for weight in mix]
        self.gamma = gamma

    def __call__(self, doc: Doc) -> Doc:
        """Set the vectors of a doc."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Set the vectors of many docs, which are read together.

        Args:
            stream: The docs.
            batch_size: Docs that are held at most; fewer, where they are long.
        """
        held: list[Doc] = []
        tokens = 0
        for doc in stream:
            held.append(doc)
            tokens += len(doc)
            if len(held) >= batch_size or tokens >= _WINDOW_TOKENS:
                yield from self._read(held)
                held, tokens = [], 0
        yield from self._read(held)

    def _read(self, docs: Sequence[Doc]) -> Sequence[Doc]:
        places = [(doc, place) for doc in docs for place in _sentences(doc)]
        with self.model.loaded() as elmo:
            n_layers, dim = elmo.config.n_layers, elmo.config.output_dim
            choice = LayerChoice.parse(self.layer, n_layers, self.mix, self.gamma, allow_all=False)
            found = elmo.embed([[doc[i].text for i in place] for doc, place in places])
        layers = {id(doc): np.zeros((n_layers, len(doc), dim), np.float32) for doc in docs}
        for (doc, place), vectors in zip(places, found, strict=True):
            layers[id(doc)][:, place] = vectors.layers
        for doc in docs:
            doc.user_data[LAYERS] = layers[id(doc)]
            doc.user_data[CHOICE] = choice.to_json()
            doc.tensor = np.ascontiguousarray(choice.apply(layers[id(doc)]))
            attach(doc)
        return docs

    # ------------------------------------------------------------------------------ serializing

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Store the settings, with the name and the fingerprint of the model."""
        stored: bytes = srsly.msgpack_dumps(self._settings())
        return stored

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> ElmoPipe:
        """Take the settings that `to_bytes` stored."""
        return self._take(srsly.msgpack_loads(data))

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Store the settings in a folder."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        srsly.write_json(folder / _FILE, self._settings())

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> ElmoPipe:
        """Take the settings that `to_disk` stored."""
        return self._take(srsly.read_json(Path(path) / _FILE))

    def _settings(self) -> dict[str, Any]:
        stored = {**asdict(self.model), "fingerprint": self.model.identify()}
        return stored | {"layer": self.layer, "mix": self.mix, "gamma": self.gamma}

    def _take(self, stored: Any) -> ElmoPipe:
        try:
            # Where the model lies and what computes may be another matter on this machine. If the
            # configuration of the pipeline says it, that counts; the fingerprint tells the rest.
            model = NamedModel(
                name=self.model.name if self.model.name is not None else stored["name"],
                precision=stored["precision"],
                device=self.model.device,
                batch_tokens=self.model.batch_tokens or stored["batch_tokens"],
                fingerprint=stored["fingerprint"],
            )
            self.layer, self.mix, self.gamma = stored["layer"], stored["mix"], stored["gamma"]
        except (TypeError, KeyError) as error:
            raise DataError(
                f"The stored data does not belong to this pipe: {error!r:.80}."
            ) from error
        self.model = model
        return self


def make_pipe(
    nlp: Language,
    name: str,
    model: str | None,
    layer: str | int,
    mix: list[float] | None,
    gamma: float,
    precision: str,
    device: str,
    batch_tokens: int | None,
) -> ElmoPipe:
    """Make the pipe that `nlp.add_pipe("elmokit")` asks for."""
    return ElmoPipe(NamedModel(model, precision, device, batch_tokens), layer, mix, gamma)


Language.factory(
    "elmokit",
    func=make_pipe,
    assigns=["doc._.elmo", "doc.tensor", "token.vector"],
    default_config={
        "model": None,
        "layer": "average",
        "mix": None,
        "gamma": 1.0,
        "precision": "exact",
        "device": "auto",
        "batch_tokens": None,
    },
)


# ------------------------------------------------------------------------------- alignment


def _sentences(doc: Doc) -> list[list[int]]:
    """Return the tokens of each sentence, by their numbers, without those of whitespace."""
    if doc.has_annotation("SENT_START"):
        spans = [range(sentence.start, sentence.end) for sentence in doc.sents]
    else:
        starts = [start for start, _ in split_sentences(doc.text)]
        # A token is of the sentence in which it starts, though it may reach into the next.
        firsts = np.searchsorted([token.idx for token in doc], starts).tolist()
        ends = [*firsts[1:], len(doc)]
        spans = [range(first, end) for first, end in zip(firsts, ends, strict=True)]
    sentences = [[i for i in span if not doc[i].is_space] for span in spans]
    return [sentence for sentence in sentences if sentence]


# ----------------------------------------------------------------------------- what users see


def attach(doc: Doc) -> Doc:
    """Let the vectors of a doc, its spans and tokens be those that the pipe stored in it."""
    if LAYERS not in doc.user_data:
        raise DataError(
            "This doc has no elmokit vectors. Process it with a pipeline that contains the pipe "
            '"elmokit"; a DocBin keeps them with store_user_data=True.'
        )
    for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
        hooks["vector"] = _vector
        hooks["has_vector"] = _has_vector
        hooks["similarity"] = _similarity
    return doc


def _elmo(doc: Doc) -> SentenceVectors | None:
    """Return what `doc._.elmo` is: None before the pipe has seen the doc."""
    layers: FloatArray | None = doc.user_data.get(LAYERS)
    if layers is None:
        return None
    if layers.shape[1] != len(doc):
        raise DataError(
            f"The doc has {len(doc)} tokens, but had {layers.shape[1]} when the pipe processed it. "
            "Merge and split tokens before the pipe, or process the doc again."
        )
    offsets = [(token.idx, token.idx + len(token)) for token in doc]
    return SentenceVectors([token.text for token in doc], offsets, layers)


def _part(piece: Doc | Span | Token) -> tuple[Doc, slice]:
    if isinstance(piece, Token):
        return piece.doc, slice(piece.i, piece.i + 1)
    if isinstance(piece, Span):
        return piece.doc, slice(piece.start, piece.end)
    return piece, slice(0, len(piece))


def _rows(doc: Doc, part: slice) -> FloatArray:
    layers: FloatArray | None = doc.user_data.get(LAYERS)
    if layers is None or layers.shape[1] != len(doc):
        # Cut out of another doc, or tokens were merged: spaCy has then changed the tensor with it.
        rows: FloatArray = doc.tensor[part]
        return rows
    # Not the tensor: a component after the pipe may have put its own there.
    choice = LayerChoice.parse(n_layers=len(layers), **doc.user_data[CHOICE])
    return choice.apply(layers[:, part])


def _vector(piece: Doc | Span | Token) -> FloatArray:
    doc, part = _part(piece)
    rows = _rows(doc, part)
    read = rows[[not token.is_space for token in doc[part]]]
    mean: FloatArray = read.mean(axis=0) if len(read) else np.zeros(rows.shape[1], np.float32)
    return mean


def _has_vector(piece: Doc | Span | Token) -> bool:
    doc, part = _part(piece)
    return any(not token.is_space for token in doc[part])


def _similarity(piece: Doc | Span | Token, other: Any) -> float:
    """Return the cosine; the same word in two places is not the same vector."""
    a, b = piece.vector, other.vector
    if a.shape != b.shape:
        raise DataError(
            f"Vectors of {len(a)} and {len(b)} dimensions cannot be compared: they were not "
            "computed by the same elmokit model."
        )
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else 0.0


Doc.set_extension("elmo", getter=_elmo, force=True)
