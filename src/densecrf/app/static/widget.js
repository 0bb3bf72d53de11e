// The canvas in a notebook: an anywidget around the same view, tools and strokes.

import { unpack } from "./frames.js";
import { colorTable } from "./overlay.js";
import { StrokeLayer } from "./strokes.js";
import { Tools } from "./tools.js";
import { View } from "./view.js";

const TOOL_NAMES = ["brush", "eraser", "line", "box", "fill", "pan"];

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

async function render({ model, el }) {
  const [height, width] = model.get("_shape");
  const labels = model.get("_labels");
  const canvas = element("canvas", { className: "densecrf-canvas", tabIndex: 0 });
  const status = element("output", { className: "densecrf-status", textContent: "draw with two labels" });
  const bar = element("div", { className: "densecrf-bar" });
  el.append(element("div", { className: "densecrf-scribble" }, bar, canvas, status));

  const view = new View(canvas);
  const layer = new StrokeLayer(width, height);
  let label = 0;
  const tools = new Tools(view, { layer: () => layer, label: () => label, locked: () => [], commit });

  function changed() {
    view.setStrokes(layer.raster);
    model.set("strokes", layer.strokes.slice());
    model.save_changes();
  }

  function commit(stroke) {
    layer.add(stroke);
    changed();
  }

  const choices = (names, chosen, choose) => {
    const buttons = names.map((name, at) => element("button", { textContent: name, onclick: () => press(at) }));
    const press = (at) => {
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === at)));
      choose(at);
    };
    press(chosen);
    return buttons;
  };
  const swatches = choices(labels.map(({ name }) => name), 0, (at) => (label = at));
  swatches.forEach((button, at) => button.style.setProperty("--label", labels[at].color));
  swatches.forEach((button) => button.classList.add("densecrf-label"));
  const size = element("input", { type: "range", min: 1, max: 60, value: tools.size, title: "Width" });
  size.oninput = () => (tools.size = Number(size.value));
  const undo = element("button", { textContent: "undo", onclick: () => layer.undo() && changed() });
  const redo = element("button", { textContent: "redo", onclick: () => layer.redo() && changed() });
  bar.append(...choices(TOOL_NAMES, 0, (at) => (tools.tool = TOOL_NAMES[at])), size, undo, redo, ...swatches);

  const image = new Image();
  const bytes = model.get("_image");
  image.src = URL.createObjectURL(new Blob([bytes.buffer ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength) : bytes]));
  await image.decode();
  view.colors = colorTable(labels);
  view.setImage(image, width, height);
  layer.reset(model.get("strokes"), []);
  view.setStrokes(layer.raster);

  const hear = async (message, buffers) => {
    if (message.type === "frame") {
      const data = buffers[0];
      const { head, planes } = await unpack(data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength));
      if (head.stage === "meanfield") return;
      view.setAnswer("certified", { labels: planes[0], proven: head.proven >= 0.5 ? planes[1] : undefined });
      status.textContent = describe(head);
    } else if (message.type === "waiting") {
      view.answers = {};
      view.repaint();
      status.textContent = "draw with two labels";
    } else if (message.type === "progress" && message.gap !== null) {
      status.textContent = `proving: about ${(100 * message.gap).toPrecision(2)} % above the best`;
    } else if (message.text) status.textContent = message.text;
  };
  model.on("msg:custom", hear);
  model.send({ type: "ready" });
  return () => model.off("msg:custom", hear);
}

function describe(head) {
  if (head.stage === "preview") return "preview";
  if (head.optimal) return "proven: the best of all labellings";
  const gap = head.gap === null ? "…" : `${(100 * head.gap).toPrecision(2)} %`;
  return head.stage === "certified" ? `proven: at most ${gap} above the best of all labellings` : `proving: about ${gap} above the best`;
}

export default { render };
