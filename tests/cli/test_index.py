"""`elmo index`, and `elmo neighbors` with an index, as used from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("lance", reason="the extra 'search' is not installed")

from elmokit.embed.model import ElmoModel
from elmokit.search.build import IndexSettings, build_index
from elmokit.sources.modeldir import ModelParts, save
from tests.cli.conftest import Elmo
from tests.conftest import TINY, TINY_MODEL, random_bilm

TEXT = "The cat sat on the mat.\n\nA play on words.\nThey can't play the play. It is well.\n"
QUERY = ("--query", "The [play] was long.")


@pytest.fixture
def elmo(shell: Elmo, tmp_path: Path) -> Elmo:
    (tmp_path / "text.txt").write_text(TEXT)
    return lambda *arguments, model=TINY_MODEL: shell(*arguments, "--model", model)


def test_index_gives_the_same_results_as_the_text(elmo: Elmo) -> None:
    code, output, errors = elmo("index", "text.txt", "-o", "index", "--json")
    assert code == 0
    assert "index: 3 sentences, 23 tokens, 16 distinct words" in errors
    summary = json.loads(output)
    assert (summary["tokens"], summary["sentences"], summary["output"]) == (23, 3, "index")
    options = (*QUERY, "-k", "3", "--json")
    _, from_text, _ = elmo("neighbors", "text.txt", *options)
    code, output, errors = elmo("neighbors", "index", *options)
    assert code == 0
    assert errors == "23 tokens searched\n"
    found, expected = json.loads(output), json.loads(from_text)
    assert found["query"] == expected["query"]
    for name, listed in expected["neighbors"].items():
        for got, wanted in zip(found["neighbors"][name], listed, strict=True):
            assert got["score"] == pytest.approx(wanted["score"], abs=2e-3)
            if name != "layer 0":
                assert (got["word"], got["where"]) == (wanted["word"], wanted["where"])
    hit = found["neighbors"]["layer 2"][0]
    assert hit["text"][hit["start"] : hit["end"]] == hit["word"]
    # ... and one of the results is used as a query.
    code, output, _ = elmo("neighbors", "index", "--token", str(hit["token"]), "--layer", "1")
    assert code == 0
    assert output.startswith(" ".join(hit["tokens"][: hit["position"]]))


def test_words_filters_and_mixes(elmo: Elmo) -> None:
    elmo("index", "text.txt", "-o", "index", "--layer", "1", "--layer", "2")
    options = ("--layer", "mix", "--mix", "0,.5,.5", "--json", "-k", "50")
    arguments = ("neighbors", "index", "--query", "The [play] was long.", *options)
    code, output, _ = elmo(*arguments, "--same-word")
    assert code == 0
    assert [n["word"] for n in json.loads(output)["neighbors"]["mix"]] == ["play"] * 3
    code, output, _ = elmo(*arguments, "--min-count", "3", "--distinct", "word")
    found = {n["word"].lower() for n in json.loads(output)["neighbors"]["mix"]}
    assert found == {"the", "play", "."}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["neighbors", ".", *QUERY], 1, "is not an index"),
        (["neighbors", "index", "--query", "The play"], 1, "Expected exactly one bracketed word"),
        (["neighbors", "index", "--token", "99"], 1, "Invalid token ID 99"),
        (["neighbors", "index", *QUERY, "--layer", "0"], 1, "does not contain layer 0"),
        (["neighbors", "index", *QUERY, "--layer", "top", "--ann"], 1, "no approximate index"),
        (["neighbors", "index", *QUERY, "--split"], 2, "cannot be used with an index"),
        (["neighbors", "text.txt", "--token", "1"], 2, "require an index"),
        (["neighbors", "index"], 2, "--query"),
        (["index", "-o", "other"], 2, "unless you add an approximate index"),
        (["index", "text.txt", "-o", "other", "--recall", "2"], 2, "--recall"),
        (["index", "no.txt", "-o", "other"], 1, "no.txt does not exist"),
        (["index", "text.txt", "-o", "index"], 1, "already exists"),
        (["index", "text.txt", "-o", "."], 1, "do not belong to an index"),
        (["index", "text.txt", "-o", "other", "--layer", "7"], 1, "Invalid layer '7'"),
    ],
)
def test_invalid_usage_is_reported(
    elmo: Elmo, arguments: list[str], code: int, message: str
) -> None:
    elmo("index", "text.txt", "-o", "index", "--layer", "top")
    ended, _, errors = elmo(*arguments)
    assert ended == code, errors
    assert message in " ".join(errors.replace("│", " ").split())


def test_index_of_another_model_is_rejected(elmo: Elmo, tmp_path: Path) -> None:
    save(ModelParts(random_bilm(TINY)), tmp_path / "other")
    elmo("index", "text.txt", "-o", "index")
    code, _, errors = elmo("neighbors", "index", *QUERY, model=tmp_path / "other")
    assert code == 1
    assert "different model" in errors


def test_append_adds_text(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("A new line.\n")
    assert elmo("index", "text.txt", "-o", "index")[0] == 0
    code, output, _ = elmo("index", "more.txt", "-o", "index", "--append", "--json")
    assert code == 0
    assert json.loads(output)["tokens"] == 23 + 4
    assert elmo("index", "more.txt", "-o", "index", "--append", "--overwrite")[0] == 1


def test_interrupted_run_says_what_is_kept_and_can_be_resumed(
    elmo: Elmo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compute, calls = ElmoModel.compute_block, []

    def interrupted(self: ElmoModel, *given: object, **options: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return compute(self, *given, **options)  # type: ignore[arg-type]

    arguments = ("index", "text.txt", "-o", "index", "--chunk-bytes", "1")
    monkeypatch.setattr(ElmoModel, "compute_block", interrupted)
    code, _, errors = elmo(*arguments)
    assert code == 130
    assert "Interrupted. 7 tokens finished and saved" in errors
    assert elmo(*arguments)[0] == 1
    code, _, errors = elmo(*arguments, "--resume")
    assert code == 0
    assert "7 tokens from an earlier run" in errors
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index", "text.txt"]


def test_approximate_index_is_added_and_its_recall_is_reported(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 5)
    model = ElmoModel(ModelParts(random_bilm(TINY)), device="cpu")
    save(ModelParts(random_bilm(TINY)), tmp_path / "model")
    build_index(model, [tmp_path / "text.txt"], tmp_path / "index", IndexSettings(layer=("top",)))
    code, output, errors = elmo(
        "index", "-o", "index", "--ann", "top", "--json", model=tmp_path / "model"
    )
    assert code == 0
    assert "recall@10" in errors
    assert json.loads(output)["ann"]["layer 2"]["queries"] == 23 * 5
    code, output, errors = elmo("neighbors", "index", *QUERY, "--ann", model=tmp_path / "model")
    assert code == 0
    assert "approximately (measured recall: layer 2" in errors
    assert "layer 2:" in output
