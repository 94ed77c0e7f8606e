"""The page at ``/``: files of this package as they stand, nothing from elsewhere."""

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

PAGE = Path(__file__).parent / "page"
HEADERS = {
    "Cache-Control": "no-cache",
    # Whatever a model writes is shown as text; should that ever fail, nothing of it runs.
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


def install_page(api: FastAPI) -> None:
    """Add the page and its files to ``api``; they tell nothing that needs a key."""

    @api.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers=HEADERS)

    api.mount("/page", StaticFiles(directory=PAGE), name="page")
