"""The scikit-learn transformer: in pipelines, searches and pickles.

scikit-learn itself skips all of its checks for estimators of strings, so those that do not pass a
numeric table to the estimator are called by name here.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.errors import ConfigError, DataError, WeightsError
from tests.conftest import TINY_MODEL

pytest.importorskip("sklearn", reason="the extra `sklearn` is not installed")

from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import estimator_checks

from elmokit.integrations.sklearn import ElmoVectorizer

MODEL = str(TINY_MODEL)
LIGHT = ["Let there be light.", "And there was light. It was good!", "The light was good."]
SEA = ["The waters were under the firmament.", "He called it Seas.", "Let the waters bring forth."]
TEXTS, LABELS = LIGHT + SEA, [1, 1, 1, 0, 0, 0]

# Checks without data. All others, in `_yield_all_checks`, fit on random numbers.
CHECKS = [
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
]


@pytest.fixture(scope="module")
def elmo() -> elmokit.ElmoModel:
    return elmokit.load(MODEL)


@pytest.mark.parametrize("name", CHECKS)
def test_checks_of_scikit_learn(name: str) -> None:
    getattr(estimator_checks, name)("ElmoVectorizer", ElmoVectorizer(MODEL))


# The checks with data, reimplemented with strings.


def test_fit_returns_self_and_does_not_change_settings() -> None:
    step = ElmoVectorizer(MODEL, layer="mix", mix=[0.2, 0.3, 0.5])
    before = step.get_params()
    assert step.fit(TEXTS, LABELS) is step
    assert step.get_params() == before
    assert set(vars(step)) - set(before) == {"fingerprint_", "n_features_out_"}


def test_refitting_and_order_do_not_matter() -> None:
    step = ElmoVectorizer(MODEL).fit(TEXTS)
    first = step.transform(TEXTS)
    np.testing.assert_array_equal(step.fit(TEXTS).transform(TEXTS), first)
    np.testing.assert_array_equal(ElmoVectorizer(MODEL).fit_transform(TEXTS), first)
    np.testing.assert_allclose(step.transform(TEXTS[::-1])[::-1], first, atol=2e-6)
    one_by_one = np.concatenate([step.transform([text]) for text in TEXTS])
    np.testing.assert_allclose(one_by_one, first, atol=2e-6)


def test_fit_is_optional() -> None:
    step = ElmoVectorizer(MODEL)
    np.testing.assert_array_equal(
        step.transform(TEXTS), ElmoVectorizer(MODEL).fit(TEXTS).transform(TEXTS)
    )


# ----------------------------------------------------------------------------------- vectors


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_tokens_are_pooled_over_the_sentences_of_a_text(
    elmo: elmokit.ElmoModel, pooling: str
) -> None:
    found = ElmoVectorizer(MODEL, layer="top", pooling=pooling).transform([TEXTS[1]])
    parts = elmo.embed(["And there was light.", "It was good!"])
    tokens = np.concatenate([part.top for part in parts])
    expected = {"mean": tokens.mean(axis=0), "max": tokens.max(axis=0), "first": tokens[0]}
    np.testing.assert_allclose(found[0], expected[pooling], atol=2e-6)
    assert found.dtype == np.float32


def test_lists_of_tokens_are_not_tokenized(elmo: elmokit.ElmoModel) -> None:
    tokens = ["And", "it", "was", "so.", "Amen"]
    found = ElmoVectorizer(MODEL).transform([tokens, tuple(tokens)])
    expected = elmo.embed([tokens])[0].average.mean(axis=0)
    np.testing.assert_allclose(found, [expected, expected], atol=2e-6)


@pytest.mark.parametrize(
    ("layer", "mix", "size"),
    [("average", None, 32), (0, None, 32), ("mix", [0, 0, 2], 32), ("concat", None, 96)],
)
def test_layers_can_be_selected(
    elmo: elmokit.ElmoModel, layer: str | int, mix: list[float] | None, size: int
) -> None:
    step = ElmoVectorizer(MODEL, layer=layer, mix=mix).fit(TEXTS)
    found = step.transform(["light"])[0]
    h = elmo.embed([["light"]])[0].layers[:, 0]
    expected = {"average": h.mean(axis=0), 0: h[0], "mix": 2 * h[2], "concat": h.reshape(-1)}
    np.testing.assert_allclose(found, expected[layer], atol=2e-6)
    assert step.n_features_out_ == size
    assert step.get_feature_names_out()[-1] == f"elmovectorizer{size - 1}"


def test_text_without_tokens_is_a_zero_vector() -> None:
    found = ElmoVectorizer(MODEL).transform(["", "light", " \n", []])
    assert found.shape == (4, 32)
    assert found.any(axis=1).tolist() == [False, True, False, False]
    assert ElmoVectorizer(MODEL).transform([]).shape == (0, 32)


@pytest.mark.parametrize(
    "texts", ["light", 7, [1.5], [None], [["a", 1]], [b"light"], np.array([["a"], ["b"]])]
)
def test_non_text_input_is_rejected(texts: object) -> None:
    with pytest.raises(DataError, match=r"[Tt]ext"):
        ElmoVectorizer(MODEL).transform(texts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [{"pooling": "last"}, {"layer": 3}, {"layer": "mix"}, {"mix": [1, 0, 0]}, {"precision": "x"}],
)
def test_invalid_settings_are_rejected_by_fit(settings: dict[str, object]) -> None:
    step = ElmoVectorizer(MODEL, **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        step.fit(TEXTS)


def test_loaded_model_is_rejected_because_it_would_be_copied(elmo: elmokit.ElmoModel) -> None:
    with pytest.raises(ConfigError, match=r"name or path.*elmo\.source"):
        ElmoVectorizer(elmo).fit(TEXTS)  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------- composition


def test_pipeline_step() -> None:
    pipeline = make_pipeline(ElmoVectorizer(MODEL), LogisticRegression(C=1e4, max_iter=1000))
    assert pipeline.fit(TEXTS, LABELS).score(TEXTS, LABELS) == 1
    names = pipeline[:-1].get_feature_names_out()
    assert list(names) == [f"elmovectorizer{i}" for i in range(32)]


def test_column_transformer() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": TEXTS, "length": [len(text) for text in TEXTS]})
    columns = ColumnTransformer(
        [("elmo", ElmoVectorizer(MODEL), "text"), ("length", "passthrough", ["length"])]
    ).set_output(transform="pandas")
    found = columns.fit_transform(table)
    assert found.shape == (6, 33)
    assert found.columns[0] == "elmo__elmovectorizer0"
    np.testing.assert_allclose(
        found.iloc[:, :32].to_numpy(), ElmoVectorizer(MODEL).transform(TEXTS), atol=2e-6
    )
    wrong = ColumnTransformer([("elmo", ElmoVectorizer(MODEL), ["text"])])
    with pytest.raises(DataError, match=r"'text' instead of \['text'\]"):
        wrong.fit_transform(table)


# Two processes import torch and load the model: half a minute on a busy machine.
@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_grid_search_over_its_settings(n_jobs: int) -> None:
    pipeline = Pipeline([("elmo", ElmoVectorizer(MODEL)), ("classify", LogisticRegression())])
    grid = {"elmo__layer": [0, "top"], "elmo__pooling": ["mean", "max"]}
    search = GridSearchCV(pipeline, grid, cv=3, n_jobs=n_jobs, error_score="raise")
    search.fit(TEXTS, LABELS)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_.predict(TEXTS).shape == (6,)


def test_threads_take_turns_with_a_model() -> None:
    from joblib import Parallel, delayed

    from elmokit.integrations import named

    named._load.cache_clear()  # so that all words are new to the model, and are used by all threads
    texts = [[f"w{i} w{i + part} w{i * part}" for i in range(300)] for part in range(12)]
    step = ElmoVectorizer(MODEL)
    found = Parallel(n_jobs=4, backend="threading")(
        delayed(clone(step).transform)(part) for part in texts
    )
    for vectors, part in zip(found, texts, strict=True):
        np.testing.assert_allclose(vectors, step.transform(part), atol=2e-6)


def test_grid_search_loads_a_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from elmokit.integrations import named

    named._load.cache_clear()
    loads = []
    load = named.load
    monkeypatch.setattr(named, "load", lambda *a, **k: loads.append(a) or load(*a, **k))
    for layer in (0, 1, "top"):
        clone(ElmoVectorizer(MODEL, layer=layer)).fit(TEXTS).transform(TEXTS)
    assert len(loads) == 1


# ----------------------------------------------------------------------------------- pickles


def test_pickles_contain_the_model_name_and_no_weights() -> None:
    step = ElmoVectorizer(MODEL, layer="top").fit(TEXTS)
    expected = step.transform(TEXTS)
    data = pickle.dumps(step)
    assert len(data) < 2000
    np.testing.assert_array_equal(pickle.loads(data).transform(TEXTS), expected)


def test_another_model_with_the_same_name_is_rejected(tmp_path: Path) -> None:
    from elmokit.sources import modeldir

    parts = modeldir.load(TINY_MODEL)
    modeldir.save(parts, tmp_path / "mine")
    step = ElmoVectorizer(str(tmp_path / "mine")).fit(TEXTS)
    parts.bilm.encoder.projection.weight.data.mul_(2)
    modeldir.save(parts, tmp_path / "mine", overwrite=True)
    with pytest.raises(WeightsError):
        step.transform(TEXTS)
    assert step.fit(TEXTS).transform(TEXTS).any()
