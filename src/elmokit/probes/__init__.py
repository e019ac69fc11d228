"""Probes measure what each layer of a model encodes, in comparison with static vectors.

pos           parts of speech: a linear classifier for each layer (Table 6 of the paper)
wsd           word senses: the nearest mean vector of a sense in SemCor (Table 5)
wic           same or different sense: the cosine of a word's vectors in two sentences
morphology    morphologically related words: the cosine of their vectors in layer 0

linear        the linear classifier
vectors       the vectors of words in sentences
conllu        reading treebanks
raganato      reading datasets of word senses
wordnet       reading WordNet and SemCor
statistics    area under the curve, thresholds, confidence intervals, differences
reports       formatting reports as tables and as JSON
"""
