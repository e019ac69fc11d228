"""Download models from the Hugging Face Hub: `hf://user/model`, `hf://user/model@revision`.

huggingface_hub (extra `hub`) downloads and caches them, and its environment variables apply:
`HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN`, `HF_HUB_OFFLINE`. If the Hub cannot be reached, a cached copy
is used, with a warning. Only safetensors and HDF5 models are downloaded, never pickle files or
code.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from elmokit.errors import (
    DownloadError,
    ElmoError,
    WeightsError,
    join_names,
    optional_imports,
    output_error,
    warn,
)
from elmokit.sources import hdf5dir, modeldir
from elmokit.sources.modelfiles import CONFIG, VOCABULARY, read_config

_PREFIX = "hf://"
_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^\s@]+))?")
_PART = re.compile(r"model-\d+\.safetensors")
# Timeout in seconds for listing the files of a model.
_TIMEOUT = 10.0


def is_name(text: str) -> bool:
    """Return whether a string is the name of a model on the Hub."""
    return text.lower().startswith(_PREFIX)


def parse(name: str) -> tuple[str, str]:
    """Parse `hf://user/model[@revision]` into the repository and the revision."""
    match = _NAME.fullmatch(name[len(_PREFIX) :].rstrip("/"))
    if match is None:
        raise WeightsError(
            f"Invalid model name '{name}': expected {_PREFIX}user/model or "
            f"{_PREFIX}user/model@revision."
        )
    return match["repo"], match["revision"] or "main"


def fetch(name: str) -> Path:
    """Download a model unless it is cached, and return its local directory.

    Args:
        name: `hf://user/model`, or `hf://user/model@revision` with a branch, a tag or a commit.
    """
    with optional_imports("hub", f"The model {name}"):
        from huggingface_hub import constants
    repo, revision = parse(name)
    if constants.HF_HUB_OFFLINE:
        return _cached(name, repo, revision, "HF_HUB_OFFLINE is set")
    try:
        return _download(name, repo, revision)
    except ElmoError:
        raise
    except Exception as error:  # the type depends on the version of huggingface_hub
        cause = " ".join(str(error).split()) or type(error).__name__
        if getattr(getattr(error, "response", None), "status_code", 500) < 500:
            raise DownloadError(f"Cannot download {name} from {_endpoint()}: {cause}") from error
        if isinstance(error, OSError) and error.errno is not None:
            raise output_error(Path(constants.HF_HUB_CACHE), error) from error
    reason = f"Cannot reach the Hub at {_endpoint()} ({cause[:200]})"
    folder = _cached(name, repo, revision, reason)
    warn(f"{reason}. Using the cached copy of {name} (commit {folder.name}); it may be outdated.")
    return folder


def _download(name: str, repo: str, revision: str) -> Path:
    """Download the files of a model, then update the branch or tag in the cache.

    In this order, an interrupted download does not affect the previous copy. The main weight file
    is downloaded after all other files, so a copy that contains this file is complete.
    """
    from huggingface_hub import HfApi

    info = HfApi(endpoint=_endpoint()).model_info(repo, revision=revision, timeout=_TIMEOUT)
    files = _select_files(name, [file.rfilename for file in info.siblings or ()])
    commit = str(info.sha)
    if CONFIG in files:
        # Check the format before downloading weights: other libraries use the same file names.
        config = _snapshot(repo, commit, [CONFIG]) / CONFIG
        read_config(config, modeldir.FORMAT, modeldir.FORMAT_VERSION)
    other_files = [f for f in files if f != modeldir.WEIGHTS and not hdf5dir.is_weights(f)]
    _snapshot(repo, commit, other_files)
    _snapshot(repo, commit, files)
    return _snapshot(repo, revision, files)


def _select_files(model: str, files: list[str]) -> list[str]:
    """Return the files of a model directory, or of an AllenNLP or bilm-tf model."""
    top_level = [name for name in files if "/" not in name]
    names = [name for name in top_level if name in modeldir.FILES or _PART.fullmatch(name)]
    if {CONFIG, modeldir.WEIGHTS} <= set(names):
        return names
    if hdf5dir.is_model(top_level):
        return [
            name
            for name in top_level
            if hdf5dir.is_options(name) or hdf5dir.is_weights(name) or name == VOCABULARY
        ]
    raise WeightsError(
        f"{model} is not a supported model: expected {CONFIG} and {modeldir.WEIGHTS}, or "
        f"options.json and an .hdf5 file; found {join_names(sorted(top_level))}. Pickle files "
        "(.bin, .pt, .pkl) are not downloaded, because they can execute code."
    )


def _snapshot(repo: str, revision: str, names: list[str], *, local: bool = False) -> Path:
    from huggingface_hub import HfApi

    download = HfApi(endpoint=_endpoint()).snapshot_download
    return Path(download(repo, revision=revision, allow_patterns=names, local_files_only=local))


def _cached(name: str, repo: str, revision: str, reason: str) -> Path:
    """Return the directory of the cached copy, which must be complete."""
    hint = "Download it once with a network connection, or load a model from a local path."
    try:
        folder = _snapshot(repo, revision, [CONFIG], local=True)
    # LocalEntryNotFoundError (in all versions, a FileNotFoundError), or an invalid name.
    except (FileNotFoundError, ValueError) as error:
        raise DownloadError(f"{reason}, and {name} is not in the cache. {hint}") from error
    if not modeldir.is_model_dir(folder) and not hdf5dir.is_model(e.name for e in folder.iterdir()):
        raise DownloadError(
            f"{reason}, and the copy of {name} in {folder} is incomplete, because its download "
            f"was interrupted. {hint}"
        )
    return folder


def _endpoint() -> str:
    from huggingface_hub import constants

    # huggingface_hub reads the variable only when it is imported, but users may set it later.
    return str(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
