"""``densecrf app``: scribble in the browser."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from densecrf.cli.reports import console, fail, reporting_errors, require
from densecrf.model.parameters import read_parameters

__all__ = ["open_app"]


def open_app(
    target: Annotated[
        Path | None,
        typer.Argument(help="An image or a folder of them.", metavar="IMAGE or FOLDER"),
    ] = None,
    probs: Annotated[
        Path | None,
        typer.Option(
            help="Network output that strokes correct: a file (.npy, .npz or .unary), or a folder "
            "with one file per image."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Classes of the folder: a text file with one name per line, or JSON."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model file of `densecrf adapt` or `fit`.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port. Default: 8650, or a free one.", min=0, max=65535),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Loopback address; other addresses are refused.")
    ] = "127.0.0.1",
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Label images by scribbling in the browser, with a live certificate.

    Strokes are saved as they are drawn, in a folder densecrf-app beside the images. The page is
    served to this machine alone and needs no network.

    For example:

    densecrf app photo.jpg
    """
    require("densecrf app", "websockets")
    try:
        from densecrf.app.project import read_classes
        from densecrf.app.server import check_host, serve
        from densecrf.app.store import ImageFolder
    except ImportError as error:
        raise fail(f'the app needs {error.name}: pip install "densecrf[app]"') from error
    with reporting_errors(), suppress(KeyboardInterrupt):  # the way to end it
        check_host(host)
        for path in (target, probs, labels, model):
            if path is not None and not path.exists():
                raise FileNotFoundError(2, "no such file or folder", str(path))
        folder = ImageFolder(target, probs)
        if target is not None and not folder.listing():
            raise ValueError(f"{target}: no images here")
        if labels is not None:
            folder.use_classes(read_classes(labels))
        file = None if model is None else read_parameters(model)
        serve(folder, host=host, port=port, browser=browser, file=file, announce=_announce)


def _announce(url: str) -> None:
    console.print("The app is open at this address, until Ctrl-C:")
    typer.echo(url)
