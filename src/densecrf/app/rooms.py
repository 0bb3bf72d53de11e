"""Open images: edits in, saving, answers out to every tab that shows the image.

Everything here runs on the event loop; only solving and writing files happen in threads.
"""

import asyncio
import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from densecrf.app.document import Document, Label, default_labels
from densecrf.app.energy import Energies, Snapshot
from densecrf.app.exports import Export
from densecrf.app.live import Live
from densecrf.app.store import ChangedElsewhere, ImageFolder
from densecrf.model.parameters import Parameters
from densecrf.validation import physical_memory

if TYPE_CHECKING:
    from densecrf.solvers.result import Result

__all__ = ["Connection", "Room", "Rooms"]

LOOK_AGAIN = 2.0  # seconds until a save is tried again, or another server's is looked for
IDLE_ROOMS = 3  # images without a tab that stay open
BYTES_A_PIXEL, BYTES_A_LABEL = 300, 60  # of a solve, rounded up: docs/benchmarks.md
MOST_WAITING = 200  # messages for a tab that does not read them

Message = dict[str, Any] | bytes


class Connection:
    """The messages that wait for one tab."""

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._some = asyncio.Event()

    def put(self, message: Message) -> None:
        """Queue a message; a tab that reads nothing loses old label maps first."""
        if len(self._waiting) >= MOST_WAITING:
            old = next((m for m in self._waiting if isinstance(m, bytes)), self._waiting[0])
            self._waiting.remove(old)
        self._waiting.append(message)
        self._some.set()

    async def get(self) -> str | bytes:
        """Wait for the next message."""
        while not self._waiting:
            self._some.clear()
            await self._some.wait()
        message = self._waiting.popleft()
        return message if isinstance(message, bytes) else json.dumps(message)


@dataclass
class Exported:
    """The export of a document: the strokes, their energies, at full size or not, and solution."""

    snapshot: Snapshot
    energies: Energies
    result: "Result | None" = None


