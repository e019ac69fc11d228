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
    """Copy the accumulators of a model, if it has any, into a step that uses Adagrad.

    Args:
        step: A new step; parameters without an accumulator keep the initial value, 1.
        start: The model that the training starts from.

    Raises:
        WeightsError: The accumulators do not match the parameters.
    """
    if start is None or not start.accumulators or step.optimizer.config.kind != "adagrad":
        return
    own = step.moments()  # views of the optimizer's tensors
    with torch.no_grad():
        for name, tensor in start.accumulators.items():
            mine = own.get(f"square.{name}")
            if mine is None or mine.shape != tensor.shape:
                raise WeightsError(
                    f"The accumulator '{name}' {list(tensor.shape)} does not match the model."
                )
            mine.copy_(tensor)
