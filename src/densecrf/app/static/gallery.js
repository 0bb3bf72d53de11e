// The folder at a glance: thumbnails by status, by keyboard alone; masks in, all labels out.

const $ = (id) => document.getElementById(id);
const NAMES = { todo: "to do", doubtful: "doubtful", done: "done" };

export class Gallery {
  // `files` has the list of images; `on`: open(name), error(text), note(text).
  constructor(files, on) {
    this.files = files;
    this.on = on;
    this.filter = "all";
    $("folder").addEventListener("click", () => this.toggle());
    $("gallery-close").addEventListener("click", () => this.hide());
    for (const button of document.querySelectorAll("[data-filter]")) {
      button.addEventListener("click", () => this.show(button.dataset.filter));
    }
    $("gallery").addEventListener("keydown", (event) => this.#key(event));
    $("import-masks").addEventListener("click", () => $("masks").click());
    $("masks").addEventListener("change", () => this.#import([...$("masks").files]));
  }

  get open() {
    return !$("gallery").hidden;
  }

  toggle() {
    if (this.open) this.hide();
    else this.show(this.filter);
  }

  hide() {
    $("gallery").hidden = true;
    $("canvas").focus({ preventScroll: true });
  }

  async show(filter) {
    this.filter = filter;
    await this.files.refresh();
    const { list } = this.files;
    const count = (status) => list.filter((each) => status === "all" || each.status === status).length;
    for (const button of document.querySelectorAll("[data-filter]")) {
      const { filter: status } = button.dataset;
      button.textContent = `${status === "all" ? "all" : NAMES[status]} ${count(status)}`;
      button.setAttribute("aria-pressed", String(status === filter));
    }
    const shown = list.filter(({ status }) => filter === "all" || status === filter);
    $("tiles").replaceChildren(...shown.map((each) => this.#tile(each)));
    $("no-tiles").hidden = shown.length > 0;
    $("gallery").hidden = false;
    const current = [...$("tiles").children].find(({ dataset }) => dataset.name === this.files.current);
    (current ?? $("tiles").firstElementChild ?? $("gallery-close")).focus();
  }

  #tile({ name, status, strokes }) {
    const tile = document.createElement("button");
    tile.className = "tile";
    tile.dataset.name = name;
    tile.dataset.status = status;
    const picture = Object.assign(document.createElement("img"), { loading: "lazy", alt: "", src: `thumbnail?name=${encodeURIComponent(name)}` });
    const title = Object.assign(document.createElement("span"), { className: "tile-name", textContent: name });
    const drawn = strokes ? `, ${strokes} stroke${strokes === 1 ? "" : "s"}` : "";
    const state = Object.assign(document.createElement("span"), { className: "tile-state", textContent: `${NAMES[status]}${drawn}` });
    tile.append(picture, title, state);
    tile.addEventListener("click", () => {
      this.hide();
      this.on.open(name);
    });
    return tile;
  }

  #key(event) {
    if (event.key === "Escape") this.hide();
    const tiles = [...$("tiles").children];
    const at = tiles.indexOf(document.activeElement);
    if (at < 0) return;
    const across = tiles.filter(({ offsetTop }) => offsetTop === tiles[0].offsetTop).length;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
    const to = { Home: 0, End: tiles.length - 1 }[event.key] ?? at + (by ?? 0);
    if (to === at || !tiles[to]) return;
    tiles[to].focus();
    event.preventDefault();
  }

  async #import(masks) {
    let done = 0;
    for (const mask of masks) {
      const answer = await fetch(`mask?name=${encodeURIComponent(mask.name)}`, { method: "POST", body: mask });
      const { error } = await answer.json().catch(() => ({ error: `${mask.name}: could not be sent` }));
      if (error) this.on.error(error);
      else done += 1;
    }
    $("masks").value = "";
    if (done) this.on.note(`${done} mask${done === 1 ? "" : "s"} imported: draw strokes to correct them.`);
    await this.show(this.filter);
  }
}
