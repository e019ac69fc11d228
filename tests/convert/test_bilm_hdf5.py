"""Conformance: golden files of AllenNLP and bilm-tf, and exact round trips of their format."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import elmokit
from elmokit.config import BiLMConfig, LstmConfig
from elmokit.convert import bilm_hdf5
from elmokit.errors import ConfigError, ElmoWarning, WeightsError
from elmokit.model.bilm import BiLM
from elmokit.model.chars import batch_ids, char_ids_table
from elmokit.presets import PRESETS
from tests.conftest import TINY, TINY_MODEL, random_bilm
from tests.reference import elmo_layers

GOLDEN = {
    "skip": ("allenai-allennlp/test_fixtures/elmo", "sentences.json"),
    "no-skip": ("allenai-bilm-tf/fixtures/model", "lm_embeddings_sentences.json"),
}
TOLERANCE = 1e-5


def golden(shared: Path, name: str) -> tuple[Path, list[list[list[str]]]]:
    folder, sentences = GOLDEN[name]
    path = shared / "fixtures" / folder
    rows = json.loads((path / sentences).read_text())
    return path, [[sentence.split() for sentence in row] for row in rows]


def collect_ids(sentences: list[list[str]]) -> torch.Tensor:
    return torch.from_numpy(batch_ids([["<S>", *s, "</S>"] for s in sentences]))


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("together", [True, False])
def test_all_30_golden_sentences_with_carried_state(
    shared: Path, name: str, together: bool
) -> None:
    path, rows = golden(shared, name)
    bilm = bilm_hdf5.read(path / "options.json", path / "lm_weights.hdf5")
    groups = [[0, 1, 2]] if together else [[0], [1], [2]]
    for group in groups:
        state = None
        for i in range(10):
            layers, _, state = bilm(collect_ids([rows[k][i] for k in group]), state)
            for row, k in enumerate(group):
                with h5py.File(path / f"lm_embeddings_{k}.hdf5") as file:
                    expected = np.concatenate(list(file[str(i)][...]), axis=-1)
                found = layers[-1, row, 1 : len(rows[k][i]) + 1].detach().numpy()
                assert np.abs(found - expected).max() <= TOLERANCE
                if i == 1:  # the state matters: vectors from the zero state are different
                    stateless = bilm(collect_ids([rows[k][i]])).layers[-1, 0, 1:-1].detach().numpy()
                    assert np.abs(stateless - expected).max() > 1e-2


def test_the_458_golden_token_vectors(shared: Path) -> None:
    path, _ = golden(shared, "skip")
    words = (path / "vocab_test.txt").read_text().splitlines()
    bilm = bilm_hdf5.read(path / "options.json", path / "lm_weights.hdf5")
    with h5py.File(path / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][...]
    found = bilm.encoder(torch.from_numpy(char_ids_table(words))).detach().numpy()
    assert found.shape == expected.shape == (458, 16)
    assert np.abs(found - expected).max() <= TOLERANCE


@pytest.mark.parametrize("name", GOLDEN)
def test_all_layers_of_the_reference_sentence(shared: Path, name: str) -> None:
    path, _ = golden(shared, name)
    bilm = bilm_hdf5.read(path / "options.json", path / "lm_weights.hdf5")
    words = "Michael went to the store to buy some eggs .".split()
    found = bilm(collect_ids([words])).layers[:, 0, 1:-1].detach().numpy()
    sums = {
        "skip": [-24.49145, -15.46531, -39.67462],
        "no-skip": [5.86772, -9.02267, -7.87470],
    }[name]
    np.testing.assert_allclose(found.sum(axis=(1, 2)), sums, atol=5e-4)
    with h5py.File(path / "lm_weights.hdf5") as file:
        weights: dict[str, np.ndarray] = {}
        file.visititems(
            lambda key, item: (
                weights.update({key: item[...].astype(np.float64)})
                if isinstance(item, h5py.Dataset)
                else None
            )
        )
    options = json.loads((path / "options.json").read_text())
    np.testing.assert_allclose(found, elmo_layers(words, options, weights), atol=TOLERANCE)


def write_tiny(folder: Path, bilm: BiLM | None = None) -> tuple[Path, Path]:
    options, weights = folder / "options.json", folder / "weights.hdf5"
    bilm_hdf5.write(bilm or random_bilm(TINY), options, weights)
    return options, weights


@pytest.mark.parametrize("name", GOLDEN)
def test_round_trip_is_bit_identical(shared: Path, name: str, tmp_path: Path) -> None:
    path, _ = golden(shared, name)
    bilm = bilm_hdf5.read(path / "options.json", path / "lm_weights.hdf5")
    _, weights = write_tiny(tmp_path, bilm)
    before: dict[str, bytes] = {}
    after: dict[str, bytes] = {}
    for file_path, found in ((path / "lm_weights.hdf5", before), (weights, after)):
        with h5py.File(file_path) as file:
            for entry in bilm_hdf5.entries(bilm.config):
                found[entry.name] = file[entry.name][...].tobytes()
    assert before == after


def test_round_trip_of_word_input_models(tmp_path: Path) -> None:
    config = BiLMConfig(LstmConfig(dim=9, projection_dim=4), None, n_words=11)
    bilm = random_bilm(config)
    again = bilm_hdf5.read(*write_tiny(tmp_path, bilm))
    assert again.config == config
    for name, tensor in bilm.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_float_types_can_be_read(tmp_path: Path, dtype: str) -> None:
    options, weights = write_tiny(tmp_path)
    with h5py.File(weights, "a") as file:
        for entry in bilm_hdf5.entries(TINY):
            value = file[entry.name][...].astype(dtype)
            del file[entry.name]
            file.create_dataset(entry.name, data=value)
    state = bilm_hdf5.read(options, weights).state_dict()
    for name, tensor in random_bilm(TINY).state_dict().items():
        assert state[name].dtype == torch.float32
        assert torch.allclose(state[name], tensor, atol=1e-2 if dtype == "float16" else 0), name


def test_training_options_with_261_characters_can_be_read(tmp_path: Path) -> None:
    options, weights = write_tiny(tmp_path)
    values = json.loads(options.read_text())
    values["char_cnn"]["n_characters"] = 261
    values |= {"bidirectional": True, "dropout": 0.1, "n_train_tokens": 768648884}
    options.write_text(json.dumps(values))
    assert bilm_hdf5.read(options, weights).config == TINY


@pytest.mark.parametrize(
    ("preset", "count"), [("small", 13593296), ("medium", 28027728), ("original", 93600848)]
)
def test_presets_have_the_published_number_of_parameters(preset: str, count: int) -> None:
    sizes = [np.prod(entry.shape) for entry in bilm_hdf5.entries(PRESETS[preset])]
    assert sum(map(int, sizes)) == count
    with torch.device("meta"):
        assert sum(p.numel() for p in BiLM(PRESETS[preset]).parameters()) == count


# ------------------------------------------------------------------------------------ invalid files


def test_wrong_shape_error_names_the_tensor_and_both_shapes(tmp_path: Path) -> None:
    options, weights = write_tiny(tmp_path)
    values = json.loads(options.read_text())
    values["lstm"]["dim"] = 25
    options.write_text(json.dumps(values))
    with pytest.raises(WeightsError, match=r"LSTMCell/W_0.*\[20, 96\].*\[20, 100\]"):
        bilm_hdf5.read(options, weights)


def test_nan_is_rejected(tmp_path: Path) -> None:
    options, weights = write_tiny(tmp_path)
    with h5py.File(weights, "a") as file:
        file["CNN/b_cnn_1"][2] = np.nan
    with pytest.raises(WeightsError, match=r"CNN/b_cnn_1.*NaN"):
        bilm_hdf5.read(options, weights)


def test_truncated_file_is_rejected(tmp_path: Path) -> None:
    options, weights = write_tiny(tmp_path)
    data = weights.read_bytes()
    for size in (0, 7, 500, len(data) // 2, len(data) - 1):
        weights.write_bytes(data[:size])
        with pytest.raises(WeightsError, match=r"weights\.hdf5"):
            bilm_hdf5.read(options, weights)


def test_error_for_other_hdf5_files_lists_their_contents(tmp_path: Path) -> None:
    options, weights = write_tiny(tmp_path)
    with h5py.File(weights, "w") as file:
        file["something/else"] = np.zeros(3)
    with pytest.raises(WeightsError, match=r"char_embed.*something"):
        bilm_hdf5.read(options, weights)


def test_misspelled_key_is_reported_with_a_suggestion(tmp_path: Path) -> None:
    options, weights = write_tiny(tmp_path)
    text = options.read_text()
    options.write_text(text.replace('"projection_dim"', '"proj_dim"'))
    with pytest.raises(ConfigError, match=r"lstm\.proj_dim.*'projection_dim'"):
        bilm_hdf5.read(options, weights)
    options.write_text(text.replace('"cell_clip"', '"cell_clp"'))
    with pytest.raises(ConfigError, match=r"lstm\.cell_clp.*'cell_clip'"):
        bilm_hdf5.read(options, weights)
    options.write_text(text.replace('"lstm": {', '"lstm": {"something_new": 1, '))
    with pytest.warns(ElmoWarning, match=r"lstm\.something_new"):
        bilm_hdf5.read(options, weights)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"lstm": 3}', "\xff"])
def test_invalid_options_are_rejected(tmp_path: Path, content: str) -> None:
    options, weights = write_tiny(tmp_path)
    options.write_bytes(content.encode("latin1"))
    with pytest.raises(ConfigError, match=r"options\.json"):
        bilm_hdf5.read(options, weights)


def test_other_character_sets_are_rejected(tmp_path: Path) -> None:
    options, weights = write_tiny(tmp_path)
    options.write_text(options.read_text().replace("262", "300"))
    with pytest.raises(ConfigError, match="300"):
        bilm_hdf5.read(options, weights)


def test_unsupported_datasets_are_rejected(tmp_path: Path) -> None:
    options, weights = write_tiny(tmp_path)
    with h5py.File(weights, "a") as file:
        del file["char_embed"]
        file["char_embed"] = h5py.Empty("f")
    with pytest.raises(WeightsError, match="char_embed"):
        bilm_hdf5.read(options, weights)
    values = json.loads(options.read_text())
    del values["char_cnn"]
    options.write_text(json.dumps(values))
    for odd in (np.float32(1.0), None):
        with h5py.File(weights, "a") as file:
            file.pop("embedding", None)
            if odd is None:
                file.create_group("embedding")
            else:
                file.create_dataset("embedding", data=odd)
        with pytest.raises(elmokit.ElmoError):
            bilm_hdf5.read(options, weights)


def test_deeply_nested_json_is_rejected(tmp_path: Path) -> None:
    options, weights = write_tiny(tmp_path)
    options.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"options\.json"):
        bilm_hdf5.read(options, weights)


FILL_THE_DISK = """
import sys
from pathlib import Path
from elmokit.errors import OutputError
from elmokit.sources import hdf5dir, modeldir
parts = modeldir.load(Path(sys.argv[1]))
try:
    hdf5dir.save(parts, Path(sys.argv[2]))
except OutputError as error:
    print(error)
    sys.exit(7)
"""


def test_full_disk_is_an_elmo_error_and_leaves_no_files(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        # In a separate process, because HDF5 tends to crash on exit.
        done = subprocess.run(
            [sys.executable, "-c", FILL_THE_DISK, str(TINY_MODEL), str(disk / "out")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 7, done.stderr
        assert f"Cannot write {disk / 'out'}: no space left" in done.stdout
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
