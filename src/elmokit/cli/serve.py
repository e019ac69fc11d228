"""`elmo serve`: serve models over HTTP, with the explorer page."""

from __future__ import annotations

import os
import signal
import time
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
            help="Additional model to serve under this name. Can be repeated.",
        ),
    ] = None,
    bundled: Annotated[
        bool,
        typer.Option(
            "--bundled/--no-bundled",
            help="Serve the bundled model as 'english', the default model.",
        ),
    ] = True,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="NAME=DIR",
            help="Task model to serve under this name, as written by `elmo task`. Can be repeated.",
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
            metavar="DIR", help="Directory written by `elmo index`, for nearest-neighbor search."
        ),
    ] = None,
    static: opt.StaticTable = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 listens on all addresses.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects a free port.")
    ] = 8017,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="ELMO_SERVE_TOKEN",
            help="Bearer token that clients must send. Prefer the environment variable, because "
            "other users of the machine can see command-line options. Default: no authentication.",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Allow cross-origin requests from this origin, for example https://example.org. "
            "Can be repeated.",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Host name to accept in requests, in addition to IP addresses, localhost and the "
            "name of this machine; * accepts any name. Can be repeated.",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of CPU threads. Default: chosen by PyTorch.")
    ] = None,
    device: opt.Device = "auto",
    precision: opt.Precision = "exact",
    max_body: Annotated[int, typer.Option(min=1, help="Maximum bytes per request.")] = 2 * 2**20,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens per request.")] = 4096,
    max_sentences: Annotated[int, typer.Option(min=1, help="Maximum sentences per request.")] = 256,
    max_values: Annotated[int, typer.Option(min=1, help="Maximum values per response.")] = 2**24,
    queue: Annotated[
        int, typer.Option(min=1, help="Maximum pending requests; more are rejected.")
    ] = 256,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Maximum open connections; idle ones are closed first.")
    ] = 1024,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="Time limit in seconds for receiving a request, and for responding to it.",
        ),
    ] = 60.0,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the web page in a browser.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of text when the service is ready.")
    ] = False,
) -> None:
    """Serve models over HTTP, with an interactive web page.

    Prints the URL when the models are loaded. The page is at /; the routes are
    documented at /openapi.json and in docs/how-to/serve.md. On Ctrl-C, SIGTERM or
    SIGHUP, the service answers all pending requests and stops.
    """
    if token is None and "ELMO_SERVE_TOKEN" in os.environ:
        # typer treats an empty variable like an unset one.
        raise typer.BadParameter(
            "ELMO_SERVE_TOKEN is empty. Set it to a token, or unset it to serve without one."
        )
    from elmokit.serve.server import Server
    from elmokit.serve.settings import BUNDLED, Limits, Settings, named

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
            values=max_values,
            queue=queue,
            connections=max_connections,
            timeout=timeout,
        ),
    )

    def ready(server: Server) -> None:
        seconds = time.perf_counter() - begin
        if as_json:
            print_json({"url": server.url, "seconds": round(seconds, 3)})
        else:
            typer.echo(server.url)
            log(f"Ready after {seconds:.1f} s; press Ctrl-C to stop.")
        if open_page:
            typer.launch(server.url)

    begin = time.perf_counter()
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
