"""`heedful serve`: translate over HTTP, with a page for people."""

import ipaddress
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from heedful.cli.options import MODEL, OUTPUT, RUN, Compute, Device, Engine, Overrides, resolve_device
from heedful.cli.output import print_message
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.serving.auth import Keys
    from heedful.serving.limits import Limits
    from heedful.serving.model_registry import Pairs
    from heedful.serving.server import DrainingServer


def serve(
    *,
    model: Annotated[list[str] | None, Parameter(name=["--model", "-m"], consume_multiple=True, group=MODEL)] = None,
    engine: Engine = "auto",
    compute: Compute = "float32",
    host: Annotated[str, Parameter(group=RUN)] = "127.0.0.1",
    port: Annotated[int, Parameter(group=RUN)] = 8000,
    api_key: Annotated[list[str] | None, Parameter(consume_multiple=True, group=RUN)] = None,
    key_file: Annotated[Path | None, Parameter(group=RUN)] = None,
    new_key: Annotated[Path | None, Parameter(group=RUN)] = None,
    no_key: Annotated[bool, Parameter(group=RUN)] = False,
    beam: Annotated[int, Parameter(group=RUN)] = 5,
    device: Device = "auto",
    set: Overrides = None,
    verbose: Annotated[bool, Parameter(group=OUTPUT)] = False,
) -> None:
    """Serve translations over HTTP: LibreTranslate's API, and a page for people.

    Ctrl-C or SIGTERM: the server accepts no new requests and answers the
    accepted ones; a second signal stops it at once.

    Parameters
    ----------
    model
        A run or model folder for each language pair; en-fr=FOLDER if its card names no languages. Default: built-in.
    host
        The address to listen on; an address that other machines can reach needs a key, or --no-key.
    port
        The port to listen on; 0 takes a free one.
    api_key
        A key that each request must have. A file is safer: other users of the machine can see the command line.
    key_file
        A file with the hashes of keys; each request must have one of these keys.
    new_key
        Make a key, print it, add its hash to this file, and exit.
    no_key
        Serve without keys, to everybody who can reach the address.
    beam
        Hypotheses that the search keeps, unless a request asks for another number.
    set
        Change a limit: --set characters=2000 texts=16 request_seconds=10
    verbose
        Log a line for each request: path, status and time; never a text, a key or an address.
    """
    if new_key is not None:
        from heedful.serving.auth import add_new_key

        print(add_new_key(new_key))
        return
    keys = _keys(api_key or [], key_file, no_key=no_key, host=host)
    limits = _limits(set or [])
    if not 0 <= port <= 65_535:
        raise UserError(f"--port {port}: must lie between 0 and 65,535")
    if not 1 <= beam <= limits.beam:
        raise UserError(f"--beam {beam}: must lie between 1 and {limits.beam} (--set beam=… raises that limit)")
    name = resolve_device(device)
    from heedful.serving.server import end_threads, open_socket

    socket = open_socket(host, port)  # before the models are loaded, so that a port in use is reported at once
    pairs = _load_pairs(model or [], engine, compute, name)
    server = _server(pairs, keys, limits, host=host, beam=beam)
    _configure_logging(verbose)
    server.run([socket])
    counts = server.service.room
    print_message(f"stopped: {counts.accepted:,} requests accepted, {counts.answered:,} answered")
    end_threads()


def _keys(keys: list[str], file: Path | None, *, no_key: bool, host: str) -> "Keys":
    """Return the accepted keys; raise a UserError if there are none and other machines can use the address."""
    from heedful.serving.auth import Keys, hash_key, read_keys

    if no_key and (keys or file):
        raise UserError("--no-key: but there are keys, too; leave out --no-key, or --api-key and --key-file")
    hashes = [*map(hash_key, keys), *(read_keys(file) if file else [])]
    if file and not hashes:
        raise UserError(f"{file}: has no key; `heedful serve --new-key {file}` makes one")
    if not hashes and not no_key and not is_loopback(host):
        raise UserError(
            f"--host {host}: other machines could use this server. Give it a key (`heedful serve --new-key keys.txt`, "
            "then --key-file keys.txt), or pass --no-key to serve everybody"
        )
    return Keys(hashes)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can use an address; of all names, only localhost is known to be local."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _limits(overrides: list[str]) -> "Limits":
    from heedful.config import config_from_dict, with_overrides
    from heedful.serving.limits import Limits

    return config_from_dict(Limits, with_overrides({}, overrides), where="serve --set")


def _load_pairs(models: list[str], engine: str, compute: str, device: str) -> "Pairs":
    from heedful.models.model_info import builtin_models
    from heedful.serving.model_registry import Pairs, open_pair

    paths = models or [str(folder) for folder in builtin_models().values()]
    return Pairs([open_pair(path, engine=engine, compute=compute, device=device) for path in paths])


def _server(pairs: "Pairs", keys: "Keys", limits: "Limits", *, host: str, beam: int) -> "DrainingServer":
    from heedful.serving.app import make_app
    from heedful.serving.languages import Detector
    from heedful.serving.routes.static import read_page
    from heedful.serving.server import make_server
    from heedful.serving.service import Service

    service = Service(pairs, Detector(), limits, keys, beam)
    app = make_app(service, page=read_page())
    return make_server(app, service, on_listening=lambda port: _announce(host, port, pairs, keys))


def _announce(host: str, port: int, pairs: "Pairs", keys: "Keys") -> None:
    for pair in pairs:
        print_message(f"{pair.source} to {pair.target} with {pair.engine}")
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    with_keys = "with" if len(keys) else "without"
    print_message(f"listening at {address} {with_keys} keys; its API: {address}docs; Ctrl-C stops")


def _configure_logging(verbose: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    logging.basicConfig(handlers=[handler], format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("heedful.serving").setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # the middleware logs errors, without a client's text
