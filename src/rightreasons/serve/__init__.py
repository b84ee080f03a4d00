"""A folder of studies in the browser: a list, pages, progress of running sweeps, comparisons. Read-only, for this machine only.

    /                                the list
    /at/<folder>/                    one study or audit: how far it is, what it found
    /at/<folder>/report.html         its page; also table.parquet and the like, findings/<name>.json, progress.json
    /compare?a=<folder>&b=<folder>   what changed from one to the other, from their findings
    /compare?of=<folder>&of=…        the same for two; over three and more how they moved, the oldest first

Nothing else is served. Answers come from files that appear whole or not at all, so a sweep may run in the meantime.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import socket
import sys
import time
from functools import cached_property, lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rightreasons import __version__
from rightreasons.errors import RightReasonsError, SettingError
from rightreasons.findings import Finding, file_name
from rightreasons.report import wording
from rightreasons.serve.folder import DOWNLOADS, FINDINGS, PAGE, Entry, Folder, NotFound, Progress, quoted

HERE = Path(__file__).parent
IDLE_SECONDS = 30
LEAST = 2  # folders of a comparison
MOST_FIELDS = 40
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
# A page in the folder is somebody's file: it may draw itself and reach nothing, not even this server. Its own policy, which
# allows only its very style and script, applies as well. Its dialog is closed by a form.
STORED = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts allow-forms allow-modals"
)


class Server:
    """The web app over one folder.

    Parameters
    ----------
    host : address to listen on; by default the machine's own, so that nobody else can reach it
    port : 0 for any free port
    """

    def __init__(self, folder: str | os.PathLike[str], host: str = "127.0.0.1", port: int = 8765) -> None:
        self.folder = Folder(folder)
        try:
            self._http = _Http(self.folder, host, port)
        except (OSError, OverflowError) as error:
            raise SettingError(
                f"cannot listen on {host}, port {port} ({error}); choose another port, or 0 for any free one"
            ) from error

    @property
    def address(self) -> str:
        host = self._http.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._http.server_port}/"

    def run(self) -> None:
        """Answer until interrupted or closed."""
        try:
            self._http.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            return

    def stop(self) -> None:
        """End `run` from another thread."""
        self._http.shutdown()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.server_close()


def step_back() -> None:
    """Let everything else on this machine go first, so that watching a sweep does not slow it down."""
    os.nice(10)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, folder: Folder, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.folder, self.host = folder, host
        self.pages = _Pages(folder)
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):  # a client that went away is no error of ours
            print(f"serve: {type(error).__name__}: {error}", file=sys.stderr)

    @cached_property
    def is_local(self) -> bool:
        return self.host == "localhost" or (_is_address(self.host) and ip_address(self.host).is_loopback)


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    server_version, sys_version = f"rightreasons/{__version__}", ""
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        if not self._is_meant():
            self._text(HTTPStatus.MISDIRECTED_REQUEST, "This address is not served here.")
            return
        try:
            self._answer()
        except NotFound:
            self._text(HTTPStatus.NOT_FOUND, "There is nothing here.")
        except FileNotFoundError:
            self._text(HTTPStatus.NOT_FOUND, "It is no longer there.")
        except BadRequest as error:
            self._text(HTTPStatus.BAD_REQUEST, str(error))
        except RightReasonsError as error:
            self._text(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.close_connection = True  # whatever was sent is not read
        self._text(HTTPStatus.METHOD_NOT_ALLOWED, "This server is read-only.", Allow="GET, HEAD")

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def _is_meant(self) -> bool:
        """Whether the request names this machine: a foreign page may point its own host name here, and the name gives it away."""
        if not self.server.is_local:
            return True
        try:
            name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        except ValueError:  # "[" is no address
            return False
        return name in ("localhost", self.server.host) or (_is_address(name) and ip_address(name).is_loopback)

    def _answer(self) -> None:
        url = _url(self.path)
        if url.path == "/":
            self._page(self.server.pages.index())
        elif url.path == "/compare":
            self._page(self.server.pages.compare(_asked(url.query)), STORED)
        elif url.path.startswith("/at/"):
            self._entry(url.path.removeprefix("/at/"))
        else:
            raise NotFound

    def _entry(self, address: str) -> None:
        place, _, name = address.rpartition("/")
        if place.endswith(f"/{FINDINGS}") or place == FINDINGS:
            place, name = place.removesuffix(FINDINGS).rstrip("/"), f"{FINDINGS}/{name}"
        if not name:
            self._page(self.server.pages.entry(place))
        elif name == "progress.json":
            self._send(HTTPStatus.OK, self.server.folder.progress(place).to_json().encode(), "application/json")
        else:
            self._file(self.server.folder.file(place, unquote(name, errors="surrogateescape")))

    # ---- answers -------------------------------------------------------------------------------------------------------

    def _page(self, text: str, policy: str = "") -> None:
        data = text.encode("utf-8", "backslashreplace")
        self._send(HTTPStatus.OK, data, "text/html; charset=utf-8", policy or self.server.pages.policy)

    def _text(self, status: HTTPStatus, text: str, **headers: str) -> None:
        self._send(status, f"{text}\n".encode("utf-8", "backslashreplace"), "text/plain; charset=utf-8", **headers)

    def _send(self, status: HTTPStatus, data: bytes, kind: str, policy: str = "default-src 'none'", **headers: str) -> None:
        self._begin(status, kind, len(data), policy, **headers)
        if self.command != "HEAD":
            self.wfile.write(data)

    def _file(self, path: Path) -> None:
        """A file unchanged, unless the client already has it."""
        kind = {".html": "text/html; charset=utf-8", ".json": "application/json"}.get(path.suffix, "application/octet-stream")
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            status = os.fstat(file.fileno())
            tag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
            if self.headers.get("If-None-Match") == tag:
                self._begin(HTTPStatus.NOT_MODIFIED, kind, 0, STORED, ETag=tag)
                return
            self._begin(HTTPStatus.OK, kind, status.st_size, STORED, ETag=tag)
            if self.command != "HEAD":
                shutil.copyfileobj(file, self.wfile)

    def _begin(self, status: HTTPStatus, kind: str, length: int, policy: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Security-Policy": policy, **headers, "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: who looks at which page is nobody's business."""


