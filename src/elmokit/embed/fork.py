"""Make models usable in forked processes (`multiprocessing`, spaCy's `n_process`, gunicorn).

A fork copies memory but no threads. A forked child would hang at the first operation that waits for
a thread in a pool of the parent (OpenMP, onnxruntime), or at a lock that another thread of the
parent held. Therefore, a fork waits until no model is computing, and the child uses a single
thread.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.embed.embedder import Embedder

#: The models to make usable in processes that are forked later.
models: weakref.WeakSet[Embedder] = weakref.WeakSet()
_locked: list[Embedder] = []  # during a fork, the models whose locks this thread holds
_fork_lock = threading.RLock()


def _lock() -> None:
    _fork_lock.acquire()
    _locked.extend(models)
    for model in _locked:
        model.lock.acquire()


def _unlock() -> None:
    while _locked:
        _locked.pop().lock.release()
    _fork_lock.release()


def _in_child() -> None:
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    for model in _locked:
        model.after_fork()
    _unlock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_lock, after_in_parent=_unlock, after_in_child=_in_child)
