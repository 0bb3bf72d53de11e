// The folder's classes: choose, rename, recolour, lock, add; reorder, merge and delete in a dialog.

import { FIRST_OBJECT } from "./overlay.js";

const $ = (id) => document.getElementById(id);
const LOCK = "M7 11V8a5 5 0 0 1 10 0v3M6 11h12v9H6z";
const OPEN = "M7 11V8a5 5 0 0 1 9.500-2M6 11h12v9H6z";
const MORE = "M5 12v.01M12 12v.01M19 12v.01";
const SVG = "http://www.w3.org/2000/svg";

// Colours that colour-blind people can tell apart (Okabe and Ito), then hues a golden section apart.
const SAFE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];

export class Labels {
  // `on`: change({ labels, merged, background }), choose(index), object(index, place), indivisible(reason).
  constructor(on, most) {
    this.on = on;
    this.most = most;
    this.list = [];
    this.active = 0;
    this.background = false;
    this.objects = []; // the class of each further object in this image
    this.object = null; // the place in `objects` of the one that is drawn
    this.edited = 0; // the label of the dialog
    this.indivisible = ""; // why classes have no further objects
    $("add-label").addEventListener("click", () => this.add());
    $("add-object").addEventListener("click", () => this.addObject());
    $("background").addEventListener("change", () => this.#change(this.list, {}, $("background").checked));
    this.#dialog();
  }

  set(list, background, objects = this.objects) {
    const now = JSON.stringify([list, background, objects]);
    if (now === this.known) return; // a name may be being edited: its row stays
    this.known = now;
    if (objects[this.object] !== this.objects[this.object]) this.object = null;
    this.objects = objects;
    const chosen = this.list[this.active]?.uid;
    const at = list.findIndex(({ uid }) => uid === chosen);
    this.list = list;
    this.background = background;
    this.active = at < 0 ? Math.min(this.active, list.length - 1) : at;
    this.render();
  }

  // The label that strokes have.
  get value() {
    return this.object === null ? this.active : FIRST_OBJECT + this.object;
  }

  classOf(value) {
    return value < FIRST_OBJECT ? value : this.objects[value - FIRST_OBJECT];
  }

  // All labels of the classes that are locked.
  locked() {
    const values = [...this.list.keys(), ...this.objects.map((_, at) => FIRST_OBJECT + at)];
    return values.filter((value) => this.list[this.classOf(value)]?.locked);
  }

  // Begin another object of the chosen class; null where classes alone are told apart.
  addObject() {
    if (this.indivisible) {
      this.on.indivisible(this.indivisible);
      return null;
    }
    this.objects = [...this.objects, this.active];
    this.object = this.objects.length - 1;
    this.known = JSON.stringify([this.list, this.background, this.objects]);
    this.on.object(this.active, this.object);
    this.render();
    return this.value;
  }

  choose(index, object = null) {
    if (index < 0 || index >= this.list.length) return;
    const chips = this.object !== object || object !== null;
    this.active = index;
    this.object = object;
    if (chips) this.render();
    [...$("labels").children].forEach((row, at) => {
      row.classList.toggle("active", at === index);
      if (at === index) row.scrollIntoView({ block: "nearest" });
    });
    this.on.choose(index);
  }

  // The label that a key chooses, or -1.
  byKey(key) {
    const own = this.list.findIndex((label) => label.key === key);
    if (own >= 0) return own;
    const at = /^[1-9]$/.test(key) ? Number(key) - 1 : -1;
    return at < this.list.length && !this.list[at]?.key ? at : -1;
  }

  add() {
    if (this.list.length >= this.most) return;
    const at = this.list.length;
    const color = SAFE.find((each) => !this.list.some((label) => label.color === each)) ?? hue(at);
    const label = { name: this.#unused(`label ${at + 1}`), color, locked: false, things: false, key: "", uid: identity() };
    this.#change([...this.list, label]);
    this.choose(at);
  }

  render() {
    $("labels").replaceChildren(...this.list.map((label, at) => this.#row(label, at)));
    $("add-label").disabled = this.list.length >= this.most;
    $("background").checked = this.background;
    $("add-object").title = this.indivisible || `Another ${this.list[this.active]?.name ?? "object"} (A)`;
    $("background-name").textContent = `“${this.list[0]?.name ?? ""}” is background`;
  }

  #unused(name) {
    const taken = (text) => this.list.some((label) => label.name === text);
    let number = 2;
    if (!taken(name)) return name;
    while (taken(`${name} (${number})`)) number += 1;
    return `${name} (${number})`;
  }

  #change(list, merged = {}, background = this.background) {
    this.set(list, background);
    this.on.change({ labels: list, merged, background });
  }

  #set(at, values) {
    this.#change(this.list.map((label, i) => (i === at ? { ...label, ...values } : label)));
  }

  #rename(at, text) {
    const name = text.trim();
    if (name && name !== this.list[at].name) this.#set(at, { name: this.#unused(name) });
    else this.render();
  }

