"""Search for the nearest tokens in context.

neighbors     search a text (Table 4 of the paper); does not need optional dependencies
index         search a token index, which `elmo index` builds
"""
