"""Errors as responses: what is wrong, what was expected, how to fix it.

    {"error": {"status": 413, "message": "...", "param": null,
               "limit": {"name": "max_body", "value": 2097152, "found": 10485760}}}

OpenAI's clients read this format and show the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from elmokit.errors import ElmoError
from elmokit.serve.answers import Error, ErrorDetail, Limit

if TYPE_CHECKING:
    from starlette.responses import Response


class RequestRejected(ElmoError):
    """A request that gets an error as its response.

    Attributes:
        status: The HTTP status.
        param: The invalid part of the request, if there is one.
        limit: The limit that was exceeded, if there is one.
        headers: Additional headers of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        limit: Limit | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.limit = limit
        self.headers = dict(headers or {})

    @classmethod
    def retry(
        cls,
        status: int,
        message: str,
        seconds: int,
        *,
        limit: Limit | None = None,
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
        from starlette.responses import JSONResponse  # of the extra `serve`, unlike settings

        detail = ErrorDetail(
            status=self.status, message=str(self), param=self.param, limit=self.limit
        )
        return JSONResponse(Error(error=detail).model_dump(), self.status, self.headers)


def internal_error() -> RequestRejected:
    """Return the error for a request that failed because of a bug of the service."""
    return RequestRejected(500, "Internal server error; see the log of the service.")


def shutting_down() -> RequestRejected:
    """Return the error for requests that arrive while the service shuts down."""
    return RequestRejected.retry(503, "The service is shutting down.", 5, close=True)


def check_limit(name: str, limit: int, value: int, what: str, status: int = 422) -> None:
    """Reject a request that exceeds a limit.

    Args:
        name: The name of the limit, as in the options of `elmo serve`.
        limit: The limit.
        value: The value in the request.
        what: What the limit counts.
        status: The status of the response.
    """
    if value > limit:
        raise RequestRejected(
            status,
            f"The request has {value:,} {what}; the limit {name} is {limit:,}. Split it into "
            "several requests.",
            limit=Limit(name=name, value=limit, found=value),
        )