  #row(label, at) {
    const row = document.createElement("li");
    row.classList.toggle("active", at === this.active);
    row.addEventListener("pointerdown", () => at !== this.active && this.choose(at));
    const color = Object.assign(document.createElement("input"), { type: "color", value: label.color, title: "Colour" });
    color.setAttribute("aria-label", `Colour of ${label.name}`);
    color.addEventListener("change", () => this.#set(at, { color: color.value }));
    const name = Object.assign(document.createElement("input"), { type: "text", value: label.name, maxLength: 80 });
    name.setAttribute("aria-label", `Name of label ${at}`);
    name.addEventListener("change", () => this.#rename(at, name.value));
    name.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === "Escape") name.blur();
      event.stopPropagation();
    });
    const lock = button(label.locked ? LOCK : OPEN, `Lock ${label.name}`);
    lock.title = label.locked ? "Locked: strokes leave it as it is" : "Lock: strokes leave it as it is";
    lock.setAttribute("aria-pressed", String(label.locked));
    lock.addEventListener("click", () => this.#set(at, { locked: !label.locked }));
    const more = button(MORE, `Change ${label.name}`);
    more.setAttribute("aria-haspopup", "dialog");
    more.title = "Order, key, merge, delete";
    more.addEventListener("click", () => this.#edit(at));
    const key = document.createElement("kbd");
    key.textContent = label.key || (at < 9 ? at + 1 : "");
    row.append(color, name, key, lock, more);
    const places = this.objects.flatMap((label, place) => (label === at ? [place] : []));
    if (places.length) row.append(this.#chips(at, [null, ...places]));
    return row;
  }

  #chips(at, places) {
    const chips = Object.assign(document.createElement("div"), { className: "chips" });
    places.forEach((place, number) => {
      const chip = Object.assign(document.createElement("button"), { className: "chip", textContent: number + 1 });
      chip.setAttribute("aria-label", `${this.list[at].name} ${number + 1}`);
      chip.setAttribute("aria-pressed", String(at === this.active && place === this.object));
      chip.addEventListener("pointerdown", (event) => event.stopPropagation());
      chip.addEventListener("click", () => this.choose(at, place));
      chips.append(chip);
    });
    return chips;
  }

  #edit(at) {
    this.edited = at;
    const label = this.list[at];
    $("label-title").textContent = label.name;
    $("label-number").textContent = `Number ${at} in every export.`;
    $("label-key").value = label.key;
    $("label-things").checked = label.things;
    const others = this.list.filter((_, i) => i !== at);
    $("label-into").replaceChildren(
      ...others.map(({ name, uid }) => Object.assign(document.createElement("option"), { value: uid, textContent: name })),
    );
    $("label-up").disabled = at === 0;
    $("label-down").disabled = at === this.list.length - 1;
    for (const id of ["label-merge", "label-delete"]) $(id).disabled = this.list.length <= 2;
    if (!$("label-dialog").open) $("label-dialog").showModal();
  }

  #dialog() {
    const move = (by) => {
      const list = this.list.slice();
      const [label] = list.splice(this.edited, 1);
      list.splice(this.edited + by, 0, label);
      this.#change(list);
      this.#edit(this.edited + by);
    };
    const leave = (into) => {
      const { uid } = this.list[this.edited];
      $("label-dialog").close();
      this.#change(this.list.filter((label) => label.uid !== uid), { [uid]: into });
    };
    $("label-up").addEventListener("click", () => move(-1));
    $("label-down").addEventListener("click", () => move(1));
    $("label-merge").addEventListener("click", () => leave($("label-into").value));
    $("label-delete").addEventListener("click", () => {
      const { name } = this.list[this.edited];
      if (window.confirm(`Delete “${name}” and its strokes in every image of the folder?`)) leave("");
    });
    $("label-things").addEventListener("change", () => this.#set(this.edited, { things: $("label-things").checked }));
    $("label-key").addEventListener("input", () => {
      const key = $("label-key").value.trim().slice(-1).toLowerCase();
      $("label-key").value = key;
      if (!key || !this.list.some((label, i) => i !== this.edited && label.key === key)) this.#set(this.edited, { key });
    });
  }
}

function button(shape, name) {
  const made = document.createElement("button");
  made.className = "icon";
  made.setAttribute("aria-label", name);
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", "0 0 24 24");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", shape);
  picture.append(path);
  made.append(picture);
  return made;
}

function identity() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function hue(at) {
  const h = ((at * 0.618034) % 1) * 6;
  const f = (n) => Math.round(255 * (0.85 - 0.6 * Math.max(0, Math.min((n + h) % 6, 4 - ((n + h) % 6), 1))));
  return `#${[5, 3, 1].map((n) => f(n).toString(16).padStart(2, "0")).join("")}`;
}
