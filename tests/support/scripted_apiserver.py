"""HTTP server that replies to each request with the next entry of a script, and records the requests."""

import http.server
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import msgspec

Body = Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, then pieces of a body, then the end of the connection.

    ``complete`` False breaks off where the client expects more; a piece may block to hold the rest back.
    """

    pieces: Body = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    complete: bool = True


@dataclass(slots=True)
class Script:
    """``requested`` holds path and query of each request; the last answer repeats."""

    answers: list[Answer]
    requested: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    pairs: list[list[tuple[str, str]]] = field(default_factory=list)
    """Headers of each request, repeated ones too."""
    url: str = ""


def json(value: object) -> bytes:
    return msgspec.json.encode(value)


def status(code: int, message: str = "no", **headers: str) -> Answer:
    body = json({"kind": "Status", "message": message, "code": code})
    return Answer([body], code, tuple((name.replace("_", "-"), value) for name, value in headers.items()))


@contextmanager
def serving(
    *answers: Answer, wrap: Callable[[http.server.HTTPServer], None] | None = None
) -> Iterator[Script]:
    script = Script(list(answers))

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            place = urlsplit(self.path)
            query = parse_qs(place.query, keep_blank_values=True)
            script.requested.append((place.path, {name: values[0] for name, values in query.items()}))
            script.headers.append(dict(self.headers))
            script.pairs.append(self.headers.items())
            answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
            self._send(answer)
            self.close_connection = True

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in answer.pieces:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if answer.complete:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    plain = server.socket
    if wrap is not None:
        wrap(server)
    script.url = f"{'http' if server.socket is plain else 'https'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
