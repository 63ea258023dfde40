"""The files of the page. They are read once; a request chooses one by name and never builds a path."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

PAGE = Path(__file__).parents[2] / "page"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".woff2": "font/woff2",
}
NO_PAGE = "heedful is running. Translate with POST /translate; GET /spec describes all requests.\n"


@dataclass(frozen=True)
class File:
    """One file with its media type and entity tag."""

    content: bytes
    type: str
    tag: str


def read_page(folder: Path = PAGE) -> dict[str, File]:
    """Read all files of the page, by their paths as in a URL. Return nothing if the folder does not exist."""
    files = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if path.suffix in TYPES and path.is_file():
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            files[path.relative_to(folder).as_posix()] = File(content, TYPES[path.suffix], tag)
    return files


class Page:
    """Serves the files of the page."""

    def __init__(self, files: Mapping[str, File]) -> None:
        self.files = files

    def routes(self) -> list[Route]:
        """Return one route per file, so that other names cannot be requested."""
        return [Route("/", self.index), *(Route(f"/{name}", self.file) for name in self.files)]

    async def index(self, request: Request) -> Response:
        return _answer(request, self.files[INDEX]) if INDEX in self.files else PlainTextResponse(NO_PAGE)

    async def file(self, request: Request) -> Response:
        return _answer(request, self.files[request.url.path.removeprefix("/")])


def _answer(request: Request, file: File) -> Response:
    headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.type, headers=headers)
