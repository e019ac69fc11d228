"""`elmo serve`: the models over HTTP, and the page that shows them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.options import Device, Precision, PrecisionName, StaticTable
from elmokit.cli.signals import INTERRUPTED

if TYPE_CHECKING:
    from elmokit.serve.server import Server

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME=PATH",
            help="A further model, as `elmo embed --model` takes it; repeat for several.",
            show_default=False,
        ),
    ] = None,
    bundled: Annotated[
        bool,
        typer.Option(
            "--bundled/--no-bundled",
            help="Serve the model that comes with the package, as 'english', before all others.",
        ),
    ] = True,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="NAME=DIR",
            help="A trained task, as `elmo task ... train -o DIR` makes it; repeat for several.",
            show_default=False,
        ),
    ] = None,
    task_file: Annotated[
        list[Path] | None,
        typer.Option(
            "--task-file",
            metavar="FILE",
            help="The file that defines a task of your own, for --task; repeat for several.",
            show_default=False,
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Token vectors of a text, as `elmo index` makes them, for neighbors.",
            show_default=False,
        ),
    ] = None,
    static: StaticTable = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 is all of this machine's.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: one that is free.")] = 8017,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="ELMO_SERVE_TOKEN",
            help="What clients must send as 'Authorization: Bearer TOKEN'. Better in the "
            "environment, where other users of the machine do not see it.",
            show_default=False,
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Let pages of this origin, such as https://example.org, read answers; repeat for "
            "several.",
            show_default=False,
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Accept requests for this host name, besides IP addresses, localhost and this "
            "machine's name; * accepts any. Repeat for several.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads. Nothing: torch's own choice.", show_default=False),
    ] = None,
    precision: Precision = PrecisionName.EXACT,
    device: Device = "auto",
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 2 * 2**20,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a request.")] = 4096,
    max_sentences: Annotated[int, typer.Option(min=1, help="Sentences of a request.")] = 256,
    max_answer: Annotated[int, typer.Option(min=1, help="Numbers in the vectors of an answer.")] = 2
    ** 24,
    queue: Annotated[
        int, typer.Option(min=1, help="Requests that may wait; further ones are rejected.")
    ] = 256,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Open connections; idle ones make room for new ones.")
    ] = 1024,
    timeout: Annotated[
        float,
        typer.Option(min=0.001, help="Seconds for sending a request, and again for its answer."),
    ] = 60.0,
    open_page: Annotated[
        bool, typer.Option("--open", help="Show the page in a browser when it is ready.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object when it is ready.")
    ] = False,
) -> None:
    """Serve models over HTTP, with a page to look inside them.

    Prints the address when the models are loaded. The page is at /, the routes
    are described at /openapi.json and in docs/how-to/serve.md. Ctrl-C, SIGTERM or
    SIGHUP ends it after all pending requests are answered.
    """
    if token is None and "ELMO_SERVE_TOKEN" in os.environ:
        # typer takes an empty variable for one that is not set.
        raise typer.BadParameter(
            "ELMO_SERVE_TOKEN is empty. Set it to the token, or unset it to serve without one."
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
        precision=precision.value,
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
        _show(server, as_json=as_json)
        if open_page:
            typer.launch(server.url)

    server = Server(settings, ready)
    typer.echo(f"{server.url}: loading {', '.join([*models, *settings.tasks])} ...", err=True)
    if host not in _LOOPBACK and token is None:
        typer.echo(
            f"warning: everybody who reaches {host} can use this service. Require a token with "
            "--token, or put it behind a proxy that authenticates.",
            err=True,
        )
    server.run()
    typer.echo("Stopped; all pending requests were answered.", err=True)
    if server.signal == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


def _show(server: Server, *, as_json: bool) -> None:
    seconds = server.service.seconds
    if as_json:
        values = {"url": server.url, "seconds": round(seconds, 3)}
        typer.echo(json.dumps(values))
    else:
        typer.echo(server.url)
        typer.echo(f"Ready after {seconds:.1f} s; press Ctrl-C to stop.", err=True)
