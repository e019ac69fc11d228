"""The paper, bottom up: characters, token encoder, LSTM, biLM, language-model head, mix.

Notation used in every file of this package (trailing comments give shapes in these letters):

    B  sentences in a batch          k  a position (token) in a sentence, 1..N
    T  positions per sentence        j  a layer, 0..L
    C  character ids per token       L  LSTM layers per direction
    D  projection size: x_k, r_k     H  LSTM cell size: c_k
    V  words in the vocabulary       F  convolution filters

    t_k       the token itself
    x_k       its context-free vector from the token encoder               (D)
    h_{k,j}   its vector in layer j, [forward; backward]                   (2D)
    R_k       the L + 1 vectors h_{k,0..L} of a token, h_{k,0} = [x_k; x_k]
    ELMo_k    gamma * sum_j s_j h_{k,j}, s = softmax(w), learned by a task  (2D)

This package does not import outer packages (`embed/`, `tasks/`, `cli/`, ...); a test checks this.
"""
