"""Inject known defects one by one and report which tests catch them.

Each fault is a small defect that a user would notice. It is applied to a copy of the repository,
tests run there, and the first test that fails is recorded. A test counts only if it passes without
the fault. The tests closest to the fault run first. If they pass, all default tests run.

    python recipes/faults.py                         all faults, default tests
    python recipes/faults.py --tests                 only the tests close to each fault
    python recipes/faults.py --only cache-eviction   one fault
    python recipes/faults.py --list                  list the faults and whether they still apply

The results are stored in results/faults.json under the name given by --label. The exit code is 1 if
a fault is not caught, or if its pattern no longer matches the source. In this case, update FAULTS.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "results" / "faults.json"
# Large directories that no test changes. They are linked, not copied.
LINKED = ("weights", "src/elmokit/models")


@dataclass(frozen=True)
class Edit:
    """Replace `old`, which must occur exactly once in `file`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Fault:
    """A defect.

    Attributes:
        name: Its name.
        package: The package of src/elmokit that contains it.
        effect: What a user notices.
        edits: Ways to inject it, for different versions of the source. The first match is used.
        tests: Test files and directories that run first.
    """

    name: str
    package: str
    effect: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def make_fault(
    name: str, file: str, old: str, new: str, effect: str, tests: str, *more: Edit
) -> Fault:
    """Create a fault. `file` is relative to src/elmokit, and `tests` to tests."""
    edits = tuple(
        Edit(f"src/elmokit/{edit.file}", edit.old, edit.new)
        for edit in (Edit(file, old, new), *more)
    )
    package = file.rpartition("/")[0] or "storage"
    return Fault(name, package, effect, edits, tuple(f"tests/{path}" for path in tests.split()))


