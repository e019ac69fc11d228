"""A spaCy pipeline component that computes contextual vectors for spaCy's tokens.

    nlp = spacy.blank("en")
    nlp.add_pipe("elmokit", config={"layer": "top"})
    doc = nlp("She sat on the bank of the river.")
    doc[4].vector, doc._.elmo.word("bank")

The component sets

    doc._.elmo       `SentenceVectors` with all layers of all tokens
    doc.tensor       one vector per token, shape (T, D), as selected by `layer`
    .vector, .has_vector, .similarity() of tokens, spans and docs

Sentences are embedded independently. If no earlier component has set sentence boundaries, elmokit
splits the text into sentences. Whitespace tokens are not embedded: their vectors are zero, and they
are not included in the mean vectors of spans and docs.

A saved pipeline contains the settings, and the name and fingerprint of the model, but not its
weights. Docs that come from bytes, a `DocBin` or another process contain their vectors, but
spaCy does not store hooks. To restore the hooks, call `attach(doc)`.
"""

# No `from __future__ import annotations`: in confection before 1.0, which spaCy 3.7 uses, the
# annotations of a factory's arguments must be types, not strings.
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.vectors import FloatArray, SentenceVectors
from elmokit.errors import DataError, optional_imports
from elmokit.integrations.named import NamedModel
from elmokit.progress import plural
from elmokit.text.sentences import sentence_spans

with optional_imports("spacy", "The spaCy component"):
    from spacy.language import Language
    from spacy.tokens import Doc, Span, Token

#: Keys of `doc.user_data`: the layers of a doc, and the layer choice for `.vector`.
LAYERS = "elmokit_layers"
CHOICE = "elmokit_choice"

# Approximate maximum number of tokens to embed together.
_WINDOW_TOKENS = 16384
_FILE = "elmokit.json"


class ElmoPipe:
    """The component that `nlp.add_pipe("elmokit", config={...})` creates.

    Args:
        model: The model, which is loaded on first use, and the layer choice.
    """

    def __init__(self, model: NamedModel) -> None:
        self.model = model

    def __call__(self, doc: Doc) -> Doc:
        """Set the vectors of a doc."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Set the vectors of docs, in batches.

        Args:
            stream: The docs.
            batch_size: Maximum number of docs per batch. Batches of long docs are smaller.
        """
        batch: list[Doc] = []
        for doc in stream:
            batch.append(doc)
            if len(batch) >= batch_size or sum(map(len, batch)) >= _WINDOW_TOKENS:
                yield from self._embed(batch)
                batch = []
        yield from self._embed(batch)

    def _embed(self, docs: Sequence[Doc]) -> Sequence[Doc]:
        sentences = [(doc, tokens) for doc in docs for tokens in _sentences(doc)]
        with self.model.loaded() as elmo:
            n_layers, dim = elmo.config.n_layers, elmo.config.output_dim
            choice = self.model.choice(n_layers)
            embedded = elmo.embed([[doc[i].text for i in tokens] for doc, tokens in sentences])
        layers = {id(doc): np.zeros((n_layers, len(doc), dim), np.float32) for doc in docs}
        for (doc, tokens), vectors in zip(sentences, embedded, strict=True):
            layers[id(doc)][:, tokens] = vectors.layers
        for doc in docs:
            doc.user_data[LAYERS] = layers[id(doc)]
            doc.user_data[CHOICE] = choice.to_json()
            doc.tensor = np.ascontiguousarray(choice.apply(layers[id(doc)]))
            attach(doc)
        return docs

    # -------------------------------------------------------------------------- serialization

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the settings and the name and fingerprint of the model as JSON."""
        settings = asdict(self.model) | {"fingerprint": self.model.identify()}
        return json.dumps(settings).encode()

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> "ElmoPipe":
        """Restore the settings that `to_bytes` returned."""
        # The path of the model, the device and the batch size may be different on this machine, so
        # the configuration of the pipeline takes precedence. The fingerprint is still checked.
        overrides = {"name": self.model.name, "batch_tokens": self.model.batch_tokens}
        overrides = {key: value for key, value in overrides.items() if value is not None}
        try:
            stored = json.loads(data)
            self.model = NamedModel(**{**stored, **overrides, "device": self.model.device})
        except (TypeError, ValueError) as error:
            raise DataError(
                f"The stored settings of the component 'elmokit' are invalid ({error!r:.80}). Save "
                "the pipeline again."
            ) from error
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write the settings to a directory."""
        Path(path).mkdir(parents=True, exist_ok=True)
        (Path(path) / _FILE).write_bytes(self.to_bytes())

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> "ElmoPipe":
        """Restore the settings that `to_disk` wrote."""
        return self.from_bytes((Path(path) / _FILE).read_bytes())


