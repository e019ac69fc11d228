"""What all tests of this folder need."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of these tests is on this machine, whatever proxy the machine uses."""
    monkeypatch.setenv("no_proxy", "*")
