"""Model references, which pipelines store and pickle instead of weights.

A model is loaded on first use, once per process. A fingerprint ensures that the name still refers
to the same model.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.layer_choice import LayerChoice, check_layer, check_mix
from elmokit.embed.loading import load
from elmokit.embed.model import ElmoModel
from elmokit.embed.precision import PRECISIONS
from elmokit.errors import ConfigError, WeightsError, check_choice
from elmokit.settings import Count, validate

# Maximum number of models to keep in memory. A grid search loads the same model repeatedly.
_MAX_CACHED_MODELS = 2


@dataclass(frozen=True)
class NamedModel:
    """A reference to a model, and a layer choice.

    Attributes:
        name: A model for `elmokit.load`: a name, a path or `hf://user/model`. Default: the bundled
            model.
        precision: "exact" or "fast".
        device: "auto", "cpu", "cuda", ...
        batch_tokens: Maximum number of tokens per batch. Default: chosen by the model.
        fingerprint: The expected fingerprint of the model, if known.
        layer: The layer to use: a layer number, "top", "average", "concat" or "mix".
        mix: With layer "mix": the weights s, one per layer, not normalized.
        gamma: With layer "mix": the scale.
    """

    name: str | None = None
    precision: str = "exact"
    device: str = "auto"
    batch_tokens: int | None = None
    fingerprint: str | None = None
    layer: str | int = "average"
    mix: Sequence[float] | None = None
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if self.name is not None and not isinstance(self.name, str):
            raise ConfigError(
                f"model has type {type(self.name).__name__}; expected a name or path as a "
                "string, which is stored with the pipeline. For a loaded model, pass `elmo.source`."
            )
        check_choice("precision", self.precision, PRECISIONS)
        check_mix([check_layer(self.layer, allow_all=False)], self.mix, self.gamma)
        validate("batch_tokens", self.batch_tokens, Count | None)

    @contextmanager
    def loaded(self) -> Iterator[ElmoModel]:
        """Load the model, check its fingerprint, and lock it for the current thread."""
        elmo, actual = self._load()
        if self.fingerprint not in (None, actual):
            raise WeightsError(
                f"The model '{elmo.source}' has changed: its fingerprint is {actual}, but the "
                f"pipeline was saved with {self.fingerprint}. Restore the original model, or "
                "recreate the pipeline with the new model."
            )
        with elmo.lock:
            yield elmo

    def identify(self) -> str:
        """Return the fingerprint of the model that the name currently refers to."""
        return self._load()[1]

    def choice(self, n_layers: int) -> LayerChoice:
        """Return the layer choice for a model with `n_layers` layers."""
        return LayerChoice.parse(self.layer, n_layers, self.mix, self.gamma, allow_all=False)

    def _load(self) -> tuple[ElmoModel, str]:
        with _LOADING:
            return _load(
                self.name, self.precision, self.device, self.batch_tokens, _file_version(self.name)
            )


_LOADING = threading.Lock()


def _file_version(name: str | None) -> tuple[int, int] | None:
    """Return a value that changes when the weight file of a local model changes."""
    path = None if name is None else Path(name).expanduser() / "model.safetensors"
    if path is None or not path.is_file():
        return None
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=_MAX_CACHED_MODELS)
def _load(
    name: str | None,
    precision: str,
    device: str,
    batch_tokens: int | None,
    file_version: tuple[int, int] | None,  # unused, but part of the cache key
) -> tuple[ElmoModel, str]:
    elmo = load(name, device=device, precision=precision, backend="torch")
    if batch_tokens is not None:
        elmo.batch_tokens = batch_tokens
    return elmo, fingerprint(elmo)
