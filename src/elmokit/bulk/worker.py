"""What runs in a worker: a model is loaded, then jobs are done until none come any more."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
import warnings
from multiprocessing.connection import Connection, wait

from elmokit.bulk.jobs import Describe
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.workers import Workers
from elmokit.embed.loading import load
from elmokit.embed.threads import use_threads
from elmokit.errors import DependencyError, ElmoError, ElmoWarning


def work(
    connection: Connection, workers: Workers, number: int, threads: int, settings: EmbedSettings
) -> None:
    """Load the model, then do jobs until none come any more."""
    for number_of_signal in (signal.SIGINT, signal.SIGTERM):  # they are for the one that began it
        signal.signal(number_of_signal, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    use_threads(threads, workers.model)
    with contextlib.suppress(EOFError, ConnectionError):  # nobody waits for it any more
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ElmoWarning)
                device = workers.devices[number]
                model = load(workers.model, workers.weights, device, workers.precision)
            warned = [str(w.message) for w in caught if issubclass(w.category, ElmoWarning)]
            connection.send(("ready", (Describe(settings).run(model), warned)))
            while True:
                connection.send(("done", connection.recv().run(model)))
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            connection.send(("failed", _told(error)))


def _told(error: Exception) -> tuple[type[Exception], str]:
    """Return an error in a form that can be sent."""
    if not isinstance(error, ElmoError):
        return RuntimeError, traceback.format_exc()
    return ElmoError if isinstance(error, DependencyError) else type(error), str(error)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
