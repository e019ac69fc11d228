"""Models of ELMoForManyLangs: tiny ones as torch saves them, against a computation in numpy.

The reference below is written from the description of that system, one token and one number at a
time, and reads the tensors by their original names.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import elmokit
from elmokit.cli.main import app
from elmokit.convert import elmo_for_many_langs
from elmokit.convert.torch_pickle import read_state_dict
from elmokit.embed.fingerprint import fingerprint
from elmokit.errors import ConfigError, ElmoError, ElmoWarning, WeightsError
from elmokit.model.lexicon import Lexicon
from elmokit.sources.resolve import load_parts
from elmokit.train.finetune import start_from
from tests.sources.models import same_bits

run = CliRunner().invoke

CHARACTERS = [*"abcdeghinort.書И", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "the", "begin", "god", "書", "beginning"]
MAX = 11
SHAPE: dict[str, Any] = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 6,
        "cell_clip": 0.3,
        "proj_clip": 0.2,
        "dim": 10,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 3], [2, 4], [3, 5]],
        "n_highway": 2,
        "word_dim": 4,
        "char_dim": 5,
        "max_characters_per_token": MAX,
    },
    "classifier": {"name": "sampled_softmax", "n_samples": 8192},
    "dropout": 0.1,
}
SENTENCES = [
    "the beginning god".split(),
    ["書", "И", "Qx", "begin", "the", "."],
    ["g"],
    "in the beginnings beginning".split(),
]

Tensors = dict[str, torch.Tensor]


def shape_with(**changes: Any) -> dict[str, Any]:
    """The shape with some values of its two sections changed."""
    shape = json.loads(json.dumps(SHAPE))
    for key, value in changes.items():
        for section in ("encoder", "token_embedder"):
            if key in shape[section]:
                shape[section][key] = value
    return shape


def make(shape: dict[str, Any], seed: int = 0) -> tuple[Tensors, Tensors]:
    """Random weights under the original names: token embedder and encoder."""
    rng = torch.Generator().manual_seed(seed)
    cnn, lstm = shape["token_embedder"], shape["encoder"]
    d, h = lstm["projection_dim"], lstm["dim"]

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=rng) * 0.4

    embedder: Tensors = {}
    total = 0
    if cnn["word_dim"]:
        embedder["word_emb_layer.embedding.weight"] = normal(len(WORDS), cnn["word_dim"])
        total += cnn["word_dim"]
    if cnn["char_dim"]:
        embedder["char_emb_layer.embedding.weight"] = normal(len(CHARACTERS), cnn["char_dim"])
        f = sum(count for _, count in cnn["filters"])
        for i, (width, count) in enumerate(cnn["filters"]):
            embedder[f"convolutions.{i}.weight"] = normal(count, cnn["char_dim"], width)
            embedder[f"convolutions.{i}.bias"] = normal(count)
        for i in range(cnn["n_highway"]):
            embedder[f"highways._layers.{i}.weight"] = normal(2 * f, f)
            embedder[f"highways._layers.{i}.bias"] = normal(2 * f)
        total += f
    embedder["projection.weight"] = normal(d, total)
    embedder["projection.bias"] = normal(d)
    encoder: Tensors = {}
    for direction in ("forward", "backward"):
        for layer in range(lstm["n_layers"]):
            name = f"{direction}_layer_{layer}."
            encoder[name + "input_linearity.weight"] = normal(4 * h, d)
            encoder[name + "state_linearity.weight"] = normal(4 * h, d)
            bias = normal(4 * h)
            bias[h : 2 * h] = torch.rand(h, generator=rng) * 1.5 + 0.5  # where less 1 is exact
            encoder[name + "state_linearity.bias"] = bias
            encoder[name + "state_projection.weight"] = normal(d, h)
    return embedder, encoder


def write(
    folder: Path,
    shape: dict[str, Any] = SHAPE,
    *,
    old: bool = False,
    seed: int = 0,
    config_path: str = "cnn_tiny.json",
) -> Path:
    """Write a folder as ELMoForManyLangs has it, by torch.save."""
    folder.mkdir(exist_ok=True)
    for name, tensors in zip(("token_embedder", "encoder"), make(shape, seed), strict=True):
        torch.save(tensors, folder / f"{name}.pkl", _use_new_zipfile_serialization=not old)
    (folder / "cnn_tiny.json").write_text(json.dumps(shape))
    (folder / "config.json").write_text(json.dumps({"seed": 1, "config_path": config_path}))
    for name, entries in (("char.dic", CHARACTERS), ("word.dic", WORDS)):
        lines = [f"{entry}\t{place}\n" for place, entry in enumerate(entries)]
        (folder / name).write_text("".join(reversed(lines)), "utf-8")  # the order does not count
    return folder


# ------------------------------------------------------------------------------------- reference


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def token_vector(token: str, shape: dict[str, Any], w: dict[str, np.ndarray]) -> np.ndarray:
    cnn = shape["token_embedder"]
    limit = cnn["max_characters_per_token"]
    if len(token) + 2 > limit:
        token = token[: limit - 2]
    parts = []
    if cnn["word_dim"]:
        place = WORDS.index(token) if token in WORDS else WORDS.index("<oov>")
        parts.append(w["word_emb_layer.embedding.weight"][place])
    if cnn["char_dim"]:
        inner = [token] if token in ("<bos>", "<eos>") else list(token)
        spelled = ["<eow>", *(c if c in CHARACTERS else "<oov>" for c in inner), "<bow>"]
        spelled += ["<pad>"] * (limit - len(spelled))
        rows = w["char_emb_layer.embedding.weight"][[CHARACTERS.index(c) for c in spelled]]
        found = []
        for i, (width, count) in enumerate(cnn["filters"]):
            kernel, best = w[f"convolutions.{i}.weight"], np.full(count, -np.inf)
            for start in range(limit - width + 1):
                value = w[f"convolutions.{i}.bias"].copy()
                for offset in range(width):
                    value += kernel[:, :, offset] @ rows[start + offset]
                best = np.maximum(best, value)
            found.append(np.maximum(best, 0) if cnn["activation"] == "relu" else np.tanh(best))
        x = np.concatenate(found)
        for i in range(cnn["n_highway"]):
            both = w[f"highways._layers.{i}.weight"] @ x + w[f"highways._layers.{i}.bias"]
            new, gate = np.maximum(both[: len(x)], 0), sigmoid(both[len(x) :])
            x = gate * x + (1 - gate) * new
        parts.append(x)
    return w["projection.weight"] @ np.concatenate(parts) + w["projection.bias"]


def read_layer(
    inputs: list[np.ndarray], name: str, lstm: dict[str, Any], w: dict[str, np.ndarray], state: list
) -> list[np.ndarray]:
    outputs = []
    for x in inputs:
        c, r = state
        z = w[name + "input_linearity.weight"] @ x + w[name + "state_linearity.weight"] @ r
        i, f, j, o = np.split(z + w[name + "state_linearity.bias"], 4)
        c = sigmoid(i) * np.tanh(j) + sigmoid(f) * c
        if lstm["cell_clip"]:
            c = np.clip(c, -lstm["cell_clip"], lstm["cell_clip"])
        r = w[name + "state_projection.weight"] @ (sigmoid(o) * np.tanh(c))
        if lstm["proj_clip"]:
            r = np.clip(r, -lstm["proj_clip"], lstm["proj_clip"])
        state[:] = [c, r]
        outputs.append(r)
    return outputs


def reference(
    tokens: list[str], shape: dict[str, Any], seed: int = 0, states: dict[str, list] | None = None
) -> np.ndarray:
    """All layers of a sentence in float64, without <bos> and <eos>, shape (L + 1, T, 2D)."""
    tensors = make(shape, seed)
    w = {name: t.double().numpy() for part in tensors for name, t in part.items()}
    lstm = shape["encoder"]
    states = {} if states is None else states
    x = [token_vector(token, shape, w) for token in ("<bos>", *tokens, "<eos>")]
    layers = [[np.concatenate([v, v]) for v in x]]
    ahead, back = x, x[::-1]
    for layer in range(lstm["n_layers"]):
        outputs = []
        for direction, inputs in (("forward", ahead), ("backward", back)):
            name = f"{direction}_layer_{layer}."
            start = [np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"])]
            out = read_layer(inputs, name, lstm, w, states.setdefault(name, start))
            outputs.append([o + i for o, i in zip(out, inputs, strict=True)] if layer else out)
        ahead, back = outputs
        layers.append([np.concatenate(pair) for pair in zip(ahead, back[::-1], strict=True)])
    return np.array(layers)[:, 1:-1]


# ----------------------------------------------------------------------------------- the vectors

SHAPES = {
    "words and characters": SHAPE,
    "characters": shape_with(word_dim=0),
    "words": shape_with(char_dim=0),
    "no clips, tanh, one layer": shape_with(
        cell_clip=0, proj_clip=None, activation="tanh", n_layers=1, n_highway=0
    ),
}


@pytest.mark.parametrize("old", [True, False], ids=["stream", "zip"])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.filterwarnings("ignore:.*longer than 9 characters")
def test_vectors_are_those_of_the_reference(kind: str, old: bool, tmp_path: Path) -> None:
    elmo = elmokit.load(write(tmp_path / "xx.model", SHAPES[kind], old=old))
    for out, tokens in zip(elmo.embed(SENTENCES), SENTENCES, strict=True):
        expected = reference(tokens, SHAPES[kind])
        assert out.layers.shape == expected.shape
        assert np.abs(out.layers - expected).max() < 1e-6
        # output_layer -1 of the original is the mean of the layers, -2 all of them.
        assert np.abs(out.average - expected.mean(axis=0)).max() < 1e-6
    assert elmo.embed([[]])[0].layers.shape == (elmo.config.n_layers, 0, 12)


@pytest.mark.parametrize("kind", SHAPES)
def test_in_float64_they_agree_to_nine_digits(kind: str, tmp_path: Path) -> None:
    bilm = load_parts(write(tmp_path / "m", SHAPES[kind])).bilm.double()
    encoder = bilm.encoder
    assert isinstance(encoder, elmo_for_many_langs.LexiconEncoder)
    read = [["<S>", *sentence, "</S>"] for sentence in SENTENCES]
    with torch.inference_mode():
        layers = bilm(torch.from_numpy(encoder.known.batch(read))).layers.numpy()
    for row, tokens in enumerate(SENTENCES):
        expected = reference(tokens, SHAPES[kind])
        assert np.abs(layers[:, row, 1 : 1 + len(tokens)] - expected).max() < 1e-9


def test_the_reference_uses_every_clip_and_special() -> None:
    """What the tests above could not see would not be tested."""
    loose = reference(SENTENCES[1], shape_with(cell_clip=0))
    looser = reference(SENTENCES[1], shape_with(proj_clip=0))
    expected = reference(SENTENCES[1], SHAPE)
    assert np.abs(loose - expected).max() > 1e-3
    assert np.abs(looser - expected).max() > 1e-3


def test_a_forget_bias_of_any_size_stays_within_float32(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    state = torch.load(folder / "encoder.pkl", weights_only=True)
    for name in state:
        if name.endswith("state_linearity.bias"):
            state[name][10:20] = torch.linspace(-3.3, 4.4, 10)
    torch.save(state, folder / "encoder.pkl")
    bias = load_parts(folder).bilm.state_dict()["forward_lm.layers.0.bias"]
    assert (bias[20:30] + 1 - torch.linspace(-3.3, 4.4, 10)).abs().max() < 3e-7


def test_the_state_is_carried_if_asked(tmp_path: Path) -> None:
    elmo = elmokit.load(write(tmp_path / "m"))
    states: dict[str, list] = {}
    sentences = [SENTENCES[0][:1], SENTENCES[1], SENTENCES[2]]
    for out, tokens in zip(elmo.embed(sentences, state="carry"), sentences, strict=True):
        expected = reference(tokens, SHAPE, states=states)
        assert np.abs(out.layers - expected).max() < 1e-6
    alone = elmo.embed([sentences[2]])[0].layers
    assert np.abs(alone - expected).max() > 1e-3


def test_long_tokens_are_cut_and_told_of(tmp_path: Path) -> None:
    elmo = elmokit.load(write(tmp_path / "m"))
    with pytest.warns(ElmoWarning, match="1 tokens are longer than 9 characters"):
        long = elmo.embed([["beginnings"]])[0].layers
    assert np.array_equal(long, elmo.embed([["beginning"]])[0].layers)


def test_case_matters_and_what_is_unknown_is_unknown(tmp_path: Path) -> None:
    elmo = elmokit.load(write(tmp_path / "m"))
    the, capital, other = (elmo.embed([[t]])[0].layers for t in ("the", "The", "Zhe"))
    assert not np.allclose(the, capital)
    assert np.array_equal(capital, other)  # T and Z are both <oov>, and neither word is known


def test_the_task_layer_reads_tokens(tmp_path: Path) -> None:
    elmo = elmokit.load(write(tmp_path / "m"))
    layer = elmokit.Elmo(elmo.bilm, s=[0.0, 0.0, 1.0]).eval()
    sentences = [SENTENCES[0], SENTENCES[2]]
    found = layer(sentences).representations[0].numpy()
    assert np.abs(found[0] - elmo.embed([sentences[0]])[0].layers[2]).max() < 1e-6
    assert np.abs(found[1, :1] - elmo.embed([sentences[1]])[0].layers[2]).max() < 1e-6
    assert not found[1, 1:].any()


# ------------------------------------------------------------------------------------ the lexicon


def test_the_marks_are_swapped_as_in_the_original() -> None:
    lexicon = Lexicon(WORDS, CHARACTERS, MAX)
    mark_before, mark_after = (CHARACTERS.index(mark) + 1 for mark in ("<eow>", "<bow>"))
    row = lexicon.spell(["the"])[0].tolist()
    letters = [CHARACTERS.index(c) + 1 for c in "the"]
    pad = CHARACTERS.index("<pad>") + 1
    assert row == [WORDS.index("the") + 1, mark_before, *letters, mark_after, *[pad] * 6]
    boundary = lexicon.spell(["<S>"])[0].tolist()
    assert boundary[:4] == [WORDS.index("<bos>") + 1, mark_before, 16, mark_after]
    assert np.array_equal(lexicon.spell(["</S>"]), lexicon.spell(["<eos>"]))


def test_a_blank_entry_is_the_ideographic_space(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    text = (folder / "char.dic").read_text("utf-8").replace("書\t", "\u3000\t")
    (folder / "char.dic").write_text(text, "utf-8")
    encoder = load_parts(folder).bilm.encoder
    assert isinstance(encoder, elmo_for_many_langs.LexiconEncoder)
    assert encoder.known.characters is not None
    assert encoder.known.characters[CHARACTERS.index("書")] == "\u3000"


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("char.dic", ("a\t0\n", ""), r"char\.dic has no entry for place 0: lines were lost"),
        ("char.dic", ("a\t0\n", "a\t1\n"), "place 1 is taken by 'b'"),
        ("char.dic", ("a\t0\n", "b\t0\n"), "characters holds 'b' twice"),
        ("char.dic", ("<pad>\t", "<gap>\t"), "characters lacks <pad>"),
        ("char.dic", ("a\t0\n", "a\tb\tc\n"), r"char\.dic, line 21: expected an entry, a tab"),
        ("word.dic", ("beginning\t8\n", ""), "8 words and the model's table 9 rows"),
        ("word.dic", ("<oov>\t", "oov\t"), "words lacks <oov>"),
    ],
)
def test_a_damaged_lexicon_is_told(
    name: str, change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "m")
    text = (folder / name).read_text("utf-8")
    assert change[0] in text
    (folder / name).write_text(text.replace(*change), "utf-8")
    with pytest.raises(WeightsError, match=said):
        load_parts(folder)


def test_a_missing_lexicon_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    (folder / "char.dic").write_bytes(b"\xff\t0\n")
    with pytest.raises(WeightsError, match=r"char\.dic is not valid UTF-8 at byte 0"):
        load_parts(folder)
    (folder / "word.dic").unlink()
    with pytest.raises(WeightsError, match=r"no .*word\.dic, the lexicon"):
        load_parts(folder)


# ------------------------------------------------------------------------------------ the pickles


class Evil:
    """A pickle that would make a file when it is opened."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("name", ["token_embedder.pkl", "encoder.pkl"])
