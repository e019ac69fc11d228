"""Published results for comparison, and their sources."""

from __future__ import annotations

from typing import NamedTuple

POS_SOURCE = (
    "The scores of the paper and of CoVe are from Peters et al. 2018, Table 6, for linear "
    "classifiers on the Penn Treebank (news, 45 tags). UD EWT is web text with different tags, so "
    "compare the ranking of the layers, not the absolute values."
)
WSD_SOURCE = (
    "The published scores for ALL and for CoVe are from Peters et al. 2018, Table 5. The "
    "scores for the individual test sets are from nlpprogress.com (word sense disambiguation). The "
    "scores of the first sense and the most frequent sense are from Raganato et al. 2017."
)


class Published(NamedTuple):
    """Published scores of one layer of the paper's biLM and of CoVe."""

    bilm: float
    cove: float


# Accuracy in percent.
POS_LAYERS = {"layer 1": Published(97.3, 93.3), "layer 2": Published(96.8, 92.8)}
# F1 in percent, on ALL.
WSD_LAYERS = {"layer 1": Published(67.4, 59.4), "layer 2": Published(69.0, 64.7)}
# F1 in percent, by dataset.
WSD_SETS: dict[str, dict[str, float]] = {
    "first sense of WordNet (Raganato et al. 2017)": {
        "senseval2": 66.8,
        "senseval3": 66.2,
        "semeval2007": 55.2,
        "semeval2013": 63.0,
        "semeval2015": 67.8,
        "ALL": 65.2,
    },
    "first sense of WordNet (Peters et al. 2018)": {"ALL": 65.9},
    "most frequent sense of SemCor (Raganato et al. 2017)": {
        "senseval2": 65.6,
        "senseval3": 66.0,
        "semeval2007": 54.5,
        "semeval2013": 63.8,
        "semeval2015": 67.1,
    },
    "context2vec": {
        "senseval2": 71.8,
        "senseval3": 69.1,
        "semeval2007": 61.3,
        "semeval2013": 65.6,
        "semeval2015": 71.9,
    },
    "biLM of the paper, layer 2": {
        "senseval2": 71.6,
        "senseval3": 69.6,
        "semeval2007": 62.2,
        "semeval2013": 66.2,
        "semeval2015": 71.3,
        "ALL": 69.0,
    },
}
