"""Which model this is, by its numbers and not by its name."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from elmokit.model.lexicon_encoder import LexiconEncoder

if TYPE_CHECKING:
    from elmokit.embed.model import ElmoModel


def fingerprint(elmo: ElmoModel, state: str = "reset") -> str:
    """Return a digest of all numbers that decide a model's layers, wherever it was loaded from."""
    digest = hashlib.blake2b(json.dumps(elmo.config.to_dict()).encode(), digest_size=16)
    tensors = dict(elmo.bilm.state_dict())
    if state == "warm" and elmo.warm is not None:
        tensors |= elmo.warm._asdict()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    if isinstance(elmo.bilm.encoder, LexiconEncoder):
        lexicon = elmo.bilm.encoder.known
        digest.update(json.dumps([lexicon.words, lexicon.characters]).encode())
    if elmo.config.n_words is not None and elmo.vocabulary is not None:
        digest.update("\n".join(elmo.vocabulary.words).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
