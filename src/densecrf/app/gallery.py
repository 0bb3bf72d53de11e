"""The folder at a glance: the images' status, thumbnails, and all labels as one file."""

import asyncio
import io
import json
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from densecrf.app.dataset import FORMATS, Labelled, write_dataset
from densecrf.app.document import STATUSES
from densecrf.app.rooms import Rooms
from densecrf.app.store import ImageFolder, Stamp, stamp_of
from densecrf.io.opening import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Gallery"]

SIDE = 256  # pixels of a thumbnail's longer side
KEPT = 2000  # thumbnails in memory
AT_ONCE = 2  # thumbnails that are made at the same time

Stamps = tuple[Stamp | None, ...]


class Gallery:
    """What the page shows of all images together."""

    def __init__(self, store: ImageFolder, rooms: Rooms) -> None:
        self.store, self.rooms = store, rooms
        self._known: dict[str, tuple[Stamp | None, dict[str, Any]]] = {}
        self._thumbnails: OrderedDict[str, tuple[Stamps, bytes]] = OrderedDict()
        self._making = asyncio.Semaphore(AT_ONCE)

    def listing(self) -> list[dict[str, Any]]:
        """Return each image's name, status, number of strokes and of unsure regions."""
        return [{"name": name, **self._summary(name)} for name in self.store.listing()]

    def _summary(self, name: str) -> dict[str, Any]:
        """Return what a file of strokes says, read again where it has changed."""
        path = self.store.state_path(name)
        now = stamp_of(path)
        kept, summary = self._known.get(name, (None, None))
        if summary is None or kept != now:
            summary = {"status": "todo", "strokes": 0, "drawn": now is not None}
            try:
                with open_regular(path) as file:
                    state = json.load(file)
                summary["strokes"] = len(state["strokes"])
                if state.get("status") in STATUSES:
                    summary["status"] = state["status"]
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                pass  # opening the image says why
            self._known[name] = now, summary
        return summary

    async def thumbnail(self, name: str) -> bytes:
        """Return a small JPEG of an image under its labels."""
        labels = self.store.state / f"{name}.labels.png"
        store = self.store
        files = (store.path(name), labels, store.project_path, store.reading_path(name))
        now = tuple(map(stamp_of, files))
        if name not in self._thumbnails or self._thumbnails[name][0] != now:
            async with self._making:
                made = await asyncio.to_thread(self._thumbnail, name, labels)
            self._thumbnails[name] = now, made
            while len(self._thumbnails) > KEPT:
                self._thumbnails.popitem(last=False)
        self._thumbnails.move_to_end(name)
        return self._thumbnails[name][1]

    def _thumbnail(self, name: str, labels: Path) -> bytes:
        picture = self.store.read(name)
        image = Image.fromarray(picture.shown((picture.depth or 1) // 2))
        image.thumbnail((SIDE, SIDE))
        with suppress(OSError, ValueError):  # where nothing is labelled yet
            with Image.open(labels) as file:
                tint = file.convert("RGB").resize(image.size, Image.Resampling.NEAREST)
            image = Image.blend(image, tint, 0.5)
        packed = io.BytesIO()
        image.save(packed, "JPEG", quality=82)
        return packed.getvalue()

    async def write_dataset(self, path: Path, kind: str, only_done: bool) -> None:
        """Write the labels of all images that have some; those that cannot be used are listed.

        Labels that are not on disk are solved from the strokes first.
        """
        if kind not in FORMATS:
            raise ValueError(f"export {kind!r} is none of {', '.join(FORMATS)}")
        found: list[Callable[[], Labelled | None]] = []
        skipped: dict[str, str] = {}
        for entry in await asyncio.to_thread(self.listing):
            name = entry["name"]
            if entry["status"] != "done" and (only_done or not entry["strokes"]):
                continue
            try:
                if await asyncio.to_thread(self._kept, name) is None:
                    labelled = await (await self.rooms.get(name)).labelled()
                    found.append(partial(lambda known: known, labelled))
                else:
                    found.append(partial(self._kept, name))  # read when it is written
            except (ValueError, OSError) as error:
                skipped[name] = str(error)
        if not found:
            reasons = [f"{name}: {reason}" for name, reason in skipped.items()]
            none = f"no image is {'done' if only_done else 'labelled'} yet"
            raise ValueError("; ".join([none, *reasons])[:1000])
        images = filter(None, (read() for read in found))
        await asyncio.to_thread(write_dataset, path, kind, images, self.store.project(), skipped)

    def _kept(self, name: str) -> Labelled | None:
        """Return the labels on disk, without opening the image, where they are those of it."""
        try:
            with open_regular(self.store.state_path(name)) as file:
                state = json.load(file)
            if state.get("depth", 1) > 1:
                return None
            document, _ = self.store.load(name, (state["height"], state["width"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        slots = self.store.kept_labels(name, document)
        if slots is None:
            return None
        return Labelled(name, slots, document.classes, document.status)

    async def import_mask(self, file_name: str, data: bytes) -> str:
        """Let the image of a mask's name begin with it; return the image."""
        name = await asyncio.to_thread(self.store.image_of_mask, file_name)
        room = await self.rooms.get(name)
        read = self.store.read_mask
        labels = await asyncio.to_thread(read, file_name, data, room.picture.full)
        await self.rooms.begin_with(name, labels)
        return name

    async def copy_labels(self, source: str, target: str) -> None:
        """Let an image begin with the labels of another."""
        found = await (await self.rooms.get(source)).labelled()
        await self.rooms.begin_with(target, found.labels)
