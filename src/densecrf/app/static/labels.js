// The list of labels: choose, rename, recolour, lock, add.

const $ = (id) => document.getElementById(id);
const LOCK = "M7 11V8a5 5 0 0 1 10 0v3M6 11h12v9H6z";
const OPEN = "M7 11V8a5 5 0 0 1 9.500-2M6 11h12v9H6z";
const SVG = "http://www.w3.org/2000/svg";

// Colours that colour-blind people can tell apart (Okabe and Ito), then hues a golden section apart.
const SAFE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];

export class Labels {
  // `on`: change(labels), choose(index).
  constructor(on, most) {
    this.on = on;
    this.most = most;
    this.list = [];
    this.active = 0;
    this.highest = () => -1;
    $("add-label").addEventListener("click", () => this.add());
    $("remove-label").addEventListener("click", () => this.remove());
  }

  set(list) {
    this.list = list;
    this.active = Math.min(this.active, list.length - 1);
    this.render();
  }

  choose(index) {
    if (index < 0 || index >= this.list.length) return;
    this.active = index;
    [...$("labels").children].forEach((row, at) => row.classList.toggle("active", at === index));
    this.on.choose(index);
  }

  add() {
    if (this.list.length >= this.most) return;
    const at = this.list.length;
    const color = SAFE.find((each) => !this.list.some((label) => label.color === each)) ?? hue(at);
    this.#change([...this.list, { name: `label ${at + 1}`, color, locked: false }]);
    this.choose(at);
  }

  remove() {
    this.#change(this.list.slice(0, -1));
  }

  render() {
    const rows = this.list.map((label, at) => this.#row(label, at));
    $("labels").replaceChildren(...rows);
    this.refresh();
  }

  refresh() {
    $("add-label").disabled = this.list.length >= this.most;
    $("remove-label").disabled = this.list.length <= Math.max(2, this.highest() + 1);
  }

  #change(list) {
    this.list = list;
    this.active = Math.min(this.active, list.length - 1);
    this.render();
    this.on.change(list);
  }

  #set(at, values) {
    this.#change(this.list.map((label, i) => (i === at ? { ...label, ...values } : label)));
  }

  #row(label, at) {
    const row = document.createElement("li");
    row.classList.toggle("active", at === this.active);
    row.addEventListener("pointerdown", () => this.choose(at));
    const color = Object.assign(document.createElement("input"), { type: "color", value: label.color, title: "Colour" });
    color.addEventListener("change", () => this.#set(at, { color: color.value }));
    const name = Object.assign(document.createElement("input"), { type: "text", value: label.name, maxLength: 80 });
    name.setAttribute("aria-label", `Name of label ${at + 1}`);
    name.addEventListener("change", () => this.#set(at, { name: name.value.trim() || `label ${at + 1}` }));
    name.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === "Escape") name.blur();
      event.stopPropagation();
    });
    const lock = document.createElement("button");
    lock.className = "icon";
    lock.title = label.locked ? "Locked: strokes leave it as it is" : "Lock";
    lock.setAttribute("aria-label", `Lock label ${at + 1}`);
    lock.setAttribute("aria-pressed", String(label.locked));
    const picture = document.createElementNS(SVG, "svg");
    picture.setAttribute("viewBox", "0 0 24 24");
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", label.locked ? LOCK : OPEN);
    picture.append(path);
    lock.append(picture);
    lock.addEventListener("click", () => this.#set(at, { locked: !label.locked }));
    const key = document.createElement("kbd");
    key.textContent = at < 9 ? at + 1 : "";
    row.append(color, name, lock, key);
    return row;
  }
}

function hue(at) {
  const h = ((at * 0.618034) % 1) * 6;
  const f = (n) => Math.round(255 * (0.85 - 0.6 * Math.max(0, Math.min((n + h) % 6, 4 - ((n + h) % 6), 1))));
  return `#${[5, 3, 1].map((n) => f(n).toString(16).padStart(2, "0")).join("")}`;
}
