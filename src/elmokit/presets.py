"""Named configurations: the released models, and a toy model for laptops and tests."""

from __future__ import annotations

from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.errors import check_choice

PRESETS: dict[str, BiLMConfig] = {
    # Like the released models, but small enough to train on two CPU cores within minutes.
    "toy": BiLMConfig(
        lstm=LstmConfig(dim=256, projection_dim=64),
        char_cnn=CharCnnConfig(filters=((1, 16), (2, 16), (3, 32), (4, 64), (5, 128)), n_highway=1),
    ),
    # The three released sizes. The comments give the number of parameters in each weight file.
    "small": BiLMConfig(  # 13,593,296
        lstm=LstmConfig(dim=1024, projection_dim=128), char_cnn=CharCnnConfig(n_highway=1)
    ),
    "medium": BiLMConfig(  # 28,027,728
        lstm=LstmConfig(dim=2048, projection_dim=256), char_cnn=CharCnnConfig(n_highway=1)
    ),
    "original": BiLMConfig(  # 93,600,848
        lstm=LstmConfig(dim=4096, projection_dim=512), char_cnn=CharCnnConfig(n_highway=2)
    ),
}


def preset(name: str) -> BiLMConfig:
    """Return the configuration of a preset."""
    check_choice("preset", name, PRESETS)
    return PRESETS[name]
