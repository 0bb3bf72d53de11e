// Pointers to strokes: mouse, pen and touch; two fingers, the middle button and space move the view.

import { draw } from "./strokes.js";

const DRAGGED = ["line", "box"]; // from where it began to where it is

export class Tools {
  // `hooks`: layer() gives the StrokeLayer, label() and locked() the labels, commit(stroke).
  constructor(view, hooks) {
    this.view = view;
    this.hooks = hooks;
    this.tool = "brush";
    this.size = 9;
    this.space = false;
    this.pointers = new Map();
    this.stroke = null;
    const { canvas } = view;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", (event) => this.#up(event));
    canvas.addEventListener("pointerleave", () => this.#point(null));
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
  }

  cancel() {
    if (!this.stroke) return;
    this.stroke = null;
    this.view.setStrokes(this.hooks.layer().raster);
  }

  #at(event) {
    const bounds = this.view.canvas.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  }

  #point(at) {
    const [x, y] = at ? this.view.toImage(...at) : [0, 0];
    const radius = ["box", "fill"].includes(this.tool) ? 0.5 : this.size / 2;
    this.view.pointer = at && this.tool !== "pan" ? { x, y, radius } : null;
    this.view.draw();
  }

  #down(event) {
    const layer = this.hooks.layer();
    if (!layer) return;
    this.view.canvas.setPointerCapture(event.pointerId);
    const at = this.#at(event);
    this.pointers.set(event.pointerId, at);
    if (this.pointers.size > 1) {
      this.cancel(); // the second finger: it is a pinch
      return;
    }
    this.moving = this.space || event.button === 1 || this.tool === "pan";
    if (this.moving || event.button !== 0) return;
    const point = this.#rounded(this.view.toImage(...at));
    this.stroke = {
      tool: this.tool,
      label: this.tool === "eraser" ? 0 : this.hooks.label(),
      size: this.size,
      points: [point],
      protected: this.hooks.locked(),
      slice: layer.slice,
    };
    this.before = layer.raster.slice();
    this.#show();
  }

  #move(event) {
    const at = this.#at(event);
    const last = this.pointers.get(event.pointerId);
    if (!last) {
      if (this.view.image) this.#point(at);
      return;
    }
    if (this.pointers.size === 2) {
      this.#pinch(event.pointerId, last, at);
    } else if (this.moving) {
      this.view.pan(at[0] - last[0], at[1] - last[1]);
    } else if (this.stroke) {
      const steps = event.getCoalescedEvents?.() ?? [];
      for (const each of steps.length ? steps : [event]) {
        const point = this.#rounded(this.view.toImage(...this.#at(each)));
        if (DRAGGED.includes(this.tool)) this.stroke.points[1] = point;
        else if (this.tool !== "fill") this.stroke.points.push(point);
      }
      this.#show();
      this.#point(at);
    }
    this.pointers.set(event.pointerId, at);
  }

  #up(event) {
    this.pointers.delete(event.pointerId);
    this.moving = false;
    if (!this.stroke) return;
    const stroke = this.stroke;
    this.stroke = null;
    if (event.type === "pointercancel") this.view.setStrokes(this.hooks.layer().raster);
    else this.hooks.commit(stroke);
  }

  #pinch(id, last, at) {
    const [other] = [...this.pointers.entries()].filter(([each]) => each !== id).map(([, place]) => place);
    const apart = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
    const middle = [(at[0] + other[0]) / 2, (at[1] + other[1]) / 2];
    this.view.pan((at[0] - last[0]) / 2, (at[1] - last[1]) / 2);
    this.view.zoom(apart(at, other) / Math.max(1, apart(last, other)), middle);
  }

  #wheel(event) {
    event.preventDefault();
    if (this.view.image) this.view.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), this.#at(event));
  }

  #rounded([x, y]) {
    return [Math.round(100 * x) / 100, Math.round(100 * y) / 100];
  }

  #show() {
    const layer = this.hooks.layer();
    const raster = this.before.slice();
    draw(raster, layer.width, layer.height, this.stroke);
    this.view.setStrokes(raster);
  }
}
