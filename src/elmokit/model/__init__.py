"""The model of the paper: characters, token encoder, LSTM, biLM, LM head, mix.

Notation in all files of this package (comments use these letters for the shapes of tensors):

    B  sentences in a batch          k  a position (token) in a sentence, 1..T
    T  positions in a sentence       j  a layer, 0..L
    C  character ids per token       L  LSTM layers per direction
    D  projection size: x_k, r_k     H  LSTM cell size: c_k
    V  words in the vocabulary       F  convolution filters

    t_k       token k
    x_k       the context-independent vector of t_k from the token encoder (D)
    h_{k,j}   the vector of t_k in layer j, [forward; backward]            (2 * D)
    R_k       the L + 1 vectors h_{k,0..L} of t_k, with h_{k,0} = [x_k; x_k]
    ELMo_k    gamma * sum_j s_j h_{k,j}, s = softmax(w), learned for a task (2 * D)

Of the other packages of elmokit, this package imports only `storage/`. A test checks this.
"""
