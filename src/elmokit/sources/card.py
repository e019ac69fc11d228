"""Describe a model from its files, for `elmo info` and the model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elmokit.config import BiLMConfig, CharCnnConfig, LexiconConfig


def describe(config: BiLMConfig) -> dict[str, Any]:
    """Return the shape of a biLM as JSON values."""
    cnn, lstm = config.char_cnn or config.lexicon, config.lstm
    facts: dict[str, Any] = {
        "input": _input(config),
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
        return facts | {"words": config.n_words}
    if (lexicon := config.lexicon) is not None:
        facts |= {
            "words": lexicon.n_words,
            "word_dim": lexicon.word_dim,
            "characters": lexicon.n_characters,
        }
    return facts | {
        "max_characters": cnn.max_characters_per_token,
        "character_dim": cnn.embedding_dim,
        "filters": [list(pair) for pair in cnn.filters],
        "highways": cnn.n_highway,
        "activation": cnn.activation,
    }


def lines(config: BiLMConfig) -> list[tuple[str, str]]:
    """Return the same for people: pairs of a label and a text."""
    cnn, lstm = config.char_cnn, config.lstm
    layers = "layer" if lstm.n_layers == 1 else "layers"
    facts = [
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
    if config.lexicon is not None:
        return [*_lexicon_lines(config.lexicon), *facts]
    if cnn is None:
        return [("input", f"word ids, a closed vocabulary of {config.n_words:,}"), *facts]
    return [
        ("input", f"characters, at most {cnn.max_characters_per_token} per token (marks included)"),
        ("encoder", _encoder(cnn)),
        *facts,
    ]


def training_lines(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what `config.json` says about the training.

    A perplexity is stored with the training that measured it, or at the top level if the finished
    model was measured again.
    """
    facts = []
    if isinstance(base := metadata.get("finetuned_from"), str):
        facts.append(("base model", base))
    training = metadata.get("training")
    training = training if isinstance(training, Mapping) else {}
    counts = [
        f"{training[name]:,} {name}"
        for name in ("steps", "tokens")
        if isinstance(training.get(name), int)
    ]
    if counts:
        facts.append(("training", ", ".join(counts)))
    after = metadata.get("perplexity", training.get("perplexity"))
    for label, measured in (
        ("perplexity", after),
        ("perplexity of the base model", training.get("perplexity_before")),
    ):
        figures = [
            f"{m['mean']:.1f} ({m['state']})"
            for m in (measured if isinstance(measured, list) else [measured])
            if isinstance(m, Mapping) and isinstance(m.get("mean"), int | float) and "state" in m
        ]
        if figures:
            facts.append((label, ", ".join(figures)))
    return facts


def _input(config: BiLMConfig) -> str:
    if config.lexicon is not None:
        return "lexicon"
    return "words" if config.char_cnn is None else "characters"


def _lexicon_lines(lexicon: LexiconConfig) -> list[tuple[str, str]]:
    words = f"{lexicon.n_words:,} words (vectors of {lexicon.word_dim})"
    characters = (
        f"{lexicon.n_characters:,} characters of Unicode (vectors of {lexicon.embedding_dim}), at "
        f"most {lexicon.max_characters_per_token} per token (marks included)"
    )
    tables = [words] * bool(lexicon.n_words) + [characters] * bool(lexicon.n_characters)
    facts = [("input", f"a lexicon: {' and '.join(tables)}")]
    if lexicon.n_characters:
        facts.append(("encoder", _encoder(lexicon)))
    return facts


def _encoder(cnn: CharCnnConfig | LexiconConfig) -> str:
    return (
        f"{cnn.n_filters} filters of width {min(w for w, _ in cnn.filters)} to "
        f"{cnn.max_width}, {cnn.activation}, "
        f"{cnn.n_highway} highway{'' if cnn.n_highway == 1 else 's'}"
    )


_GENERATED = "This card was made from the files."


def is_generated(card: str) -> bool:
    """Return whether a card was written by `write_card`."""
    return _GENERATED in card


def write_card(
    name: str,
    config: BiLMConfig,
    parameters: int,
    *,
    head: bool,
    warm: bool,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """Return a short card with what is known from the files."""
    rows = [
        *training_lines(metadata or {}),
        *lines(config),
        ("parameters", f"{parameters:,}"),
        ("language-model head", "yes (`head.safetensors`)" if head else "no"),
        ("warm state", "yes (`warm.safetensors`)" if warm else "no"),
    ]
    table = "\n".join(f"| {label} | {text} |" for label, text in rows)
    return f"""# {name}

A bidirectional language model (ELMo) in the format of elmokit.

| | |
|---|---|
{table}

```python
import elmokit

elmo = elmokit.load("path/to/this/folder")
elmo.embed("I read the book yesterday.").layers
```

{_GENERATED} It does not know the text the model was trained on, its language
or its license; whoever knows should write it here.
"""


def onnx_card(written: str | None, name: str, config: BiLMConfig, about: Mapping[str, Any]) -> str:
    """Return the card of an ONNX directory: the card of the model, and what differs.

    Args:
        written: The card of the model, if somebody wrote one.
        name: Its name.
        config: Its shape.
        about: The storage of its weights, and the accuracy loss.
    """
    if written is None or is_generated(written):
        table = "\n".join(f"| {label} | {text} |" for label, text in lines(config))
        written = (
            f"# {name}\n\nA bidirectional language model (ELMo).\n\n| | |\n|---|---|\n{table}\n"
        )
    written = written.split(_ONNX)[0].rstrip()
    return f"""{written}

{_ONNX}

`encoder.onnx` turns ids of tokens into x_k, `bilm.onnx` those into the layers; any onnxruntime runs
them, and elmokit without torch: `elmokit.load("path/to/this/folder")`. Numbers are stored as
{about["storage"]}. The language-model head and its words are not here.
{_onnx_error(about.get("error"))}"""


_ONNX = "## This folder is ONNX"


def _onnx_error(error: Mapping[str, Any] | None) -> str:
    if not error:
        return ""
    rows = zip(
        error["largest_difference"], error["mean_cosine"], error["worst_cosine"], strict=True
    )
    facts = "\n".join(
        f"| {j} | {difference:.1e} | {mean:.6f} | {worst:.6f} |"
        for j, (difference, mean, worst) in enumerate(rows)
    )
    return f"""
Beside the vectors of torch in float32, on {error["tokens"]} tokens of the King James Bible:

| layer | largest difference | mean cosine | worst cosine |
|---|---|---|---|
{facts}
"""


def _or_none(clip: float | None) -> str:
    return "none" if clip is None else f"{clip:g}"
