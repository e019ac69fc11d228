"""`/v1/models`, `/healthz`, `/readyz` and `/metrics`: what is served, and its status."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

import elmokit
from elmokit.serve import answers, formats
from elmokit.serve.hosted import Hosted
from elmokit.serve.limits import LISTED, MATRIX_TOKENS, PLACES, POINTS, QUERIES
from elmokit.serve.routes.common import service_of
from elmokit.serve.routes.neighbors import about_index

router = APIRouter(tags=["service"])

_STARTED = int(time.time())


@router.get("/v1/models", response_model=answers.ModelsAnswer)
async def models(request: Request) -> Response:
    """List the models, in the format of OpenAI's clients."""
    service = service_of(request)
    hosted = service.hosted
    limits = {
        **service.limits.to_dict(),
        "matrix_tokens": MATRIX_TOKENS,
        "points": POINTS,
        "places": PLACES,
        "listed": LISTED,
        "queries": QUERIES,
    }
    values = {
        "object": "list",
        "data": [card(hosted, name) for name in hosted.models],
        "index": None if hosted.index is None else about_index(hosted.index, hosted.index_model),
        "static": None if hosted.static is None else hosted.static.name,
        "tasks": list(hosted.tasks),
        "limits": limits,
        "version": elmokit.__version__,
    }
    return formats.json_response(values)


@router.get("/v1/models/{name}", response_model=answers.ModelCard)
async def model_card(name: str, request: Request) -> Response:
    """Describe a model."""
    hosted = service_of(request).hosted
    return formats.json_response(card(hosted, hosted.model(name)[0]))


@router.get("/healthz", summary="Liveness", response_model=answers.Health)
async def healthz() -> Response:
    """Return 200 while the process runs."""
    return formats.json_response({"status": "ok"})


@router.get(
    "/readyz",
    summary="Readiness",
    response_model=answers.Health,
    responses={503: {"model": answers.Health}},
)
async def readyz(request: Request) -> Response:
    """Return 200 if the service is ready, 503 while it loads models or shuts down."""
    service = service_of(request)
    response = formats.json_response({"status": service.status})
    response.status_code = 200 if service.ready else 503
    return response


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return the metrics in the text format of Prometheus."""
    return Response(
        generate_latest(service_of(request).metrics.registry), media_type=CONTENT_TYPE_LATEST
    )


def card(hosted: Hosted, name: str) -> dict[str, Any]:
    """Describe a model, without revealing where it is stored."""
    model = hosted.models[name]
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "elmokit",
        "default": name == next(iter(hosted.models)),
        "n_layers": model.config.n_layers,
        "dim": model.config.output_dim,
        "parameters": sum(p.numel() for p in model.bilm.parameters()),
        "language": model.metadata.get("language"),
        "license": model.metadata.get("license"),
        "language_model": model.head is not None and model.vocabulary is not None,
        "vocabulary": None if model.vocabulary is None else len(model.vocabulary),
        "warm_state": model.warm is not None,
        "precision": model.precision,
        "device": model.device.type,
        "fingerprint": hosted.fingerprints[name],
    }
