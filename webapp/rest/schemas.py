"""Shapes that several areas of the API share."""

from typing import Annotated

from ninja import Query, Schema
from pydantic import Field

Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before")]
NamePart = Annotated[str, Query(description="A part of the name, whatever its case")]
Limit = Annotated[int, Query(ge=1, le=200)]
Label = Annotated[str, Field(min_length=1, max_length=120)]


class Person(Schema):
    """A user as colleagues see one."""

    id: int
    email: str
    display_name: str


class ProjectRef(Schema):
    id: str
    name: str
