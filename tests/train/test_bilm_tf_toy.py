"""bilm-tf's own test of its training: memorizing a few sentences.

Its test trains a tiny model on four lines and requires a test perplexity below 20 on the same lines
(`tests/test_training.py` there). Our measurement is stricter, because the symbol at the start of a
direction's stream is not among the targets, which increases the perplexity.
"""

from __future__ import annotations

from pathlib import Path

import torch

from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import prepare, read_vocabulary
from elmokit.model.engine import PlainEngine
from elmokit.model.scoring import Scorer
from elmokit.sources import modeldir
from elmokit.train.config import RunConfig
from elmokit.train.evaluate import evaluate, make_encoder, make_text_types
from elmokit.train.loop import train
from elmokit.train.optimizer import OptimizerConfig
from elmokit.train.step import StepConfig

EPOCHS = 50
ROWS, STEPS = 2, 10


def test_toy_corpus_is_memorized_as_in_bilm_tf(shared: Path, tmp_path: Path) -> None:
    toy = shared / "fixtures/allenai-bilm-tf/fixtures/train"
    vocabulary = read_vocabulary(toy / "vocab.txt")
    settings = PrepareSettings(tokenized=True)
    prepare([toy / "data.txt"], tmp_path / "data", settings, workers=1, vocabulary=vocabulary)
    corpus = Corpus.open(tmp_path / "data")
    config = RunConfig(
        BiLMConfig(
            LstmConfig(dim=16, projection_dim=8, n_layers=2),
            CharCnnConfig(embedding_dim=4, filters=((1, 2), (2, 4), (3, 8), (4, 16)), n_highway=1),
        ),
        StepConfig(ROWS, STEPS, negatives=16, dropout=0.1, gradient_scale=STEPS),
        OptimizerConfig(kind="adagrad", learning_rate=0.2, warmup=0, final=1.0, clip=1.0),
        max_steps=EPOCHS * -(-len(corpus.tokens()) // (ROWS * STEPS)),
        checkpoint_every=0,
        evaluate_every=0,
    )
    model = modeldir.load(train(config, corpus, tmp_path / "run").model)
    assert model.head is not None
    engine = PlainEngine(model.bilm)
    scorer = Scorer(engine, model.bilm.config.lstm, model.head, torch.device("cpu"))
    types = make_text_types(make_encoder(engine, corpus.chars), corpus.n_words)
    found = evaluate(scorer, types, corpus.tokens(), corpus.documents())
    assert found.mean < 20
