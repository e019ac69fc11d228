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
    model: Annotated[list[str] | None, typer.Option(metavar="NAME=PATH")] = None,
    bundled: bool = True,
    task: Annotated[list[str] | None, typer.Option(metavar="NAME=DIR")] = None,
    task_file: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None,
    index: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    static: opt.StaticTable = None,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8017,
    token: Annotated[str | None, typer.Option(envvar="ELMO_SERVE_TOKEN")] = None,
    cors: Annotated[list[str] | None, typer.Option(metavar="ORIGIN")] = None,
    allowed_host: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    device: opt.Device = "auto",
    precision: opt.Precision = "exact",
    max_body: Annotated[int, typer.Option(min=1)] = 2 * 2**20,
    max_tokens: Annotated[int, typer.Option(min=1)] = 4096,
    max_sentences: Annotated[int, typer.Option(min=1)] = 256,
    max_values: Annotated[int, typer.Option(min=1)] = 2**24,
    queue: Annotated[int, typer.Option(min=1)] = 256,
    max_connections: Annotated[int, typer.Option(min=1)] = 1024,
    timeout: Annotated[float, typer.Option(min=0.001)] = 60.0,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Serve models over HTTP, with an interactive web page.

    Prints the URL when the models are loaded. The page is at /; the routes are documented at
    /openapi.json and in docs/how-to/serve.md. On Ctrl-C, SIGTERM or SIGHUP, the service answers all
    pending requests and stops.

    Args:
        model: Additional model to serve, and its name in requests. Can be repeated.
        bundled: Serve the bundled model as 'english', the default model.
        task: Task model to serve, as written by `elmo task`, and its name in requests. Can be
            repeated.
        task_file: Python file that defines the custom task of a --task model. Can be repeated.
        index: Directory written by `elmo index`, for nearest-neighbor search.
        host: Address to listen on; 0.0.0.0 listens on all addresses.
        port: Port to listen on; 0 selects a free port.
        token: Bearer token that clients must send. Prefer the environment variable, because other
            users of the machine can see command-line options. Default: no authentication.
        cors: Allow cross-origin requests from this origin, for example https://example.org. Can be
            repeated.
        allowed_host: Host name to accept in requests, in addition to IP addresses, localhost and
            the name of this machine; * accepts any name. Can be repeated.
        threads: Number of CPU threads. Default: chosen by PyTorch.
        max_body: Maximum number of bytes per request.
        max_tokens: Maximum number of tokens per request.
        max_sentences: Maximum number of sentences per request.
        max_values: Maximum number of floating-point values per response.
        queue: Maximum number of pending requests; further requests are rejected.
        max_connections: Maximum number of open connections. At this limit, the longest-idle
            connection is closed.
        timeout: Time limit in seconds for each step: receiving a request, computing the response,
            and sending the response.
        as_json: Print JSON instead of text when the service is ready.
    """
    if token is None and "ELMO_SERVE_TOKEN" in os.environ:
        # typer treats an empty environment variable as unset.
        raise opt.UsageError(
            "ELMO_SERVE_TOKEN is empty. Set it to a token, or unset it to serve without one."
        )
    from elmokit.serve.server import Server
    from elmokit.serve.settings import BUNDLED, Limits, Settings, parse_named_paths

    with opt.usage_errors():
        models: dict[str, str | None] = {BUNDLED: None} if bundled else {}
        models |= parse_named_paths(model or [], "model")
        settings = Settings(
            host=host,
            port=port,
            models=models,
            tasks={
                name: Path(path) for name, path in parse_named_paths(task or [], "task").items()
            },
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

    def on_ready(server: Server) -> None:
        seconds = time.perf_counter() - start
        if as_json:
            print_json({"url": server.url, "seconds": round(seconds, 3)})
        else:
            typer.echo(server.url)
            log(f"Ready after {seconds:.1f} s; press Ctrl-C to stop.")

    start = time.perf_counter()
    server = Server(settings, on_ready)
    log(f"Loading the models for {server.url}: {', '.join([*models, *settings.tasks])} ...")
    if host not in _LOOPBACK and token is None:
        log(
            f"Warning: Anyone who can reach {host} can use this service. Set a token with "
            "ELMO_SERVE_TOKEN, or use an authenticating proxy."
        )
    server.run()
    log("Stopped; all pending requests were answered.")
    if server.signal == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)
