"""Checkpoints of bilm-tf, against one that TensorFlow wrote (recipes/tf_checkpoint.py)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import elmokit
from elmokit.cli.main import app
from elmokit.convert import tf_checkpoint
from elmokit.convert.crc32c import crc32c, masked
from elmokit.convert.tf_bundle import Bundle
from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import given_vocabulary, prepare
from elmokit.errors import ConfigError, ElmoError, ElmoWarning, WeightsError
from elmokit.sources import modeldir
from elmokit.sources.resolve import load_parts
from elmokit.train.finetune import finetune, finetune_config, start_from
from tests.convert.bundles import checksum, write_bundle
from tests.reference import elmo_layers
from tests.sources.models import same_bits

FOLDER = Path(__file__).with_name("tf_checkpoint")
PREFIX = FOLDER / "model.ckpt-12"
OPTIONS = json.loads((FOLDER / "options.json").read_text())
VERSE = "In the beginning God created the heaven and the earth .".split()

run = CliRunner().invoke


def tensorflow_says() -> dict[str, np.ndarray]:
    """The numbers as TensorFlow itself read and computed them."""
    with np.load(FOLDER / "tensorflow.npz") as file:
        numbers, shapes = file["numbers"], json.loads(str(file["shapes"]))
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    parts = np.split(numbers, np.cumsum(sizes)[:-1])
    return {n: p.reshape(s) for (n, s), p in zip(shapes.items(), parts, strict=True)}


SAYS = tensorflow_says()
VARIABLES = {n: v for n, v in SAYS.items() if not n.startswith(("says/", "after/"))}


def copied(folder: Path) -> Path:
    shutil.copytree(FOLDER, folder)
    return folder


def rewritten(folder: Path, tensors: dict[str, np.ndarray], **options: Any) -> Path:
    """A folder with a checkpoint of our own making and changed options."""
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(OPTIONS | options))
    return write_bundle(folder / "model.ckpt-3", tensors)


# ------------------------------------------------------------------------------------- the numbers


@pytest.mark.parametrize("size", [0, 1, 3, 4, 2047, 2048, 2052, 5001, 8192, 10_000])
def test_the_checksum_is_that_of_castagnoli(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert masked(crc32c(data)) == checksum(data)
    assert crc32c(b"123456789") == 0xE3069283


def test_every_tensor_is_what_tensorflow_reads() -> None:
    bundle = Bundle(PREFIX)
    assert bundle.entries.keys() == VARIABLES.keys()
    assert len(VARIABLES) == 51
    for name, value in VARIABLES.items():
        assert np.array_equal(bundle.read(name), value)
        assert bundle.read(name).dtype == value.dtype == np.float32


def test_what_the_bilm_says_is_what_tensorflow_computed() -> None:
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
def test_all_layers_are_those_of_an_independent_computation(dtype: torch.dtype) -> None:
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
    bilm = tf_checkpoint.read(FOLDER / "options.json", PREFIX).bilm.to(dtype)
    ids = torch.from_numpy(elmokit.batch_ids([["<S>", *VERSE, "</S>"]], 14))
    with torch.inference_mode():
        found = bilm(ids).layers[:, 0, 1:-1].numpy()
    assert np.abs(found - expected).max() < (1e-9 if dtype == torch.float64 else 1e-6)


def test_head_accumulators_and_step_come_along() -> None:
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


# ---------------------------------------------------------------------------------- going on


@pytest.fixture(scope="module")
def verse(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The text that TensorFlow trained on."""
    folder = tmp_path_factory.mktemp("verse")
    (folder / "verse.txt").write_text(" ".join(VERSE) + "\n")
    settings = PrepareSettings(max_characters=14, tokenized=True)
    vocabulary = given_vocabulary(FOLDER / "vocab.txt")
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


def test_a_training_goes_on_as_tensorflow_goes_on(verse: Corpus, tmp_path: Path) -> None:
    start = start_from(load_parts(FOLDER), verse)
    config = finetune_config(start, verse, max_steps=1, settings=AS_BILM_TF)
    model = finetune(config, start, verse, tmp_path / "run").run.model
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
                assert np.abs(wanted - old).max() > 1e-5, name  # it has learned
    assert expected.accumulators is None


