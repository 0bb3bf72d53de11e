// Moving through a volume: its slices and its three planes.

import { Plane } from "./planes.js";

const $ = (id) => document.getElementById(id);

export class Slices {
  // `show(image, plane)` is called when another plane has come.
  constructor(show) {
    this.show = show;
    this.plane = null;
    $("slice").addEventListener("input", () => this.go(Number($("slice").value)));
    $("plane").addEventListener("change", () => this.turn(Number($("plane").value)));
  }

  // The first plane of another image; `picture` says how its file is read.
  async begin(name, sides, picture) {
    Object.assign(this, { name, sides, distances: picture.distances ?? [1, 1, 1] });
    this.version = JSON.stringify(picture.reading);
    this.places = [0, 0, 0]; // the slice of each plane
    const names = picture.planes ?? [];
    $("plane").replaceChildren(...names.map((text, value) => Object.assign(document.createElement("option"), { value, textContent: text })));
    $("slices").hidden = sides[0] === 1;
    this.plane = new Plane(sides, 0, 0, this.distances);
    const image = await this.#image(this.plane);
    this.#mark();
    return image;
  }

  // The newest wish counts, whichever picture comes first.
  async go(slice, axis = this.plane?.axis) {
    if (!this.plane || slice < 0 || slice >= this.sides[axis]) return;
    const wish = new Plane(this.sides, axis, slice, this.distances);
    this.wish = wish;
    $("slice").value = slice;
    const image = await this.#image(wish);
    if (this.wish !== wish || wish.sides !== this.sides) return;
    this.places[axis] = slice;
    this.plane = wish;
    this.#mark();
    this.show(image, wish);
  }

  turn(axis = (this.plane?.axis + 1) % 3) {
    if (!this.plane || this.sides[0] === 1) return undefined;
    return this.go(this.places[axis] || Math.floor(this.sides[axis] / 2), axis);
  }

  // The file is read in another way.
  reread(picture) {
    this.version = JSON.stringify(picture.reading);
    return this.go(this.plane.slice);
  }

  async #image({ slice, axis }) {
    const image = new Image();
    const query = new URLSearchParams({ name: this.name, slice, axis, reading: this.version });
    image.src = `image?${query}`;
    await image.decode();
    return image;
  }

  #mark() {
    const { axis, slice, sides } = this.plane;
    Object.assign($("slice"), { max: sides[axis] - 1, value: slice });
    $("plane").value = axis;
    $("slice-shown").textContent = `${slice + 1} of ${sides[axis]}`;
    Object.assign(document.body.dataset, { slice, axis });
  }
}
