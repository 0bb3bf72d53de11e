"""Open images: edits in, saving, answers out to every tab that shows the image.

Everything here runs on the event loop; only solving and writing files happen in threads.
"""

import asyncio
import json
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.app.dataset import Labelled
from densecrf.app.document import Document, Label, renumber
from densecrf.app.energy import Energies, Snapshot
from densecrf.app.exports import Export
from densecrf.app.live import Live
from densecrf.app.project import Project
from densecrf.app.store import ChangedElsewhere, ImageFolder
from densecrf.app.strokes import SLOTS, Stroke
from densecrf.model.parameters import Parameters
from densecrf.validation import physical_memory

if TYPE_CHECKING:
    from densecrf.solvers.result import Result

__all__ = ["Connection", "Room", "Rooms"]

LOOK_AGAIN = 2.0  # seconds until a save is tried again, or another server's is looked for
IDLE_ROOMS = 3  # images without a tab that stay open
BYTES_A_PIXEL, BYTES_A_LABEL = 300, 60  # of a solve, rounded up: docs/benchmarks.md
NO_OBJECTS = (
    "Scores and masks tell classes apart, not objects: in the menu of the label (…), choose that "
    "each separate region is an object."
)
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
    labels: list[int]  # of the document, for those of the snapshot
    reduced: bool = False  # as was asked for
    result: "Result | None" = None


def refusal(edit: Any, error: Exception) -> Message:
    """Return the answer to an edit that cannot be made."""
    given = edit.get("id") if isinstance(edit, dict) else None
    return {"type": "refused", "id": given, "text": str(error)}