def test_without_the_accumulators_the_step_would_be_another(verse: Corpus, tmp_path: Path) -> None:
    parts = load_parts(FOLDER)
    parts.accumulators = None
    start = start_from(parts, verse)
    config = finetune_config(start, verse, max_steps=1, settings=AS_BILM_TF)
    model = finetune(config, start, verse, tmp_path / "run").run.model
    found = modeldir.load(model).bilm.state_dict()["forward_lm.layers.1.bias"].numpy()
    wanted = SAYS["after/lm/RNN_0/rnn/multi_rnn_cell/cell_1/lstm_cell/bias"]
    assert np.abs(found - wanted).max() > 1e-3


def test_a_step_of_adagrad_is_that_of_the_formula(verse: Corpus, tmp_path: Path) -> None:
    """Gradients from the difference that plain gradient descent would make."""
    parts = load_parts(FOLDER)
    assert parts.accumulators is not None
    start = start_from(parts, verse)

    def after(accumulators: dict[str, torch.Tensor], rate: float, out: str) -> dict[str, Any]:
        start.parts.accumulators = accumulators
        settings = [*AS_BILM_TF, f"optimizer.learning_rate={rate}"]
        config = finetune_config(start, verse, max_steps=1, settings=settings)
        model = finetune(config, start, verse, tmp_path / out).run.model
        return modeldir.load(model).bilm.state_dict()

    real = dict(parts.accumulators)
    old = parts.bilm.state_dict()
    # With huge accumulators a step is rate * gradient / root: the gradient, unhidden.
    huge = {name: torch.full_like(t, 1e12) for name, t in real.items()}
    descended = after(huge, 1e6, "plain")
    found = after(real, 0.2, "adagrad")
    for name in ("encoder.projection.weight", "backward_lm.layers.0.weight_input"):
        gradient = (old[name] - descended[name]).double().numpy()
        total = real[f"bilm.{name}"].double().numpy() + gradient**2
        expected = old[name].double().numpy() - 0.2 * gradient / np.sqrt(total)
        assert np.abs(found[name].numpy() - expected).max() < 1e-6
        assert np.abs(gradient).max() > 1e-2


def test_a_new_head_takes_the_accumulators_of_the_bilm_alone(verse: Corpus) -> None:
    start = start_from(load_parts(FOLDER), verse, new_head=True)
    assert start.parts.accumulators
    assert all(name.startswith("bilm.") for name in start.parts.accumulators)


def test_the_command_tells_of_the_accumulators(verse: Corpus, tmp_path: Path) -> None:
    for kind, said in (("adagrad", "goes on with the accumulators"), ("adamw", "does not use")):
        args = ["finetune", str(PREFIX), str(verse.path), "-o", str(tmp_path / kind)]
        args += ["--max-steps", "1"]
        for setting in [*AS_BILM_TF, f"optimizer.kind={kind}"]:
            args += ["--set", setting]
        result = run(app, args)
        assert result.exit_code == 0, result.output
        assert said in result.stderr


# ------------------------------------------------------------------------------------- round trips


def test_a_checkpoint_goes_to_ours_and_to_hdf5_and_says_the_same(tmp_path: Path) -> None:
    ours, hdf5 = tmp_path / "ours", tmp_path / "hdf5"
    result = run(app, ["convert", str(FOLDER), str(ours)])
    assert result.exit_code == 0, result.output
    assert "adagrad.safetensors" in result.stdout
    result = run(app, ["convert", str(ours), str(hdf5), "--to", "hdf5"])
    assert result.exit_code == 0
    assert "the language-model head, the Adagrad accumulators" in result.stderr
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


def test_without_its_head_a_model_keeps_what_vectors_need(tmp_path: Path) -> None:
    result = run(app, ["convert", str(FOLDER), str(tmp_path / "out"), "--without-head"])
    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"config.json", "model.safetensors", "README.md"}


def test_info_tells_of_the_accumulators() -> None:
    told = json.loads(run(app, ["info", str(FOLDER), "--json"]).stdout)
    assert told["adagrad"] is True
    assert told["head"] is True
    assert "accumulators" in run(app, ["info", str(FOLDER)]).stdout


