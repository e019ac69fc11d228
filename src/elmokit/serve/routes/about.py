"""`/v1/models`, `/healthz`, `/readyz` and `/metrics`: the models and status of the service."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

import elmokit
from elmokit.serve import responses
from elmokit.serve.requests import FIXED_LIMITS
from elmokit.serve.routes.common import get_service, json_response
from elmokit.serve.routes.comparison import describe_index
from elmokit.serve.service import Resources

router = APIRouter(tags=["service"])

_START_TIME = int(time.time())


@router.get("/v1/models", response_model=responses.ModelsResponse)
async def models(request: Request) -> Response:
    """List the models, in OpenAI's format, and all other resources of the service."""
    service = get_service(request)
    resources, index = service.resources, service.resources.index
    values = {
        "object": "list",
        "data": [_describe(resources, name) for name in resources.models],
        "index": None if index is None else describe_index(index, resources.index_model),
        "static": None if resources.static is None else resources.static.name,
        "tasks": list(resources.tasks),
        "limits": {**service.limits.to_dict(), **FIXED_LIMITS},
        "version": elmokit.__version__,
    }
    return json_response(values)


@router.get("/v1/models/{name}", response_model=responses.ModelCard)
async def model_card(name: str, request: Request) -> Response:
    """Describe a model."""
    resources = get_service(request).resources
    return json_response(_describe(resources, resources.model(name)[0]))


@router.get("/healthz", summary="Liveness", response_model=responses.Health)
async def healthz() -> Response:
    """Return 200 as long as the process is running."""
    return json_response({"status": "ok"})


@router.get(
    "/readyz",
    summary="Readiness",
    response_model=responses.Health,
    responses={503: {"model": responses.Health}},
)
async def readyz(request: Request) -> Response:
    """Return 200 if the service is ready, 503 while it loads models or shuts down."""
    service = get_service(request)
    response = json_response({"status": service.status})
    response.status_code = 200 if service.status == "ok" else 503
    return response


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return the metrics in the Prometheus text format."""
    return Response(
        generate_latest(get_service(request).metrics.registry), media_type=CONTENT_TYPE_LATEST
    )


def _describe(resources: Resources, name: str) -> dict[str, Any]:
    """Describe a model without revealing its path."""
    model = resources.models[name]
    return {
        "id": name,
        "object": "model",
        "created": _START_TIME,
        "owned_by": "elmokit",
        "default": name == next(iter(resources.models)),
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
        "fingerprint": resources.fingerprints[name],
    }
