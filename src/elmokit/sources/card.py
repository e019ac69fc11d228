"""Describe a model from its files, for `elmo info` and the model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elmokit.config import BiLMConfig

Facts = list[tuple[str, str]]


def describe(config: BiLMConfig) -> dict[str, Any]:
    """Return the shape of a biLM as JSON values."""
    cnn, lexicon, lstm = config.char_cnn or config.lexicon, config.lexicon, config.lstm
    shape: dict[str, Any] = {
        "input": "lexicon" if lexicon else "characters" if cnn else "words",
        "layers": config.n_layers,
        "lstm_layers": lstm.n_layers,
        "vector_dim": config.output_dim,
        "projection_dim": lstm.projection_dim,
        "cell_dim": lstm.dim,
        "cell_clip": lstm.cell_clip,
        "proj_clip": lstm.proj_clip,
        "skip_connections": lstm.use_skip_connections,
    }
    if cnn is None:
        return shape | {"words": config.n_words}
    if lexicon is not None:
        shape |= {
            "words": lexicon.n_words,
            "word_dim": lexicon.word_dim,
            "characters": lexicon.n_characters,
        }
    return shape | {
        "max_characters": cnn.max_characters_per_token,
        "character_dim": cnn.embedding_dim,
        "filters": [list(pair) for pair in cnn.filters],
        "highways": cnn.n_highway,
        "activation": cnn.activation,
    }


def lines(config: BiLMConfig) -> Facts:
    """Return the shape of a biLM as pairs of a label and a text."""
    cnn, lstm = config.char_cnn or config.lexicon, config.lstm
    layers = "layer" if lstm.n_layers == 1 else "layers"
    facts = [("input", _input(config))]
    if cnn is not None and cnn.filters:
        widths = f"{min(width for width, _ in cnn.filters)} to {cnn.max_width}"
        highways = f"{cnn.n_highway} highway{'' if cnn.n_highway == 1 else 's'}"
        text = f"{cnn.n_filters} filters of width {widths}, {cnn.activation}, {highways}"
        facts.append(("encoder", text))
    return [
        *facts,
        (
            "layers",
            f"{config.n_layers} vectors of {config.output_dim} per token: "
            f"the token encoder and {lstm.n_layers} LSTM {layers}",
        ),
        ("LSTM", f"cell {lstm.dim}, projection {lstm.projection_dim} per direction"),
        (
            "clips",
            f"cell {_or_none(lstm.cell_clip)}, projection {_or_none(lstm.proj_clip)}; "
            f"skip connections {'yes' if lstm.use_skip_connections else 'no'}",
        ),
    ]


def _input(config: BiLMConfig) -> str:
    if config.char_cnn is not None:
        limit = config.char_cnn.max_characters_per_token
        return f"characters, at most {limit} per token (marks included)"
    if (lexicon := config.lexicon) is None:
        return f"word ids, a closed vocabulary of {config.n_words:,}"
    tables = []
    if lexicon.n_words:
        tables.append(f"{lexicon.n_words:,} words (vectors of {lexicon.word_dim})")
    if lexicon.n_characters:
        tables.append(
            f"{lexicon.n_characters:,} characters of Unicode (vectors of {lexicon.embedding_dim}), "
            f"at most {lexicon.max_characters_per_token} per token (marks included)"
        )
    return f"a lexicon: {' and '.join(tables)}"


def training_lines(metadata: Mapping[str, Any]) -> Facts:
    """Return the facts about the training in the metadata of a model.

    A perplexity is stored with the training that measured it, or at the top level if the finished
    model was measured again.
    """
    facts = []
    if isinstance(base := metadata.get("finetuned_from"), str):
        facts.append(("base model", base))
    training = metadata.get("training")
    training = training if isinstance(training, Mapping) else {}
    counts = ", ".join(
        f"{training[name]:,} {name}"
        for name in ("steps", "tokens")
        if isinstance(training.get(name), int)
    )
    perplexity = _perplexity(metadata.get("perplexity", training.get("perplexity")))
    before = _perplexity(training.get("perplexity_before"))
    facts += [
        ("training", counts),
        ("perplexity", perplexity),
        ("perplexity of the base model", before),
    ]
    return [(label, text) for label, text in facts if text]


def _perplexity(measured: Any) -> str:
    return ", ".join(
        f"{m['mean']:.1f} ({m['state']})"
        for m in (measured if isinstance(measured, list) else [measured])
        if isinstance(m, Mapping) and isinstance(m.get("mean"), int | float) and "state" in m
    )


_GENERATED = "This card was generated from the model files."
_ONNX = "## ONNX"


def is_generated(card: str) -> bool:
    """Return whether a card was written by `write_card`, and has no header for the Hub."""
    return _GENERATED in card and not card.startswith("---")


def write_card(name: str, facts: Facts) -> str:
    """Return a short card."""
    return f"""# {name}

A bidirectional language model (ELMo) in the format of elmokit.

{_table(facts)}

```python
import elmokit

elmo = elmokit.load("path/to/this/folder")
elmo.embed("I read the book yesterday.").layers
```

{_GENERATED} Please add its language, its training text and
its license.
"""


def onnx_card(card: str | None, name: str, config: BiLMConfig, about: Mapping[str, Any]) -> str:
    """Return the card of an ONNX directory: the card of the model, and the differences.

    Args:
        card: The card of the model, if there is one.
        name: Its name.
        config: Its shape.
        about: The storage of its weights, and the accuracy loss.
    """
    if card is None or is_generated(card):
        card = f"# {name}\n\nA bidirectional language model (ELMo).\n\n{_table(lines(config))}\n"
    return f"""{card.split(_ONNX)[0].rstrip()}

{_ONNX}

`encoder.onnx` computes x_k from token ids, and `bilm.onnx` the layers from x_k. You can run them
with onnxruntime, or without torch in elmokit: `elmokit.load("path/to/this/folder")`. Weights are
stored as {about["storage"]}. The language-model head and its words are not included.
{_onnx_error(about.get("error"))}"""


def _onnx_error(error: Mapping[str, Any] | None) -> str:
    if not error:
        return ""
    return f"""
On {error["tokens"]} tokens of the King James Bible, the vectors differ from the float32 vectors of
torch by at most {max(error["largest_difference"]):.1e}; the mean cosine of each layer is at least
{min(error["mean_cosine"]):.6f}. `config.json` lists the differences by layer.
"""


def _table(facts: Facts) -> str:
    return "| | |\n|---|---|\n" + "\n".join(f"| {label} | {text} |" for label, text in facts)


def _or_none(clip: float | None) -> str:
    return "none" if clip is None else f"{clip:g}"