class BadRequest(Exception):
    """What was asked for cannot be read."""


def _url(path: str) -> SplitResult:
    try:
        return urlsplit(path)
    except ValueError as error:
        raise BadRequest("This is no address.") from error


class Asked(NamedTuple):
    """Folders to compare, and whether they were given in their order (from one to the other) or only chosen."""

    paths: tuple[str, ...]
    in_order: bool


def _asked(query: str) -> Asked:
    try:
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="surrogateescape")
    except ValueError as error:
        raise BadRequest(f"A comparison takes two folders or more, /compare?of=…&of=…, and at most {MOST_FIELDS}.") from error
    if "of" in fields:
        chosen = tuple(dict.fromkeys(fields["of"]))
        if len(chosen) < LEAST:
            raise BadRequest("A comparison takes two folders or more, and one was chosen: go back and choose another one.")
        return Asked(chosen, in_order=False)
    return Asked((fields.get("a", [""])[0], fields.get("b", [""])[0]), in_order=True)


class _Pages:
    """The app's own pages."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._environment = Environment(
            loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._environment.filters |= {"address": _address, "ago": _ago, "tone": _tone, "file": _file}
        self._style = (HERE / "serve.css").read_text(encoding="utf-8")
        self._script = (HERE / "serve.js").read_text(encoding="utf-8")
        self._comparing = Lock()
        self._compared = lru_cache(maxsize=8)(self._compare)

    @cached_property
    def policy(self) -> str:
        """Only this very style and script, and requests to this server."""
        sha = []
        for text in (self._style, self._script):
            sha.append(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
        return (
            f"default-src 'none'; style-src 'sha256-{sha[0]}'; script-src 'sha256-{sha[1]}'; connect-src 'self'; "
            "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        )

    def index(self) -> str:
        entries = self.folder.entries()
        progress = {entry.path: self._progress(entry) for entry in entries}
        return self._render("index.html", title=self.folder.root.name, entries=entries, progress=progress)

    def entry(self, address: str) -> str:
        entry = self.folder.entry(address)
        path = self.folder.at(address)
        return self._render(
            "entry.html",
            title=entry.name,
            entry=entry,
            progress=self._progress(entry),
            findings=self.folder.findings(address),
            downloads=[name for name in DOWNLOADS if (path / name).is_file()],
            others=[other for other in self.folder.entries() if other.path != entry.path and other.verdicts],
        )

    def _progress(self, entry: Entry) -> Progress | None:
        """None for an audit, and for a study that has gone or is a link out of the folder."""
        try:
            if not entry.is_study:
                return None
            return self.folder.progress(_address(entry.path))
        except NotFound:
            return None

    def compare(self, asked: Asked) -> str:
        """Make one comparison at a time, and keep the page: findings that have not changed compare as before."""
        entries = [self.folder.entry(_address(path)) for path in asked.paths]
        if not asked.in_order:
            entries.sort(key=self._made)
        with self._comparing:
            return self._compared(*entries)

    def _made(self, entry: Entry) -> tuple[str, str]:
        """When its findings were made; a copied folder keeps their date."""
        return max((f.created for f in self.folder.findings(_address(entry.path))), default=""), entry.path

    def _compare(self, *entries: Entry) -> str:
        from rightreasons.compare import Side
        from rightreasons.report import page
        from rightreasons.trend import compared

        same_name = len({entry.name for entry in entries}) < len(entries)
        sides = []
        for entry in entries:
            name = entry.path if same_name else entry.name
            sides.append(Side(name, tuple(self.folder.findings(_address(entry.path)))))
        if not all(side.findings for side in sides):
            raise NotFound
        subtitle = (
            "From the findings alone; where the folders have their evidence, rightreasons report --compare also pairs the rows."
        )
        shown = compared(sides)
        return page.render(shown.findings, title=shown.title, subtitle=subtitle, lead=shown.lead, first=shown.first)

    def _render(self, template: str, **content: Any) -> str:
        known = {"style": Markup(self._style), "script": Markup(self._script), "version": __version__}
        return self._environment.get_template(template).render(**known, page=PAGE, **content)


def _address(path: str) -> str:
    """A path below the folder, quoted as part of an address."""
    return "/".join(map(quoted, path.split("/")))


def _file(name: str) -> str:
    return file_name(name) + Finding.SUFFIX


def _tone(verdict: str) -> wording.Tone:
    return wording.TONES.get(verdict, wording.TONES["not run"])


def _ago(moment: float) -> str:
    seconds = max(time.time() - moment, 0)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
