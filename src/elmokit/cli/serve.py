"""`elmo serve`: serve models over HTTP, with the explorer page."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli import options as opt
from elmokit.cli.output import INTERRUPTED, log, print_json

if TYPE_CHECKING:
    from elmokit.serve.server import Server

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME=PATH",
            help="Additional model, as for `elmo embed --model`. Can be repeated.",
        ),
    ] = None,
    bundled: Annotated[
        bool,
        typer.Option(
            "--bundled/--no-bundled",
            help="Serve the bundled model under the name 'english', as the default model.",
        ),
    ] = True,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="NAME=DIR",
            help="Task model, as written by `elmo task ... train -o DIR`. Can be repeated.",
        ),
    ] = None,
    task_file: Annotated[
        list[Path] | None,
        typer.Option(
            "--task-file",
            metavar="FILE",
            help="Python file that defines the custom task of a --task model. Can be repeated.",
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Index for nearest-neighbor search, as written by `elmo index`."
        ),
    ] = None,
    static: opt.StaticTable = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. 0.0.0.0: all addresses of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port. 0: any free port.")] = 8017,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="ELMO_SERVE_TOKEN",
            help="Token that clients must send as 'Authorization: Bearer TOKEN'. Prefer the "
            "environment variable: other users of the machine can see command-line options. "
            "Default: no authentication.",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Allow pages from this origin, for example https://example.org, to read "
            "responses. Can be repeated.",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Accept requests for this host name, in addition to IP addresses, localhost and "
            "the name of this machine; * accepts any. Can be repeated.",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of CPU threads. Default: chosen by torch.")
    ] = None,
    precision: opt.Precision = "exact",
    device: opt.Device = "auto",
    max_body: Annotated[int, typer.Option(min=1, help="Maximum bytes per request.")] = 2 * 2**20,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens per request.")] = 4096,
    max_sentences: Annotated[int, typer.Option(min=1, help="Maximum sentences per request.")] = 256,
    max_answer: Annotated[int, typer.Option(min=1, help="Maximum values per response.")] = 2**24,
    queue: Annotated[
        int, typer.Option(min=1, help="Maximum pending requests; further ones are rejected.")
    ] = 256,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Maximum open connections; idle ones are closed first.")
    ] = 1024,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="Time limit in seconds, for receiving a request and for responding to it.",
        ),
    ] = 60.0,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser when the service is ready.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object when the service is ready.")
    ] = False,
) -> None:
    """Serve models over HTTP, with an interactive page to explore them.

    Prints the URL when the models are loaded. The page is at /; the routes are
    documented at /openapi.json and in docs/how-to/serve.md. On Ctrl-C, SIGTERM or
    SIGHUP, the service answers all pending requests and stops.
    """
    if token is None and "ELMO_SERVE_TOKEN" in os.environ:
        # typer treats an empty variable like an unset one.
        raise typer.BadParameter(
            "ELMO_SERVE_TOKEN is empty. Set it to a token, or unset it to serve without one."
        )
    from elmokit.serve.limits import Limits
    from elmokit.serve.server import Server
    from elmokit.serve.settings import BUNDLED, Settings, named

    models: dict[str, str | None] = {BUNDLED: None} if bundled else {}
    models |= named(model or [], "model")
    settings = Settings(
        host=host,
        port=port,
        models=models,
        tasks={name: Path(path) for name, path in named(task or [], "task").items()},
        task_files=tuple(task_file or ()),
        index=index,
        static=static,
        device=device,
        precision=precision,
        threads=threads,
        token=token,
        allowed_hosts=tuple(allowed_host or ()),
        cors=tuple(cors or ()),
        limits=Limits(
            body=max_body,
            tokens=max_tokens,
            sentences=max_sentences,
            answer=max_answer,
            queue=queue,
            connections=max_connections,
            timeout=timeout,
        ),
    )

    def ready(server: Server) -> None:
        seconds = server.service.seconds
        if as_json:
            print_json({"url": server.url, "seconds": round(seconds, 3)})
        else:
            typer.echo(server.url)
            log(f"Ready after {seconds:.1f} s; press Ctrl-C to stop.")
        if open_page:
            typer.launch(server.url)

    server = Server(settings, ready)
    log(f"{server.url}: loading {', '.join([*models, *settings.tasks])} ...")
    if host not in _LOOPBACK and token is None:
        log(
            f"warning: everyone who can reach {host} can use this service. Require a token with "
            "--token, or use an authenticating proxy."
        )
    server.run()
    log("Stopped; all pending requests were answered.")
    if server.signal == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)