@pytest.mark.parametrize(
    "given",
    ["", "model.ckpt-12", "model.ckpt-12.index", "model.ckpt-12.data-00000-of-00001", "checkpoint"],
)
def test_a_checkpoint_may_be_named_by_any_of_its_files(given: str) -> None:
    assert same_bits(load_parts(FOLDER / given).bilm, load_parts(FOLDER).bilm)


# --------------------------------------------------------------------------------- other shapes


def test_shards_and_other_types(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {
        "a": rng.normal(size=(3, 4)).astype(np.float32),
        "b": rng.normal(size=(2,)),
        "c/d": np.arange(5, dtype=np.int64),
        "c/e": np.array(7, dtype=np.int32),
        "f": np.zeros((0, 3), dtype=np.float32),
        "g": rng.normal(size=5000).astype(np.float16),
    }
    bundle = Bundle(write_bundle(tmp_path / "x", tensors, shards=3))
    assert len(bundle.files) == 4
    for name, value in tensors.items():
        assert np.array_equal(bundle.read(name), value)
        assert bundle.read(name).dtype == value.dtype


def test_a_single_layer_has_no_scope_of_several(tmp_path: Path) -> None:
    tensors = {
        name.replace("/multi_rnn_cell/cell_0", ""): value
        for name, value in VARIABLES.items()
        if "/cell_1/" not in name
    }
    prefix = rewritten(tmp_path / "x", tensors, lstm=OPTIONS["lstm"] | {"n_layers": 1})
    parts = load_parts(prefix)
    assert parts.bilm.config.lstm.n_layers == 1
    assert parts.accumulators is not None


@pytest.mark.parametrize("shared", [True, False])
def test_a_model_that_reads_words(shared: bool, tmp_path: Path) -> None:
    tensors = {n: v for n, v in VARIABLES.items() if "CNN" not in n and "char" not in n}
    rng = np.random.default_rng(0)
    tensors["lm/embedding"] = rng.normal(size=(12, 3)).astype(np.float32)
    tensors["lm/embedding/Adagrad"] = np.ones((12, 3), np.float32)
    if shared:
        del tensors["lm/softmax/W"], tensors["lm/softmax/W/Adagrad"]
    prefix = rewritten(tmp_path / "x", tensors, share_embedding_softmax=shared)
    values = json.loads((prefix.parent / "options.json").read_text())
    del values["char_cnn"]
    (prefix.parent / "options.json").write_text(json.dumps(values))
    with pytest.raises(WeightsError, match=r"list of its 12 words is missing"):
        load_parts(prefix)
    parts = load_parts(prefix, vocab=FOLDER / "vocab.txt")
    assert parts.head is not None
    expected = tensors["lm/embedding"] if shared else tensors["lm/softmax/W"]
    assert np.array_equal(parts.head.weight.detach().numpy(), expected)


def test_what_is_not_used_is_told(tmp_path: Path) -> None:
    tensors = VARIABLES | {"lm/extra": np.zeros(3, np.float32)}
    prefix = rewritten(tmp_path / "x", tensors)
    with pytest.warns(ElmoWarning, match="variables that are not used: lm/extra"):
        load_parts(prefix)


def test_some_accumulators_are_none(tmp_path: Path) -> None:
    tensors = dict(VARIABLES)
    del tensors["lm/softmax/b/Adagrad"]
    prefix = rewritten(tmp_path / "x", tensors)
    with pytest.warns(ElmoWarning, match="lacks the accumulators of lm/softmax/b"):
        assert load_parts(prefix).accumulators is None


def test_a_checkpoint_without_head_and_accumulators_is_bare_weights(tmp_path: Path) -> None:
    bare = {n: v for n, v in VARIABLES.items() if "Adagrad" not in n and "softmax" not in n}
    parts = load_parts(rewritten(tmp_path / "x", bare))
    assert parts.head is None
    assert parts.accumulators is None


def test_specials_that_stand_elsewhere_are_put_first(tmp_path: Path) -> None:
    """A vocabulary of the tests of bilm-tf begins with </S>."""
    order = [1, 0, 2, *range(3, 12)]
    words = (FOLDER / "vocab.txt").read_text().splitlines()
    tensors = dict(VARIABLES)
    for name in ("lm/softmax/W", "lm/softmax/b", "lm/softmax/W/Adagrad", "lm/softmax/b/Adagrad"):
        tensors[name] = VARIABLES[name][order]
    prefix = rewritten(tmp_path / "x", tensors)
    (prefix.parent / "vocab.txt").write_text("".join(f"{words[place]}\n" for place in order))
    one, two = load_parts(FOLDER), load_parts(prefix)
    assert one.vocabulary is not None
    assert two.vocabulary is not None
    assert one.vocabulary.words == two.vocabulary.words
    assert one.head is not None
    assert two.head is not None
    assert same_bits(one.head, two.head)
    assert one.accumulators is not None
    assert two.accumulators is not None
    assert torch.equal(one.accumulators["head.weight"], two.accumulators["head.weight"])
    score = elmokit.load(prefix).score([VERSE])[0]
    assert score.perplexity == pytest.approx(elmokit.load(FOLDER).score([VERSE])[0].perplexity)


# --------------------------------------------------------------------------------- bad input


def test_hdf5_in_the_same_folder_comes_first(tmp_path: Path) -> None:
    folder = copied(tmp_path / "x")
    run(app, ["convert", str(FOLDER), str(tmp_path / "hdf5"), "--to", "hdf5"])
    shutil.copy(tmp_path / "hdf5" / "weights.hdf5", folder)
    assert load_parts(folder).head is None
    assert load_parts(folder / "checkpoint").head is not None


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    folder = copied(tmp_path / "x")
    (folder / "model.ckpt-12.data-00000-of-00001").unlink()
    with pytest.raises(WeightsError, match=r"no .*model\.ckpt-12\.data-00000-of-00001.*Copy it"):
        load_parts(folder)
    (folder / "options.json").unlink()
    with pytest.raises(WeightsError, match=r"no options\.json beside.*model\.ckpt-12.*copy it"):
        load_parts(folder)
    (folder / "model.ckpt-12.index").unlink()
    with pytest.raises(WeightsError, match=r"no checkpoint in .*model\.ckpt-12\.index"):
        load_parts(folder)
    (folder / "model.ckpt-12").write_bytes(b"old")
    with pytest.raises(WeightsError, match=r"format V1.*restore and save"):
        load_parts(folder)


def test_of_several_checkpoints_the_newest_is_taken_or_one_must_be_said(tmp_path: Path) -> None:
    folder = copied(tmp_path / "x")
    for path in list(folder.glob("model.ckpt-12.*")):
        shutil.copy(path, folder / path.name.replace("-12.", "-7."))
    # A path of another machine in the file counts by its name.
    (folder / "checkpoint").write_text('model_checkpoint_path: "/nowhere/model.ckpt-7"\n')
    assert "model.ckpt-7.index" in [file.name for file in load_parts(folder).files]
    (folder / "checkpoint").unlink()
    with pytest.raises(WeightsError, match=r"several checkpoints.*ckpt-12\.index, .*ckpt-7\.index"):
        load_parts(folder)


def test_every_cut_of_the_index_is_an_error(tmp_path: Path) -> None:
    raw = PREFIX.with_name(PREFIX.name + ".index").read_bytes()
    index = tmp_path / "x.index"
    for size in (*range(0, 60), *range(60, len(raw), 97)):
        index.write_bytes(raw[:size])
        with pytest.raises(WeightsError, match=r"x\.index is not the index"):
            Bundle(tmp_path / "x")


def test_every_changed_byte_of_the_index_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    raw = PREFIX.with_name(PREFIX.name + ".index").read_bytes()
    index, entries = tmp_path / "x.index", Bundle(PREFIX).entries

    def is_sound_or_told(at: int) -> bool:
        index.write_bytes(raw[:at] + bytes([raw[at] ^ 0x41]) + raw[at + 1 :])
        try:
            return Bundle(tmp_path / "x").entries == entries
        except WeightsError as error:
            return "x.index" in str(error)

    assert all(is_sound_or_told(at) for at in range(0, len(raw), 31))


def test_numbers_that_were_changed_or_cut_are_an_error(tmp_path: Path) -> None:
    folder = copied(tmp_path / "x")
    data = folder / "model.ckpt-12.data-00000-of-00001"
    raw = data.read_bytes()
    data.write_bytes(raw[:1000] + bytes([raw[1000] ^ 1]) + raw[1001:])
    with pytest.raises(WeightsError, match=r"Tensor 'lm/.*checksum differs"):
        load_parts(folder)
    data.write_bytes(raw[:1000])
    with pytest.raises(WeightsError, match=r"should end at byte .*which has 1,000: .*cut short"):
        load_parts(folder)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"compression": 1}, r"compressed \(snappy\).*does not do by itself.*tf\.train\.Saver"),
        ({"compression": 9}, r"compressed \(method 9\)"),
        ({"endianness": 1}, "big-endian"),
        ({"header": False}, "no header"),
        ({"changes": {"a": {"in_slices": True}}}, "Tensor 'a'.*in slices.*Save it whole"),
        ({"changes": {"a": {"dtype": 7}}}, "Tensor 'a'.*of type string; floats"),
        ({"changes": {"a": {"dtype": 99}}}, "Tensor 'a'.*of type number 99"),
        ({"changes": {"a": {"shard": 5}}}, "shard 5, and there are 1"),
        ({"changes": {"a": {"crc": 1}}}, "Tensor 'a'.*checksum differs"),
        ({"changes": {"a": {"shape": (2, 2)}}}, r"shape \[2, 2\] and 24 bytes"),
        ({"changes": {"a": {"shape": (2**63,)}}}, "shape or place of 'a' is negative"),
    ],
)
def test_what_is_not_read_is_told(written: dict[str, Any], said: str, tmp_path: Path) -> None:
    prefix = write_bundle(tmp_path / "x", {"a": np.zeros((2, 3), np.float32)}, **written)
    with pytest.raises(WeightsError, match=said):
        Bundle(prefix).read("a")


