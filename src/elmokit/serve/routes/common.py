"""Shared parts of the routes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.layer_choice import LayerChoice, check_layer
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError
from elmokit.serve import answers
from elmokit.serve.errors import RequestRejected
from elmokit.serve.requests import LayerRequest, RawJson
from elmokit.serve.service import Service
from elmokit.serve.texts import Texts

Handler = TypeVar("Handler", bound=Callable[..., Any])

#: Errors of every route, and those that only some routes have.
_ERRORS = {
    400: "The body is not valid JSON.",
    401: "The bearer token is missing or invalid.",
    408: "The request body was not received in time.",
    413: "The body is larger than max_body.",
    422: "The request is invalid, or exceeds max_tokens or max_sentences.",
    429: "Too many requests are waiting; see Retry-After.",
    500: "The request failed.",
    503: "The models are being loaded, or the service is shutting down.",
    504: "The response was not computed within the timeout.",
}
_FURTHER_ERRORS = {
    404: "The model, task or index does not exist.",
    406: "The requested response format is not supported.",
}


class _JsonRequest(Request):
    """A request whose body is parsed by `requests.Json`."""

    async def json(self) -> RawJson:
        return RawJson(await self.body())


class _JsonRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


class Router(APIRouter):
    """The routes of one tag, which return complete responses that OpenAPI describes."""

    def __init__(self, tag: str) -> None:
        super().__init__(tags=[tag], route_class=_JsonRoute)

    def answer(
        self, method: str, path: str, answer: type[BaseModel], *statuses: int, **success: Any
    ) -> Callable[[Handler], Handler]:
        """Declare a route.

        Args:
            method: GET or POST.
            path: Its path.
            answer: The response, as OpenAPI documents it.
            statuses: Errors in addition to those of every route.
            success: Further documentation of the response.
        """
        errors = sorted((_ERRORS | {s: _FURTHER_ERRORS[s] for s in statuses}).items())
        responses: dict[int | str, dict[str, Any]] = {200: {"model": answer, **success}}
        responses |= {s: {"model": answers.Error, "description": text} for s, text in errors}
        return self.api_route(path, methods=[method], response_class=Response, responses=responses)


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
    service.limits.check_answer(values)
    request.state.memory.add(values)
    work = service.hosted.layers(name, state)
    costs = [max(1, n) for n in texts.lengths]
    return await service.batcher.submit(work, texts.read, costs, keep)
