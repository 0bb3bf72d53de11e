// What the canvas shows: the image, the answer, the strokes and the pointer, at any zoom.

import { paintAnswer, paintStrokes } from "./overlay.js";
import { Plane } from "./planes.js";

const LARGEST_SCALE = 64;

export class View {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.image = null;
    this.answers = {}; // by stage: { labels, proven }, of all slices
    this.options = { opacity: 0.5, outlines: false, hatch: true, strokes: true, divider: null };
    this.colors = [];
    this.pointer = null; // { x, y, radius } in image pixels
    this.path = null; // a polygon that is being drawn, and a region that is pointed at
    this.box = null;
    this.pending = false;
    new ResizeObserver(() => this.#resize()).observe(canvas);
  }

  setImage(image, width, height) {
    this.answers = {};
    this.setPlane(image, new Plane([1, height, width]));
  }

  // Show a plane of a volume; the answers stay.
  setPlane(image, plane) {
    const { width, height, aspect } = plane;
    const turned = plane.axis !== this.plane?.axis || plane.sides !== this.plane?.sides;
    const same = this.image && this.width === width && this.height === height && this.aspect === aspect;
    Object.assign(this, { image, plane, width, height, aspect, box: null, path: null });
    if (turned) this.#prepare(width, height);
    this.repaint();
    if (!same) this.fit();
  }

  #prepare(width, height) {
    this.layers = {};
    for (const name of ["certified", "meanfield", "strokes"]) {
      const layer = document.createElement("canvas");
      Object.assign(layer, { width, height });
      const context = layer.getContext("2d");
      this.layers[name] = { canvas: layer, context, picture: context.createImageData(width, height) };
    }
  }

  setAnswer(stage, answer) {
    this.answers[stage] = answer;
    this.#paint(stage);
    this.draw();
  }

  setStrokes(raster) {
    if (!this.image) return;
    const layer = this.layers.strokes;
    paintStrokes(layer.picture, raster, this.colors);
    layer.context.putImageData(layer.picture, 0, 0);
    this.draw();
  }

  repaint() {
    if (!this.image) return;
    this.#paint("certified");
    this.#paint("meanfield");
    this.draw();
  }

  #paint(stage) {
    const layer = this.layers[stage];
    const answer = this.answers[stage];
    layer.context.clearRect(0, 0, this.width, this.height);
    if (!answer) return;
    const here = (values) => values && this.plane.cut(values);
    paintAnswer(layer.picture, here(answer.labels), here(answer.proven), this.colors, this.options);
    layer.context.putImageData(layer.picture, 0, 0);
  }

  fit() {
    if (!this.image) return;
    const { width, height } = this.#size();
    const margin = Math.min(24, width / 20);
    const tall = this.aspect * this.height;
    this.scale = Math.min((width - 2 * margin) / this.width, (height - 2 * margin) / tall);
    this.x = (width - this.scale * this.width) / 2;
    this.y = (height - this.scale * tall) / 2;
    this.draw();
  }

  zoom(factor, at) {
    const scale = Math.min(LARGEST_SCALE, Math.max(0.05, this.scale * factor));
    const { width, height } = this.#size();
    const [cx, cy] = at ?? [width / 2, height / 2];
    this.x = cx - ((cx - this.x) * scale) / this.scale;
    this.y = cy - ((cy - this.y) * scale) / this.scale;
    this.scale = scale;
    this.draw();
  }

  // Bring a box of image pixels to the middle, with room around it, and mark it.
  show({ x, y, width, height }) {
    const size = this.#size();
    const { aspect } = this;
    const wanted = Math.min(size.width / (3 * width), size.height / (3 * aspect * height));
    const whole = Math.min(size.width / this.width, size.height / (aspect * this.height));
    this.scale = Math.min(12, Math.max(whole, wanted));
    this.x = size.width / 2 - this.scale * (x + width / 2);
    this.y = size.height / 2 - this.scale * aspect * (y + height / 2);
    this.box = { x, y, width, height };
    this.draw();
  }

  pan(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.draw();
  }

  toImage(x, y) {
    return [(x - this.x) / this.scale, (y - this.y) / (this.scale * this.aspect)];
  }

  toStage(x, y) {
    return [this.x + this.scale * x, this.y + this.scale * this.aspect * y];
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.#draw();
    });
  }

  #size() {
    const ratio = window.devicePixelRatio || 1;
    return { width: this.canvas.width / ratio, height: this.canvas.height / ratio, ratio };
  }

  #resize() {
    const ratio = window.devicePixelRatio || 1;
    const before = this.#size();
    this.canvas.width = Math.max(1, Math.round(this.canvas.clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(this.canvas.clientHeight * ratio));
    if (!this.image) return;
    if (before.width < 2) this.fit();
    else this.pan((this.#size().width - before.width) / 2, (this.#size().height - before.height) / 2);
  }

  #draw() {
    const { context, options } = this;
    const { width, height, ratio } = this.#size();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    if (!this.image) return;
    context.imageSmoothingEnabled = this.scale < 1;
    const place = [this.x, this.y, this.scale * this.width, this.scale * this.aspect * this.height];
    context.drawImage(this.image, ...place);
    const divided = options.divider !== null && this.answers.meanfield;
    const middle = this.x + (divided ? options.divider : 1) * place[2];
    this.#clipped(this.x, middle, height, () => context.drawImage(this.layers.certified.canvas, ...place));
    if (divided) {
      this.#clipped(middle, this.x + place[2], height, () => context.drawImage(this.layers.meanfield.canvas, ...place));
      context.fillStyle = "#ffffff";
      context.fillRect(middle - 1, this.y, 2, place[3]);
    }
    if (options.strokes) context.drawImage(this.layers.strokes.canvas, ...place);
    if (this.box) this.#drawBox(context);
    if (this.path) this.#drawPath(context);
    this.#drawPointer(context);
  }

  #drawBox(context) {
    const [left, top] = this.toStage(this.box.x, this.box.y);
    this.#twice(context, () => {
      context.setLineDash([6, 4]);
      const [wide, high] = [this.scale * this.box.width, this.scale * this.aspect * this.box.height];
      context.rect(left - 3, top - 3, wide + 6, high + 6);
    });
    context.setLineDash([]);
  }

  #drawPath(context) {
    const points = this.path.map(([x, y]) => this.toStage(x, y));
    this.#twice(context, () => points.forEach((point, i) => (i ? context.lineTo(...point) : context.moveTo(...point))));
    this.#twice(context, () => context.arc(...points[0], 5, 0, 2 * Math.PI));
  }

  // A light line on a dark one, to be seen on any image.
  #twice(context, shape) {
    for (const [style, wide] of [["rgb(0 0 0 / 60%)", 3], ["#ffffff", 1.25]]) {
      context.beginPath();
      shape();
      context.strokeStyle = style;
      context.lineWidth = wide;
      context.stroke();
    }
  }

  #clipped(left, right, height, drawing) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(left, 0, Math.max(0, right - left), height);
    context.clip();
    drawing();
    context.restore();
  }

  #drawPointer(context) {
    if (!this.pointer) return;
    const [x, y] = this.toStage(this.pointer.x, this.pointer.y);
    this.#twice(context, () => context.arc(x, y, Math.max(2, this.pointer.radius * this.scale), 0, 2 * Math.PI));
  }
}