@pytest.mark.parametrize("kind", ["zip", "stream", "bare", "among tensors"])
def test_a_malicious_pickle_is_refused_and_does_nothing(
    name: str, kind: str, tmp_path: Path
) -> None:
    folder, mark = write(tmp_path / "m"), tmp_path / "harmed"
    if kind == "bare":
        (folder / name).write_bytes(pickle.dumps(Evil(mark), protocol=2))
    else:
        held: dict[str, Any] = {"x": Evil(mark)}
        if kind == "among tensors":
            held = {**torch.load(folder / name, weights_only=True), "x": Evil(mark)}
        torch.save(held, folder / name, _use_new_zipfile_serialization=kind != "stream")
    with pytest.raises(WeightsError, match=rf"{name} is not read: .*can run any program"):
        elmokit.load(folder)
    assert not mark.exists()
    if kind != "bare":  # and it was a real danger
        torch.load(folder / name, weights_only=False)
        assert mark.exists()


def test_a_refusal_does_not_advise_to_run_the_file(tmp_path: Path) -> None:
    torch.save({"x": Evil(tmp_path / "harmed")}, tmp_path / "x.pkl")
    with pytest.raises(WeightsError, match=r"asks for posix\.system") as told:
        read_state_dict(tmp_path / "x.pkl")
    assert "weights_only" not in str(told.value)


