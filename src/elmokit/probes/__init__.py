"""Probes: what each layer of a model encodes, compared with static vectors.

pos           parts of speech by a linear classifier per layer (Table 6 of the paper)
wsd           word senses by the nearest mean vector of SemCor (Table 5)
wic           word in context: the same sense in two sentences, by cosine
morphology    words that are related by form: do they find each other in layer 0?

linear        the linear classifier
conllu        reads treebanks; semcor, raganato and wordnet read data with word senses
statistics    area under the curve, thresholds, confidence intervals, differences
reports       formats reports as tables and as JSON
"""
