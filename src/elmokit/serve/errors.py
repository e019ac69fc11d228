"""Errors as responses: what is wrong, what was expected, how to fix it.

    {"error": {"type": "too_large", "status": 413, "message": "...", "param": null,
               "limit": {"name": "max_body", "value": 2097152, "found": 10485760}}}

The format is that of OpenAI's errors, so that its clients show the message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elmokit.errors import ElmoError

if TYPE_CHECKING:
    from starlette.responses import Response

#: The type of each status, so that programs need not parse messages.
TYPES: dict[int, str] = {
    400: "bad_request",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "request_timeout",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "overloaded",
    431: "too_large",
    500: "internal_error",
    501: "not_available",
    503: "not_ready",
    504: "timeout",
}


class RequestRejected(ElmoError):
    """A request that gets an error as its response.

    Attributes:
        status: The HTTP status.
        param: The invalid part of the request, if there is one.
        headers: Additional headers of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        limit: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.headers = dict(headers or {})
        self._limit = limit

    @classmethod
    def over_limit(
        cls, name: str, value: int, found: int, what: str, remedy: str, status: int = 422
    ) -> RequestRejected:
        """Return the error for a request that exceeds a limit."""
        return cls(
            status,
            f"The request has {found:,} {what}; the limit {name} is {value:,}. {remedy}",
            limit={"name": name, "value": value, "found": found},
        )

    @classmethod
    def retry(
        cls,
        status: int,
        message: str,
        seconds: int,
        *,
        limit: Mapping[str, Any] | None = None,
        close: bool = False,
    ) -> RequestRejected:
        """Return the error for a request that may succeed later; `close` closes its connection."""
        return cls(
            status,
            f"{message} Retry after {seconds} second{'s' if seconds > 1 else ''}.",
            limit=limit,
            headers={"Retry-After": str(seconds)} | ({"Connection": "close"} if close else {}),
        )

    def response(self) -> Response:
        """Return the response."""
        from starlette.responses import Response

        error: dict[str, Any] = {
            "type": TYPES.get(self.status, "error"),
            "status": self.status,
            "message": str(self),
            "param": self.param,
        }
        if self._limit is not None:
            error["limit"] = dict(self._limit)
        body = json.dumps({"error": error}, ensure_ascii=False).encode("utf-8", "replace")
        return Response(body, self.status, self.headers, "application/json")


def internal_error() -> RequestRejected:
    """Return the error for a request that failed because of a bug of the service."""
    return RequestRejected(500, "Internal server error; see the log of the service.")


def shutting_down() -> RequestRejected:
    """Return the error for requests that arrive while the service shuts down."""
    return RequestRejected.retry(503, "The service is shutting down.", 5, close=True)
