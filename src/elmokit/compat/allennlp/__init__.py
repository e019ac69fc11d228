"""Drop-in replacements for AllenNLP's ELMo classes. To migrate, change the import.

    from elmokit.compat.allennlp import Elmo, ElmoEmbedder, batch_to_ids

Names, signatures, shapes, `state_dict` keys and values, and the state carried between calls match
AllenNLP 2.10.1 (`ElmoEmbedder`: 0.9.0, the last version that included it). Options and weights can
be paths or URLs. Alternatively, pass None as the weights, and as the options anything that
`elmokit.load` accepts. `Elmo(..., stateful=False)` starts every call from the zero state. Setting
`elmo._elmo_lstm._elmo_lstm.stateful = False`, which AllenNLP also supports, has the same effect.

Differences, mostly in cases where AllenNLP crashes or returns wrong results without an error:

- All errors are subclasses of `elmokit.ElmoError` and say how to fix the problem. AllenNLP raises
  ValueError, IndexError, AssertionError or FileNotFoundError.
- Padding before the last token (left padding, or a gap) is an error, because AllenNLP returns wrong
  vectors for it. A real word at index 0 of `vocab_to_cache` is also an error if it occurs in
  `word_inputs`.
- These inputs are supported: batches without sentences or with only empty sentences (also in
  `batch_to_ids`), 4-D input with `keep_sentence_boundaries=True`, non-contiguous views, and integer
  types smaller than int64.
- These sequences are supported: a batch with `stateful=False` and then a larger one, a batch in
  `inference_mode` and then a smaller one, and `.double()` or `.to(device)` between two batches. The
  tensors in `_states` are never changed in place, so references to them stay valid.
  `reset_states(mask)` without a state does nothing.
- Models without skip connections, clipping or projections are supported.
- Models with `vocab_to_cache` and `requires_grad=True` can be copied and trained for more than one
  step.
- For empty sentences, `ElmoEmbedder` returns float32 with the dimensions of the model, not float64
  with shape (3, 0, 1024). `embed_file` writes atomically. `batch_size=0` is an error.
- `named_parameters()` returns elmokit's names for the parameters of `_token_embedder` and the inner
  `_elmo_lstm`. The `state_dict` is converted to AllenNLP's names and layout.
- `from_params`, indexers and the `allennlp elmo` command are not supported.
"""

from elmokit.compat.allennlp.bilm import _ElmoBiLm as _ElmoBiLm
from elmokit.compat.allennlp.elmo import Elmo, ElmoTokenEmbedder, ScalarMix, batch_to_ids
from elmokit.compat.allennlp.embedder import ElmoEmbedder

__all__ = ["Elmo", "ElmoEmbedder", "ElmoTokenEmbedder", "ScalarMix", "batch_to_ids"]
