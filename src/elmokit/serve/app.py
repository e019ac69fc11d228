"""The ASGI application: routes, errors, the page."""

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
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

import elmokit
from elmokit.errors import ElmoError
from elmokit.serve.answers import Error
from elmokit.serve.errors import RequestRejected, internal_error
from elmokit.serve.middleware import ServiceMiddleware, is_api
from elmokit.serve.routes import about, embed, geometry, neighbors, predictions
from elmokit.serve.service import Service

STATIC = Path(__file__).with_name("static")
_PROBES = ("/healthz", "/readyz")
# Documents the token in the OpenAPI schema; the middleware checks it.
_BEARER = HTTPBearer(scheme_name="bearer", auto_error=False)
_SHOWN = 5  # maximum number of problems in an error
_KIND = re.compile(r"[\[(]|^(str|int|dict|list|constrained-(str|int)|MarkedSentence)$")
_ABOUT = """Contextual word vectors, and the predictions of the two language models.

Responses are JSON; `/v1/embed` also returns `application/x-npy` and
`application/vnd.apache.arrow.stream`."""


def create_app(service: Service) -> ASGIApp:
    """Return the ASGI application of a service; the caller starts and stops the service."""
    app = FastAPI(
        title="elmokit",
        version=elmokit.__version__,
        description=_ABOUT,
        docs_url=None,  # both pages load scripts from other hosts
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,  # a redirect repeats the Host of the request
        dependencies=[] if service.settings.token is None else [Depends(_BEARER)],
        responses={
            "default": {"model": Error, "description": "An error, see docs/how-to/serve.md"}
        },
    )
    app.state.service = service
    for part in (embed, geometry, neighbors, predictions, about):
        app.include_router(part.router)
    app.add_exception_handler(ElmoError, _rejected)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(Exception, _failed)
    app.router.routes.append(_Page("/", StaticFiles(directory=STATIC, html=True)))
    guarded: ASGIApp = ServiceMiddleware(app, service)
    if service.settings.cors:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=list(service.settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["X-Elmo-Shape", "X-Elmo-Lengths", "X-Elmo-Model", "Retry-After"],
        )
    return guarded


class _Page(Mount):
    """The page, at all paths except routes: otherwise it would respond to a GET of a POST route."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match no route."""
        path = scope.get("path", "")
        return (Match.NONE, {}) if is_api(path) or path in _PROBES else super().matches(scope)


async def _rejected(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestRejected):
        error = RequestRejected(422, str(error))
    return error.response()


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems: Sequence[Any] = error.errors()
    first = problems[0]
    if first["type"] == "json_invalid":
        message = f"The body is not valid JSON: {first['ctx']['error']}."
        return RequestRejected(400, message).response()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if tuple(first["loc"]) == ("body",) and not kind.endswith("json"):  # for example, curl -d
        expected = "Expected a JSON body with the header Content-Type: application/json"
        actual = f"found {kind:.100}" if kind else "found no such header"
        return RequestRejected(422, f"{expected}; {actual}.", param="body").response()
    messages: dict[str, list[str]] = {}
    for problem in problems:
        messages.setdefault(_place(problem["loc"]), []).append(problem["msg"])
    # A field that accepts several types has one problem per type.
    lines = [f"{place}: {', or '.join(dict.fromkeys(texts))}" for place, texts in messages.items()]
    rest = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    message = f"{'; '.join(lines[:_SHOWN])}{rest}. See /openapi.json for the expected format."
    return RequestRejected(422, message, param=_place(first["loc"])).response()


def _place(location: Sequence[str | int]) -> str:
    """Return the path of a field, without the types that pydantic tried for it."""
    parts = [str(part) for part in location if part != "body"]
    return ".".join(part for part in parts if not _KIND.search(part)) or "body"


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    if error.status_code == 404:
        message = f"Not found: {request.url.path:.200}. See /openapi.json for the available routes."
    elif error.status_code == 405:
        message = f"{request.method} is not allowed at {request.url.path:.200}."
    return RequestRejected(error.status_code, message, headers=error.headers).response()


async def _failed(_: Request, error: Exception) -> Response:
    """Return an error; starlette raises the exception again, and the middleware logs it."""
    return internal_error().response()
