// What the canvas shows: the image, the answer, the strokes and the pointer, at any zoom.

import { paintAnswer, paintStrokes } from "./overlay.js";

const LARGEST_SCALE = 64;

export class View {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.image = null;
    this.answers = {}; // by stage: { labels, proven }, of all slices
    this.slice = 0;
    this.options = { opacity: 0.5, outlines: false, hatch: true, strokes: true, divider: null };
    this.colors = [];
    this.pointer = null; // { x, y, radius } in image pixels
    this.box = null;
    this.pending = false;
    new ResizeObserver(() => this.#resize()).observe(canvas);
  }

  setImage(image, width, height) {
    const same = this.image && this.width === width && this.height === height;
    Object.assign(this, { image, width, height, answers: {}, slice: 0 });
    this.layers = {};
    for (const name of ["certified", "meanfield", "strokes"]) {
      const layer = document.createElement("canvas");
      Object.assign(layer, { width, height });
      const context = layer.getContext("2d");
      this.layers[name] = { canvas: layer, context, picture: context.createImageData(width, height) };
    }
    if (same) this.draw();
    else this.fit();
  }

  setSlice(image, slice) {
    Object.assign(this, { image, slice });
    this.repaint();
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
    const [from, size] = [this.slice * this.width * this.height, this.width * this.height];
    const here = (plane) => plane?.subarray(from, from + size);
    paintAnswer(layer.picture, here(answer.labels), here(answer.proven), this.colors, this.options);
    layer.context.putImageData(layer.picture, 0, 0);
  }

  fit() {
    if (!this.image) return;
    const { width, height } = this.#size();
    const margin = Math.min(24, width / 20);
    this.scale = Math.min((width - 2 * margin) / this.width, (height - 2 * margin) / this.height);
    this.x = (width - this.scale * this.width) / 2;
    this.y = (height - this.scale * this.height) / 2;
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

  pan(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.draw();
  }

  toImage(x, y) {
    return [(x - this.x) / this.scale, (y - this.y) / this.scale];
  }

  toStage(x, y) {
    return [this.x + this.scale * x, this.y + this.scale * y];
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
    const place = [this.x, this.y, this.scale * this.width, this.scale * this.height];
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
    this.#drawPointer(context);
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
    for (const [style, wide] of [["rgb(0 0 0 / 60%)", 3], ["#ffffff", 1.25]]) {
      context.beginPath();
      context.arc(x, y, Math.max(2, this.pointer.radius * this.scale), 0, 2 * Math.PI);
      context.strokeStyle = style;
      context.lineWidth = wide;
      context.stroke();
    }
  }
}
