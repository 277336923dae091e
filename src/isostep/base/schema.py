"""Records with a schema: frozen, no unknown names, no NaN; what does not fit is one line."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from isostep.base.errors import InputError


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


M = TypeVar("M", bound=BaseModel)


def checked(kind: type[M], record: Any, what: str, remedy: str = "") -> M:
    """`record` as a `kind`, or an InputError that begins with `what` and ends with `remedy`."""
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        raise InputError(one_line(error, what) + (f"; {remedy}" if remedy else "")) from error


def one_line(error: ValidationError, what: str) -> str:
    """The first problem of a schema check: where, why, and the value seen."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "top level"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    message = first["msg"].removeprefix("Value error, ")
    return " ".join(f"{what}: {place[:200]}: {message}, got {str(first.get('input'))[:60]!r}{more}".split())
