"""What the routes share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
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

#: Numbers of an answer that is written as JSON at once on the thread that answers.
SMALL = 65536

_MEANINGS = {
    401: "The bearer token is missing or invalid.",
    404: "The model, task or index does not exist.",
    406: "The requested response format is not supported.",
    408: "The request body was not received in time.",
    413: "The body is larger than max_body.",
    422: "The request is invalid, or exceeds max_tokens or max_sentences.",
    429: "Too many requests are waiting; see Retry-After.",
    503: "The models are being loaded, or the service is shutting down.",
    504: "The response was not computed within the timeout.",
}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the errors of a route that computes; `statuses` are those it has besides."""
    every = sorted({400, 401, 408, 413, 422, 429, 500, 503, 504, *statuses})
    meanings = {400: "The body is not valid JSON.", 500: "The request failed."} | _MEANINGS
    return {s: {"model": answers.Error, "description": meanings[s]} for s in every}


class _JsonRequest(Request):
    """A request whose body is left to `requests.Json`."""

    async def json(self) -> RawJson:
        return RawJson(await self.body())


class _JsonRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


class Router(APIRouter):
    """The routes of one tag; they make their own responses, and OpenAPI describes those."""

    def __init__(self, tag: str) -> None:
        super().__init__(tags=[tag], route_class=_JsonRoute)

    def answer(
        self,
        method: str,
        path: str,
        answer: type[BaseModel],
        *statuses: int,
        **success: Any,
    ) -> Callable[[Handler], Handler]:
        """Declare a route.

        Args:
            method: GET or POST.
            path: Its path.
            answer: The answer, as OpenAPI documents it.
            statuses: Errors that it has besides those of every route.
            success: Further documentation of the answer.
        """
        responses = {200: {"model": answer, **success}, **error_responses(*statuses)}
        return self.api_route(path, methods=[method], response_class=Response, responses=responses)


def service_of(request: Request) -> Service:
    """Return the service that a request is for."""
    service: Service = request.app.state.service
    return service


def choices_of(body: LayerRequest, n_layers: int, gamma: float = 1.0) -> list[LayerChoice]:
    """Read the layers of a request, each of which makes one vector per token."""
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
    numbers: int | None = None,
) -> list[FloatArray]:
    """Compute the layers of sentences.

    Args:
        request: The request.
        name: The model.
        state: What each sentence starts from.
        texts: The sentences.
        keep: Reduces the layers of a sentence, (L + 1, T, 2D), to what the answer needs.
        numbers: How many numbers that leaves of all sentences; by default all.
    """
    service = service_of(request)
    service.hosted.check(name, state)
    if numbers is None:
        config = service.hosted.models[name].config
        numbers = sum(texts.lengths) * config.n_layers * config.output_dim
    service.limits.check_answer(numbers)
    request.state.memory.add(numbers)
    work = service.hosted.layers(name, state)
    costs = [max(1, n) for n in texts.lengths]
    return await service.compute(work, texts.read, costs, keep)


def usage(texts: Texts) -> dict[str, int]:
    """Count what was read."""
    return {"sentences": len(texts.tokens), "tokens": sum(texts.lengths)}


def tokens_of(texts: Texts) -> list[dict[str, Any]]:
    """List the tokens of each sentence."""
    rows = zip(texts.tokens, texts.offsets, strict=True)
    return [{"tokens": tokens, "offsets": offsets} for tokens, offsets in rows]


def rounded(values: Sequence[float], digits: int = 6) -> list[float]:
    """Round numbers that are shown."""
    return [round(float(value), digits) for value in values]
