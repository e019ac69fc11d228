"""AllenNLP's ELMo classes over our modules: a migrating user changes the import line.

    from elmokit.compat.allennlp import Elmo, ElmoEmbedder, batch_to_ids

Names, signatures, shapes, `state_dict` keys and values, and the state that is carried from call to
call are those of AllenNLP 2.10.1 (`ElmoEmbedder`: of 0.9.0, the last one that had it). The options
and weights may be paths, addresses, or anything else that `elmokit.load` takes (then the weights
are None). `Elmo(..., stateful=False)` starts every call from zero; setting
`elmo._elmo_lstm._elmo_lstm.stateful = False` does too, as it did there.

What is different, always in places where AllenNLP crashed or was silently wrong:

- Errors are `elmokit.ElmoError`s that name the remedy, also where AllenNLP raised ValueError,
  IndexError, AssertionError or FileNotFoundError.
- Input with padding before the last token (left-padded, or a hole) is an error; AllenNLP returned
  wrong numbers. So is a real word at index 0 of `vocab_to_cache`, once it occurs in `word_inputs`.
- Batches without a sentence, or of empty sentences only, work (`batch_to_ids([])` and `([[]])`
  too); so do 4-D input with kept boundaries, views that are not contiguous, and short ints.
- A larger batch after `stateful=False`, a smaller one after `inference_mode`, and `.double()` or
  `.to(device)` between two calls work. The tensors in `_states` are never changed in place, so a
  reference to them stays valid. `reset_states(mask)` without a state does nothing.
- Models without skip connections, clips or projections are read.
- `vocab_to_cache` with `requires_grad=True` can be trained for more than one step and copied.
- `ElmoEmbedder` gives an empty sentence the model's own shape and float32, not (3, 0, 1024) of
  float64; `embed_file` writes beside and renames, so that an error leaves no half file;
  `batch_size=0` is an error.
- Deprecated machinery (`from_params`, indexers, the `allennlp elmo` command) is not here.

While nothing is trained, the biLM's weights are kept in our layout too: about 0.7 GB instead of
0.4 GB for the original model. Writing to a weight through `.data` between two evaluations is not
seen; `.eval()`, `load_state_dict`, `.to()` and in-place changes without `.data` are.
"""

from __future__ import annotations

from elmokit.compat.allennlp.bilm import _ElmoBiLm as _ElmoBiLm
from elmokit.compat.allennlp.elmo import Elmo, ElmoTokenEmbedder, batch_to_ids
from elmokit.compat.allennlp.embedder import ElmoEmbedder
from elmokit.compat.allennlp.mix import ScalarMix

__all__ = ["Elmo", "ElmoEmbedder", "ElmoTokenEmbedder", "ScalarMix", "batch_to_ids"]
