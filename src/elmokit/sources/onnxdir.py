"""Save and load ONNX directories: models for onnxruntime, which elmokit loads without torch.

config.json     the configuration of the biLM, and metadata
encoder.onnx    ids of distinct tokens -> x_k
bilm.onnx       x_k of a batch of sentences -> R_k
vocab.txt       the words of a word-input model
lexicon.json    the words and characters of a model with a lexicon
warm.npz        optional: the initial state for `state="warm"`, as the arrays `cell` and `hidden`
README.md       the model card

`load` and `save` require neither torch nor onnx, and `build` requires both. The LM head is not
included in the directory.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.config import BiLMConfig
from elmokit.errors import ConfigError, WeightsError, optional_imports
from elmokit.model.lexicon import Lexicon
from elmokit.sources import card, modelfiles
from elmokit.sources.modelfiles import CARD, CONFIG, LEXICON, VOCABULARY
from elmokit.storage.manifest import write_json
from elmokit.storage.overwrite import DirectoryKind, new_directory
from elmokit.storage.regular import resolve_output
from elmokit.text.vocab import Vocabulary

if TYPE_CHECKING:
    from elmokit.sources.modeldir import ModelParts

FORMAT = "elmokit-onnx"
FORMAT_VERSION = 1

ENCODER = "encoder.onnx"
BILM = "bilm.onnx"
WARM = "warm.npz"
FILES = (CONFIG, ENCODER, BILM, VOCABULARY, LEXICON, WARM, CARD)
STORAGES = ("float32", "int8")
_NPZ_OVERHEAD = 1 << 12

FloatArray = NDArray[np.float32]


@dataclass
class OnnxParts:
    """The parts of an ONNX model.

    Attributes:
        config: The configuration of the biLM.
        encoder: The graph of the token encoder: a path, or the contents of the file.
        bilm: The graph of both language models: a path, or the contents of the file.
        vocabulary: The words of a word-input model.
        lexicon: The words and characters of a model with a lexicon.
        warm: The initial state for `state="warm"`: cell (2, L, 1, H), hidden (2, L, 1, D).
        card: The text of the model card.
        metadata: Other entries of `config.json`. The entry `onnx` describes the data type of the
            weights and the accuracy loss.
        source: Where the model was loaded from, for messages.
        files: The files that the model was loaded from.
    """

    config: BiLMConfig
    encoder: Path | bytes
    bilm: Path | bytes
    vocabulary: Vocabulary | None = None
    lexicon: Lexicon | None = None
    warm: tuple[FloatArray, FloatArray] | None = None
    card: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    files: tuple[Path, ...] = ()

    @property
    def storage(self) -> str:
        """The data type of the stored weights, "float32" or "int8"."""
        onnx = self.metadata.get("onnx")
        return str(onnx.get("storage", "float32")) if isinstance(onnx, dict) else "float32"


def is_onnx_dir(path: Path) -> bool:
    """Return whether a directory is an ONNX directory (it may still be damaged)."""
    return all((path / name).is_file() for name in (BILM, ENCODER, CONFIG))


def check_available() -> None:
    """Raise an error if the packages required for the export are not installed."""
    with optional_imports("onnx", "Exporting to ONNX"):
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401


def build(parts: ModelParts, *, storage: str = "float32") -> OnnxParts:
    """Convert a model to ONNX in memory.

    Args:
        parts: The model. Its LM head is not converted.
        storage: "float32", or "int8", which needs a quarter of the space and is about twice as
            fast, but less accurate.
    """
    if storage not in STORAGES:
        raise ConfigError(
            f"ONNX models do not support storage '{storage}'. Expected one of: "
            f"{', '.join(STORAGES)}."
        )
    check_available()
    from elmokit.convert.onnx_graph import to_array
    from elmokit.convert.onnx_modules import bilm_model, encoder_model

    parts.check()
    config, warm = parts.bilm.config, parts.warm
    return OnnxParts(
        config,
        encoder_model(parts.bilm, storage).SerializeToString(),
        bilm_model(parts.bilm, storage).SerializeToString(),
        vocabulary=None if config.n_words is None else parts.vocabulary,
        lexicon=parts.bilm.lexicon,
        warm=None if warm is None else (to_array(warm.cell), to_array(warm.hidden)),
        card=parts.card,
        metadata={**parts.metadata, "onnx": {"storage": storage}},
        source=parts.source,
    )


def save(parts: OnnxParts, path: Path, *, overwrite: bool = False) -> None:
    """Write an ONNX directory atomically.

    Args:
        parts: The model.
        path: The output directory. Must not contain anything except an ONNX model.
        overwrite: Replace an existing model.
    """
    path = resolve_output(path)
    values = {"format": FORMAT, "format_version": FORMAT_VERSION}
    metadata = modelfiles.select_metadata(parts.metadata)
    config = {**values, **metadata, "bilm": parts.config.to_dict()}
    kind = DirectoryKind("model", FILES, is_onnx_dir)
    with new_directory(path, kind, overwrite=overwrite) as folder:
        write_json(folder / CONFIG, config)
        for graph, name in ((parts.encoder, ENCODER), (parts.bilm, BILM)):
            (folder / name).write_bytes(graph if isinstance(graph, bytes) else graph.read_bytes())
        if parts.vocabulary is not None:
            parts.vocabulary.save(folder / VOCABULARY)
        if parts.lexicon is not None:
            modelfiles.write_lexicon(parts.lexicon, folder / LEXICON)
        if parts.warm is not None:
            cell, hidden = parts.warm
            np.savez(folder / WARM, cell=cell, hidden=hidden)
        name = str(parts.metadata.get("name") or path.name)
        card_text = card.onnx_card(
            parts.card,
            name,
            parts.config,
            parts.metadata["onnx"],
            has_warm_state=parts.warm is not None,
        )
        (folder / CARD).write_bytes(card_text.encode("utf-8", "replace"))


def load(path: Path) -> OnnxParts:
    """Load an ONNX directory, except for the graphs, which onnxruntime reads from their files."""
    config, metadata = modelfiles.read_config(path / CONFIG, FORMAT, FORMAT_VERSION)
    vocab = path / VOCABULARY
    parts = OnnxParts(
        config,
        path / ENCODER,
        path / BILM,
        vocabulary=Vocabulary.from_file(vocab) if vocab.is_file() else None,
        warm=_read_warm(path / WARM, config) if (path / WARM).is_file() else None,
        card=modelfiles.read_card(path / CARD),
        metadata=metadata,
        source=str(path),
        files=tuple(path / name for name in FILES if (path / name).is_file()),
    )
    if config.lexicon is not None:
        limit = config.lexicon.max_characters_per_token
        parts.lexicon = modelfiles.read_lexicon(path / LEXICON, limit)
        parts.lexicon.check(config.lexicon)
    modelfiles.check_vocabulary(parts.vocabulary, config, parts.source)
    return parts


def _read_warm(path: Path, config: BiLMConfig) -> tuple[FloatArray, FloatArray]:
    lstm = config.lstm
    shapes = [(2, lstm.n_layers, 1, size) for size in (lstm.dim, lstm.projection_dim)]
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        # Check the uncompressed size first, because it can be much larger than the file.
        if size > sum(4 * math.prod(shape) for shape in shapes) + _NPZ_OVERHEAD:
            raise ValueError(f"its uncompressed size is {size:,} bytes")
        with np.load(path, allow_pickle=False) as file:
            cell, hidden = file["cell"], file["hidden"]
        for array, shape in zip((cell, hidden), shapes, strict=True):
            if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
                raise ValueError(
                    f"it contains {array.dtype} values of shape {list(array.shape)}; expected "
                    f"finite float32 values of shape {list(shape)}"
                )
    except Exception as error:  # NumPy raises many types of errors, including those of zlib
        raise WeightsError(
            f"{path} cannot be read as the warm state of this model: {error}. It is damaged, or "
            "from a different model. Convert the model again."
        ) from error
    return cell, hidden
