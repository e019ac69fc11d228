"""HTTP error responses. Messages state what is wrong, what was expected and how to fix it.

    {"error": {"status": 413, "message": "...", "param": null,
               "limit": {"name": "max_body", "value": 2097152, "actual": 10485760}}}

OpenAI clients support this format and show the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from elmokit.errors import ElmoError
from elmokit.progress import plural


class RequestRejected(ElmoError):
    """An error that is returned to the client.

    Attributes:
        status: The HTTP status.
        param: The invalid field of the request, if any.
        limit: The limit that was exceeded, if any.
        headers: Additional headers of the response.
    """

    def __init__(
        self,
        message: str,
        status: int = 422,
        *,
        param: str | None = None,
        limit: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after: int | None = None,
    ) -> None:
        headers = dict(headers or {})
        if retry_after is not None:
            message += f" Retry after {plural(retry_after, 'second')}."
            headers["Retry-After"] = str(retry_after)
        super().__init__(message)
        self.status = status
        self.param = param
        self.limit = limit
        self.headers = headers

    def response(self) -> JSONResponse:
        """Return the HTTP response."""
        error = {"status": self.status, "message": str(self), "param": self.param}
        return JSONResponse({"error": {**error, "limit": self.limit}}, self.status, self.headers)


def internal_error() -> RequestRejected:
    """Return the error for a request that failed because of a bug in the service."""
    return RequestRejected("Internal server error. See the log of the service for details.", 500)


def check_limit(name: str, limit: int, value: int, unit: str, status: int = 422) -> None:
    """Reject a request that exceeds a limit.

    Args:
        name: The name of the limit, as in the options of `elmo serve`.
        limit: The limit.
        value: The value in the request.
        unit: A plural noun for what is counted, for the message.
        status: The status of the response.
    """
    if value > limit:
        raise RequestRejected(
            f"The request has {value:,} {unit}; the limit {name} is {limit:,}. Split it into "
            "several requests.",
            status,
            limit={"name": name, "value": limit, "actual": value},
        )
