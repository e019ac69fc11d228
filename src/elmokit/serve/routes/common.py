"""Shared parts of the routes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.layer_choice import LayerChoice, check_layer
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError
from elmokit.serve.errors import RequestRejected, check_limit
from elmokit.serve.requests import LayerRequest
from elmokit.serve.service import Service
from elmokit.serve.texts import Texts


class _Request(Request):
    async def json(self) -> Any:
        return orjson.loads(await self.body())


class OrjsonRoute(APIRoute):
    """A route that parses JSON with orjson, which rejects lone surrogates and NaN."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive))

        return handle_json


def service_of(request: Request) -> Service:
    """Return the service that a request was sent to."""
    service: Service = request.app.state.service
    return service


def choices_of(body: LayerRequest, n_layers: int, gamma: float = 1.0) -> list[LayerChoice]:
    """Parse the layers of a request; each choice gives one vector per token."""
    param = "layer"
    try:
        for layer in body.layer if isinstance(body.layer, list) else [body.layer]:
            check_layer(layer, n_layers)
        param = "mix"
        return LayerChoice.parse_all(body.layer, n_layers, body.mix, gamma)
    except ConfigError as error:
        raise RequestRejected(422, str(error), param=param) from error


async def layers_of(
    request: Request,
    name: str,
    state: str,
    texts: Texts,
    keep: Callable[[Any], Any] = lambda layers: layers,
    values: int | None = None,
) -> list[FloatArray]:
    """Compute the layers of sentences.

    Args:
        request: The request.
        name: The model.
        state: The initial state of each sentence.
        texts: The sentences.
        keep: Reduces the layers of a sentence, (L + 1, T, 2D), to what the response needs.
        values: The number of values that `keep` leaves for all sentences; default: all.
    """
    service = service_of(request)
    service.hosted.check(name, state)
    if values is None:
        config = service.hosted.models[name].config
        values = sum(texts.lengths) * config.n_layers * config.output_dim
    check_limit("max_answer", service.limits.answer, values, "values in the response")
    request.state.reserve_memory(values)
    work = service.hosted.layers(name, state)
    costs = [max(1, n) for n in texts.lengths]
    return await service.batcher.submit(work, texts.read, costs, keep)
