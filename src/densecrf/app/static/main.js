// The page: connects the canvas, the panels and the server.

import { Exports } from "./exports.js";
import { Files } from "./files.js";
import { listen } from "./keys.js";
import { Labels } from "./labels.js";
import { Meter } from "./meter.js";
import { ModelPanel } from "./model.js";
import { colorTable } from "./overlay.js";
import { Socket } from "./socket.js";
import { StrokeLayer } from "./strokes.js";
import { Tools } from "./tools.js";
import { View } from "./view.js";

const $ = (id) => document.getElementById(id);
const config = await (await fetch("config")).json();

const view = new View($("canvas"));
const meter = new Meter();
let layer = null;
let settings = {};
let best = null; // energy of the certified answer
let depth = 1; // slices of a volume
let behind = false; // another tab's edit came while ours were on the way

const socket = new Socket({ message: heard, answer: answered, state: connected });
const labels = new Labels({ change: relabelled, choose: () => tools.cancel() }, config.max_labels);
labels.highest = () => layer?.highestLabel() ?? -1;
const model = new ModelPanel(config.presets, (values) => change({ ...values, compare: $("compare").checked }));
const files = new Files({ open, error: (text) => say(text, "error") }, config.max_upload);
new Exports(() => socket.image);
const tools = new Tools(view, {
  layer: () => layer,
  label: () => labels.active,
  locked: () => labels.list.flatMap(({ locked }, at) => (locked ? [at] : [])),
  commit,
});

// --- Images --------------------------------------------------------------------------------------

async function open(name) {
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  files.show(name);
  layer = null;
  view.image = null;
  view.draw();
  $("messages").replaceChildren();
  $("empty").hidden = true;
  meter.waiting("opening …");
  socket.open(name, config.folder);
}

async function show(message) {
  const { document: state, notice, factor, full } = message;
  depth = message.depth;
  const fresh = !layer || layer.width !== state.width || layer.height !== state.height || !view.image;
  if (fresh) {
    const image = await picture(state.image, 0);
    layer = new StrokeLayer(state.width, state.height);
    view.setImage(image, state.width, state.height);
    Object.assign($("slice"), { max: depth - 1, value: 0 });
    $("slices").hidden = depth === 1;
    document.body.dataset.slice = 0;
    $("slice-shown").textContent = `slice 1 of ${depth}`;
    if (notice) say(notice, "error");
    if (factor > 1) say(`${full.width} × ${full.height} pixels: worked on at ${state.width} × ${state.height}; labels are exported at full size.`);
  }
  layer.reset(state.strokes, state.undone);
  settings = state.settings;
  model.set(settings);
  $("compare").checked = settings.compare;
  comparing(settings.compare);
  labels.set(state.labels);
  view.colors = colorTable(state.labels);
  document.body.dataset.image = state.image;
  view.repaint();
  drawn();
}

async function picture(name, slice) {
  const image = new Image();
  image.src = `image?name=${encodeURIComponent(name)}&slice=${slice}`;
  await image.decode();
  return image;
}

// Of a volume: show another slice. The newest wish counts, whichever picture comes first.
async function go(slice) {
  if (!layer || slice < 0 || slice >= depth) return;
  const name = socket.image;
  $("slice").value = slice;
  const image = await picture(name, slice);
  if (socket.image !== name || Number($("slice").value) !== slice) return;
  layer.show(slice);
  view.setSlice(image, slice);
  $("slice-shown").textContent = `slice ${slice + 1} of ${depth}`;
  document.body.dataset.slice = slice;
  drawn();
}

function drawn() {
  view.setStrokes(layer.raster);
  $("undo").disabled = !layer.strokes.length;
  $("redo").disabled = !layer.undone.length;
  $("export").disabled = !layer.strokes.length && !config.network;
  labels.refresh();
  const used = new Set(layer.strokes.filter(({ tool }) => tool !== "eraser" && tool !== "clear").map(({ label }) => label));
  const hint = ["Draw a stroke on one region …", "… now choose another label and draw on another region."][used.size];
  $("hint").hidden = hint === undefined || config.network;
  $("hint").textContent = hint ?? "";
  document.body.dataset.strokes = layer.strokes.length;
}

// --- Edits ---------------------------------------------------------------------------------------

function commit(stroke) {
  layer.add(stroke);
  socket.edit("stroke", { stroke });
  saving();
  drawn();
}

function undo() {
  if (!layer?.undo()) return;
  socket.edit("undo");
  saving();
  drawn();
  follow(layer.undone.at(-1));
}

function redo() {
  if (!layer?.redo()) return;
  socket.edit("redo");
  saving();
  drawn();
  follow(layer.strokes.at(-1));
}

function follow({ slice = 0 }) {
  if (slice !== layer.slice) go(slice);
}

function relabelled(list) {
  view.colors = colorTable(list);
  view.repaint();
  if (layer) view.setStrokes(layer.raster);
  socket.edit("labels", { labels: list });
  saving();
}

function change(values) {
  settings = { ...settings, ...values };
  socket.edit("settings", { settings });
  saving();
}

function saving() {
  $("saved").textContent = "saving …";
  document.body.dataset.saved = "no";
}

// --- From the server -----------------------------------------------------------------------------

