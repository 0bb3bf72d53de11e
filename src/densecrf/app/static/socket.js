// The connection: edits are kept, also across a reload, until the server has saved them.

import { unpack } from "./frames.js";

const RETRY = [200, 500, 1000, 2000, 4000];

export class Socket {
  // `on`: message(object), answer(head, planes), state(connected).
  constructor(on) {
    this.on = on;
    this.image = null;
    this.pending = [];
    this.failures = 0;
    this.counter = 0;
    this.turn = Promise.resolve();
    this.connect();
  }

  get key() {
    return `densecrf:${this.folder}:${this.image}`;
  }

  connect() {
    const address = new URL("live", location.href);
    address.protocol = "ws:";
    this.socket = new WebSocket(address);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => {
      this.failures = 0;
      this.on.state(true);
      if (this.image) this.open(this.image, this.folder);
    };
    this.socket.onmessage = (event) => {
      this.turn = this.turn.then(() => this.#receive(event.data)); // in the order of arrival
    };
    this.socket.onclose = () => {
      this.on.state(false);
      setTimeout(() => this.connect(), RETRY[Math.min(this.failures++, RETRY.length - 1)]);
    };
  }

  open(image, folder) {
    this.image = image;
    this.folder = folder;
    this.pending = JSON.parse(localStorage.getItem(this.key) ?? "[]");
    this.#send({ type: "open", image });
    for (const edit of this.pending) this.#send({ type: "edit", edit });
    if (this.pending.length) this.#send({ type: "sync" });
  }

  edit(kind, values) {
    const edit = { id: crypto.randomUUID?.() ?? `${Date.now()}-${this.counter++}`, kind, ...values };
    this.pending.push(edit);
    this.#keep();
    this.#send({ type: "edit", edit });
  }

  // Ask for the values of the file to be read in another way.
  reread(reading) {
    this.#send({ type: "reading", reading });
  }

  sync() {
    this.#send({ type: "sync" });
  }

  #drop(ids) {
    const gone = new Set(ids);
    this.pending = this.pending.filter((edit) => !gone.has(edit.id));
    this.#keep();
  }

  #keep() {
    try {
      if (this.pending.length) localStorage.setItem(this.key, JSON.stringify(this.pending));
      else localStorage.removeItem(this.key);
    } catch {
      // no room, or private browsing: the tab has them as long as it lives
    }
  }

  #send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  async #receive(data) {
    if (typeof data !== "string") {
      const { head, planes } = await unpack(data);
      this.on.answer(head, planes);
      return;
    }
    const message = JSON.parse(data);
    if (message.type === "saved") this.#drop(message.ids);
    if (message.type === "refused") this.#drop([message.id]);
    await this.on.message(message); // a new document first loads its image
  }
}
