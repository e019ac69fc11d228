"""The patterns of recipes/faults.py match the current source."""

from __future__ import annotations

import pytest

from tests.recipes.conftest import RunRecipe

pytestmark = pytest.mark.slow


def test_all_faults_can_be_injected(
    capsys: pytest.CaptureFixture[str], run_recipe: RunRecipe
) -> None:
    with pytest.raises(SystemExit) as stop:
        run_recipe("faults.py", "--list")
    assert stop.value.code == 0, capsys.readouterr().out
