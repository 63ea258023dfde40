"""`heedful serve`: translation over HTTP."""

import ipaddress
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.serving.auth import Keys
    from heedful.serving.model_registry import Pairs
    from heedful.serving.server import DrainingServer


def serve(
    *,
    model: Annotated[list[str] | None, Parameter(name=["--model", "-m"], consume_multiple=True)] = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    key_file: Path | None = None,
    new_key: Path | None = None,
    no_key: bool = False,
    engine: Literal["auto", "torch", "ctranslate2"] = "auto",
    compute: Literal["float32", "int8"] = "float32",
    beam: int = 5,
    verbose: bool = False,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
) -> None:
    """Translate over HTTP: for programs that speak LibreTranslate's API, and for people, with a page.

    Ctrl-C or SIGTERM: nothing new is accepted, and who waits is answered; a second one ends it at once.

    Parameters
    ----------
    model
        A run or a model folder for each pair of languages; en-fr=FOLDER where its card does not name them. By default
        the models that come with heedful.
    host
        The address to listen at; others than this machine's own need a key, or --no-key.
    port
        The port to listen at; 0 takes a free one.
    api_key
        Whoever asks must name this key. Better kept in a file: other users of the machine see what is typed.
    key_file
        A file with the hashes of keys; whoever asks must name one of the keys.
    new_key
        Make a key, print it, add its hash to this file, and end.
    no_key
        Let everybody ask who can reach the address.
    engine
        What computes: torch can run every model, ctranslate2 is faster; auto takes it where it can.
    compute
        Numbers to compute with; int8 is faster and a little less exact.
    beam
        How many hypotheses the search follows, unless a request says otherwise.
    verbose
        Write a line for each request: what was asked, the status, the time. Never a text, a key or an address.
    set
        Change a limit: --set characters=2000 texts=16 request_seconds=10
    """
    if new_key is not None:
        from heedful.serving.auth import add_new_key

        print(add_new_key(new_key))
        return
    keys = _keys(api_key or [], key_file, no_key=no_key, host=host)
    if not 0 <= port <= 65_535:
        raise UserError(f"--port {port}: must lie between 0 and 65,535")
    server = _server(model or [], keys, set or [], host=host, engine=engine, compute=compute, beam=beam)
    _run(server, host, port, verbose=verbose)


def _run(server: "DrainingServer", host: str, port: int, *, verbose: bool) -> None:
    from heedful.serving.server import end_threads, open_socket

    opened = open_socket(host, port)
    handler = logging.StreamHandler(sys.stderr)
    logging.basicConfig(handlers=[handler], format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("heedful.serving").setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # guard.py logs what went wrong, without a client's words
    server.run([opened])
    room = server.service.room
    _say(f"stopped: {room.accepted:,} requests accepted, {room.answered:,} answered")
    end_threads()


def _keys(given: list[str], file: Path | None, *, no_key: bool, host: str) -> "Keys":
    from heedful.serving.auth import Keys, hash_key, read_keys

    if no_key and (given or file):
        raise UserError("--no-key: but keys are given as well; leave out the one or the other")
    hashes = [*map(hash_key, given), *(read_keys(file) if file else [])]
    if file and not hashes:
        raise UserError(f"{file}: has no key; `heedful serve --new-key {file}` makes one")
    if not hashes and not no_key and not is_loopback(host):
        raise UserError(
            f"--host {host}: other machines could use this server. Give it a key (`heedful serve --new-key keys.txt`, "
            "then --key-file keys.txt), or say --no-key if everybody may"
        )
    return Keys(hashes)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. Names other than localhost may lead anywhere."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _server(
    models: list[str],
    keys: "Keys",
    changes: list[str],
    *,
    host: str,
    engine: str,
    compute: str,
    beam: int,
) -> "DrainingServer":
    from heedful.config import config_from_dict, with_overrides
    from heedful.models.model_info import builtin_models
    from heedful.serving.app import make_app
    from heedful.serving.languages import Detector
    from heedful.serving.limits import Limits
    from heedful.serving.model_registry import Pairs, open_pair
    from heedful.serving.routes.static import read_page
    from heedful.serving.server import make_server
    from heedful.serving.service import Service

    limits = config_from_dict(Limits, with_overrides({}, changes), where="serve --set")
    if not 1 <= beam <= limits.beam:
        raise UserError(f"--beam {beam}: must lie between 1 and {limits.beam} (--set beam=… raises that limit)")
    models = models or [str(folder) for folder in builtin_models().values()]
    pairs = Pairs([open_pair(given, engine=engine, compute=compute) for given in models])
    service = Service(pairs, Detector(), limits, keys, beam)
    app = make_app(service, page=read_page())
    return make_server(app, service, on_listening=lambda at: _announce(host, at, pairs, keys))


def _announce(host: str, port: int, pairs: "Pairs", keys: "Keys") -> None:
    for pair in pairs:
        _say(f"{pair.source} to {pair.target} by {pair.engine}")
    shown = f"[{host}]" if ":" in host else host
    _say(f"listening at http://{shown}:{port}/ {'with' if len(keys) else 'without'} keys; Ctrl-C stops")


def _say(words: str) -> None:
    print(f"heedful: {words}", file=sys.stderr, flush=True)
