// What an annotator needs to know: whether the answer is up to date, and where it is unsure.

const $ = (id) => document.getElementById(id);

const STATES = {
  closed: ["no image", ""],
  opening: ["opening …", "work"],
  broken: ["cannot be opened", "bad"],
  empty: ["no strokes yet", ""],
  one: ["one label so far", ""],
  working: ["working …", "work"],
  current: ["up to date", "done"],
  lost: ["not connected", "bad"],
};

export class Headline {
  // `jump`: shows a region of the image.
  constructor(jump) {
    this.jump = jump;
    this.regions = [];
    this.at = -1;
    this.before = "closed";
    $("unsure").addEventListener("click", () => this.next());
  }

  set(state) {
    if (document.body.dataset.state !== "lost") this.before = state;
    this.#show(state);
    if (state !== "current") this.unsure(null);
  }

  connected(yes) {
    if (!yes) this.#show("lost");
    else if (document.body.dataset.state === "lost") this.#show(this.before);
  }

  #show(state) {
    const [text, kind] = STATES[state];
    document.body.dataset.state = state;
    $("state").textContent = text;
    $("state").className = `badge ${kind}`;
  }

  // Regions as boxes in pixels; null while they are not known.
  unsure(regions) {
    this.regions = regions ?? [];
    this.at = -1;
    $("unsure").hidden = regions === null;
    $("unsure").disabled = !this.regions.length;
    this.#count();
  }

  next() {
    if (!this.regions.length) return;
    this.at = (this.at + 1) % this.regions.length;
    this.#count();
    this.jump(this.regions[this.at]);
  }

  #count() {
    const number = this.regions.length;
    const all = `${number || "no"} unsure region${number === 1 ? "" : "s"}`;
    $("unsure").textContent = this.at < 0 ? all : `unsure region ${this.at + 1} of ${number}`;
    document.body.dataset.unsure = number;
  }
}
