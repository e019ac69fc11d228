"""`elmo perplexity`: compute the perplexity of text or of a prepared corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from elmokit.cli import options as opt
from elmokit.cli.output import log, log_skipped, print_result
from elmokit.cli.progress import token_bar

if TYPE_CHECKING:
    from elmokit.embed.model import ElmoModel
    from elmokit.train.evaluate import Perplexity


def perplexity(
    files: opt.ParagraphFiles,
    model: opt.HeadModel = None,
    one_sentence_per_line: opt.OneSentencePerLine = False,
    tokenized: opt.Tokenized = False,
    skip_bad: opt.SkipBad = False,
    state: Literal["carry", "reset", "warm", "all"] = "carry",
    device: opt.Device = "auto",
    precision: opt.Precision = "exact",
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compute the perplexity of text with the full softmax.

    Prints the forward perplexity, the backward perplexity and their geometric mean. Perplexity is
    the exponential of the mean loss over words and sentence boundaries. As inputs,
    out-of-vocabulary words are encoded from their characters; as targets, they count as <UNK>. The
    perplexity without <UNK> targets is also printed. Memory usage depends on the length of the
    longest document, not on the size of the text.

    Args:
        files: Alternatively, a directory written by `elmo prepare`, whose held-out text is used.
        state: Initial LSTM state of each sentence. carry: the final state of the previous sentence,
            or zero at the beginning of a document. reset: zero. warm: the state stored with the
            model. all: each of these in turn.
    """
    from elmokit.data.reading import LineSplitter, read_sentences
    from elmokit.embed.loading import load
    from elmokit.embed.scoring import language_model
    from elmokit.progress import Progress
    from elmokit.text.lines import SkippedLines, check_files
    from elmokit.train.text import evaluate_text

    is_prepared = len(files) == 1 and Path(files[0]).is_dir()
    if not is_prepared:
        check_files(files)
    elmo = load(model, device=device, precision=precision, backend="torch")
    states = _select_states(elmo, state)
    if is_prepared:
        results = _evaluate_prepared(elmo, files[0], states)
    else:
        skipped = SkippedLines(skip_bad)
        splitter = LineSplitter(one_sentence_per_line, tokenized)
        with token_bar(enabled=not quiet) as bar:
            results = evaluate_text(
                elmo.bilm,
                elmo.scorer(),
                language_model(elmo)[1],
                read_sentences(files, splitter, skipped),
                states=states,
                warm=elmo.warm,
                on_progress=lambda targets: bar(Progress(targets, 0, None)),
            )
        log_skipped(skipped.count, skipped.first)
    values = [result.to_dict() for result in results]
    print_result(values, "\n".join(map(str, results)), as_json=as_json)


def _evaluate_prepared(elmo: ElmoModel, data: str, states: list[str]) -> list[Perplexity]:
    from elmokit.data.corpus import Corpus
    from elmokit.embed.scoring import language_model
    from elmokit.errors import ConfigError
    from elmokit.train.evaluate import evaluate, make_encoder, make_text_types

    corpus = Corpus.open(data)
    _, vocabulary = language_model(elmo)
    if vocabulary.words != corpus.vocabulary.words:
        raise ConfigError(
            f"The vocabulary of {data} differs from the vocabulary of the model {elmo.source}. "
            f"Prepare the text again with: elmo prepare --vocab {elmo.source} FILES... -o DATA"
        )
    chars = None if elmo.config.char_cnn is None else corpus.chars
    types = make_text_types(make_encoder(elmo.engine, chars), len(vocabulary))
    text = corpus.tokens("valid"), corpus.documents("valid")
    return [evaluate(elmo.scorer(), types, *text, state=name, warm=elmo.warm) for name in states]


def _select_states(elmo: ElmoModel, state: str) -> list[str]:
    """Return the initial states to evaluate."""
    if state == "warm":
        elmo.initial_state("warm")  # raises an error if the model has no warm state
    if state != "all":
        return [state]
    if elmo.warm is None:
        log("Note: The model has no warm state. Compute one with `elmo warm`.")
        return ["carry", "reset"]
    return ["carry", "reset", "warm"]
