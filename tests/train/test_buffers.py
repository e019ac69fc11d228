"""Arrays that are copied to the device at once."""

from __future__ import annotations

import numpy as np
import torch

from elmokit.train.buffers import Staging


def test_values_arrive_under_their_names_at_stable_addresses(device: torch.device) -> None:
    fields = {
        "types": ((5,), torch.int64),
        "starts": ((2, 3), torch.uint8),
        "none": ((0,), torch.int64),
        "rate": ((), torch.float32),
        "index": ((2, 2), torch.int64),
    }
    staging = Staging(fields, device)
    places = {name: tensor.data_ptr() for name, tensor in staging.on_device.items()}
    for turn in range(5):  # more than there are blocks
        here = staging.next()
        here["types"][:] = np.arange(5) + turn
        here["starts"][...] = turn
        here["rate"][...] = turn / 4
        here["index"][...] = [[turn, 1], [2, 3]]
        staging.send()
        there = staging.on_device
        assert there["types"].tolist() == [turn + i for i in range(5)]
        assert there["starts"].tolist() == [[turn] * 3] * 2
        assert there["rate"].item() == turn / 4
        assert there["index"].tolist() == [[turn, 1], [2, 3]]
        assert there["none"].tolist() == []
    assert places == {name: tensor.data_ptr() for name, tensor in staging.on_device.items()}
