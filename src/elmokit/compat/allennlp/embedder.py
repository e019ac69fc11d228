"""AllenNLP's `ElmoEmbedder`: sentences to arrays, and files to HDF5."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.compat.allennlp.bilm import _ElmoBiLm
from elmokit.compat.allennlp.elmo import DEFAULT_MODEL, batch_to_ids, without_boundaries
from elmokit.device import choose_device
from elmokit.embed.precision import exact
from elmokit.errors import ConfigError, DataError
from elmokit.storage.atomic import replace_file

_log = logging.getLogger(__name__)

Array = NDArray[np.float32]

DEFAULT_BATCH_SIZE = 64
_SENTENCE_TO_INDEX = "sentence_to_index"

_FORMATS: dict[str, Callable[[Array], Array]] = {
    "all": lambda layers: layers,
    "top": lambda layers: layers[-1],
    "average": lambda layers: layers.mean(axis=0),
}


class ElmoEmbedder:
    """A biLM that turns tokenized sentences into arrays of all layers, (L + 1, T, 2D).

    Each sentence starts where the one in the same place of the last batch ended, for the life of
    the object: `embedder.elmo_bilm._elmo_lstm.reset_states()` starts again, and with
    `stateful=False` every batch does.

    Args:
        options_file: The `options.json`: a path, an address, or anything that `elmokit.load`
            takes. Nothing means the original published model.
        weight_file: The HDF5 file.
        cuda_device: The GPU, or -1 for the CPU.
        stateful: See above.
    """

    def __init__(
        self,
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        cuda_device: int = -1,
        *,
        stateful: bool = True,
    ) -> None:
        if options_file is None and weight_file is None:
            options_file = DEFAULT_MODEL
        device = choose_device(f"cuda:{cuda_device}" if cuda_device >= 0 else "cpu")
        self.elmo_bilm = _ElmoBiLm(options_file, weight_file, stateful=stateful).to(device)
        self.cuda_device = cuda_device

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Compute the layers of a batch as it is.

        Returns:
            Layers (B, L + 1, T, 2D), zero where there is no token, and mask (B, T), 0 or 1.
        """
        # Not `cuda_device`: people move the biLM themselves.
        device = next(self.elmo_bilm.parameters()).device
        with torch.no_grad(), exact(device):
            output = self.elmo_bilm(batch_to_ids(batch).to(device))
        mask = output["mask"]
        kept = [without_boundaries(layer, mask)[0] for layer in output["activations"]]
        return torch.stack(kept, dim=1), mask[:, 2:].long()

    def embed_sentence(self, sentence: Sequence[str]) -> Array:
        """Embed one sentence: (L + 1, T, 2D)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Array]:
        """Embed sentences together, in their order; see `embed_sentences` for many.

        An empty sentence among others is read as its two boundaries; a batch of nothing but empty
        sentences is not read at all.
        """
        lengths = [len(sentence) for sentence in batch]
        if not any(lengths):
            bilm = self.elmo_bilm
            return [
                np.zeros((bilm.num_layers, 0, bilm.get_output_dim()), np.float32) for _ in batch
            ]
        layers = self.batch_to_embeddings(batch)[0].cpu().numpy()
        return [found[:, :length] for found, length in zip(layers, lengths, strict=True)]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[Array]:
        """Embed any number of sentences, in their order, as they are asked for."""
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, found {batch_size}.")
        remaining = iter(sentences)
        while batch := list(itertools.islice(remaining, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: IO[str],
        output_file_path: str | Path,
        output_format: str = "all",
        batch_size: int = DEFAULT_BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embed each line of a file, tokens separated by spaces, into an HDF5 file.

        The file has one dataset per line, named by its number from 0, and `sentence_to_index`, a
        JSON object from each line to its number. The input is closed at the end.

        Args:
            input_file: The open text file.
            output_file_path: The file to write.
            output_format: "all" layers, the "top" one or their "average".
            batch_size: Lines that run together.
            forget_sentences: Leave `sentence_to_index` out.
            use_sentence_keys: Name the datasets by their lines, and leave `sentence_to_index` out.
        """
        import h5py
        from tqdm import tqdm

        if output_format not in _FORMATS:
            raise ConfigError(
                f"Invalid output_format '{output_format}': expected one of {', '.join(_FORMATS)}."
            )
        lines = [line.strip() for line in input_file]
        keys = _keys(lines, use_sentence_keys)
        tokens = (line.split() for line in lines)
        with replace_file(Path(output_file_path)) as temporary, _writing(temporary) as file:
            found = self.embed_sentences(tokens, batch_size)
            for key, layers in zip(keys, tqdm(found, total=len(lines)), strict=True):
                _put(file, key, _FORMATS[output_format](layers))
            if not (forget_sentences or use_sentence_keys):
                index = dict(zip(lines, keys, strict=True))  # the last of equal lines counts
                table = file.create_dataset(_SENTENCE_TO_INDEX, (1,), h5py.string_dtype())
                table[0] = json.dumps(index)
        input_file.close()


def _keys(lines: list[str], use_sentence_keys: bool) -> list[str]:
    """Choose the name of each line's dataset, before anything is computed."""
    blank = [str(number) for number, line in enumerate(lines, start=1) if not line]
    if blank:
        raise DataError(
            f"The input has blank lines, which have no vectors: line {', '.join(blank[:10])}"
            f"{', ...' if len(blank) > 10 else ''}. Remove them."
        )
    if not use_sentence_keys:
        return [str(number) for number in range(len(lines))]
    _log.warning(
        "A slash in a sentence that is used as a key creates an HDF5 group; read it by its path."
    )
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if line in seen:
            raise DataError(
                f"Line {number} is the same as line {seen[line]}, so it cannot be used as a key. "
                "Disable use_sentence_keys."
            )
        seen[line] = number
    return lines


def _put(file: Any, key: str, vectors: Array) -> None:
    try:
        file.create_dataset(key, data=vectors, dtype="float32")
    except (RuntimeError, TypeError, ValueError) as error:
        if key.isdigit():  # then it is not the fault of the key
            raise
        raise DataError(
            f"The vectors of '{key}' cannot be stored with the sentence as key ({error}). "
            "Disable use_sentence_keys."
        ) from error


@contextmanager
def _writing(path: Path) -> Iterator[Any]:
    """Open a new file; what HDF5 says when the disk is full becomes an `OSError`."""
    import h5py

    try:
        with h5py.File(path, "w") as file:
            yield file
    except (RuntimeError, ValueError) as error:
        raise OSError(f"cannot write HDF5 ({error})") from error
