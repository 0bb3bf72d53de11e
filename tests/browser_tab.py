"""What a tab of the browser sends to the app's server and receives."""

import itertools
import json
import zlib

import numpy as np

from densecrf.app.security import new_token

PORT = 8650
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
TOKEN = new_token()
IDS = itertools.count()


def own(path):
    return f"/{TOKEN}/{path}"


def brush(label, *points, size=5):
    stroke = {"tool": "brush", "label": label, "size": size, "points": [list(p) for p in points]}
    return {"type": "edit", "edit": {"id": f"s{next(IDS)}", "kind": "stroke", "stroke": stroke}}


STROKES = (
    brush(0, (10, 10), (110, 12)),
    brush(1, (10, 85), (110, 84)),
    brush(2, (60, 48), (70, 50)),
)


class Tab:
    """One WebSocket, with the messages that came."""

    def __init__(self, socket, image="first.png"):
        self.socket = socket
        socket.send_json({"type": "open", "image": image})
        self.document = {}
        while self.document.get("image") != image:
            self.opened = self.until("document")
            self.document = self.opened["document"]

    def until(self, kind, stage=None):
        """Return the first message of a kind, and of a stage; the planes with label maps."""
        while True:
            message = self.socket.receive()
            if message.get("bytes") is not None:
                if kind == "answer" and self.document:
                    head, planes = unpacked(message["bytes"], self.document)
                    if stage in (None, head["stage"]):
                        return head, planes
            else:
                value = json.loads(message["text"])
                if value["type"] == kind:
                    return value

    def draw(self, *edits):
        for edit in edits:
            self.socket.send_json(edit)


def unpacked(data, document):
    """Return the head of an answer and its planes, in the size that the document is drawn in."""
    length = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + length])
    planes = np.frombuffer(zlib.decompress(data[4 + length :]), np.uint8)
    return head, planes.reshape(head["planes"], document["height"], document["width"])


def connected(client, **headers):
    return client.websocket_connect(own("live"), headers={"host": HOST, "origin": ORIGIN} | headers)
