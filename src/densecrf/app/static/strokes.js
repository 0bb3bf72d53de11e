// Strokes and the label raster that they make, by the rules of strokes.py.

import { Plane } from "./planes.js";

export const VOID = 255;
const KEYFRAME_EVERY = 16;

export class StrokeLayer {
  constructor(width, height, depth = 1) {
    this.sides = [depth, height, width];
    this.plane = new Plane(this.sides); // of a volume: the raster is that of one plane
    this.reset([], []);
  }

  get width() {
    return this.plane.width;
  }

  get height() {
    return this.plane.height;
  }

  show(plane) {
    this.plane = plane;
    this.#look();
  }

  reset(strokes, undone) {
    this.strokes = strokes.slice();
    this.undone = undone.slice();
    this.keyframes = []; // rasters after KEYFRAME_EVERY, 2 KEYFRAME_EVERY, … strokes
    this.volume = new Uint8Array(this.sides[0] * this.sides[1] * this.sides[2]).fill(VOID);
    this.strokes.forEach((stroke, at) => this.#paint(stroke, at + 1));
    this.#look();
  }

  add(stroke) {
    this.strokes.push(stroke);
    this.undone = [];
    this.#paint(stroke, this.strokes.length);
    this.#look();
  }

  undo() {
    if (!this.strokes.length) return false;
    this.undone.push(this.strokes.pop());
    this.#replay();
    return true;
  }

  redo() {
    if (!this.undone.length) return false;
    this.strokes.push(this.undone.pop());
    this.#paint(this.strokes.at(-1), this.strokes.length);
    this.#look();
    return true;
  }

  #look() {
    this.raster = this.plane.cut(this.volume);
  }

  #paint(stroke, count) {
    const at = new Plane(this.sides, stroke.axis, stroke.slice);
    if (stroke.tool === "clear") draw(this.volume, this.volume.length, 1, stroke);
    else if (at.slice < this.sides[at.axis]) {
      const raster = at.cut(this.volume);
      draw(raster, at.width, at.height, stroke);
      at.paste(this.volume, raster);
    }
    if (count % KEYFRAME_EVERY === 0) {
      this.keyframes.length = count / KEYFRAME_EVERY - 1;
      this.keyframes.push(this.volume.slice());
    }
  }

  #replay() {
    const known = Math.floor(this.strokes.length / KEYFRAME_EVERY);
    this.keyframes.length = Math.min(this.keyframes.length, known);
    const from = this.keyframes.length;
    if (from) this.volume = this.keyframes[from - 1].slice();
    else this.volume.fill(VOID);
    for (let at = from * KEYFRAME_EVERY; at < this.strokes.length; at += 1) {
      this.#paint(this.strokes[at], at + 1);
    }
    this.#look();
  }
}

export function draw(raster, width, height, stroke) {
  const kept = stroke.protected?.length ? raster.slice() : null;
  paint(raster, width, height, stroke);
  if (kept) {
    const safe = new Set(stroke.protected);
    for (let i = 0; i < kept.length; i += 1) if (safe.has(kept[i])) raster[i] = kept[i];
  }
}

function paint(raster, width, height, stroke) {
  const value = stroke.tool === "eraser" ? VOID : stroke.label;
  if (stroke.tool === "clear") {
    raster.fill(VOID);
  } else if (stroke.tool === "fill") {
    fill(raster, width, height, stroke.points[0], value);
  } else if (stroke.tool === "box") {
    const [[x0, y0], [x1, y1]] = [stroke.points[0], stroke.points.at(-1)];
    const [top, bottom] = span(Math.min(y0, y1), Math.max(y0, y1), height);
    const [left, right] = span(Math.min(x0, x1), Math.max(x0, x1), width);
    for (let y = top; y < bottom; y += 1) {
      if (right > left) raster.fill(value, y * width + left, y * width + right);
    }
  } else if (stroke.tool === "polygon") {
    if (stroke.points.length > 2) polygon(raster, width, height, stroke.points, value);
  } else {
    const { points, aspect } = stroke;
    if (points.length === 1) capsule(raster, width, height, points[0], points[0], stroke.size / 2, value, aspect);
    for (let i = 1; i < points.length; i += 1) {
      capsule(raster, width, height, points[i - 1], points[i], stroke.size / 2, value, aspect);
    }
  }
}

function span(low, high, length) {
  return [Math.max(0, Math.ceil(low - 0.5)), Math.min(length, Math.floor(high - 0.5) + 1)];
}

// Pixels are `tall` times as high as they are wide.
export function capsule(raster, width, height, [x0, row0], [x1, row1], radius, value, tall = 1) {
  const r = Math.max(radius, Math.sqrt(1 + tall * tall) / 2);
  const [y0, y1] = [row0 * tall, row1 * tall];
  const [top, bottom] = span((Math.min(y0, y1) - r) / tall, (Math.max(y0, y1) + r) / tall, height);
  const [left, right] = span(Math.min(x0, x1) - r, Math.max(x0, x1) + r, width);
  const dx = x1 - x0;
  const dy = y1 - y0;
  const length = dx * dx + dy * dy;
  for (let y = top; y < bottom; y += 1) {
    const py = (y + 0.5) * tall - y0;
    for (let x = left; x < right; x += 1) {
      const px = x + 0.5 - x0;
      const t = length ? Math.min(1, Math.max(0, (px * dx + py * dy) / length)) : 0;
      const ex = px - t * dx;
      const ey = py - t * dy;
      if (ex * ex + ey * ey <= r * r) raster[y * width + x] = value;
    }
  }
}

// The pixels whose centre has an odd number of edges to its left.
function polygon(raster, width, height, points, value) {
  const flips = new Int32Array(height * (width + 1));
  points.forEach(([x1, y1], i) => {
    const [x0, y0] = points.at(i - 1);
    const low = Math.max(0, Math.ceil(Math.min(y0, y1) - 0.5));
    const high = Math.min(height, Math.max(0, Math.ceil(Math.max(y0, y1) - 0.5)));
    for (let y = low; y < high; y += 1) {
      const x = x0 + (y + 0.5 - y0) * ((x1 - x0) / (y1 - y0));
      flips[y * (width + 1) + Math.min(width, Math.max(0, Math.ceil(x - 0.5)))] += 1;
    }
  });
  for (let y = 0; y < height; y += 1) {
    let count = 0;
    for (let x = 0; x < width; x += 1) {
      count += flips[y * (width + 1) + x];
      if (count % 2) raster[y * width + x] = value;
    }
  }
}

function fill(raster, width, height, [px, py], value) {
  const x0 = Math.floor(px);
  const y0 = Math.floor(py);
  if (x0 < 0 || y0 < 0 || x0 >= width || y0 >= height) return;
  const old = raster[y0 * width + x0];
  if (old === value) return;
  const todo = [y0 * width + x0];
  while (todo.length) {
    const at = todo.pop();
    if (raster[at] !== old) continue;
    const row = at - (at % width);
    let left = at;
    let right = at + 1;
    while (left > row && raster[left - 1] === old) left -= 1;
    while (right < row + width && raster[right] === old) right += 1;
    raster.fill(value, left, right);
    for (const shift of [-width, width]) {
      for (let i = left + shift; i < right + shift; i += 1) {
        if (raster[i] === old && (i === left + shift || raster[i - 1] !== old)) todo.push(i);
      }
    }
  }
}
