"""AllenNLP and bilm-tf models: finding their files, and bit-identical conversion in both ways."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmokit.errors import ElmoError, ElmoWarning, OutputError, WeightsError
from elmokit.model.bilm import BiLM
from elmokit.model.skip_init import skip_init
from elmokit.presets import preset
from elmokit.sources import hdf5dir, modeldir
from elmokit.sources.resolve import load_parts
from tests.sources.models import CONFIGS, WORDS, make_parts, same_bits, write_hdf5


def datasets(path: Path) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: (
                found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
            )
        )
    return found


def rewrite(path: Path, dtype: str) -> dict[str, np.ndarray]:
    tensors = {name: value.astype(dtype) for name, value in datasets(path).items()}
    with h5py.File(path, "w") as file:
        for name, value in tensors.items():
            file[name] = value
    return tensors


@pytest.mark.parametrize("kind", CONFIGS)
def test_round_trip_through_the_model_directory_is_bit_identical(kind: str, tmp_path: Path) -> None:
    parts = make_parts(kind)
    hdf5dir.save(parts, tmp_path / "old")
    modeldir.save(load_parts(tmp_path / "old"), tmp_path / "ours")
    hdf5dir.save(load_parts(tmp_path / "ours"), tmp_path / "back")
    before, after = (
        datasets(tmp_path / "old/weights.hdf5"),
        datasets(tmp_path / "back/weights.hdf5"),
    )
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)
    options = [
        json.loads((tmp_path / name / "options.json").read_text()) for name in ("old", "back")
    ]
    assert options[0] == options[1]
    assert same_bits(load_parts(tmp_path / "back").bilm, parts.bilm)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_float_types_are_converted_to_float32(dtype: str, tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old", n_characters=261)
    given = rewrite(folder / "weights.hdf5", dtype)
    modeldir.save(load_parts(folder), tmp_path / "ours")
    hdf5dir.save(load_parts(tmp_path / "ours"), tmp_path / "back")
    after = datasets(tmp_path / "back/weights.hdf5")
    assert all(after[name].dtype == np.float32 for name in given)
    assert all(np.array_equal(after[name], given[name].astype(np.float32)) for name in given)


def test_options_of_a_training_run_can_be_read(tmp_path: Path) -> None:
    parts = make_parts()
    folder = write_hdf5(parts, tmp_path / "old", n_characters=261)
    assert same_bits(load_parts(folder).bilm, parts.bilm)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("small", 13_593_296), ("medium", 28_027_728), ("original", 93_600_848)],
)
def test_released_shapes_have_the_published_sizes(name: str, numbers: int) -> None:
    with skip_init():
        bilm = BiLM(preset(name))
    assert modeldir.ModelParts(bilm).n_parameters == numbers
    assert all(parameter.is_meta for parameter in bilm.parameters())


def test_vocabulary_is_converted(tmp_path: Path) -> None:
    hdf5dir.save(make_parts("words"), tmp_path / "old")
    vocabulary = load_parts(tmp_path / "old").vocabulary
    assert vocabulary is not None
    assert tuple(vocabulary) == WORDS


def test_word_input_model_requires_its_vocabulary(tmp_path: Path) -> None:
    folder = write_hdf5(make_parts("words"), tmp_path / "old")
    with pytest.raises(WeightsError, match=r"5 word embeddings.* is missing.*vocab\.txt"):
        load_parts(folder)
    words = tmp_path / "elsewhere.txt"
    words.write_text("\n".join(WORDS) + "\n")
    assert load_parts(folder, vocab=words).vocabulary is not None
    (folder / "vocab.txt").write_text("one\ntwo\n")
    with pytest.raises(WeightsError, match="5 word embeddings, but its vocabulary has 2"):
        load_parts(folder)


def test_character_model_ignores_an_unreadable_vocabulary(tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    (folder / "vocab.txt").write_bytes(b"caf\xe9\n")
    with pytest.warns(ElmoWarning, match="Ignoring .*not valid UTF-8"):
        assert load_parts(folder).vocabulary is None


def test_explicit_vocabulary_must_be_readable(tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    (tmp_path / "mine.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(ElmoError, match="not valid UTF-8"):
        load_parts(folder, vocab=tmp_path / "mine.txt")


# ------------------------------------------------------------------------------------ finding files


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ("options.json", "weights.hdf5"),
        ("options.json", "model.hdf5"),
        ("elmo_2x1_options.json", "elmo_2x1_weights.hdf5"),
        ("my-options.json", "dump.h5"),
    ],
)
def test_directory_options_file_or_weight_file_is_sufficient(
    options: str, weights: str, tmp_path: Path
) -> None:
    parts = make_parts()
    folder = write_hdf5(parts, tmp_path / "old", options, weights)
    (folder / "meta.json").write_text("{}")
    for given in (folder, folder / options, folder / weights):
        assert same_bits(load_parts(given).bilm, parts.bilm)


def test_matching_file_is_found_by_name(tmp_path: Path) -> None:
    names = ("elmo_a", "elmo_a_5.5B", "elmo_b")
    for seed, name in enumerate(names):
        write_hdf5(
            make_parts(seed=seed), tmp_path / "all", f"{name}_options.json", f"{name}_weights.hdf5"
        )
    for seed, name in enumerate(names):
        for ending in ("options.json", "weights.hdf5"):
            found = load_parts(tmp_path / "all" / f"{name}_{ending}")
            assert same_bits(found.bilm, make_parts(seed=seed).bilm)


def test_several_models_in_a_directory_are_listed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_hdf5(make_parts(), tmp_path / "all", f"{name}_options.json", f"{name}_weights.hdf5")
    with pytest.raises(WeightsError, match=r"one options file, .*a_options\.json, b_options"):
        load_parts(tmp_path / "all")


def test_vector_files_next_to_the_weights_are_ignored(tmp_path: Path) -> None:
    parts = make_parts()
    folder = write_hdf5(parts, tmp_path / "old", weights="lm_weights.hdf5")
    for i in range(2):
        with h5py.File(folder / f"lm_embeddings_{i}.hdf5", "w") as file:
            file["0"] = np.zeros(3)
    assert same_bits(load_parts(folder).bilm, parts.bilm)
    (folder / "lm_weights.hdf5").rename(folder / "lm.hdf5")
    with pytest.raises(WeightsError, match=r"one HDF5 file, .*lm\.hdf5, lm_embeddings_0"):
        load_parts(folder)


def test_options_and_weights_can_be_in_different_directories(tmp_path: Path) -> None:
    parts = make_parts()
    folder = write_hdf5(parts, tmp_path / "old")
    (tmp_path / "elsewhere").mkdir()
    moved = (folder / "weights.hdf5").rename(tmp_path / "elsewhere/w.bin")
    for given in (folder, folder / "options.json"):
        assert same_bits(load_parts(given, moved).bilm, parts.bilm)


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ("options.json", "Expected one options file, .*found none"),
        ("weights.hdf5", "Expected one HDF5 file, .*found none.*--weights"),
    ],
)
def test_error_for_an_incomplete_model_names_the_missing_file(
    gone: str, message: str, tmp_path: Path
) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    (folder / gone).unlink()
    with pytest.raises(WeightsError, match=message):
        load_parts(folder)


def test_golden_directories_of_allennlp_and_bilm_can_be_loaded(shared: Path) -> None:
    for folder in ("allenai-allennlp/test_fixtures/elmo", "allenai-bilm-tf/fixtures/model"):
        assert load_parts(shared / "fixtures" / folder).bilm.config.output_dim == 32


# ------------------------------------------------------------------------------------ damaged files


def test_error_for_weights_of_another_model_names_the_tensor(tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old", n_highway=2)
    with pytest.raises(WeightsError, match="no tensor 'CNN_high_1/W_carry'"):
        load_parts(folder)


@pytest.mark.parametrize("kept", [0, 100, 5000])
def test_truncated_weight_file_is_an_error(kept: int, tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    content = (folder / "weights.hdf5").read_bytes()
    (folder / "weights.hdf5").write_bytes(content[:kept])
    with pytest.raises(WeightsError, match="truncated"):
        load_parts(folder)


def test_nan_in_the_weights_is_an_error(tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        file["CNN_proj/b_proj"][1] = np.nan
    with pytest.raises(WeightsError, match=r"'CNN_proj/b_proj' .* NaN"):
        load_parts(folder)


def test_directory_with_other_files_is_never_replaced(tmp_path: Path) -> None:
    hdf5dir.save(make_parts(), tmp_path / "old")
    with pytest.raises(OutputError, match="--overwrite"):
        hdf5dir.save(make_parts(), tmp_path / "old")
    hdf5dir.save(make_parts(seed=1), tmp_path / "old", overwrite=True)
    (tmp_path / "old/notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"notes\.txt"):
        hdf5dir.save(make_parts(), tmp_path / "old", overwrite=True)
    assert same_bits(load_parts(tmp_path / "old").bilm, make_parts(seed=1).bilm)
