"""The page at ``/``: files of this package as they stand, nothing from elsewhere."""

import os
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import Scope

PAGE = Path(__file__).parent / "page"
FILES_PATH = "/page"
"""Below it lie the page's files, which tell nothing that needs a key."""
HEADERS = {
    # An endpoint of another version may answer here tomorrow: ask whether a file is still the same.
    "Cache-Control": "no-cache",
    # Whatever a model writes is shown as text; should that ever fail, nothing of it runs.
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class PageFiles(StaticFiles):
    """The files beside the page, with its headers."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


def install_page(api: FastAPI) -> None:
    """Add the page and its files to ``api``."""

    @api.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=HEADERS)

    api.mount(FILES_PATH, PageFiles(directory=PAGE), name="page")
