"""AllenNLP's `ElmoEmbedder`, which embeds sentences and files."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.compat.allennlp.bilm import _ElmoBiLm
from elmokit.compat.allennlp.elmo import DEFAULT_MODEL, batch_to_ids
from elmokit.device import choose_device
from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.precision import exact_products
from elmokit.errors import ConfigError, DataError
from elmokit.model.elmo import remove_boundaries
from elmokit.storage.atomic import replace_file
from elmokit.storage.hdf5_writer import Hdf5Writer

_log = logging.getLogger(__name__)

Array = NDArray[np.float32]

DEFAULT_BATCH_SIZE = 64


class ElmoEmbedder:
    """Computes all layers of tokenized sentences, (L + 1, T, 2D).

    Each sentence starts from the final state of the sentence at the same position in the previous
    batch. To reset the states, call `embedder.elmo_bilm._elmo_lstm.reset_states()`. With
    `stateful=False`, all sentences start from the zero state.

    Args:
        options_file: The `options.json` file (a path or a URL), or anything that `elmokit.load`
            accepts. Default: `allennlp:original`.
        weight_file: The HDF5 file.
        cuda_device: The index of the GPU, or -1 for the CPU.
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
        """Compute the layers of a batch.

        Returns:
            Layers (B, L + 1, T, 2D), zero for padding, and mask (B, T), 0 or 1.
        """
        # Do not use `cuda_device`, because users can move the biLM to another device.
        device = next(self.elmo_bilm.parameters()).device
        with torch.no_grad(), exact_products(device):
            output = self.elmo_bilm(batch_to_ids(batch).to(device))
        mask = output["mask"]
        layers = [remove_boundaries(layer, mask) for layer in output["activations"]]
        return torch.stack(layers, dim=1), mask[:, 2:].long()

    def embed_sentence(self, sentence: Sequence[str]) -> Array:
        """Embed one sentence: (L + 1, T, 2D)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Array]:
        """Embed the sentences of one batch.

        An empty sentence is processed as its two boundaries. If all sentences are empty, the states
        do not change.
        """
        lengths = [len(sentence) for sentence in batch]
        if not any(lengths):
            shape = (self.elmo_bilm.num_layers, 0, self.elmo_bilm.get_output_dim())
            return [np.zeros(shape, np.float32) for _ in batch]
        layers = self.batch_to_embeddings(batch)[0].cpu().numpy()
        return [h[:, :length] for h, length in zip(layers, lengths, strict=True)]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[Array]:
        """Yield the vectors of sentences in order, computed in batches."""
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}.")
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
        """Embed each line of a file, with tokens separated by spaces, and write an HDF5 file.

        The output has one dataset per line, named after the line number starting from 0, and the
        dataset `sentence_to_index`, a JSON object that maps each line to its number. The input file
        is closed at the end.

        Args:
            input_file: The open text file.
            output_file_path: The file to write.
            output_format: "all" layers, the "top" layer, the "average" of all layers, or another
                layer choice.
            batch_size: Number of lines per batch.
            forget_sentences: Omit `sentence_to_index`.
            use_sentence_keys: Name the datasets after the text of their lines, and omit
                `sentence_to_index`.
        """
        from tqdm import tqdm

        choice = LayerChoice.parse(output_format, self.elmo_bilm.num_layers)
        lines = [line.strip() for line in input_file]
        if "" in lines:
            raise DataError(
                f"Line {lines.index('') + 1} of the input is blank. Remove all blank lines."
            )
        if use_sentence_keys:
            _log.warning(
                "Sentences that contain slashes create nested HDF5 groups when used as keys. To "
                "read their vectors, use the full path of the dataset."
            )
        tokens = (line.split() for line in lines)
        with replace_file(Path(output_file_path)) as temporary, temporary.open("wb") as file:
            writer = Hdf5Writer(file)
            vectors = self.embed_sentences(tokens, batch_size)
            for line, layers in zip(lines, tqdm(vectors, total=len(lines)), strict=True):
                values = choice.apply(layers).astype(np.float32, copy=False)
                try:
                    writer.add_numbers(values, name=line if use_sentence_keys else None)
                except ValueError as error:
                    raise DataError(
                        f"The sentence '{line}' cannot be used as the name of a dataset ({error}). "
                        "Disable use_sentence_keys."
                    ) from error
            if not (forget_sentences or use_sentence_keys):
                # Of duplicate lines, the last one is used.
                index = {line: str(number) for number, line in enumerate(lines)}
                writer.add_string("sentence_to_index", json.dumps(index))
            writer.finish()
        input_file.close()