@pytest.mark.parametrize("old", [True, False])
def test_every_cut_of_a_pickle_is_an_error(old: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    torch.save({"a": torch.ones(3, 4)}, path, _use_new_zipfile_serialization=not old)
    raw = path.read_bytes()
    for size in (0, 1, 2, 17, 100, len(raw) // 2, len(raw) - 1):
        path.write_bytes(raw[:size])
        with pytest.raises(WeightsError, match=r"x\.pkl"):
            read_state_dict(path)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ([1, 2], "should hold tensors by name, found list"),
        ({"a": 1}, "found int for 'a'"),
        ({3: torch.ones(1)}, "found Tensor for 3"),
    ],
)
def test_what_is_no_state_dict_is_told(held: Any, said: str, tmp_path: Path) -> None:
    torch.save(held, tmp_path / "x.pkl")
    with pytest.raises(WeightsError, match=said):
        read_state_dict(tmp_path / "x.pkl")


def test_weights_saved_on_a_gpu_are_read_without_one(tmp_path: Path) -> None:
    """As the published ones were: the stream names the device of each storage."""
    path = tmp_path / "x.pkl"
    torch.save({"a": torch.arange(5.0)}, path, _use_new_zipfile_serialization=False)
    raw = path.read_bytes()
    there, here = (b"X" + len(name).to_bytes(4, "little") + name for name in (b"cuda:3", b"cpu"))
    assert raw.count(here) == 1
    path.write_bytes(raw.replace(here, there))
    assert torch.equal(read_state_dict(path)["a"], torch.arange(5.0))


