"""Probes: measure what each layer of a model encodes, compared with static vectors.

pos           parts of speech by a linear classifier per layer (Table 6 of the paper)
wsd           word senses by the nearest mean vector of SemCor (Table 5)
wic           whether a word has the same sense in two sentences, by cosine
morphology    the similarity of morphologically related words in layer 0

linear        the linear classifier
vectors       the vectors of words in sentences
conllu        reads treebanks; raganato and wordnet read data with word senses
statistics    area under the curve, thresholds, confidence intervals, differences
reports       formats reports as tables and as JSON
"""