def test_a_name_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(WeightsError, match=r"no tensor 'lm/softmax/V'.*mean 'lm/softmax/"):
        Bundle(PREFIX).read("lm/softmax/V")


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"lm/CNN/b_cnn_1": None}, WeightsError, r"no variable 'lm/CNN/b_cnn_1' \[3\].*It holds"),
        (
            {"lm/CNN_proj/W_proj": np.zeros((5, 4), np.float32)},
            WeightsError,
            r"'lm/CNN_proj/W_proj'.*shape \[5, 4\]; the options call for \[5, 3\]",
        ),
        (
            {"lm/CNN_proj/b_proj": np.array([1.0, np.nan, 0.0], np.float32)},
            WeightsError,
            "'lm/CNN_proj/b_proj'.*NaN.*diverged",
        ),
        ({"lm/CNN_proj/b_proj": np.zeros(3, np.int64)}, WeightsError, "holds int64, not floats"),
        ({"lm/softmax/W": np.zeros((3, 3), np.float32)}, WeightsError, r"\[3, 3\].*\[12, 3\]"),
        ("one direction", ConfigError, "no backward language model.*'bidirectional' false"),
    ],
)
def test_variables_that_do_not_fit_are_named(
    change: Any, error: type[ElmoError], said: str, tmp_path: Path
) -> None:
    tensors = dict(VARIABLES)
    if change == "one direction":
        tensors = {n: v for n, v in tensors.items() if "RNN_1" not in n}
    else:
        tensors |= change
    prefix = rewritten(tmp_path / "x", {n: v for n, v in tensors.items() if v is not None})
    with pytest.raises(error, match=said):
        load_parts(prefix)


def test_accumulators_of_another_model_are_refused(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    run(app, ["convert", str(FOLDER), str(ours)])
    from safetensors.torch import load_file, save_file

    tensors = load_file(ours / "adagrad.safetensors")
    tensors.pop("head.bias")
    save_file(tensors, ours / "adagrad.safetensors")
    with pytest.raises(WeightsError, match=r"adagrad\.safetensors.*'head\.bias' \[12\] is missing"):
        load_parts(ours)