def test_an_old_torch_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "x.pkl")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(WeightsError, match=r"pip install 'torch>=2\.6'"):
        read_state_dict(tmp_path / "x.pkl")


# ------------------------------------------------------------------------------- shapes and files


def test_without_the_file_of_its_shape_the_tensors_tell(tmp_path: Path) -> None:
    published = shape_with(cell_clip=3, proj_clip=3, max_characters_per_token=50)
    folder = write(tmp_path / "m", published, config_path="/home/somebody/cnn_50.json")
    (folder / "cnn_tiny.json").unlink()
    with pytest.warns(ElmoWarning, match=r"/home/somebody/cnn_50\.json.*relu, at most 50.*clips 3"):
        elmo = elmokit.load(folder)
    found = elmo.embed([SENTENCES[1]])[0].layers
    assert np.abs(found - reference(SENTENCES[1], published)).max() < 1e-6


@pytest.mark.parametrize("place", ["cnn_tiny.json", "configs/cnn_tiny.json", "../cnn_tiny.json"])
def test_the_file_of_the_shape_is_found(place: str, tmp_path: Path) -> None:
    path = place if place.startswith("..") else "/home/somebody/cnn_tiny.json"
    folder = write(tmp_path / "m", config_path=path)
    (folder / "configs").mkdir()
    shutil.move(folder / "cnn_tiny.json", folder / place)
    assert load_parts(folder).bilm.config.lstm.cell_clip == 0.3


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"name": "lstm"}, ConfigError, r"'token_embedder\.name' is 'lstm'; only 'cnn'"),
        ({"dim": 11}, WeightsError, r"says encoder\.dim = 11, and the tensors .* have 10"),
        ({"filters": [[1, 3]]}, WeightsError, r"token_embedder\.filters = \[\[1, 3\]\]"),
        ({"activation": "gelu"}, ConfigError, "activation should be relu or tanh, found 'gelu'"),
        ({"max_characters_per_token": 2}, ConfigError, "widest filter .3. does not fit"),
        ({"cell_clip": "three"}, ConfigError, "cell_clip should be a positive number"),
    ],
)
def test_a_shape_that_does_not_fit_is_told(
    change: dict[str, Any], error: type[ElmoError], said: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "m")
    (folder / "cnn_tiny.json").write_text(json.dumps(shape_with(**change)))
    with pytest.raises(error, match=said):
        load_parts(folder)


