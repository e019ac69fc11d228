"""What is served, and how the service fares."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

import elmokit
from elmokit.embed.model import ElmoModel
from elmokit.serve import answers, formats
from elmokit.serve.hosted import Hosted
from elmokit.serve.limits import LISTED, MATRIX_TOKENS, PLACES, POINTS, QUERIES
from elmokit.serve.routes.common import Router, service_of
from elmokit.serve.routes.neighbors import about_index

router = Router("service")

_STARTED = int(time.time())


@router.answer("GET", "/v1/models", answers.ModelsAnswer)
async def models(request: Request) -> Response:
    """List the models, in the shape that OpenAI's clients read."""
    service = service_of(request)
    hosted = service.hosted
    own = {
        "matrix_tokens": MATRIX_TOKENS,
        "points": POINTS,
        "places": PLACES,
        "listed": LISTED,
        "queries": QUERIES,
    }
    values = {
        "object": "list",
        "data": [card(hosted, name) for name in hosted.models],
        "index": (None if hosted.index is None else about_index(hosted.index, hosted.index_model)),
        "static": None if hosted.static is None else hosted.static.name,
        "tasks": list(hosted.tasks),
        "limits": {**asdict(service.limits), **own},
        "version": elmokit.__version__,
    }
    return formats.json_response(values)


@router.answer("GET", "/v1/models/{name}", answers.ModelCard, 404)
async def model(name: str, request: Request) -> Response:
    """Describe a model."""
    hosted = service_of(request).hosted
    return formats.json_response(card(hosted, hosted.model(name)[0]))


@router.get("/healthz", summary="Liveness", responses={200: {"model": answers.Health}})
async def healthz() -> Response:
    """Answer as long as the process lives."""
    return formats.json_response({"status": "ok"})


@router.get(
    "/readyz",
    summary="Readiness",
    response_class=Response,
    responses={200: {"model": answers.Health}, 503: {"model": answers.Health}},
)
async def readyz(request: Request) -> Response:
    """Answer 200 if requests are answered, 503 while models are loaded and at the end."""
    service = service_of(request)
    response = formats.json_response({"status": service.status})
    response.status_code = 200 if service.ready else 503
    return response


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return counts, times and sizes in the text format of Prometheus."""
    return Response(service_of(request).metrics.text(), media_type=CONTENT_TYPE_LATEST)


def card(hosted: Hosted, name: str) -> dict[str, Any]:
    """Describe a model, without telling where on the machine it is."""
    found: ElmoModel = hosted.models[name]
    has_words = found.head is not None and found.vocabulary is not None
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "elmokit",
        "default": name == next(iter(hosted.models)),
        "n_layers": found.config.n_layers,
        "dim": found.config.output_dim,
        "parameters": sum(p.numel() for p in found.bilm.parameters()),
        "language": found.metadata.get("language"),
        "license": found.metadata.get("license"),
        "language_model": has_words,
        "vocabulary": None if found.vocabulary is None else len(found.vocabulary),
        "warm_state": found.warm is not None,
        "precision": found.precision,
        "device": found.device.type,
        "fingerprint": hosted.prints[name],
    }
