"""Search for the nearest tokens in context.

neighbors     search a text (Table 4 of the paper); requires only the base installation
index         search a token index, which `elmo index` builds
"""