def test_a_key_that_is_missing_is_told(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    shape = shape_with()
    shape["encoder"]["cel_clip"] = shape["encoder"].pop("cell_clip")
    (folder / "cnn_tiny.json").write_text(json.dumps(shape))
    with pytest.raises(ConfigError, match=r"'encoder\.cell_clip' is missing.*mean 'cel_clip'"):
        load_parts(folder)


@pytest.mark.parametrize(
    ("name", "tensor", "value", "said"),
    [
        ("encoder", "backward_layer_1.state_projection.weight", None, "has no tensor 'backward_la"),
        ("encoder", "forward_layer_0.state_linearity.bias", torch.ones(39), r"\[39\].*\[40\]"),
        (
            "encoder",
            "forward_layer_9.x",
            torch.ones(1),
            "no model of this kind has: forward_layer_9",
        ),
        ("token_embedder", "projection.bias", torch.ones(6).long(), "other than finite numbers"),
        ("token_embedder", "projection.bias", torch.full((6,), torch.nan), "other than finite"),
        ("token_embedder", "convolutions.1.bias", torch.ones(3), r"convolutions\.1\.bias.*\[4\]"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    name: str, tensor: str, value: torch.Tensor | None, said: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "m")
    state = torch.load(folder / f"{name}.pkl", weights_only=True)
    if value is None:
        del state[tensor]
    else:
        state[tensor] = value
    torch.save(state, folder / f"{name}.pkl")
    with pytest.raises(WeightsError, match=said):
        load_parts(folder)


def test_a_head_is_not_read_and_that_is_told(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    torch.save({}, folder / "classifier.pkl")
    with pytest.warns(ElmoWarning, match=r"classifier\.pkl is not read"):
        load_parts(folder)


def test_other_words_are_not_taken(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a\n")
    with pytest.raises(WeightsError, match=r"own lexicon, char\.dic and word\.dic"):
        load_parts(write(tmp_path / "m"), vocab=tmp_path / "vocab.txt")


# ------------------------------------------------------------------------------------ round trips


@pytest.mark.parametrize("kind", SHAPES)
def test_a_converted_model_says_the_same(kind: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "m", SHAPES[kind])
    result = run(app, ["convert", str(folder), str(tmp_path / "ours")])
    assert result.exit_code == 0, result.output
    assert "lexicon.json" in result.stdout
    one, two = elmokit.load(folder), elmokit.load(tmp_path / "ours")
    assert same_bits(one.bilm, two.bilm)
    assert one.config == two.config
    sentences = SENTENCES[:3]
    pairs = zip(one.embed(sentences[1:]), two.embed(sentences[1:]), strict=True)
    assert all(np.array_equal(a.layers, b.layers) for a, b in pairs)
    assert fingerprint(one) == fingerprint(two)


def test_a_zip_is_read_as_the_folder_is(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", config_path="/users4/x/cnn_tiny.json")
    with zipfile.ZipFile(tmp_path / "144.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, f"144/{path.name}")
    assert same_bits(load_parts(tmp_path / "144.zip").bilm, load_parts(folder).bilm)


def test_hdf5_has_no_place_for_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    result = run(app, ["convert", str(folder), str(tmp_path / "out"), "--to", "hdf5"])
    assert result.exit_code == 1
    assert "no place for a model with its own lexicon" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_info_tells_of_the_lexicon(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    told = run(app, ["info", str(folder)]).stdout
    assert "a lexicon: 9 words (vectors of 4) and 21 characters of Unicode (vectors of 5)" in told
    assert "12 filters of width 1 to 3, relu, 2 highways" in told
    facts = json.loads(run(app, ["info", str(folder), "--json"]).stdout)
    assert facts["input"] == "lexicon"
    assert (facts["words"], facts["characters"], facts["max_characters"]) == (9, 21, MAX)


@pytest.mark.filterwarnings("ignore:The warm state is the mean of only")
def test_a_text_is_embedded_and_a_state_warmed_by_the_commands(tmp_path: Path) -> None:
    folder, text = write(tmp_path / "m"), tmp_path / "text.txt"
    text.write_text("".join(" ".join(s) + "\n" for s in SENTENCES[:3]) * 3)
    out = tmp_path / "v.npz"
    args = ["embed", str(text), "-o", str(out), "--model", str(folder), "-q", "--tokenized"]
    result = run(app, args)
    assert result.exit_code == 0, result.output
    with np.load(out) as file:
        assert file.files
    run(app, ["convert", str(folder), str(tmp_path / "ours")])
    result = run(app, ["warm", str(tmp_path / "ours"), str(text), "--tokenized"])
    assert result.exit_code == 0, result.output
    assert elmokit.load(tmp_path / "ours").embed(SENTENCES[:1], state="warm")


def test_another_lexicon_is_another_model(tmp_path: Path) -> None:
    one = elmokit.load(write(tmp_path / "m"))
    text = (tmp_path / "m" / "word.dic").read_text("utf-8").replace("god\t", "dog\t")
    (tmp_path / "m" / "word.dic").write_text(text, "utf-8")
    assert fingerprint(one) != fingerprint(elmokit.load(tmp_path / "m"))


def test_it_is_read_and_not_trained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reads by a lexicon of its own"):
        start_from(load_parts(write(tmp_path / "m")), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"words": None}, "0 words and the model's table 9 rows"),
        ({"words": "abc"}, "'words' should be a list of strings or null"),
        ({"characters": [*CHARACTERS, "a"]}, "holds 'a' twice"),
        ({"characters": [*CHARACTERS, "ж"]}, "22 characters and the model's table 21 rows"),
    ],
)
def test_a_damaged_lexicon_of_ours_is_told(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    run(app, ["convert", str(write(tmp_path / "m")), str(tmp_path / "ours")])
    path = tmp_path / "ours" / "lexicon.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(ElmoError, match=said):
        load_parts(tmp_path / "ours")
    path.unlink()
    with pytest.raises(ElmoError, match=r"There is no file .*lexicon\.json"):
        load_parts(tmp_path / "ours")
