"""Error responses of an API server, as ``Status`` objects. Pure.

Reasons and codes:
https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#error-codes
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from kproxy.lab.apiserver.resources import ApiResource

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass
class StatusError(Exception):
    """Error response; ``reason`` "" means the usual one of its code."""

    code: int
    message: str
    reason: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def status(self) -> dict[str, Any]:
        """``Status`` object of the response."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason or _REASONS.get(self.code, "Unknown"),
            "details": self.details,
            "code": self.code,
        }


def success(resource: ApiResource, name: str, uid: str) -> dict[str, Any]:
    """``Status`` object of a successful deletion."""
    details = {"name": name, "group": resource.group, "kind": resource.plural, "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def bad_request(message: str) -> StatusError:
    """400 with a message."""
    return StatusError(400, message)


def no_such_path() -> StatusError:
    """404 for a path or resource that is not served."""
    return StatusError(404, "the server could not find the requested resource")


def not_found(resource: ApiResource, name: str) -> StatusError:
    """404 for an object."""
    return StatusError(404, f'{_qualified(resource)} "{name}" not found', details=_details(resource, name))


def already_exists(resource: ApiResource, name: str) -> StatusError:
    """409 for a creation."""
    message = f'{_qualified(resource)} "{name}" already exists'
    return StatusError(409, message, "AlreadyExists", _details(resource, name))


def conflict(resource: ApiResource, name: str) -> StatusError:
    """409 for an update made from another version than the present one."""
    message = (
        f'Operation cannot be fulfilled on {_qualified(resource)} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return StatusError(409, message, details=_details(resource, name))


def method_not_allowed(method: str) -> StatusError:
    """405 for a method that the resource does not have."""
    return StatusError(405, f"the server does not allow the method {method} on the requested resource")


def not_acceptable() -> StatusError:
    """406 for a media type other than JSON."""
    return StatusError(406, "only the following media types are accepted: application/json")


def unsupported_media_type(content_type: str, accepted: tuple[str, ...]) -> StatusError:
    """415 for a body in an unknown format."""
    return StatusError(
        415,
        f"the body of the request was in an unknown format {content_type!r}; accepted: {', '.join(accepted)}",
    )


def expired(message: str) -> StatusError:
    """410: the resourceVersion or continue token is too old."""
    return StatusError(410, message)


def too_large(requested: int, current: int) -> StatusError:
    """504 for a resourceVersion that this server has not reached; client-go recognises it by the cause."""
    message = f"Too large resource version: {requested}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return StatusError(504, f"Timeout: {message}", details={"causes": [cause], "retryAfterSeconds": 1})


def invalid_option(name: str, message: str) -> StatusError:
    """422 for a list option that is not allowed, or not with this value."""
    cause = {"reason": "FieldValueForbidden", "message": f"Forbidden: {message}", "field": name}
    details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]}
    return StatusError(
        422, f'ListOptions.meta.k8s.io "" is invalid: {name}: Forbidden: {message}', details=details
    )


def invalid_object(resource: ApiResource, name: str, problem: str) -> StatusError:
    """422 for an object that cannot be stored at all."""
    details = {"name": name, "group": resource.group, "kind": resource.kind.value}
    return StatusError(422, f'{resource.kind.value} "{name}" is invalid: {problem}', details=details)


def injected_error(code: int, retry_after: int | None) -> StatusError:
    """Injected error; ``retry_after`` in seconds."""
    details = {} if retry_after is None else {"retryAfterSeconds": retry_after}
    return StatusError(code, HTTPStatus(code).phrase, details=details)


def _qualified(resource: ApiResource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _details(resource: ApiResource, name: str) -> dict[str, Any]:
    return {"name": name, "group": resource.group, "kind": resource.plural}
