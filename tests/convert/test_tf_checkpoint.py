"""Checkpoints of bilm-tf, compared with one written by TensorFlow (recipes/tf_checkpoint.py)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmokit
from elmokit.cli.main import app
from elmokit.convert.tf_bundle import read_index
from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import prepare, read_vocabulary
from elmokit.sources import modeldir
from elmokit.sources.resolve import load_parts
from elmokit.train.finetune import finetune_config, prepare_initial_model
from elmokit.train.loop import train
from tests.convert.bundles import write_bundle
from tests.convert.tensorflow_checkpoint import FOLDER, OPTIONS, PREFIX, SAYS, VARIABLES, VERSE, run
from tests.reference import elmo_layers
from tests.sources.models import same_bits


def test_all_tensors_equal_those_read_by_tensorflow() -> None:
    stored = read_index(PREFIX)
    assert stored.keys() == VARIABLES.keys()
    assert len(VARIABLES) == 51
    for name, value in VARIABLES.items():
        assert np.array_equal(stored[name], value)
        assert np.asarray(stored[name]).dtype == value.dtype == np.float32


def test_bilm_output_equals_tensorflow() -> None:
    bilm = load_parts(FOLDER).bilm
    ids = elmokit.batch_ids([["<S>", *VERSE, "</S>"]], 14)
    with torch.inference_mode():
        layers = bilm(torch.from_numpy(ids)).layers[:, 0].numpy()  # (L + 1, T, 2D)
    back = SAYS["says/backward"][::-1]
    top = np.concatenate([SAYS["says/forward"], back], axis=1)
    assert np.abs(layers[0][:, :3] - SAYS["says/x"]).max() < 1e-6
    assert np.abs(layers[2] - top).max() < 1e-6
    assert np.abs(top).max() > 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_layers_equal_the_reference_implementation(dtype: torch.dtype) -> None:
    names = {
        "rnn/multi_rnn_cell/cell_": "RNN/MultiRNNCell/Cell",
        "lstm_cell/projection/kernel": "LSTMCell/W_P_0",
        "lstm_cell/kernel": "LSTMCell/W_0",
        "lstm_cell/bias": "LSTMCell/B",
    }
    weights = {}
    for name, value in VARIABLES.items():
        for theirs, dumped in names.items():
            name = name.replace(theirs, dumped)
        weights[name.removeprefix("lm/")] = value.astype(np.float64)
    expected = elmo_layers(VERSE, OPTIONS, weights)
    bilm = load_parts(FOLDER).bilm.to(dtype)
    ids = torch.from_numpy(elmokit.batch_ids([["<S>", *VERSE, "</S>"]], 14))
    with torch.inference_mode():
        found = bilm(ids).layers[:, 0, 1:-1].numpy()
    assert np.abs(found - expected).max() < (1e-9 if dtype == torch.float64 else 1e-6)


def test_head_accumulators_and_step_are_loaded() -> None:
    parts = load_parts(FOLDER)
    assert parts.head is not None
    assert parts.accumulators is not None
    assert np.array_equal(parts.head.weight.detach().numpy(), VARIABLES["lm/softmax/W"])
    assert parts.metadata["training"]["steps"] == 12
    assert parts.metadata["training"]["bilm_tf_options"] == OPTIONS
    assert parts.vocabulary is not None
    assert parts.vocabulary.words[:4] == ("<S>", "</S>", "<UNK>", "In")
    found = parts.accumulators
    names = {f"bilm.{n}" for n in parts.bilm.state_dict()} | {"head.weight", "head.bias"}
    assert found.keys() == names
    assert np.array_equal(found["head.bias"], VARIABLES["lm/softmax/b/Adagrad"])
    kernel = VARIABLES["lm/RNN_1/rnn/multi_rnn_cell/cell_1/lstm_cell/kernel/Adagrad"]
    assert np.array_equal(found["bilm.backward_lm.layers.1.weight_recurrent"], kernel[3:].T)


# ------------------------------------------------------------------------------ continuing training


@pytest.fixture(scope="module")
def verse(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Return the text that TensorFlow trained on."""
    folder = tmp_path_factory.mktemp("verse")
    (folder / "verse.txt").write_text(" ".join(VERSE) + "\n")
    settings = PrepareSettings(max_characters=14, tokenized=True)
    vocabulary = read_vocabulary(FOLDER / "vocab.txt")
    prepare([folder / "verse.txt"], folder / "data", settings, workers=1, vocabulary=vocabulary)
    return Corpus.open(folder / "data")


AS_BILM_TF = [
    "optimizer.kind=adagrad",
    "optimizer.learning_rate=0.2",
    "optimizer.warmup=0",
    "optimizer.final=1",
    "step.rows=1",
    "step.steps=12",
    "step.gradient_scale=12",
    "step.negatives=0",
    "step.dropout=0",
    "restart=0",
]


def test_continued_training_equals_tensorflow(verse: Corpus, tmp_path: Path) -> None:
    start = prepare_initial_model(load_parts(FOLDER), verse)
    config = finetune_config(start, verse, max_steps=1, settings=AS_BILM_TF)
    model = train(config, verse, tmp_path / "run", initial=start.parts).model
    theirs = {n.removeprefix("after/"): v for n, v in SAYS.items() if n.startswith("after/")}
    after = write_bundle(tmp_path / "model.ckpt-13", theirs)
    shutil.copy(FOLDER / "options.json", tmp_path)
    expected = load_parts(after)
    before, found = load_parts(FOLDER), modeldir.load(model)
    for ours in ("bilm", "head"):
        states = [getattr(p, ours).state_dict() for p in (before, expected, found)]
        for name in states[0]:
            old, wanted, got = (state[name].numpy() for state in states)
            assert np.abs(got - wanted).max() < 2e-6, name
            if name != "encoder.char_embed":
                assert np.abs(wanted - old).max() > 1e-5, name  # the loss has decreased
    assert expected.accumulators is None