class Room:
    """One open image, kept in a store by its name, with what makes its energies."""

    def __init__(self, store: ImageFolder, name: str, energies: Energies) -> None:
        self.store, self.name, self.picture = store, name, energies.picture
        self.energies, self.project = energies, store.project()
        self._stamp = store.stamp(name)
        self.document, self.notice = store.load(name, self.picture.shape)
        self.connections: set[Connection] = set()
        self.last: bytes | None = None
        self.unsure: dict[str, Any] | None = None  # the message about the last answer
        self.settled: Exported | None = None
        self._loop = asyncio.get_running_loop()
        self._kept: tuple[int, list[Label]] | None = None  # the state of the label PNG on disk
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsaved: list[dict[str, Any]] = []
        self._dirty = asyncio.Event()
        self._saving = asyncio.create_task(self._save())
        self._begin()

    def _begin(self) -> None:
        """Solve in a new thread; messages of an earlier one are not passed on any more."""
        self._number = number = getattr(self, "_number", 0) + 1
        self.last, self.unsure = None, None
        self.live = Live(self.energies, lambda message: self._from_thread(message, number))
        self._solve()

    def _solve(self) -> None:
        self._asked = self.document.revision
        self.live.ask(Snapshot.of(self.document))

    def _from_thread(self, message: Message, number: int) -> None:
        def pass_on() -> None:
            if number == self._number:
                self._broadcast(message)

        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(pass_on)

    def _broadcast(self, message: Message, but: Connection | None = None) -> None:
        if isinstance(message, bytes):
            self.last = message
        elif message["type"] == "unsure":
            self.unsure = message
        elif message["type"] == "rest":
            self._later(self.keep_labels())
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
        if self.unsure is not None and self.unsure["revision"] == self._asked:
            connection.put(self.unsure)

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
                "picture": self.picture.about(),
                "notice": self.notice,
                "background": self.project.background,
                "indivisible": "" if self.energies.unary is None else NO_OBJECTS,
            }
        )

    def edit(self, connection: Connection, edit: Any) -> None:
        """Make an edit of a tab's, pass it on to the others, save and solve."""
        try:
            edit = self._renumbered(edit)
            self._check_known(edit)
            changed = self.document.apply(edit)
        except ValueError as error:
            connection.put(refusal(edit, error))
            return
        self._unsaved.append(edit)
        self._dirty.set()
        revision = self.document.revision
        connection.put({"type": "applied", "id": edit["id"], "revision": revision})
        if changed:
            self._broadcast({"type": "edit", "edit": edit, "revision": revision}, but=connection)
            if edit["kind"] != "status":
                self._solve()

    def _renumbered(self, edit: Any) -> Any:
        """Return a stroke with the present numbers of the labels that the tab has listed."""
        if not isinstance(edit, dict) or edit.get("kind") != "stroke" or "labels" not in edit:
            return edit
        stroke, listed = edit.get("stroke"), edit["labels"]
        if not isinstance(stroke, dict) or not isinstance(listed, list):
            raise ValueError("a stroke comes with the list of labels")
        numbers = self.project.numbers([Label("", "", uid=str(uid)) for uid in listed])
        if numbers == list(range(len(numbers))):
            return edit
        parsed = Stroke.parse(stroke)
        objects: dict[int, int | None] = {slot: slot for slot in SLOTS}
        renumbered = renumber([parsed], objects | dict(enumerate(numbers)))
        if not renumbered:
            raise ValueError("the label of this stroke has been deleted")
        return {**edit, "stroke": renumbered[0].to_json()}

    def _check_known(self, edit: Any) -> None:
        """Refuse a stroke of a label that the network's output has no scores of."""
        unary = self.energies.unary
        if unary is not None and isinstance(edit, dict) and edit.get("kind") == "object":
            raise ValueError(NO_OBJECTS)
        stroke = edit.get("stroke") if isinstance(edit, dict) else None
        if unary is None or not isinstance(stroke, dict):
            return
        if Stroke.parse(stroke).label >= len(unary):
            raise ValueError(f"the network's output has {len(unary)} labels")

    def adopt(self, project: Project) -> None:
        """Take the folder's classes, where they have changed, and show them to every tab."""
        if project == self.project:
            return
        before, self.project = self.document.labels, project
        moved = self.document.relabel(project.labels, project.numbers(before))
        if self.energies.start is not None and (moved or len(before) != len(project.labels)):
            make, file = self.store.energies, self.energies.file
            self.begin_anew(make(self.name, self.picture, file))
        elif moved:
            self.begin_anew(self.energies)
        elif len(before) != len(project.labels):
            self._solve()
        for connection in self.connections:
            self.send_document(connection)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(task := self._loop.create_task(work))
        task.add_done_callback(self._tasks.discard)

    async def _save(self) -> None:
        """Save whenever something changed; edits meanwhile are saved together, next."""
        failed = False
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._dirty.wait(), LOOK_AGAIN)
            self._dirty.clear()
            try:
                with suppress(ValueError):  # strokes are saved, whatever became of the classes
                    self.adopt(self.store.project())
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
        if self._kept != (answer[0], self.document.labels):
            await self._keep(self.document, self.picture.enlarged(answer[1]))

    async def _keep(
        self, document: Document, slots: npt.NDArray[np.uint8], *, finer: bool = False
    ) -> None:
        """Write labels at the size of the file, but none over those that were solved `finer`."""
        revision, state = document.revision, (document.revision, list(document.labels))
        about = {"digest": self.store.digest(self.name, document), "finer": finer}
        if not finer and self.store.about_labels(self.name) == {**about, "finer": True}:
            self._kept = state
            return
        objects = slots if document.objects else None
        given = document.classes[slots], document.palette, objects, about, self.picture
        with suppress(OSError, ValueError):  # as for the strokes
            await asyncio.to_thread(self.store.save_labels, self.name, *given)
            self._kept = state
            self._broadcast({"type": "labelled", "revision": revision})

    async def export(
        self, kind: str, needs_result: bool, reduced: bool = False
    ) -> tuple[str, bytes]:
        """Return the name and bytes of an export, solved from the strokes alone.

        With `reduced`, a large image is solved at the size that it is worked on.
        """
        export = await self._exported(needs_result, reduced)
        return export.name(kind), await asyncio.to_thread(export.make, kind)

    async def labelled(self) -> Labelled:
        """Return the labels at the size of the file: those on disk, or solved from the strokes."""
        document = self.document
        kept = await asyncio.to_thread(self.store.kept_labels, self.name, document)
        if kept is not None:
            return Labelled(self.name, kept, document.classes, document.status)
        if self.picture.depth is not None:
            raise ValueError("a volume is exported by itself")
        return (await self._exported(needs_result=True)).labelled()

    async def _exported(self, needs_result: bool, reduced: bool = False) -> Export:
        document = Document.from_json(self.document.to_json(), self.name, self.picture.shape)
        document.revision = self.document.revision
        final = self.settled
        asked = document.revision, reduced
        if final is None or (final.snapshot.revision, final.reduced) != asked:
            self.settled = final = await asyncio.to_thread(self._final, document, reduced)
        new = needs_result and final.result is None
        if new:
            solve = self.live.settled
            result = await asyncio.to_thread(solve, final.snapshot, final.energies, final.labels)
            final.result = replace(result, crf=None)
            if final.energies is not self.live.energies:
                final.energies.forget()  # large
        probs = self.store.probs(self.name)
        solved = final.energies, final.snapshot, final.result
        export = Export(document, *solved, self.project, final.labels, probs)
        if new and final.energies is not self.live.energies:
            await self._keep(document, export.labelled().slots, finer=True)
        return export

    def _final(self, document: Document, reduced: bool) -> Exported:
        """Return the export: of a reduced image, where memory allows, one that is less so."""
        picture = self.picture
        compact, labels = document.compact()
        available = (physical_memory() or 2**32) // 2
        most = available // (BYTES_A_PIXEL + BYTES_A_LABEL * len(labels))
        finer = picture if reduced else picture.finer(most)
        if finer is picture:
            return Exported(Snapshot.of(compact), self.live.energies, labels, reduced)
        snapshot = Snapshot.enlarged(compact, picture.factor / finer.factor, finer.shape)
        file = self.live.energies.file
        return Exported(snapshot, self.store.energies(self.name, finer, file), labels)

    def begin_anew(self, energies: Energies) -> None:
        """Solve with other energies, such as those of labels to begin with."""
        ended, self.energies, self.settled = self.live, energies, None
        self.document.revision += 1
        self._begin()
        self._later(asyncio.to_thread(ended.close))

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
                if energies.unary is not None:
                    await asyncio.to_thread(self.store.have_labels, len(energies.unary))
                room = Room(self.store, name, energies)
            self._open[name] = room  # the last used comes last
            idle = [
                key for key, each in self._open.items() if not each.connections and each != room
            ]
            for key in idle[: max(0, len(idle) - IDLE_ROOMS)]:
                await self._open.pop(key).close()
            return room

    async def reread(self, name: str, reading: Any) -> None:
        """Read an image in another way; the tabs that show it open it again."""
        await asyncio.to_thread(self.store.choose, name, reading)
        async with self._opening:
            room = self._open.pop(name, None)
            if room is not None:
                await room.close()
                for connection in room.connections:
                    connection.put({"type": "reopen"})

    async def relabel(self, connection: Connection, edit: dict[str, Any]) -> None:
        """Change the folder's classes for a tab, and in every open image."""
        try:
            change = self.store.change_project
            project = await asyncio.to_thread(change, lambda now: now.changed(edit))
        except (ValueError, OSError) as error:
            connection.put(refusal(edit, error))
            return
        for room in self._open.values():
            room.adopt(project)
        connection.put({"type": "saved", "ids": [edit.get("id")], "again": False})

    async def _unlocked(self, name: str) -> Room:
        room = await self.get(name)
        if room.document.status == "done":
            raise ValueError(f"{name} is done: open it again to change it")
        return room

    async def drop(self, name: str, file_name: str, data: bytes) -> None:
        """Let an image begin with the scores or labels of a file, which strokes then correct."""
        room, store = await self._unlocked(name), self.store
        labels = await asyncio.to_thread(store.drop, name, file_name, data, room.picture)
        if labels is not None:
            await self.begin_with(name, labels)
            return
        energies = await asyncio.to_thread(store.energies, name, room.picture, self.file)
        assert energies.unary is not None
        await asyncio.to_thread(store.have_labels, len(energies.unary))
        room.adopt(store.project())
        room.begin_anew(energies)

    async def begin_with(self, name: str, labels: npt.NDArray[Any]) -> None:
        """Let an image begin with labels at the size of its file, which strokes then correct."""
        room = await self._unlocked(name)
        if room.picture.depth or labels.shape != room.picture.full:
            raise ValueError(f"{name}: the labels are not of its size")
        await asyncio.to_thread(self.store.save_start, name, labels)
        make = self.store.energies
        room.begin_anew(await asyncio.to_thread(make, name, room.picture, self.file))

    async def close(self) -> None:
        """Close all of them."""
        for room in self._open.values():
            await room.close()
        self._open.clear()
