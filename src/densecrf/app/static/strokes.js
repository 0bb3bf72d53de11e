// Strokes and the label raster that they make, by the rules of strokes.py.

export const VOID = 255;
const KEYFRAME_EVERY = 16;

export class StrokeLayer {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.slice = 0; // of a volume: the raster is that of one slice
    this.reset([], []);
  }

  show(slice) {
    this.slice = slice;
    this.reset(this.strokes, this.undone);
  }

  reset(strokes, undone) {
    this.strokes = strokes.slice();
    this.undone = undone.slice();
    this.keyframes = []; // rasters after KEYFRAME_EVERY, 2 KEYFRAME_EVERY, … strokes
    this.raster = new Uint8Array(this.width * this.height).fill(VOID);
    this.strokes.forEach((stroke, at) => this.#paint(stroke, at + 1));
  }

  add(stroke) {
    this.strokes.push(stroke);
    this.undone = [];
    this.#paint(stroke, this.strokes.length);
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
    return true;
  }

  highestLabel() {
    return Math.max(-1, ...[...this.strokes, ...this.undone].map((stroke) => stroke.label));
  }

  #paint(stroke, count) {
    const here = (stroke.slice ?? 0) === this.slice || stroke.tool === "clear";
    if (here) draw(this.raster, this.width, this.height, stroke);
    if (count % KEYFRAME_EVERY === 0) {
      this.keyframes.length = count / KEYFRAME_EVERY - 1;
      this.keyframes.push(this.raster.slice());
    }
  }

  #replay() {
    const known = Math.floor(this.strokes.length / KEYFRAME_EVERY);
    this.keyframes.length = Math.min(this.keyframes.length, known);
    const from = this.keyframes.length;
    if (from) this.raster = this.keyframes[from - 1].slice();
    else this.raster.fill(VOID);
    for (let at = from * KEYFRAME_EVERY; at < this.strokes.length; at += 1) {
      this.#paint(this.strokes[at], at + 1);
    }
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
  } else {
    const { points } = stroke;
    if (points.length === 1) capsule(raster, width, height, points[0], points[0], stroke.size / 2, value);
    for (let i = 1; i < points.length; i += 1) {
      capsule(raster, width, height, points[i - 1], points[i], stroke.size / 2, value);
    }
  }
}

function span(low, high, length) {
  return [Math.max(0, Math.ceil(low - 0.5)), Math.min(length, Math.floor(high - 0.5) + 1)];
}

export function capsule(raster, width, height, [x0, y0], [x1, y1], radius, value) {
  const r = Math.max(radius, Math.sqrt(0.5));
  const [top, bottom] = span(Math.min(y0, y1) - r, Math.max(y0, y1) + r, height);
  const [left, right] = span(Math.min(x0, x1) - r, Math.max(x0, x1) + r, width);
  const dx = x1 - x0;
  const dy = y1 - y0;
  const length = dx * dx + dy * dy;
  for (let y = top; y < bottom; y += 1) {
    const py = y + 0.5 - y0;
    for (let x = left; x < right; x += 1) {
      const px = x + 0.5 - x0;
      const t = length ? Math.min(1, Math.max(0, (px * dx + py * dy) / length)) : 0;
      const ex = px - t * dx;
      const ey = py - t * dy;
      if (ex * ex + ey * ey <= r * r) raster[y * width + x] = value;
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
