"""The ASGI application: routes, error handlers and the explorer page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

import elmokit
from elmokit.errors import ElmoError
from elmokit.serve.errors import RequestRejected, internal_error
from elmokit.serve.middleware import ServiceMiddleware, is_api
from elmokit.serve.responses import ErrorResponse
from elmokit.serve.routes import about, comparison, embed, predictions
from elmokit.serve.service import Service

STATIC = Path(__file__).with_name("static")
# Only documents authentication in the OpenAPI schema. The middleware checks the token.
_BEARER = HTTPBearer(scheme_name="bearer", auto_error=False)
_MAX_PROBLEMS = 5  # maximum number of problems in an error message
# Names of types in the locations of pydantic errors.
_TYPE = re.compile(r"[\[(]|^(str|int|dict|list|constrained-(str|int)|MarkedSentence)$")
_DESCRIPTION = """Contextual word vectors, and the predictions of the two language models.

Responses are JSON; `/v1/embed` also returns `application/x-npy` and
`application/vnd.apache.arrow.stream`."""


def create_app(service: Service) -> ASGIApp:
    """Return the ASGI application of a service. The caller starts and stops the service."""
    app = FastAPI(
        title="elmokit",
        version=elmokit.__version__,
        description=_DESCRIPTION,
        docs_url=None,  # FastAPI's documentation pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # redirects would contain the untrusted Host header
        dependencies=[] if service.settings.token is None else [Depends(_BEARER)],
        responses={
            "default": {
                "model": ErrorResponse,
                "description": "An error; see docs/how-to/serve.md.",
            }
        },
        exception_handlers={
            ElmoError: _handle_error,
            RequestValidationError: _handle_validation_error,
            HTTPException: _handle_http_error,
            Exception: _handle_error,
        },
    )
    app.state.service = service
    for routes in (embed, comparison, predictions, about):
        app.include_router(routes.router)
    static_files = StaticFiles(directory=STATIC, html=True)

    async def serve_page(scope: Scope, receive: Receive, send: Send) -> None:
        # Some versions of Starlette raise an error if a path contains a null byte.
        if is_api(scope["path"]) or "\0" in scope["path"]:
            raise HTTPException(404)
        await static_files(scope, receive, send)

    app.router.default = serve_page
    wrapped: ASGIApp = ServiceMiddleware(app, service)
    if service.settings.cors:
        wrapped = CORSMiddleware(
            wrapped,
            allow_origins=list(service.settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["X-Elmo-Lengths", "Retry-After"],
        )
    return wrapped


async def _handle_error(_: Request, error: Exception) -> Response:
    """Return an error response. Starlette re-raises unexpected errors; the middleware logs them."""
    if not isinstance(error, RequestRejected):
        error = RequestRejected(str(error)) if isinstance(error, ElmoError) else internal_error()
    return error.response()


async def _handle_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems: Sequence[Any] = error.errors()
    first = problems[0]
    if first["type"] == "json_invalid":
        message = f"The body is not valid JSON: {first['ctx']['error']}."
        return RequestRejected(message, 400).response()
    content_type = request.headers.get("content-type", "no Content-Type")
    if tuple(first["loc"]) == ("body",) and "json" not in content_type:  # for example, curl -d
        message = f"Expected the header Content-Type: application/json; found {content_type:.100}."
        return RequestRejected(message, param="body").response()
    messages: dict[str, list[str]] = {}
    for problem in problems:
        messages.setdefault(_field_path(problem["loc"]), []).append(problem["msg"])
    # A field that accepts several types has one problem per type.
    lines = [f"{field}: {', or '.join(dict.fromkeys(texts))}" for field, texts in messages.items()]
    message = f"{'; '.join(lines[:_MAX_PROBLEMS])}. See /openapi.json for the expected format."
    return RequestRejected(message, param=_field_path(first["loc"])).response()


def _field_path(location: Sequence[str | int]) -> str:
    """Return the path of a field, without the type names that pydantic adds."""
    parts = [str(part) for part in location if part != "body"]
    return ".".join(part for part in parts if not _TYPE.search(part)) or "body"


async def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    if error.status_code == 404:
        message = f"Not found: {request.url.path:.200}. See /openapi.json for the available routes."
    return RequestRejected(message, error.status_code, headers=error.headers).response()
