"""elmokit: deep contextualized word representations (ELMo).

    import elmokit

    elmo = elmokit.load()
    out = elmo.embed(["I read the book yesterday.", "Can you read the letter now?"])
    out[0].word("read")       # (L + 1, 2D): the vectors of "read" in the first sentence

Heavy dependencies are imported only when they are used: `import elmokit` loads neither torch nor
h5py, and ONNX models work without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from elmokit.bulk.formats import open_vectors as open_vectors
    from elmokit.config import BiLMConfig as BiLMConfig
    from elmokit.embed.loading import load as load
    from elmokit.embed.model import ElmoModel as ElmoModel
    from elmokit.embed.onnx_model import OnnxModel as OnnxModel
    from elmokit.embed.vectors import SentenceVectors as SentenceVectors
    from elmokit.embed.vectors import padded as padded
    from elmokit.errors import ElmoError as ElmoError
    from elmokit.errors import ElmoWarning as ElmoWarning
    from elmokit.model.bilm import BiLM as BiLM
    from elmokit.model.chars import batch_ids as batch_ids
    from elmokit.model.elmo import Elmo as Elmo
    from elmokit.model.mix import ScalarMix as ScalarMix
    from elmokit.presets import preset as preset
    from elmokit.text.sentences import split_sentences as split_sentences
    from elmokit.text.tokenize import tokenize as tokenize

_MODULES = {
    "BiLM": "elmokit.model.bilm",
    "BiLMConfig": "elmokit.config",
    "Elmo": "elmokit.model.elmo",
    "ElmoError": "elmokit.errors",
    "ElmoModel": "elmokit.embed.model",
    "ElmoWarning": "elmokit.errors",
    "OnnxModel": "elmokit.embed.onnx_model",
    "ScalarMix": "elmokit.model.mix",
    "SentenceVectors": "elmokit.embed.vectors",
    "batch_ids": "elmokit.model.chars",
    "load": "elmokit.embed.loading",
    "open_vectors": "elmokit.bulk.formats",
    "padded": "elmokit.embed.vectors",
    "preset": "elmokit.presets",
    "split_sentences": "elmokit.text.sentences",
    "tokenize": "elmokit.text.tokenize",
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'elmokit' has no attribute '{name}'")
    from elmokit.errors import optional_imports

    with optional_imports(None, f"elmokit.{name}"):
        value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
