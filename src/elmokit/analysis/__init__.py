"""A look inside: what the vectors of a model hold, beside what static vectors hold.

spaces        a layer, the average, a mix: one vector per token out of R_k
topk          the best of many scores, block by block, in bounded memory
neighbors     the nearest tokens in context (Table 4 of the paper)
index         the vectors of a text on disk, to be searched again and again: `index_build` makes it,
              `index_files` and `index_growing` are its arrays, `index_search` compares,
              `index_ann` asks faiss, `index_answers` are what comes out
static        word2vec and GloVe: one vector per word, for comparison
alignment     a stretch of characters -> the tokens it covers
wic           word in context: the same sense or not, by cosine
kin           the inside of words: do spelling kin find each other in layer 0?
pos_probe     parts of speech, a linear probe per layer (Table 6); `linear` is the probe, `conllu`
              reads treebanks, `vector_store` keeps the layers of many tokens on disk
wsd           word senses, the nearest mean of SemCor's uses (Table 5); `semcor`, `raganato` and
              `wordnet` read, `senses` says what a sense is
evidence      area under the curve, thresholds, intervals, differences
published     figures of others to stand beside ours; `tables` sets them in columns
"""
