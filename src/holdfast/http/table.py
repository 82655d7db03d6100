"""The one table of routes: the API, and the pages for people. What stands in no row does not exist."""

from __future__ import annotations

from holdfast.http.call import Route
from holdfast.http.pages.routes import PAGES
from holdfast.http.routes import ROUTES

TABLE: tuple[Route, ...] = (*ROUTES, *PAGES)
