"""The spaCy component: aligned with its tokens, batched, and stored with the pipeline."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from elmokit.errors import ConfigError, DataError, WeightsError
from tests.conftest import TINY_MODEL

spacy = pytest.importorskip("spacy", reason="the extra `spacy` is not installed")

from spacy.language import Language  # noqa: E402
from spacy.tokens import Doc, DocBin  # noqa: E402

from elmokit.integrations.spacy import attach, make_pipe  # noqa: E402

MODEL = str(TINY_MODEL)
# Two sentences, with whitespace tokens before, between and after words.
TEXT = "  Let there be  light: and there was light.\n\nAnd God saw the light, that it was good. "


@pytest.fixture(scope="module")
def elmo() -> elmokit.ElmoModel:
    return elmokit.load(MODEL)


def pipeline(**config: object) -> Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmokit", config={"model": MODEL, **config})
    return nlp


def words(doc: Doc) -> list[str]:
    return [token.text for token in doc if not token.is_space]


def test_spacy_finds_the_component_without_importing_elmokit() -> None:
    from importlib.metadata import entry_points

    (entry,) = entry_points(group="spacy_factories", name="elmokit")
    assert entry.value == "elmokit.integrations.spacy:make_pipe"


# --------------------------------------------------------------------------------- alignment


def test_every_spacy_token_has_its_vector(elmo: elmokit.ElmoModel) -> None:
    doc = pipeline()(TEXT)
    first, second = (
        [t.text for t in doc if not t.is_space and (t.idx < TEXT.index("And")) == before]
        for before in (True, False)
    )
    expected = np.concatenate([v.layers for v in elmo.embed([first, second])], axis=1)
    read = [token.i for token in doc if not token.is_space]
    np.testing.assert_allclose(doc._.elmo.layers[:, read], expected, atol=2e-6)
    np.testing.assert_allclose(doc.tensor[read], expected.mean(axis=0), atol=2e-6)


def test_vectors_have_their_positions_in_the_text() -> None:
    doc = pipeline()(TEXT)
    found = doc._.elmo
    assert [TEXT[start:end] for start, end in found.offsets] == found.tokens
    assert found.tokens == [token.text for token in doc]


def test_whitespace_tokens_are_not_embedded() -> None:
    doc = pipeline()(TEXT)
    spaces = [token.i for token in doc if token.is_space]
    assert len(spaces) == 3
    assert not doc._.elmo.layers[:, spaces].any()
    assert not doc[spaces[0]].has_vector
    squeezed = pipeline()(" ".join(TEXT.split()))
    np.testing.assert_allclose(doc.vector, squeezed.vector, atol=2e-6)


def test_sentence_boundaries_of_the_doc_are_used_if_set(elmo: elmokit.ElmoModel) -> None:
    nlp = spacy.blank("en")
    doc = Doc(nlp.vocab, words=["And", "it", "was", "so"], sent_starts=[True, False, True, False])
    pipe = pipeline().get_pipe("elmokit")
    expected = elmo.embed([["And", "it"], ["was", "so"]])
    np.testing.assert_allclose(
        pipe(doc)._.elmo.layers, np.concatenate([v.layers for v in expected], axis=1), atol=2e-6
    )


@pytest.mark.parametrize("text", ["", " ", "\n\n \n", "light"])
def test_short_docs(text: str) -> None:
    doc = pipeline()(text)
    assert doc.tensor.shape == (len(doc), 32)
    assert doc._.elmo.layers.shape == (3, len(doc), 32)
    assert doc.vector.shape == (32,)


# ----------------------------------------------------------------------------------- vectors


def test_tokens_spans_and_docs_have_vectors() -> None:
    doc = pipeline(layer="top")("And God said, Let there be light.")
    for token in doc:
        np.testing.assert_array_equal(token.vector, doc._.elmo.top[token.i])
    np.testing.assert_allclose(doc[1:3].vector, doc._.elmo.top[1:3].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(doc.vector, doc._.elmo.top.mean(axis=0), atol=1e-6)
    assert doc.has_vector
    assert doc[1:3].has_vector


def test_word_has_different_vectors_in_different_contexts() -> None:
    doc = pipeline(layer="top")("Let there be light: and there was light.")
    first, second = (token for token in doc if token.text == "light")
    a, b = first.vector, second.vector
    cosine = float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert first.similarity(second) == pytest.approx(cosine)
    assert first.similarity(second) < 0.999
    assert first.similarity(first) == pytest.approx(1)
    assert doc.similarity(doc[:]) == pytest.approx(1)
    assert pipeline()("  ")[0].similarity(first) == 0


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        ({"layer": 0}, (1, 0, 0)),
        ({"layer": "1"}, (0, 1, 0)),
        ({"layer": "top"}, (0, 0, 1)),
        ({"layer": "mix", "mix": [0.2, 0.3, 0.7]}, (0.2, 0.3, 0.7)),
    ],
)
def test_layers_can_be_selected(config: dict[str, object], weights: tuple[float, ...]) -> None:
    doc = pipeline(**config)("And there was light.")
    np.testing.assert_allclose(doc.tensor, doc._.elmo.mix(weights), atol=1e-6)
    np.testing.assert_allclose(doc[0].vector, doc.tensor[0], atol=1e-6)


def test_factory_works_with_old_versions_of_confection() -> None:
    # Before version 1.0, confection did not resolve annotations that are strings.
    assert not any(isinstance(type_, str) for type_ in make_pipe.__annotations__.values())


@pytest.mark.parametrize(
    "config", [{"layer": "7"}, {"layer": "mix"}, {"mix": [1, 0, 0]}, {"layer": "all"}]
)
def test_invalid_layers_are_rejected(config: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        pipeline(**config)("light")


@pytest.mark.parametrize(
    "config",
    [{"precision": "quick"}, {"batch_tokens": 0}, {"layer": "topp"}, {"mix": [1, 0, 0]}],
)
def test_invalid_settings_are_rejected_immediately(config: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        pipeline(**config)


def test_component_that_sets_doc_tensor_does_not_change_the_vectors() -> None:
    doc = pipeline(layer="top")("And there was light.")
    doc.tensor = np.zeros((5, 3), np.float32)
    np.testing.assert_array_equal(doc[3].vector, doc._.elmo.top[3])


def test_extracted_docs_keep_their_vectors() -> None:
    doc = pipeline()("And God said, Let there be light.")
    np.testing.assert_allclose(doc[1:3].as_doc()[1].vector, doc[2].vector, atol=1e-6)
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[1:3])
    with pytest.raises(DataError, match="has 8 tokens, but had 9"):
        _ = doc._.elmo


# ----------------------------------------------------------------------------------- batches


def test_batched_docs_give_the_same_vectors(elmo: elmokit.ElmoModel) -> None:
    texts = [TEXT, "", "light", "And the evening and the morning were the first day."] * 5
    nlp = pipeline()
    docs = list(nlp.pipe(texts, batch_size=7))
    assert [doc.text for doc in docs] == texts
    for doc, text in zip(docs, texts, strict=True):
        np.testing.assert_allclose(doc.tensor, nlp(text).tensor, atol=2e-6)


def test_stream_is_processed_lazily() -> None:
    given = 0

    def endless() -> object:
        nonlocal given
        while True:
            given += 1
            yield "light"

    found = pipeline().pipe(endless(), batch_size=4)
    for _ in range(6):
        next(found)
    assert given <= 8 + 4


def test_two_processes_after_using_the_model_in_the_parent() -> None:
    nlp = pipeline(model="english")
    texts = ["And there was light.", TEXT]
    torch.set_num_threads(2)  # creates the threads that forked processes would wait for
    nlp(TEXT)
    with warnings.catch_warnings():
        # SpaCy warns that hooks are not serialized, for which there is `attach`.
        warnings.simplefilter("ignore")
        docs = list(nlp.pipe(texts, n_process=2, batch_size=1))
    torch.set_num_threads(1)
    for doc, text in zip(docs, texts, strict=True):
        expected = nlp(text)
        np.testing.assert_allclose(doc._.elmo.layers, expected._.elmo.layers, atol=2e-6)
        np.testing.assert_allclose(attach(doc)[1:3].vector, expected[1:3].vector, atol=2e-6)


# ------------------------------------------------------------------------------------ serialization


def test_pipeline_on_disk_contains_the_model_name_and_no_weights(tmp_path: Path) -> None:
    nlp = pipeline(layer="mix", mix=[0.2, 0.3, 0.5])
    nlp.to_disk(tmp_path / "nlp")
    size = sum(p.stat().st_size for p in (tmp_path / "nlp" / "elmokit").rglob("*") if p.is_file())
    assert size < 1000
    again = spacy.load(tmp_path / "nlp")
    np.testing.assert_array_equal(again(TEXT).tensor, nlp(TEXT).tensor)


def test_pipeline_as_bytes_contains_its_settings() -> None:
    nlp = pipeline(layer="top")
    fresh = spacy.blank("en")
    fresh.add_pipe("elmokit")
    fresh.from_bytes(nlp.to_bytes())
    np.testing.assert_array_equal(fresh(TEXT).tensor, nlp(TEXT).tensor)


def test_another_model_with_the_same_name_is_rejected(tmp_path: Path) -> None:
    pipeline().to_disk(tmp_path / "nlp")
    place = tmp_path / "nlp" / "elmokit" / "elmokit.json"
    stored = json.loads(place.read_text("utf-8"))
    place.write_text(json.dumps({**stored, "fingerprint": "0" * 32}), "utf-8")
    nlp = spacy.load(tmp_path / "nlp")
    with pytest.raises(WeightsError):
        nlp("light")
    place.write_text("[]", "utf-8")
    with pytest.raises(DataError):
        spacy.load(tmp_path / "nlp")


def test_path_of_the_model_can_be_changed(tmp_path: Path) -> None:
    nlp = pipeline()
    nlp.to_disk(tmp_path / "nlp")
    (tmp_path / "moved").symlink_to(TINY_MODEL)
    moved = {"components": {"elmokit": {"model": str(tmp_path / "moved")}}}
    again = spacy.load(tmp_path / "nlp", config=moved)
    assert again.get_pipe("elmokit").model.name == str(tmp_path / "moved")
    np.testing.assert_array_equal(again(TEXT).tensor, nlp(TEXT).tensor)


def test_docs_keep_their_vectors_as_bytes_in_a_docbin_and_in_a_pickle() -> None:
    nlp = pipeline(layer="top")
    doc = nlp(TEXT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (binned,) = DocBin(docs=[doc], store_user_data=True).get_docs(nlp.vocab)
        stored = Doc(nlp.vocab).from_bytes(doc.to_bytes())
    for again in (binned, stored, pickle.loads(pickle.dumps(doc))):
        np.testing.assert_array_equal(again._.elmo.layers, doc._.elmo.layers)
        np.testing.assert_array_equal(attach(again)[3].vector, doc[3].vector)


def test_doc_without_vectors() -> None:
    doc = spacy.blank("en")("light")
    assert doc._.elmo is None
    with pytest.raises(DataError):
        attach(doc)
