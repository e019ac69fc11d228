"""Errors as clients see them: what was found, what was expected, what to do.

    {"error": {"type": "too_large", "status": 413, "message": "...", "param": null,
               "limit": {"name": "max_body", "value": 2097152, "found": 10485760}}}

The shape is that of OpenAI's errors, so that its clients show the message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from elmokit.errors import ElmoError

#: The kind of each status, for programs that should not read messages.
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


class Refusal(ElmoError):
    """A request that is not answered, and why.

    Attributes:
        status: The HTTP status.
        param: The part of the request that is meant.
        headers: To send along.
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
    def limit(
        cls, name: str, value: int, found: int, what: str, remedy: str, status: int = 422
    ) -> Refusal:
        """Refuse what is more than a limit, and name the limit."""
        return cls(
            status,
            f"Found {found:,} {what}; the limit {name} is {value:,} in a request. {remedy}",
            limit={"name": name, "value": value, "found": found},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the answer."""
        error: dict[str, Any] = {
            "type": TYPES.get(self.status, "error"),
            "status": self.status,
            "message": str(self),
            "param": self.param,
        }
        if self._limit is not None:
            error["limit"] = dict(self._limit)
        return {"error": error}

    def body(self) -> bytes:
        """Return the body as bytes."""
        return json.dumps(self.to_dict(), ensure_ascii=False).encode("utf-8", "replace")


def failure() -> Refusal:
    """Return the refusal of a service that has an error itself."""
    return Refusal(500, "An error of the service, not of the request; its log shows it.")