class Room:
    """One open image, kept in a store by its name, with what makes its energies."""

    def __init__(self, store: ImageFolder, name: str, energies: Energies) -> None:
        self.store, self.name, self.picture = store, name, energies.picture
        self._stamp = store.stamp(name)
        self.document, self.notice = store.load(name, self.picture.shape)
        if energies.unary is not None and not self.document.strokes:
            self.document.labels = default_labels(len(energies.unary))
        self.connections: set[Connection] = set()
        self.last: bytes | None = None
        self.settled: Exported | None = None
        self._loop = asyncio.get_running_loop()
        self._kept: tuple[int, list[Label]] | None = None  # the state of the label PNG on disk
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsaved: list[dict[str, Any]] = []
        self._dirty = asyncio.Event()
        self._saving = asyncio.create_task(self._save())
        self.live = Live(energies, self._from_thread)
        self._solve()

    def _solve(self) -> None:
        self._asked = self.document.revision
        self.live.ask(Snapshot.of(self.document))

    def _from_thread(self, message: Message) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._broadcast, message)

    def _broadcast(self, message: Message, but: Connection | None = None) -> None:
        if isinstance(message, bytes):
            self.last = message
        elif message["type"] == "rest":
            self._tasks.add(task := self._loop.create_task(self.keep_labels()))
            task.add_done_callback(self._tasks.discard)
            return
        for connection in self.connections:
            if connection is not but:
                connection.put(message)

    def join(self, connection: Connection) -> None:
        """Show a tab the document and the last answer."""
        self.connections.add(connection)
        self.send_document(connection)
        if self.last is not None:
            connection.put(self.last)

    def send_document(self, connection: Connection) -> None:
        """Send a tab the whole document."""
        connection.put(
            {
                "type": "document",
                "document": self.document.to_json(),
                "revision": self.document.revision,
                "full": {"height": self.picture.full[0], "width": self.picture.full[1]},
                "factor": self.picture.factor,
                "depth": self.picture.depth or 1,
                "notice": self.notice,
            }
        )

    def edit(self, connection: Connection, edit: Any) -> None:
        """Make an edit of a tab's, pass it on to the others, save and solve."""
        try:
            changed = self.document.apply(edit)
        except ValueError as error:
            given = edit.get("id") if isinstance(edit, dict) else None
            connection.put({"type": "refused", "id": given, "text": str(error)})
            return
        self._unsaved.append(edit)
        self._dirty.set()
        revision = self.document.revision
        connection.put({"type": "applied", "id": edit["id"], "revision": revision})
        if changed:
            self._broadcast({"type": "edit", "edit": edit, "revision": revision}, but=connection)
            if edit["kind"] != "labels" or self.live.result is None:
                self._solve()

    async def _save(self) -> None:
        """Save whenever something changed; edits meanwhile are saved together, next."""
        failed = False
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._dirty.wait(), LOOK_AGAIN)
            self._dirty.clear()
            try:
                if self._unsaved:
                    await self._write(failed)
                elif self.store.stamp(self.name) not in (None, self._stamp):
                    raise ChangedElsewhere
            except ChangedElsewhere:
                await self._merge()
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                text = (
                    f"Strokes cannot be saved: {reason} ({self.store.state}). They are kept in "
                    "this browser; export them, or make the folder writable."
                )
                self._broadcast({"type": "unsaved", "text": text})
                failed = True
            else:
                failed = False

    async def _write(self, again: bool) -> None:
        edits, state = list(self._unsaved), self.document.to_json()
        self._stamp = await asyncio.to_thread(self.store.save, self.name, state, self._stamp)
        del self._unsaved[: len(edits)]
        self._broadcast({"type": "saved", "ids": [e["id"] for e in edits], "again": again})

    async def _merge(self) -> None:
        """Take over the strokes of another server, and make the unsaved edits on top."""
        self._stamp = self.store.stamp(self.name)
        theirs, notice = await asyncio.to_thread(self.store.load, self.name, self.picture.shape)
        if notice is None:
            for edit in self._unsaved:
                with suppress(ValueError):  # such as a stroke of a label that was removed there
                    theirs.apply(edit)
            theirs.revision += self.document.revision + 1
            self.document = theirs
            self._solve()
            merged = {"type": "edit", "edit": {"kind": "merge"}, "revision": theirs.revision}
            self._broadcast(merged)  # the tabs then ask for the whole document
        text = notice or "Another densecrf app works on this image: its strokes are shown as well."
        self._broadcast({"type": "message", "level": "note", "text": text})
        if self._unsaved:
            self._dirty.set()

    async def keep_labels(self) -> None:
        """Write the label PNG beside the strokes, where the last answer is not there yet."""
        answer = self.live.labels()
        if answer is None or answer[0] != self._asked:
            return
        state = answer[0], list(self.document.labels)
        if state == self._kept:
            return
        palette = self.document.palette

        def save() -> None:
            self.store.save_labels(self.name, self.picture.enlarged(answer[1]), palette)

        with suppress(OSError, ValueError):  # as for the strokes
            await asyncio.to_thread(save)
            self._kept = state
            self._broadcast({"type": "labelled", "revision": state[0]})

    async def export(self, kind: str, needs_result: bool) -> tuple[str, bytes]:
        """Return the name and bytes of an export, solved from the strokes alone."""
        document = Document.from_json(self.document.to_json(), self.name, self.picture.shape)
        document.revision = self.document.revision
        if self.settled is None or self.settled.snapshot.revision != document.revision:
            self.settled = await asyncio.to_thread(self._final, document)
        final = self.settled
        if needs_result and final.result is None:
            solve = self.live.settled
            final.result = await asyncio.to_thread(solve, final.snapshot, final.energies)
        probs = self.store.probs(self.name)
        export = Export(document, final.energies, final.snapshot, final.result, probs)
        return export.name(kind), await asyncio.to_thread(export.make, kind)

    def _final(self, document: Document) -> "Exported":
        """Return the export: of a reduced image, where memory allows, its full size."""
        picture = self.picture
        needed = prod(picture.full) * (BYTES_A_PIXEL + BYTES_A_LABEL * len(document.labels))
        if picture.factor == 1 or picture.depth or needed > (physical_memory() or 2**32) / 2:
            return Exported(Snapshot.of(document), self.live.energies)
        full = picture.at_full_size()
        snapshot = Snapshot.enlarged(document, picture.factor, full.full)
        file = self.live.energies.file
        return Exported(snapshot, self.store.energies(self.name, full, file))

    async def close(self) -> None:
        """Save unsaved edits and end the threads."""
        self._saving.cancel()
        if self._unsaved:
            with suppress(OSError, ValueError):
                try:
                    await self._write(again=False)
                except ChangedElsewhere:
                    await self._merge()
                    await self._write(again=False)
        await self.keep_labels()
        await asyncio.to_thread(self.live.close)


class Rooms:
    """The open images by name; those that no tab shows are closed but for the last few."""

    def __init__(self, store: ImageFolder, file: Parameters | None = None) -> None:
        self.store, self.file = store, file
        self._open: dict[str, Room] = {}
        self._opening = asyncio.Lock()

    async def get(self, name: str) -> Room:
        """Return an image's room; ValueError or OSError where it cannot be opened."""
        async with self._opening:
            room = self._open.pop(name, None)
            if room is None:
                picture = await asyncio.to_thread(self.store.read, name)
                make = self.store.energies
                energies = await asyncio.to_thread(make, name, picture, self.file)
                room = Room(self.store, name, energies)
            self._open[name] = room  # the last used comes last
            idle = [
                key for key, each in self._open.items() if not each.connections and each != room
            ]
            for key in idle[: max(0, len(idle) - IDLE_ROOMS)]:
                await self._open.pop(key).close()
            return room

    async def close(self) -> None:
        """Close all of them."""
        for room in self._open.values():
            await room.close()
        self._open.clear()
