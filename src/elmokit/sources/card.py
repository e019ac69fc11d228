"""Describe models for `elmo info` and model cards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elmokit.config import BiLMConfig
from elmokit.progress import plural

if TYPE_CHECKING:
    from elmokit.sources.modeldir import ModelParts

#: Pairs of a label and a text.
Rows = list[tuple[str, str]]


def architecture_rows(config: BiLMConfig) -> Rows:
    """Describe the architecture of a biLM."""
    cnn, lstm = config.char_cnn or config.lexicon, config.lstm
    rows = [("input", _describe_input(config))]
    if cnn is not None and cnn.filters:
        widths = f"{min(width for width, _ in cnn.filters)} to {cnn.max_width}"
        text = f"{cnn.n_filters} filters of width {widths}, {cnn.activation}"
        rows.append(("encoder", f"{text}, highway layers: {cnn.n_highway}"))
    layers = "one for the token encoder and one for each LSTM layer"
    limits = f"cell {lstm.cell_clip or 'none'}, projection {lstm.proj_clip or 'none'}"
    skip = "yes" if lstm.use_skip_connections else "no"
    return [
        *rows,
        (
            "layers",
            f"{config.n_layers} vectors of {config.output_dim} dimensions per token, {layers}",
        ),
        ("LSTM", f"cell {lstm.dim}, projection {lstm.projection_dim} per direction"),
        ("clipping", f"{limits}; skip connections {skip}"),
    ]


def _describe_input(config: BiLMConfig) -> str:
    if (cnn := config.char_cnn or config.lexicon) is None:
        return f"word ids, a closed vocabulary of {config.n_words:,} words"
    limit = f"at most {cnn.max_characters_per_token} per token (including markers)"
    if (lexicon := config.lexicon) is None:
        return f"characters, {limit}"
    tables = []
    if lexicon.n_words:
        tables.append(f"{lexicon.n_words:,} words ({lexicon.word_dim} dimensions)")
    if lexicon.n_characters:
        tables.append(
            f"{lexicon.n_characters:,} Unicode characters ({lexicon.embedding_dim} dimensions), "
            f"{limit}"
        )
    return f"a lexicon: {' and '.join(tables)}"


def training_rows(metadata: Mapping[str, Any]) -> Rows:
    """Describe how a model was trained, according to its metadata.

    The perplexity at the end of training is stored under `training`. A later evaluation of the
    model is stored at the top level and takes precedence.
    """
    rows = []
    if isinstance(base := metadata.get("finetuned_from"), str):
        rows.append(("base model", base))
    training = metadata.get("training")
    training = training if isinstance(training, Mapping) else {}
    counts = ", ".join(
        plural(training[f"{unit}s"], unit)
        for unit in ("step", "token")
        if isinstance(training.get(f"{unit}s"), int)
    )
    perplexity = metadata.get("perplexity", training.get("perplexity"))
    rows += [
        ("training", counts),
        ("perplexity", _format_perplexity(perplexity)),
        ("perplexity of the base model", _format_perplexity(training.get("perplexity_before"))),
    ]
    return [(label, text) for label, text in rows if text]


def _format_perplexity(results: Any) -> str:
    return ", ".join(
        f"{r['mean']:.1f} ({r['state']})"
        for r in (results if isinstance(results, list) else [results])
        if isinstance(r, Mapping) and isinstance(r.get("mean"), int | float) and "state" in r
    )


_ONNX = "## ONNX"


def update_rows(card: str, rows: Rows) -> str:
    """Replace the text of the first table row with each label. Other text is not changed."""
    for label, text in rows:
        pattern = rf"^\|[ \t]*{label}[ \t]*\|[^|\r\n]*\|[ \t]*(?=\r?$)"
        row = _row(label, text).replace("\\", r"\\")
        card = re.sub(pattern, row, card, count=1, flags=re.MULTILINE)
    return card


def file_rows(parts: ModelParts) -> Rows:
    """Describe which optional files the directory of a model contains."""
    return [
        ("LM head", "no" if parts.head is None else "yes (`head.safetensors`)"),
        ("warm state", "no" if parts.warm is None else "yes (`warm.safetensors`)"),
    ]


def generate_card(parts: ModelParts, name: str) -> str:
    """Generate a model card.

    Args:
        parts: The model.
        name: The name to use if the metadata of the model does not contain one.
    """
    rows = [
        *training_rows(parts.metadata),
        *architecture_rows(parts.config),
        ("parameters", f"{parts.n_parameters:,}"),
        *file_rows(parts),
    ]
    return f"""# {parts.metadata.get("name") or name}

A bidirectional language model (ELMo).

{_table(rows)}

```python
import elmokit

elmo = elmokit.load("path/to/this/folder")
elmo.embed("I read the book yesterday.").layers
```

This card was generated from the model files. Please add the language, the training text and the
license.
"""


def onnx_card(
    card: str | None,
    name: str,
    config: BiLMConfig,
    onnx: Mapping[str, Any],
    *,
    has_warm_state: bool,
) -> str:
    """Return the model card of an ONNX directory: the original card with a section about ONNX.

    Args:
        card: The original model card, if any.
        name: The name of the model.
        config: The configuration of the model.
        onnx: The data type of the weights and the differences from the exact vectors, as in
            `config.json`.
        has_warm_state: Whether the directory contains a warm state.
    """
    if card is None:
        title = f"# {name}\n\nA bidirectional language model (ELMo)."
        card = f"{title}\n\n{_table(architecture_rows(config))}\n"
    warm_state = "yes (`warm.npz`)" if has_warm_state else "no"
    card = update_rows(card, [("LM head", "no"), ("warm state", warm_state)])
    return f"""{card.split(_ONNX)[0].rstrip()}

{_ONNX}

`encoder.onnx` computes x_k from token ids, and `bilm.onnx` the layers from x_k. You can run them
with ONNX Runtime, or load them in elmokit without PyTorch: `elmokit.load("path/to/this/folder")`.
The weights are stored as {onnx["storage"]}. The LM head and its vocabulary are not included.
{_describe_error(onnx.get("error"))}"""


def _describe_error(error: Mapping[str, Any] | None) -> str:
    if not error:
        return ""
    return f"""
On {error["tokens"]} tokens of sample sentences, the vectors differ from the float32 vectors
computed with PyTorch by at most {max(error["largest_difference"]):.1e}. The mean cosine similarity
is at least {min(error["mean_cosine"]):.6f} in every layer. `config.json` lists the differences by
layer.
"""


def _table(rows: Rows) -> str:
    return "\n".join(["| | |", "|---|---|", *(_row(label, text) for label, text in rows)])


def _row(label: str, text: str) -> str:
    return f"| {label} | {text} |"
