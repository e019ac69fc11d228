"""An input module for SentenceTransformer models: ELMo token vectors with a learned mix.

    tokens = ElmoTokens()
    SentenceTransformer(modules=[tokens, Pooling(tokens.get_embedding_dimension()), Dense(...)])

A text is embedded as a single sentence. The mix of the layers is trained together with the
following modules; by default, the biLM is frozen. `save` writes all files that
`SentenceTransformer(path)` needs, without pickle.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.embed.tokenized import as_tokens
from elmokit.errors import optional_imports
from elmokit.model.elmo import Elmo
from elmokit.sources import modeldir
from elmokit.sources.resolve import load_parts
from elmokit.sources.tensors import read_tensors
from elmokit.storage.tensors import save_tensors

with optional_imports("sentence-transformers", "ElmoTokens"):
    from sentence_transformers.sentence_transformer.modules import InputModule

_BILM = "bilm"
_MIX = "mix.safetensors"


class ElmoTokens(InputModule):  # type: ignore[misc]
    """Computes a vector per token.

    Args:
        model: A model for `elmokit.load`: a name, a path or `hf://user/model`. Default: the bundled
            model.
        finetune: Also train the biLM.
        dropout: Dropout probability of the mixed vectors during training.
        max_seq_length: Maximum number of tokens per text. Longer texts are truncated.
    """

    config_keys = ("finetune", "dropout", "max_seq_length")
    config_file_name = "elmokit_config.json"
    save_in_root = False

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        finetune: bool = False,
        dropout: float = 0.0,
        max_seq_length: int = 512,
    ) -> None:
        super().__init__()
        self._parts = load_parts(model)
        self.elmo = Elmo(self._parts.bilm, finetune=finetune, dropout=dropout)
        self.finetune = finetune
        self.dropout = dropout
        self.max_seq_length = max_seq_length

    def preprocess(
        self, inputs: Sequence[str | Sequence[str]], prompt: str | None = None, **_: Any
    ) -> dict[str, Tensor]:
        """Return the character ids and the mask of texts. Lists of tokens are not tokenized."""
        texts = self._prepend_prompt(list(inputs), prompt) if prompt else inputs
        tokens = [as_tokens(text, i)[0][: self.max_seq_length] for i, text in enumerate(texts)]
        lengths = torch.tensor([len(row) for row in tokens])
        mask = torch.arange(max(1, int(lengths.max()))) < lengths.unsqueeze(1)
        return {"input_ids": self.elmo.token_ids(tokens), "attention_mask": mask.long()}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add `token_embeddings` (B, T, 2D) to the features."""
        return {**features, "token_embeddings": self.elmo(features["input_ids"]).representations[0]}

    def get_embedding_dimension(self) -> int:
        """Return the dimension of a vector, 2 * D."""
        return self.elmo.output_dim

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the settings, the mix and the model to a directory."""
        self.save_config(output_path)
        save_tensors(self.elmo.mixes.state_dict(), Path(output_path) / _MIX)
        modeldir.save(self._parts, Path(output_path) / _BILM, overwrite=True)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> ElmoTokens:
        """Load a directory written by `save`, from disk or the Hugging Face Hub."""
        keys = ("token", "cache_folder", "revision", "local_files_only")
        hub_options = {key: options[key] for key in keys if key in options}
        folder = cls.load_dir_path(model_name_or_path, subfolder=subfolder, **hub_options)
        config = cls.load_config(model_name_or_path, subfolder=subfolder, **hub_options)
        module = cls(Path(str(folder)) / _BILM, **config)
        state = module.elmo.mixes.state_dict()
        shapes = {name: tuple(value.shape) for name, value in state.items()}
        module.elmo.mixes.load_state_dict(read_tensors(Path(str(folder)) / _MIX, shapes))
        return module
