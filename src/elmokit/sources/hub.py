"""Models on the Hugging Face Hub: `hf://user/model`, `hf://user/model@revision`.

huggingface_hub (extra `hub`) downloads and caches them; its environment variables apply:
`HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN`, `HF_HUB_OFFLINE`. If the Hub cannot be reached, a cached copy
is used with a warning. Only models in safetensors or HDF5 are downloaded: no pickles and no code.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.errors import DownloadError, ElmoWarning, WeightsError, optional_imports, output_error
from elmokit.sources import hdf5dir, modeldir
from elmokit.sources.modeldir import ModelParts
from elmokit.sources.modelfiles import read_config

_PREFIX = "hf://"
_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^\s@]+))?")
_PART = re.compile(r"model-\d+\.safetensors")
_MAIN = "main"
# Seconds to wait for the Hub to list files.
_TIMEOUT = 10.0
# HTTP packages used by versions of huggingface_hub, and their connection errors.
_CLIENTS = {
    "requests": ("ConnectionError", "Timeout"),
    "httpx": ("TransportError",),
    "httpx2": ("TransportError",),
}


@dataclass(frozen=True)
class HubModel:
    """A repository of the hub at one of its revisions: a branch, a tag or a commit."""

    repo: str
    revision: str = _MAIN

    def __str__(self) -> str:
        at = "" if self.revision == _MAIN else f"@{self.revision}"
        return f"{_PREFIX}{self.repo}{at}"


def is_name(text: str) -> bool:
    """Tell whether a text is meant as the name of a model on the hub."""
    return text.lower().startswith(_PREFIX)


def parse(name: str) -> HubModel:
    """Read `hf://user/model[@revision]`."""
    match = _NAME.fullmatch(name[len(_PREFIX) :].rstrip("/"))
    if match is None:
        raise WeightsError(
            f"'{name}' does not name a model on the hub: expected {_PREFIX}user/model or "
            f"{_PREFIX}user/model@revision."
        )
    return HubModel(match["repo"], match["revision"] or _MAIN)


def load(name: str, *, vocab: Path | None = None) -> ModelParts:
    """Load a model from the Hub.

    Args:
        name: `hf://user/model`, at a branch, a tag or a commit with `@revision`.
        vocab: A vocabulary to take instead of the model's own.
    """
    folder = fetch(name)
    if modeldir.is_model_dir(folder):
        parts = modeldir.load(folder, vocab=vocab)
    else:
        parts = hdf5dir.load(hdf5dir.find(folder), vocab=vocab)
    parts.source = name
    return parts


def fetch(name: str) -> Path:
    """Return the directory of a model on the Hub; download it unless that commit is cached.

    Args:
        name: `hf://user/model`, at a branch, a tag or a commit with `@revision`.
    """
    model = parse(name)
    with optional_imports("hub", f"The model {model}"):
        from huggingface_hub import constants, utils
    if _offline():
        return _kept(model, "HF_HUB_OFFLINE is set")
    endpoint = _endpoint()
    try:
        return _fetched(model, *_listed(model))
    except (*_transport_errors(), utils.LocalEntryNotFoundError) as error:
        reason = f"The hub {endpoint} cannot be reached ({_told(error)})"
    except utils.HfHubHTTPError as error:
        raise DownloadError(f"The hub {endpoint} refused {model}: {_told(error)}.") from error
    except OSError as error:
        raise output_error(Path(constants.HF_HUB_CACHE), error) from error
    folder = _kept(model, reason)
    warnings.warn(
        f"{reason}; {model} is the copy that was fetched before, commit {folder.name}. The hub may "
        "have a newer one.",
        ElmoWarning,
        stacklevel=2,
    )
    return folder


def _listed(model: HubModel) -> tuple[str, list[str]]:
    """Return the commit of a revision and the names of its files."""
    from huggingface_hub import HfApi, utils

    api = HfApi(endpoint=_endpoint())
    try:
        info = api.model_info(model.repo, revision=model.revision, timeout=_TIMEOUT)
    except utils.GatedRepoError as error:
        raise DownloadError(
            f"{model} is given out on request only. Ask for it on its page at the hub, then log in "
            "with `hf auth login` or set HF_TOKEN."
        ) from error
    except utils.RepositoryNotFoundError as error:
        raise DownloadError(
            f"There is no model {model.repo} at {_endpoint()}, or it is private. Check the "
            "spelling; for a private one log in with `hf auth login` or set HF_TOKEN."
        ) from error
    except utils.RevisionNotFoundError as error:
        raise DownloadError(
            f"The model {model.repo} has no revision '{model.revision}'. Give a branch, a tag or a "
            "whole commit, or leave it out."
        ) from error
    except utils.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        if status is not None and status >= 500:  # as good as not there
            raise ConnectionError(f"it answered {status}") from error
        raise
    return str(info.sha), [file.rfilename for file in info.siblings or ()]


def _fetched(model: HubModel, commit: str, files: list[str]) -> Path:
    """Download the files of a model, and only then update the branch or tag in the cache.

    An interrupted download therefore leaves the previous copy intact. Weights are downloaded last:
    if they exist, the copy is complete.
    """
    there = [name for name in files if "/" not in name]
    wanted = [name for name in there if name in modeldir.FILES or _PART.fullmatch(name)]
    if not {modeldir.CONFIG, modeldir.WEIGHTS} <= set(wanted):
        wanted = _hdf5_files(model, there)
    at = HubModel(model.repo, commit)
    if modeldir.CONFIG in wanted:
        # Check this before downloading weights: other kinds of models use the same names.
        config = _snapshot(at, [modeldir.CONFIG]) / modeldir.CONFIG
        read_config(config, modeldir.FORMAT, modeldir.FORMAT_VERSION)
    light = [name for name in wanted if name != modeldir.WEIGHTS and not hdf5dir.is_weights(name)]
    for names in (light, wanted):
        _snapshot(at, names)
    return _snapshot(model, wanted)


def _hdf5_files(model: HubModel, files: list[str]) -> list[str]:
    """Choose the files of a model of AllenNLP or bilm-tf."""
    options = [name for name in files if hdf5dir.is_options(name)]
    weights = [name for name in files if hdf5dir.is_weights(name)]
    if options and weights:
        return [*options, *weights, *({modeldir.VOCABULARY} & set(files))]
    listed = ", ".join(sorted(files)[:12]) or "nothing"
    raise WeightsError(
        f"{model} is not a model of elmokit: looked for {modeldir.CONFIG} with {modeldir.WEIGHTS}, "
        f"and for options.json with an .hdf5 file; found {listed}. Pickles (.bin, .pt, .pkl) are "
        "not taken from the hub, because they can run code."
    )


def _snapshot(model: HubModel, names: list[str], **options: Any) -> Path:
    from huggingface_hub import constants, snapshot_download

    from elmokit import __version__

    return Path(
        snapshot_download(
            model.repo,
            revision=model.revision,
            allow_patterns=names,
            endpoint=_endpoint(),
            cache_dir=constants.HF_HUB_CACHE,
            library_name="elmokit",
            library_version=__version__,
            **options,
        )
    )


def _kept(model: HubModel, reason: str) -> Path:
    """Return the cached copy."""
    remedy = "Fetch it once where the hub can be reached, or give the path of a folder."
    try:
        folder = _snapshot(model, [modeldir.CONFIG], local_files_only=True)
    except FileNotFoundError as error:  # LocalEntryNotFoundError in all versions
        raise DownloadError(
            f"{reason}, and no copy of {model} is on this machine. {remedy}"
        ) from error
    names = [entry.name for entry in folder.iterdir()]
    is_hdf5 = any(map(hdf5dir.is_options, names)) and any(map(hdf5dir.is_weights, names))
    if not is_hdf5 and not modeldir.is_model_dir(folder):
        raise DownloadError(
            f"{reason}, and the copy of {model} in {folder} is not whole: "
            f"fetching it was interrupted. {remedy}"
        )
    return folder


def _endpoint() -> str:
    from huggingface_hub import constants

    # The package reads the variable when it is imported; a user may set it later.
    return str(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def _offline() -> bool:
    from huggingface_hub import constants

    said = os.environ.get("HF_HUB_OFFLINE", "").strip().upper()
    return bool(constants.HF_HUB_OFFLINE) or said in {"1", "ON", "YES", "TRUE"}


def _transport_errors() -> tuple[type[Exception], ...]:
    """Return what says that a server cannot be reached, whatever the package speaks HTTP with."""
    found: list[type[Exception]] = [ConnectionError, TimeoutError]
    for client, names in _CLIENTS.items():
        if client in sys.modules:
            found += [getattr(sys.modules[client], name) for name in names]
    return tuple(found)


def _told(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
