"""Continue a training with Adagrad from its accumulators.

Adagrad divides each gradient by the root of the sum of all its previous squares. Without that sum,
a trained model would start again with large steps.
"""

from __future__ import annotations

import torch

from elmokit.errors import WeightsError
from elmokit.sources.modeldir import ModelParts
from elmokit.train.step import TrainStep


def take_accumulators(step: TrainStep, start: ModelParts | None) -> None:
    """Put the accumulators of a model, if it has any, into a step that learns by Adagrad.

    Args:
        step: A new step; parameters without an accumulator keep the 1 that Adagrad starts from.
        start: What the training starts from.

    Raises:
        WeightsError: They are of another model.
    """
    if start is None or not start.accumulators or step.optimizer.config.kind != "adagrad":
        return
    own = step.moments()  # views: what is copied into them is the step's
    with torch.no_grad():
        for name, tensor in start.accumulators.items():
            mine = own.get(f"square.{name}")
            if mine is None or mine.shape != tensor.shape:
                found = "no such parameter" if mine is None else f"shape {list(mine.shape)}"
                raise WeightsError(
                    f"The accumulator '{name}' {list(tensor.shape)} is not of this model, which "
                    f"has {found}."
                )
            mine.copy_(tensor)
