"""Published results for comparison, from Peters et al. 2018."""

from __future__ import annotations

from typing import NamedTuple

SOURCE = "Peters et al. 2018"


class Gain(NamedTuple):
    """A row of Table 1 (test): baseline, with ELMo, relative error reduction in percent."""

    baseline: float
    elmo: float
    relative: float


TABLE1 = {
    "ner": Gain(90.15, 92.22, 21.0),
    "sst5": Gain(51.4, 54.7, 6.8),
    "snli": Gain(88.0, 88.7, 5.8),
    "squad": Gain(81.1, 85.8, 24.9),
    "srl": Gain(81.4, 84.6, 17.2),
    "coref": Gain(67.2, 70.4, 9.8),
}
#: Table 2 (dev): baseline, last layer only, all layers with lambda 1 and 0.001.
TABLE2 = {
    "squad": (80.8, 84.7, 85.0, 85.2),
    "snli": (88.1, 89.1, 89.3, 89.5),
    "srl": (81.6, 84.1, 84.6, 84.8),
}
#: Table 3 (dev): input, input and output, output.
TABLE3 = {
    "squad": (85.1, 85.6, 84.8),
    "snli": (88.9, 89.5, 88.7),
    "srl": (84.7, 84.3, 80.9),
}
#: Perplexity of a biLM on the dev text of a task, before and after one epoch on its training text.
#: These values are from secondary sources on the paper's supplement, so they are less certain than
#: the other results. For SQuAD, only the contexts were used.
FINE_TUNED = {
    "ner": (103.2, 46.3),
    "sst5": (131.5, 78.6),
    "snli": (72.1, 16.8),
    "squad": (99.1, 43.5),
}