FAULTS = [
    make_fault(
        "gate-order",
        "model/lstm.py",
        "i, j, f, o = gates.chunk(4, dim=-1)",
        "i, f, j, o = gates.chunk(4, dim=-1)",
        "Vectors differ from those of AllenNLP and bilm-tf: two gates are exchanged.",
        "model/test_lstm.py model",
    ),
    make_fault(
        "mix-without-softmax",
        "model/mix.py",
        "return torch.softmax(self.w, dim=0)",
        "return torch.sigmoid(self.w)",
        "The layer weights s_j of a mix do not sum to 1.",
        "model/test_mix.py model",
    ),
    make_fault(
        "projection-clip",
        "model/kernels/cpu_engine.py",
        "h.clamp_(-self.config.proj_clip, self.config.proj_clip)",
        "h.clamp_(max=self.config.proj_clip)",
        "On a CPU, large negative outputs are not clipped, so vectors differ from the reference.",
        "model/kernels/test_cpu_engines.py model/kernels",
    ),
    make_fault(
        "byte-order-mark",
        "text/lines.py",
        "return raw.removeprefix(codecs.BOM_UTF8)",
        "return raw",
        "The first token of a file from Windows begins with an invisible character.",
        "text/test_lines.py text",
    ),
    make_fault(
        "backward-shift",
        "data/streams.py",
        "targets[1, row, start : start + n - 1] = backward[1:]",
        "targets[1, row, start : start + n - 1] = backward[:-1]",
        "The backward LM is trained to predict the word it has just read.",
        "data/test_streams.py data",
    ),
    make_fault(
        "resume-position",
        "train/loop.py",
        "if progress.position:",
        "if progress.position and not resume:",
        "A resumed training run reads the corpus from its beginning again.",
        "train/test_loop.py train",
    ),
    make_fault(
        "gradient-scale",
        "train/optimizer.py",
        "torch.clamp(c.clip / (norm + 1e-6), max=1.0)",
        "torch.clamp(c.clip / (norm + 1e-6), max=1e6)",
        "Small gradients are scaled up to the clipping norm: training diverges from the reference.",
        "train/test_loop.py train",
    ),
    make_fault(
        "mixed-download",
        "sources/download.py",
        "elif new_version != version or _first_byte(response.headers) != start:",
        "elif _first_byte(response.headers) != start:",
        "A resumed download joins the halves of two versions of a file.",
        "sources/test_download.py sources",
    ),
    make_fault(
        "weight-halves",
        "convert/bilm_hdf5.py",
        "(w[:d].T, w[d:].T)",
        "(w[d:].T, w[:d].T)",
        "Input and recurrent weights of published models are exchanged.",
        "convert/test_bilm_hdf5.py convert",
    ),
    make_fault(
        "pickle-allowed",
        "convert/torch_pickle.py",
        "weights_only=True)",
        "weights_only=False)",
        "Security: a weight file can run any code when it is loaded.",
        "convert/manylangs convert",
    ),
    make_fault(
        "cache-eviction",
        "embed/token_cache.py",
        "del self._rows[self._tokens[row]]",
        "self._rows.pop(token, None)",
        "On large texts, a token that left the cache gets the vector of another token.",
        "embed/test_model.py embed",
    ),
    make_fault(
        "backward-score",
        "embed/scoring.py",
        "backward=tuple(backward[1:]),",
        "backward=tuple(backward[:-1]),",
        "Each token gets the backward log-probability of the token before it.",
        "embed/test_scoring.py embed",
    ),
    make_fault(
        "long-line-sentence",
        "bulk/input.py",
        "sentence + len(starts) - 1, offset + boundary",
        "sentence + len(starts), offset + boundary",
        "With `elmo embed --split`, the sentences of a long line get wrong numbers.",
        "bulk/test_chunks.py bulk",
    ),
    make_fault(
        "resume-state",
        "bulk/executors.py",
        "carried = job.output.state_after(number - 1)",
        "carried = job.output.state_after(0)",
        "A resumed `elmo embed --state carry` continues from the wrong state.",
        "bulk/test_resume.py bulk/test_corpus.py bulk",
    ),
    make_fault(
        "search-order",
        "embed/topk.py",
        "order = np.lexsort((ids, -scores))",
        "order = np.lexsort((-ids, -scores))",
        "Of equally near tokens, the last ones are listed, in an order that depends on the blocks.",
        "embed/test_topk.py search",
    ),
    make_fault(
        "entity-type",
        "tasks/metrics/spans.py",
        " and type_ == last_type",
        "",
        "F1 differs from conlleval: an entity continues although its type changes.",
        "tasks/test_spans.py tasks/metrics tasks/test_ner.py",
    ),
    make_fault(
        "transposed-plot",
        "plot/similarity.py",
        "cosines[choice.label] = a @ b.T",
        "cosines[choice.label] = b @ a.T",
        "`elmo plot similarity` shows rows as columns.",
        "plot",
    ),
    make_fault(
        "token-check",
        "serve/middleware.py",
        "self._token is None or secrets.compare_digest(header, self._token)",
        "True",
        "Security: the service accepts any token.",
        "serve/test_limits_and_access.py serve/test_routes.py serve",
    ),
    make_fault(
        "stateful-compat",
        "compat/allennlp/bilm.py",
        "if not self.stateful or self._states is None:",
        "if self._states is None:",
        "`Elmo(..., stateful=False)` of the AllenNLP names still carries its state.",
        "compat/test_allennlp_state.py compat",
    ),
    make_fault(
        "spacy-last-token",
        "integrations/spacy.py",
        "ends = [*firsts[1:], len(doc)]",
        "ends = [*firsts[1:], len(doc) - 1]",
        "In spaCy, the last token of a document has no vector.",
        "integrations/test_spacy.py",
    ),
    make_fault(
        "exit-code",
        "cli/main.py",
        'cannot write to standard output\n        log(f"Error: {error}")\n        sys.exit(1)',
        'cannot write to standard output\n        log(f"Error: {error}")\n        sys.exit(0)',
        "A command that fails tells a script that it succeeded.",
        "cli/test_main.py cli",
    ),
    make_fault(
        "half-written-file",
        "storage/atomic.py",
        "        yield temporary\n        move_into_place(",
        "        with suppress(Exception):\n            yield temporary\n        move_into_place(",
        "A write that fails leaves a damaged file under the final name, without an error.",
        "storage/test_atomic.py storage",
    ),
]


# ------------------------------------------------------------------------------------ copied tree