const hear = {
  document: show,
  edit({ edit }) {
    if (socket.pending.length) behind = true;
    else if (edit.kind === "stroke") layer.add(edit.stroke);
    else if (edit.kind === "undo") layer.undo();
    else if (edit.kind === "redo") layer.redo();
    else behind = true; // labels, settings, or what another server saved
    if (behind && !socket.pending.length) catchUp();
    drawn();
  },
  saved() {
    if (socket.pending.length) return;
    $("saved").textContent = "saved";
    $("saved").className = "saved";
    document.body.dataset.saved = "yes";
    if (behind) catchUp();
  },
  labelled({ revision }) {
    if (!socket.pending.length) $("saved").textContent = "strokes and labels saved";
    document.body.dataset.labelled = revision;
  },
  unsaved({ text }) {
    $("saved").textContent = "not saved";
    $("saved").className = "saved bad";
    say(text, "error");
  },
  refused({ text }) {
    say(text, "error");
    socket.sync();
  },
  message({ level, text }) {
    if (!view.image) meter.waiting("");
    say(text, level);
  },
  waiting() {
    best = null;
    view.answers = {};
    view.repaint();
    meter.waiting("draw with two labels to begin");
  },
  progress: (head) => meter.progress(head),
};

function heard(message) {
  return hear[message.type]?.(message);
}

function catchUp() {
  behind = false;
  socket.sync();
}

function answered(head, [answer, proven]) {
  if (!layer || answer.length !== depth * layer.raster.length) return;
  if (head.stage === "meanfield") {
    view.setAnswer("meanfield", { labels: answer });
    meter.compared(head, best);
    document.body.dataset.compared = "yes";
    return;
  }
  // Before most are proven, a pixel that is not says more of the proof than of the pixel.
  const telling = head.proven >= 0.5;
  view.setAnswer("certified", { labels: answer, proven: telling ? proven : undefined });
  if (head.stage === "preview") meter.preview(head);
  else if (head.stage === "certified") {
    best = head.energy;
    meter.certified(head, answer.length);
  } else meter.progress(head);
  document.body.dataset.revision = head.revision;
}

function connected(yes) {
  document.body.dataset.connected = yes ? "yes" : "no";
  if (yes) return;
  $("saved").textContent = "not connected";
  $("saved").className = "saved bad";
}

function say(text, level = "note") {
  const shown = [...$("messages").children].find((each) => each.dataset.text === text);
  if (shown) return;
  const message = document.createElement("div");
  message.className = `message ${level}`;
  message.dataset.text = text;
  const close = Object.assign(document.createElement("button"), { textContent: "×", title: "Close" });
  close.addEventListener("click", () => message.remove());
  message.append(Object.assign(document.createElement("span"), { textContent: text }), close);
  $("messages").append(message);
  if (level !== "error") setTimeout(() => message.remove(), 8000);
}

// --- Controls ------------------------------------------------------------------------------------

function choose(tool) {
  tools.cancel();
  tools.tool = tool;
  for (const button of document.querySelectorAll("[data-tool]")) {
    button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
  }
}

function resize(size) {
  tools.size = Math.min(60, Math.max(1, size));
  $("size").value = tools.size;
  $("size-shown").textContent = tools.size;
}

function comparing(yes) {
  view.options.divider = yes ? Number($("divider").value) : null;
  $("divider").hidden = !yes;
  $("compare-names").hidden = !yes;
  if (!yes) {
    $("compare-numbers").hidden = true;
    delete view.answers.meanfield;
  }
  view.draw();
}

for (const button of document.querySelectorAll("[data-tool]")) {
  button.addEventListener("click", () => choose(button.dataset.tool));
}
choose("brush");
model.set({ preset: "default", strength: 1, color: 1, reach: 1 });
$("size").addEventListener("input", () => resize(Number($("size").value)));
$("slice").addEventListener("input", () => go(Number($("slice").value)));
$("undo").addEventListener("click", undo);
$("redo").addEventListener("click", redo);
$("fit").addEventListener("click", () => view.fit());
$("clear").addEventListener("click", () => {
  if (layer?.strokes.length) commit({ tool: "clear", label: 0, size: 1, points: [], protected: [] });
});
$("help").addEventListener("click", () => $("help-dialog").showModal());
$("compare").addEventListener("change", () => {
  comparing($("compare").checked);
  change({ compare: $("compare").checked });
});
$("divider").addEventListener("input", () => comparing(true));
for (const [id, option] of [["opacity", "opacity"], ["outlines", "outlines"], ["hatch", "hatch"], ["show-strokes", "strokes"]]) {
  $(id).addEventListener("input", () => {
    view.options[option] = id === "opacity" ? Number($(id).value) : $(id).checked;
    view.repaint();
  });
}
listen({
  tool: choose,
  label: (at) => labels.choose(at),
  size: (by) => resize(tools.size + by * Math.max(1, Math.round(tools.size / 8))),
  undo,
  redo,
  zoom: (factor) => view.image && view.zoom(factor),
  fit: () => view.fit(),
  step: (by) => files.step(by),
  slice: (by) => layer && go(layer.slice + by),
  space: (down) => {
    tools.space = down;
  },
});

await files.refresh();
const wanted = decodeURIComponent(location.hash.slice(1));
const first = files.names.includes(wanted) ? wanted : files.names[0];
if (first !== undefined) open(first);
else $("empty").hidden = false;

window.densecrf = { view, layer: () => layer }; // for tests and the curious