def test_step_without_the_accumulators_differs(verse: Corpus, tmp_path: Path) -> None:
    parts = load_parts(FOLDER)
    parts.accumulators = None
    start = prepare_initial_model(parts, verse)
    config = finetune_config(start, verse, max_steps=1, settings=AS_BILM_TF)
    model = train(config, verse, tmp_path / "run", initial=start.parts).model
    found = modeldir.load(model).bilm.state_dict()["forward_lm.layers.1.bias"].numpy()
    wanted = SAYS["after/lm/RNN_0/rnn/multi_rnn_cell/cell_1/lstm_cell/bias"]
    assert np.abs(found - wanted).max() > 1e-3


def test_adagrad_step_follows_the_formula(verse: Corpus, tmp_path: Path) -> None:
    """Compute gradients from the difference that plain gradient descent would make."""
    parts = load_parts(FOLDER)
    assert parts.accumulators is not None
    start = prepare_initial_model(parts, verse)

    def after(accumulators: dict[str, torch.Tensor], rate: float, out: str) -> dict[str, Any]:
        start.parts.accumulators = accumulators
        settings = [*AS_BILM_TF, f"optimizer.learning_rate={rate}"]
        config = finetune_config(start, verse, max_steps=1, settings=settings)
        model = train(config, verse, tmp_path / out, initial=start.parts).model
        return modeldir.load(model).bilm.state_dict()

    real = dict(parts.accumulators)
    old = parts.bilm.state_dict()
    # With huge accumulators, a step is rate * gradient / root, which reveals the gradient.
    huge = {name: torch.full_like(t, 1e12) for name, t in real.items()}
    descended = after(huge, 1e6, "plain")
    found = after(real, 0.2, "adagrad")
    for name in ("encoder.projection.weight", "backward_lm.layers.0.weight_input"):
        gradient = (old[name] - descended[name]).double().numpy()
        total = real[f"bilm.{name}"].double().numpy() + gradient**2
        expected = old[name].double().numpy() - 0.2 * gradient / np.sqrt(total)
        assert np.abs(found[name].numpy() - expected).max() < 1e-6
        assert np.abs(gradient).max() > 1e-2


def test_new_head_loads_only_the_accumulators_of_the_bilm(verse: Corpus) -> None:
    start = prepare_initial_model(load_parts(FOLDER), verse, new_head=True)
    assert start.parts.accumulators
    assert all(name.startswith("bilm.") for name in start.parts.accumulators)


def test_command_reports_the_accumulators(verse: Corpus, tmp_path: Path) -> None:
    for kind, message in (("adagrad", "continues from the model"), ("adamw", "does not use")):
        args = ["finetune", str(PREFIX), str(verse.path), "-o", str(tmp_path / kind)]
        args += ["--max-steps", "1"]
        for setting in [*AS_BILM_TF, f"optimizer.kind={kind}"]:
            args += ["--set", setting]
        result = run(app, args)
        assert result.exit_code == 0, result.output
        assert message in result.stderr


# -------------------------------------------------------------------------------------- round trips


def test_conversion_to_model_directory_and_hdf5_preserves_vectors(tmp_path: Path) -> None:
    ours, hdf5 = tmp_path / "ours", tmp_path / "hdf5"
    result = run(app, ["convert", str(FOLDER), str(ours)])
    assert result.exit_code == 0, result.output
    assert "adagrad.safetensors" in result.stdout
    result = run(app, ["convert", str(ours), str(hdf5), "--to", "hdf5"])
    assert result.exit_code == 0
    assert "the LM head, the Adagrad accumulators" in result.stderr
    models = [load_parts(path) for path in (FOLDER, ours, hdf5)]
    assert all(same_bits(models[0].bilm, other.bilm) for other in models[1:])
    assert models[0].head is not None
    assert models[1].head is not None
    assert same_bits(models[0].head, models[1].head)
    one, two = models[0].accumulators, models[1].accumulators
    assert one is not None
    assert two is not None
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    vectors = [elmokit.load(path).embed([VERSE])[0].layers for path in (FOLDER, ours, hdf5)]
    assert np.array_equal(vectors[0], vectors[1])
    assert np.array_equal(vectors[0], vectors[2])


def test_model_without_its_head_keeps_all_that_vectors_need(tmp_path: Path) -> None:
    result = run(app, ["convert", str(FOLDER), str(tmp_path / "out"), "--without-head"])
    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"config.json", "model.safetensors", "README.md"}


def test_info_shows_the_accumulators() -> None:
    output = json.loads(run(app, ["info", str(FOLDER), "--json"]).stdout)
    assert output["adagrad"] is True
    assert output["head"] is True
    assert "accumulators" in run(app, ["info", str(FOLDER)]).stdout


@pytest.mark.parametrize(
    "given",
    ["", "model.ckpt-12", "model.ckpt-12.index", "model.ckpt-12.data-00000-of-00001", "checkpoint"],
)
def test_checkpoint_can_be_specified_by_any_of_its_files(given: str) -> None:
    assert same_bits(load_parts(FOLDER / given).bilm, load_parts(FOLDER).bilm)