def copy_tree(tree: Path, target: Path) -> Path:
    """Copy the tracked files of a repository. Link large directories and the shared data."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=tree, capture_output=True, text=True, check=True
    )
    copy = target / "tree"
    for name in listed.stdout.split("\0"):
        source = tree / name
        if name and source.is_file() and not name.startswith(tuple(f"{d}/" for d in LINKED)):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy / name)
    for name in LINKED:
        if (tree / name).exists():
            (copy / name).symlink_to(tree / name)
    if (tree.parent / "shared").exists():  # golden files of the original systems
        (target / "shared").symlink_to(tree.parent / "shared")
    return copy


def matching(tree: Path, fault: Fault) -> Edit | None:
    """Return the edit that fits this version of the source."""
    for edit in fault.edits:
        path = tree / edit.file
        if path.is_file() and path.read_text("utf-8").count(edit.old) == 1:
            return edit
    return None


# -------------------------------------------------------------------------------------- test runs


class TestRunner:
    """Runs pytest in a copied tree.

    Args:
        tree: The copy.
        prefix: A command that starts pytest, such as `nice`.
        jobs: Processes of pytest-xdist; 0 runs without it.
    """

    def __init__(self, tree: Path, prefix: list[str], jobs: int) -> None:
        self.tree, self.prefix, self.jobs = tree, prefix, jobs
        self.unusable: list[str] = []  # tests that also fail without a fault

    def first_failure(self, paths: list[str]) -> str | None:
        """Run tests until one fails, and return its name. Return None if all pass."""
        skipped = [f"--deselect={name}" for name in self.unusable]
        jobs = ["-n", str(self.jobs)] if self.jobs else []
        command = [
            *(*self.prefix, sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--no-header"),
            *("-p", "no:cacheprovider", *jobs, *skipped, *paths),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.tree / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        completed = subprocess.run(
            command, cwd=self.tree, env=environment, capture_output=True, text=True, check=False
        )
        if completed.returncode in (0, 5):  # 5: pytest selected no tests
            return None
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", completed.stdout, re.MULTILINE)
        if not failed:
            raise RuntimeError(
                f"{shlex.join(command)}\n{completed.stdout[-3000:]}{completed.stderr[-3000:]}"
            )
        return str(failed[0])


def find_failing_test(
    tests: TestRunner, fault: Fault, edit: Edit, *, close_only: bool
) -> str | None:
    """Inject a fault and return the first test that fails because of it."""
    path = tests.tree / edit.file
    before = path.read_text("utf-8")
    after = before.replace(edit.old, edit.new)
    close = [name for name in fault.tests if (tests.tree / name).exists()]
    for paths in [close] if close_only else [close, []]:
        if not paths and close_only:
            continue
        while True:
            path.write_text(after, "utf-8")
            try:
                failing_test = tests.first_failure(paths)
            finally:
                path.write_text(before, "utf-8")
            if failing_test is None:
                break
            if tests.first_failure([failing_test]) is None:
                return failing_test
            tests.unusable.append(failing_test)
    return None


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Inject the selected faults one after another."""
    faults = [fault for fault in FAULTS if not options.only or fault.name in options.only]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_tree(options.tree, Path(folder))
        tests = TestRunner(copy, shlex.split(options.prefix), options.jobs)
        for fault in faults:
            started = time.monotonic()
            edit = matching(copy, fault)
            if edit is None:
                result = {"status": "pattern not found", "test": None}
            else:
                caught = find_failing_test(tests, fault, edit, close_only=options.tests)
                result = {"status": "caught" if caught else "not caught", "test": caught}
            result["seconds"] = round(time.monotonic() - started)
            results[fault.name] = {"package": fault.package, "effect": fault.effect, **result}
            report(fault.name, results[fault.name])
            store(options, results, tests.unusable)
    return results


def report(name: str, result: dict[str, Any]) -> None:
    """Print the result of one fault."""
    test = result["test"] or ""
    sys.stdout.write(f"{name:20} {result['status']:18} {result['seconds']:>5} s  {test}\n")
    sys.stdout.flush()


def store(options: argparse.Namespace, results: dict[str, Any], unusable: list[str]) -> None:
    """Merge the results of this run into the results file."""
    path: Path = options.out
    stored = json.loads(path.read_text("utf-8")) if path.exists() else {}
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=options.tree, capture_output=True, text=True, check=True
    )
    known = stored.get(options.label, {}).get("faults", {})
    merged = {fault.name: (known | results).get(fault.name) for fault in FAULTS}
    stored[options.label] = {
        "command": "python recipes/faults.py" + (" --tests" if options.tests else ""),
        "commit": head.stdout.strip(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "failing_without_fault": unusable,
        "faults": {name: result for name, result in merged.items() if result},
    }
    path.write_text(json.dumps(stored, indent=1) + "\n", "utf-8")


def main() -> int:
    """Inject the faults, or list them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="checkout to test (default: this checkout)"
    )
    parser.add_argument("--label", default="now", help="name of the results (default: now)")
    parser.add_argument("--tests", action="store_true", help="run only the tests close to a fault")
    parser.add_argument("--only", action="append", help="name of a fault; can be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="pytest-xdist processes (default: 2)")
    parser.add_argument("--prefix", default="", help="command to start pytest with, such as nice")
    parser.add_argument("--list", action="store_true", help="list the faults and exit")
    parser.add_argument("--out", type=Path, default=STORED, help="results file")
    options = parser.parse_args()
    options.tree = options.tree.resolve()
    unknown = set(options.only or ()) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"unknown fault: {', '.join(sorted(unknown))}. Use --list to list all faults.")
    if options.list:
        edits = {fault.name: matching(options.tree, fault) for fault in FAULTS}
        for fault in FAULTS:
            state = "applies" if edits[fault.name] else "PATTERN NOT FOUND"
            sys.stdout.write(f"{fault.name:20} {fault.package:18} {state:18} {fault.effect}\n")
        return 0 if all(edits.values()) else 1
    results = run(options)
    return 0 if all(result["status"] == "caught" for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
