"""A look inside: what the vectors of a model hold, beside what static vectors hold.

spaces      a layer, the average, a mix: one vector per token out of R_k
topk        the best of many scores, block by block, in bounded memory
neighbors   the nearest tokens in context (Table 4 of the paper)
static      word2vec and GloVe: one vector per word, for comparison
alignment   a stretch of characters -> the tokens it covers
wic         word in context: the same sense or not, by cosine
kin         the inside of words: do spelling kin find each other in layer 0?
evidence    area under the curve, thresholds, intervals
"""
