// Pointers to strokes: mouse, pen and touch; two fingers, the middle button and space move the view.

import { draw } from "./strokes.js";
import { edgeCosts, Wire } from "./wire.js";

const DRAGGED = ["line", "box", "object"]; // from where it began to where it is
const CLICKED = ["polygon", "wire"]; // point by point
const NEAR = 10; // of the first point, on the screen: a click there closes a polygon

// The way around a box, from two of its corners.
export function corners([[x0, y0], [x1, y1] = [x0, y0]]) {
  return [[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]];
}

export class Tools {
  // `hooks`: layer() gives the StrokeLayer, label() and locked() the labels, commit(stroke); where
  // there are such tools, begin() is called before a stroke, pick([x, y]) for a click on a region,
  // find(stroke) for a box around an object.
  constructor(view, hooks) {
    this.view = view;
    this.hooks = hooks;
    this.tool = "brush";
    this.size = 9;
    this.space = false;
    this.enabled = true;
    this.pointers = new Map();
    this.stroke = null;
    const { canvas } = view;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", (event) => this.#up(event));
    canvas.addEventListener("pointerleave", () => this.#point(null));
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("dblclick", () => this.close());
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
  }

  cancel() {
    this.#path(null);
    if (!this.stroke) return;
    this.stroke = null;
    const layer = this.hooks.layer();
    if (layer) this.view.setStrokes(layer.raster);
  }

  // End a polygon; false where none is begun.
  close() {
    const { path, stroke } = this;
    if (!path) return false;
    this.#path(null);
    this.stroke = null;
    const points = path.anchors.flatMap(({ way }) => way);
    if (path.wire) points.push(...path.wire.to(path.anchors[0].way.at(-1)));
    if (points.length > 2) this.hooks.commit({ ...stroke, tool: "polygon", points });
    return true;
  }

  // Take the last point of a polygon back; false where none is begun.
  back() {
    if (!this.path) return false;
    this.path.anchors.pop();
    if (!this.path.anchors.length) this.cancel();
    else this.#extend(this.path.anchors.at(-1).way.at(-1));
    return true;
  }

  #at(event) {
    const bounds = this.view.canvas.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  }

  #point(at) {
    const [x, y] = at ? this.view.toImage(...at) : [0, 0];
    const radius = ["brush", "eraser", "line"].includes(this.tool) ? this.size / 2 : 0.5;
    this.view.pointer = at && this.tool !== "pan" ? { x, y, radius } : null;
    if (at && this.path) this.#extend([x, y]);
    this.view.draw();
  }

  #down(event) {
    const layer = this.hooks.layer();
    if (!layer) return;
    this.view.canvas.setPointerCapture(event.pointerId);
    const at = this.#at(event);
    this.pointers.set(event.pointerId, at);
    if (this.pointers.size > 1) {
      if (!this.path) this.cancel(); // the second finger: it is a pinch
      return;
    }
    this.moving = this.space || event.button === 1 || this.tool === "pan";
    if (this.moving || event.button !== 0 || !this.enabled) return;
    const point = this.#rounded(this.view.toImage(...at));
    if (this.tool === "region") {
      this.hooks.pick?.(point);
      return;
    }
    if (CLICKED.includes(this.tool)) {
      this.#click(point, at);
      return;
    }
    this.stroke = this.#begun(point);
    this.before = layer.raster.slice();
    this.#show();
  }

  #begun(point) {
    this.hooks.begin?.();
    return {
      tool: this.tool,
      label: this.tool === "eraser" ? 0 : this.hooks.label(),
      size: this.size,
      points: [point],
      protected: this.hooks.locked(),
      ...this.hooks.layer().plane.place,
    };
  }

  #click(point, at) {
    const { view } = this;
    if (!this.path) {
      this.stroke = { ...this.#begun(point), size: 1 };
      if (this.tool === "wire" && view.costs?.image !== view.image) {
        view.costs = { image: view.image, values: edgeCosts(view.image, view.width, view.height) };
      }
      this.path = { anchors: [] };
    }
    const { anchors } = this.path;
    const first = anchors[0]?.way.at(-1);
    const [x, y] = first ? view.toStage(...first) : [Infinity, Infinity];
    if (anchors.length > 1 && Math.hypot(x - at[0], y - at[1]) < NEAR) {
      this.close();
      return;
    }
    anchors.push({ way: this.path.wire?.to(point) ?? [point] });
    this.#extend(point);
  }

  // Show the polygon up to a point, which is not one of its own yet.
  #extend(point) {
    const { anchors } = this.path;
    if (this.tool === "wire") {
      const start = anchors.at(-1).way.at(-1).map(Math.floor);
      const clipped = [Math.min(this.view.width - 1, Math.max(0, start[0])), Math.min(this.view.height - 1, Math.max(0, start[1]))];
      if (this.path.start !== anchors.at(-1)) {
        this.path.wire = new Wire(this.view.costs.values, this.view.width, this.view.height, clipped);
        this.path.start = anchors.at(-1);
      }
    }
    const way = this.path.wire?.to(point) ?? [point];
    this.#path(this.path, [...anchors.flatMap((each) => each.way), ...way]);
  }

  #path(path, points = null) {
    this.path = path;
    this.view.path = points;
    this.view.draw();
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
    } else if (this.stroke && !this.path) {
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
    if (!this.stroke || this.path) return;
    const stroke = this.stroke;
    this.stroke = null;
    if (event.type === "pointercancel") this.view.setStrokes(this.hooks.layer().raster);
    else if (stroke.tool === "object") this.hooks.find(stroke);
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
    if (this.stroke.tool === "object") {
      this.#path(null, corners(this.stroke.points));
      return;
    }
    const raster = this.before.slice();
    draw(raster, layer.width, layer.height, this.stroke);
    this.view.setStrokes(raster);
  }
}
