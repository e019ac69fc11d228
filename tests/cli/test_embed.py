"""`elmo embed`: options, exit codes, stdout and stderr."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import elmokit
from elmokit.bulk.formats import open_vectors
from elmokit.cli.progress import token_bar
from elmokit.embed import fast
from elmokit.embed.fast import FastChoice
from elmokit.embed.model import ElmoModel
from elmokit.progress import Progress
from elmokit.sources.modeldir import ModelParts, save
from tests.bulk.runs import Stdin, work_path
from tests.cli.conftest import Elmo
from tests.conftest import TINY, random_bilm

TEXT = "I read the book yesterday.\n\nDon't! It's mine.\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    save(ModelParts(random_bilm(TINY)), path)
    return path


@pytest.fixture
def elmo(shell: Elmo, model: Path, tmp_path: Path) -> Elmo:
    """Run `elmo embed` in the directory of the test, with the tiny model."""
    (tmp_path / "text.txt").write_text(TEXT)
    return lambda *arguments: shell("embed", *arguments, "--model", model)


def test_file_is_embedded_and_a_summary_printed(elmo: Elmo, tmp_path: Path, model: Path) -> None:
    code, output, errors = elmo("text.txt", "-o", "vectors.h5")
    assert (code, output) == (0, "")
    assert errors.startswith("vectors.h5: 3 sentences, 13 tokens, ")
    assert re.search(r" tokens/s, bottleneck: [a-z]+\n$", errors)
    expected = elmokit.load(model, device="cpu").embed(TEXT.split("\n")[:3])
    with h5py.File(tmp_path / "vectors.h5") as file:
        for i, item in enumerate(expected):
            np.testing.assert_allclose(file[str(i)][...], item.layers, atol=1e-5)


def test_summary_of_an_empty_file_has_no_throughput(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    code, _, errors = elmo("empty.txt", "-o", "vectors.h5")
    assert (code, errors) == (0, "vectors.h5: 0 sentences, 0 tokens\n")


def test_fast_vectors_are_close_to_exact(
    elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = FastChoice("int8", {"exact": 2.0, "int8": 1.0}, {})
    monkeypatch.setenv("ELMOKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(fast, "fast_choice", lambda: choice)
    assert elmo("text.txt", "-o", "exact.h5")[0] == 0
    assert elmo("text.txt", "-o", "fast.h5", "--precision", "fast", "--device", "cpu")[0] == 0
    with h5py.File(tmp_path / "exact.h5") as a, h5py.File(tmp_path / "fast.h5") as b:
        assert not np.array_equal(a["0"][...], b["0"][...])
        assert np.abs(a["0"][...] - b["0"][...]).max() < 0.1
    code, _, errors = elmo("text.txt", "-o", "other.h5", "--precision", "fats")
    assert code == 2
    assert "exact" in errors


def test_json_goes_to_stdout_and_messages_to_stderr(elmo: Elmo) -> None:
    code, output, errors = elmo("text.txt", "-o", "vectors.npz", "--json", "--quiet")
    summary = json.loads(output)
    assert code == 0
    assert (summary["output"], summary["sentences"], summary["tokens"]) == ("vectors.npz", 3, 13)
    assert summary.keys() >= {"truncated_tokens", "skipped_lines", "resumed_sentences", "seconds"}
    assert "3 sentences" in errors


def test_standard_input(elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT.encode()))
    assert elmo("-", "text.txt", "-o", "vectors.parquet")[0] == 0
    assert len(open_vectors(tmp_path / "vectors.parquet")) == 6


def test_options_take_effect(elmo: Elmo, tmp_path: Path, model: Path) -> None:
    code, _, _ = elmo(
        *("text.txt", "-o", "vectors.safetensors", "--split", "--layer", "mix"),
        *("--mix", "0.5,0.25,0.25", "--gamma", "2", "--dtype", "float16"),
        *("--state", "carry", "--rows", "2", "--device", "cpu"),
    )
    assert code == 0
    sentences = ["I read the book yesterday.", "Don't!", "It's mine."]
    expected = elmokit.load(model, device="cpu").embed(sentences, state="carry", rows=2)
    with open_vectors(tmp_path / "vectors.safetensors") as stored:
        assert [s.tokens for s in stored] == [item.tokens for item in expected]
        for item, found in zip(expected, stored, strict=True):
            assert found.vectors.dtype == np.float16
            mixed = item.mix([0.5, 0.25, 0.25], 2.0)
            np.testing.assert_allclose(found.vectors, mixed, atol=5e-3)
    assert elmo("text.txt", "-o", "tokens.npz", "--tokenized", "--layer", "top")[0] == 0
    assert open_vectors(tmp_path / "tokens.npz")[2].tokens == ["Don't!", "It's", "mine."]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layer", "mix"], "one weight per layer"),
        (["--mix", "1,0,0"], "requires layer='mix'"),
        (["--layer", "mix", "--mix", "one,0,0"], "not a list of numbers"),
        (["--layer", "last"], "expected a layer number, top, average, concat, mix or all"),
        (["--rows", "2"], "rows: 2"),
        (["--state", "carry", "--rows", "0"], "rows: 0"),
        (["--workers", "0"], "--workers"),
        (["--engine", "ray"], "has a file extension"),
        (["--address", "auto"], "requires --engine ray"),
    ],
)
def test_usage_errors_exit_with_2(
    elmo: Elmo, tmp_path: Path, options: list[str], message: str
) -> None:
    code, _, errors = elmo("text.txt", "-o", "vectors.npz", *options)
    assert code == 2
    assert message in " ".join(errors.replace("\u2502", " ").split())
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["text.txt", "-o", "vectors.hdf"],
            "expected one of: .h5, .hdf5, .npz, .safetensors, .parquet",
        ),
        (["missing.txt", "-o", "vectors.npz"], "missing.txt does not exist"),
        ([".", "-o", "vectors.npz"], "is a directory"),
        (["text.txt", "-o", "text.txt/vectors.npz"], "Cannot write text.txt/vectors.npz"),
        (["text.txt", "-o", "v.npz", "--layer", "mix", "--mix", "1,0"], "3 finite weights"),
        (["text.txt", "-o", "v.npz", "--state", "warm"], "elmo warm"),
        (["text.txt", "-o", "v.npz", "--device", "abacus"], "Invalid device 'abacus'"),
        (["missing.parquet", "-o", "folder"], "missing.parquet does not exist"),
        (["text.txt", "-o", "folder", "--state", "carry"], "requires a single output file"),
        (["text.txt", "-o", "."], "contains files that are not shards"),
    ],
)
def test_other_errors_exit_with_1_and_leave_no_files(
    elmo: Elmo, tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, output, errors = elmo(*arguments)
    assert (code, output) == (1, "")
    assert errors.startswith("Error: ") or "\nError: " in errors
    assert message in errors
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_invalid_line_is_an_error_or_skipped_and_counted(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(b"fine\ncaf\xe9\nfine\n")
    code, _, errors = elmo("text.txt", "-o", "vectors.npz")
    assert code == 1
    assert "text.txt, line 2: byte 4" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]
    code, output, errors = elmo("text.txt", "-o", "vectors.npz", "--skip-bad", "--json")
    assert code == 0
    assert json.loads(output)["skipped_lines"] == 1
    assert errors.count("Warning: ") == 1
    assert "Skipped 1 line" in errors


def test_long_tokens_give_one_warning(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(f"{'x' * 60} {'y' * 60}\n" * 20)
    _, _, errors = elmo("text.txt", "-o", "vectors.npz", "--chunk-bytes", "30")
    assert errors.count("Warning: ") == 1
    assert "Warning: Truncated 40 tokens to 48 bytes" in errors


def test_interrupted_run_keeps_its_chunks_and_can_be_resumed(
    elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("text.txt", "-o", "vectors.npz", "--chunk-bytes", "10")
    compute = ElmoModel.compute_block
    calls = iter([compute])

    def interrupted(self: ElmoModel, *given: object, **named: object) -> object:
        for call in calls:
            return call(self, *given, **named)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ElmoModel, "compute_block", interrupted)
        code, _, errors = elmo(*arguments)
    assert code == 130
    assert "Interrupted. 1 sentence finished and saved" in errors
    code, _, errors = elmo(*arguments)
    assert code == 1
    assert "--resume" in errors
    assert work_path(tmp_path / "vectors.npz").exists()
    code, _, errors = elmo(*arguments, "--resume")
    assert code == 0
    assert "3 sentences, 13 tokens" in errors
    assert "1 sentence from an earlier run" in errors
    code, _, errors = elmo(*arguments, "--resume", "--json")  # no work is left
    assert code == 0
    assert "3 sentences from an earlier run" in errors
    assert elmo(*arguments)[0] == 1
    assert elmo(*arguments, "--overwrite")[0] == 0


def test_interrupt_before_the_first_chunk_leaves_no_files(
    elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ElmoModel, "compute_block", interrupted)
    code, _, errors = elmo("text.txt", "-o", "vectors.npz")
    assert code == 130
    assert "No chunks were finished" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_error_during_the_run_says_what_is_kept(
    elmo: Elmo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT.encode() + b"\xff\n"))
    code, _, errors = elmo("-", "-o", "vectors.npz", "--chunk-bytes", "10")
    assert code == 1
    assert "Note: 1 sentence finished and saved" in errors
    assert "Error: standard input, line 4" in errors


def test_resume_without_a_previous_run_gives_a_warning(elmo: Elmo) -> None:
    code, _, errors = elmo("text.txt", "-o", "vectors.npz", "--resume")
    assert code == 0
    assert "Warning: No interrupted run found for" in errors


def test_output_without_a_suffix_is_a_directory_of_shards(elmo: Elmo, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    options = ("text.txt", "-o", "shards/", "--chunk-bytes", "20", "--layer", "top")
    code, _, errors = elmo(*options)
    assert code == 0
    assert errors.startswith("shards: 3 sentences, 13 tokens, ")
    assert sorted(path.name for path in (tmp_path / "shards").iterdir()) == [
        "000000.parquet",
        "000001.parquet",
        "manifest.json",
        "shards.json",
    ]
    table = parquet.read_table(tmp_path / "shards" / "000001.parquet")
    assert table.column("token").to_pylist() == ["Do", "n't", "!", "It", "'s", "mine", "."]
    assert table.column("line").to_pylist() == [3] * 7
    code, _, errors = elmo(*options)
    assert code == 1
    assert "Continue that run with --resume" in errors
    assert "3 sentences from an earlier run" in elmo(*options, "--resume")[2]


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("total", [1000, None])
def test_progress_bar_shows_speed_and_remaining_time_if_the_size_is_known(
    monkeypatch: pytest.MonkeyPatch, total: int | None
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    clock = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    with token_bar(enabled=True) as bar:
        # Chunks of an earlier run do not count toward the speed of this one.
        bar(Progress(5000, 500, total))
        bar(Progress(5300, 750, total))
    shown = terminal.getvalue().split("\r")[-1]
    assert "5,300 tokens, 150 tokens/s" in shown
    assert ("75%" in shown) == ("left" in shown) == (total is not None)


def test_no_progress_bar_without_a_terminal_or_with_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shown in ((io.StringIO(), True), (Terminal(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with token_bar(enabled=shown) as bar:
            bar(Progress(0, 0, 10))
            bar(Progress(5, 5, 10))
        assert stream.getvalue() == ""


def test_help_lists_options_and_imports_no_heavy_dependencies() -> None:
    code = (
        "import sys; sys.argv = ['elmo', 'embed', '--help']\n"
        "from elmokit.cli.main import run\n"
        "try: run()\n"
        "finally: print({'torch', 'numpy', 'h5py', 'tqdm'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
    for option in ("--output", "--tokenized", "--split", "--mix", "--state", "--resume"):
        assert option in done.stdout
