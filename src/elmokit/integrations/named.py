"""A model by its name: what pipelines store and pickle instead of hundreds of megabytes.

It is loaded when it is first needed, once for all that ask for the same in a process. Whoever has
stored its fingerprint learns if another model answers to the name today.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.model import ElmoModel, load
from elmokit.embed.precision import check_precision
from elmokit.errors import ConfigError, WeightsError

# Models that stay loaded though nobody holds them: a grid search asks for the same one again and
# again, and holds none in between.
_KEPT = 2


@dataclass(frozen=True)
class NamedModel:
    """What to load.

    Attributes:
        name: As for `elmokit.load`: a name, a path, `hf://user/model`; None is the bundled model.
        precision: "exact" or "fast".
        device: "auto", "cpu", "cuda", ...
        batch_tokens: Tokens that run together at most; None leaves the model's own bound.
        fingerprint: What the model must have, if it is known.
    """

    name: str | None = None
    precision: str = "exact"
    device: str = "auto"
    batch_tokens: int | None = None
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None and not isinstance(self.name, str):
            raise ConfigError(
                f"Expected the name or path of a model, which is stored with a pipeline; got "
                f"{type(self.name).__name__}. A loaded model has it as `elmo.source`."
            )
        check_precision(self.precision)
        n = self.batch_tokens
        if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 1):
            raise ConfigError(f"batch_tokens must be an integer of at least 1, found {n!r}.")

    @contextmanager
    def loaded(self) -> Iterator[ElmoModel]:
        """Give the model, to one thread at a time, and refuse another one than was meant."""
        kept = self._kept()
        if self.fingerprint not in (None, kept.fingerprint):
            raise WeightsError(
                f"The model '{kept.elmo.source}' has changed: its fingerprint is "
                f"{kept.fingerprint}, but the pipeline was saved with {self.fingerprint}. Restore "
                "the old model under that name, or recreate the pipeline with this one."
            )
        with kept.elmo.lock:
            yield kept.elmo

    def identify(self) -> str:
        """Return the fingerprint of the model that answers to the name now."""
        return self._kept().fingerprint

    def _kept(self) -> _Kept:
        with _LOADING:
            return _load(
                self.name, self.precision, self.device, self.batch_tokens, _stamp(self.name)
            )


@dataclass(frozen=True)
class _Kept:
    elmo: ElmoModel
    fingerprint: str


_LOADING = threading.Lock()


def _stamp(name: str | None) -> tuple[int, int] | None:
    """Tell one state of a local model from the next, so that a new one is loaded."""
    path = None if name is None else Path(name).expanduser() / "model.safetensors"
    if path is None or not path.is_file():
        return None
    found = path.stat()
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=_KEPT)
def _load(
    name: str | None,
    precision: str,
    device: str,
    batch_tokens: int | None,
    stamp: tuple[int, int] | None,
) -> _Kept:
    elmo = load(name, device=device, precision=precision)
    if batch_tokens is not None:
        elmo.batch_tokens = batch_tokens
    return _Kept(elmo, fingerprint(elmo))