@Language.factory(  # type: ignore[untyped-decorator, unused-ignore]
    "elmokit", assigns=["doc._.elmo", "doc.tensor", "token.vector"]
)
def make_pipe(
    nlp: Language,
    name: str,
    model: str | None = None,
    layer: str | int = "average",
    mix: list[float] | None = None,
    gamma: float = 1.0,
    precision: str = "exact",
    device: str = "auto",
    batch_tokens: int | None = None,
) -> ElmoPipe:
    """Create the component for `nlp.add_pipe("elmokit")`."""
    return ElmoPipe(NamedModel(model, precision, device, batch_tokens, None, layer, mix, gamma))


# ------------------------------------------------------------------------------- alignment


def _sentences(doc: Doc) -> list[list[int]]:
    """Return the token indices of each sentence, without whitespace tokens."""
    if doc.has_annotation("SENT_START"):
        spans = [range(sentence.start, sentence.end) for sentence in doc.sents]
    else:
        starts = [start for start, _ in sentence_spans(doc.text)]
        # A token belongs to the sentence in which it starts, even if it extends into the next.
        firsts = np.searchsorted([token.idx for token in doc], starts).tolist()
        ends = [*firsts[1:], len(doc)]
        spans = [range(first, end) for first, end in zip(firsts, ends, strict=True)]
    sentences = [[i for i in span if not doc[i].is_space] for span in spans]
    return [sentence for sentence in sentences if sentence]


# ------------------------------------------------------------------------------ vectors of docs


def attach(doc: Doc) -> Doc:
    """Set the hooks that make a doc, its spans and its tokens use the stored vectors."""
    if LAYERS not in doc.user_data:
        raise DataError(
            "This doc has no elmokit vectors. Process it with a pipeline that contains the "
            'component "elmokit". To keep the vectors in a DocBin, set store_user_data=True.'
        )
    for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
        hooks |= {"vector": _vector, "has_vector": _has_vector, "similarity": _similarity}
    return doc


def _elmo(doc: Doc) -> SentenceVectors | None:
    """Return the value of `doc._.elmo`; None if the doc was not processed by the component."""
    layers: FloatArray | None = doc.user_data.get(LAYERS)
    if layers is None:
        return None
    if layers.shape[1] != len(doc):
        raise DataError(
            f"The doc has {plural(len(doc), 'token')}, but had {layers.shape[1]:,} when the "
            "component processed it. Merge and split tokens before that, or process the doc again."
        )
    offsets = [(token.idx, token.idx + len(token)) for token in doc]
    return SentenceVectors([token.text for token in doc], offsets, layers)


def _as_span(item: Doc | Span | Token) -> Span:
    return item.doc[item.i : item.i + 1] if isinstance(item, Token) else item[:]


def _vector(item: Doc | Span | Token) -> FloatArray:
    span = _as_span(item)
    layers: FloatArray | None = span.doc.user_data.get(LAYERS)
    if layers is None or layers.shape[1] != len(span.doc):
        # The doc was copied or its tokens were merged. spaCy has updated the tensor.
        rows: FloatArray = span.doc.tensor[span.start : span.end]
    else:
        # Do not use the tensor, because later components may have replaced it.
        choice = LayerChoice.parse(n_layers=len(layers), **span.doc.user_data[CHOICE])
        rows = choice.apply(layers[:, span.start : span.end])
    words = rows[[not token.is_space for token in span]]
    mean: FloatArray = words.mean(axis=0) if len(words) else np.zeros(rows.shape[1], np.float32)
    return mean


def _has_vector(item: Doc | Span | Token) -> bool:
    return any(not token.is_space for token in _as_span(item))


def _similarity(item: Doc | Span | Token, other: Any) -> float:
    """Return the cosine similarity of the contextual vectors."""
    a, b = item.vector, other.vector
    if a.shape != b.shape:
        raise DataError(
            f"Cannot compare vectors of {len(a)} and {len(b)} dimensions: they were computed with "
            "different models or layers. Process both docs with the same pipeline."
        )
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms else 0.0


Doc.set_extension("elmo", getter=_elmo, force=True)
