// The page: connects the canvas, the panels and the server.

import { Exports } from "./exports.js";
import { Files } from "./files.js";
import { Gallery } from "./gallery.js";
import { Headline } from "./headline.js";
import { listen } from "./keys.js";
import { Labels } from "./labels.js";
import { Meter } from "./meter.js";
import { ModelPanel } from "./model.js";
import { colorTable } from "./overlay.js";
import { component, outline } from "./regions.js";
import { Slices } from "./slices.js";
import { Socket } from "./socket.js";
import { unpack } from "./frames.js";
import { StrokeLayer } from "./strokes.js";
import { corners, Tools } from "./tools.js";
import { ValuesPanel } from "./values.js";
import { View } from "./view.js";

const $ = (id) => document.getElementById(id);
const config = await (await fetch("config")).json();
const MOST_POINTS = 20000; // of a stroke (strokes.py)
const AROUND = 2; // pixels between a box and the stroke around it

const view = new View($("canvas"));
const meter = new Meter();
const headline = new Headline(jump);
let layer = null;
let settings = {};
let status = "todo";
let best = null; // energy of the certified answer
let behind = false; // another tab's edit came while ours were on the way
let alone = false; // one label is the answer everywhere
let reduced = false; // it is worked on with fewer pixels than the file has
let carried = null; // strokes of the image before, for the next one that opens

const socket = new Socket({ message: heard, answer: answered, state: connected });
const labels = new Labels({ change: relabelled, choose: () => tools.cancel(), object: addObject, indivisible: say }, config.max_labels);
const model = new ModelPanel(config.presets, (values) => change({ ...values, compare: $("compare").checked }));
const files = new Files({ open, error: (text) => say(text, "error") }, config.max_upload);
const gallery = new Gallery(files, { open, error: (text) => say(text, "error"), note: say });
const slices = new Slices(look);
const values = new ValuesPanel((reading) => socket.reread(reading));
new Exports(() => socket.image, volume, () => reduced);
const tools = new Tools(view, {
  layer: () => layer,
  label: () => labels.value,
  locked: () => labels.locked(),
  begin: freeze,
  pick,
  find,
  commit,
});

// --- Images --------------------------------------------------------------------------------------

async function open(name) {
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  files.show(name);
  tools.cancel();
  layer = null;
  view.image = null;
  view.draw();
  delete document.body.dataset.image;
  $("messages").replaceChildren();
  $("empty").hidden = true;
  $("hint").hidden = true;
  usable(false);
  meter.waiting();
  headline.set("opening");
  socket.open(name, config.folder);
}

// Without an image there is nothing to draw, undo or export.
function usable(yes) {
  for (const id of ["undo", "redo", "export"]) $(id).disabled = !yes;
  for (const part of document.querySelectorAll(".panel, .tools")) part.inert = !yes;
}

async function show(message) {
  const { document: state, notice, factor, full } = message;
  if (state.image !== socket.image) return; // the one before, late
  const sides = [message.depth, state.height, state.width];
  const fresh = !view.image || String(layer?.sides) !== String(sides);
  reduced = factor > 1;
  if (fresh) {
    const image = await slices.begin(state.image, sides, message.picture);
    layer = new StrokeLayer(state.width, state.height, message.depth);
    layer.show(slices.plane);
    view.answers = {};
    view.setPlane(image, slices.plane);
    usable(true);
    headline.set("empty");
    if (notice) say(notice, "error");
    if (factor > 1) say(`${full.width} × ${full.height} pixels: worked on at ${state.width} × ${state.height}; labels are exported at full size.`);
  }
  if (!fresh && message.picture && JSON.stringify(message.picture.reading) !== slices.version) await slices.reread(message.picture);
  values.set(message.picture, volume());
  layer.reset(state.strokes, state.undone);
  const late = socket.pending.filter(({ id }) => !state.applied.includes(id));
  late.forEach(repeat);
  if (late.length) behind = true;
  if (labels.indivisible !== message.indivisible) {
    labels.indivisible = message.indivisible;
    labels.render();
  }
  settings = state.settings;
  model.set(settings);
  $("compare").checked = settings.compare;
  comparing(settings.compare);
  if (!socket.pending.some(({ kind }) => kind === "labels")) labels.set(state.labels, message.background, state.objects);
  mark(state.status);
  recolour();
  document.body.dataset.image = state.image;
  drawn();
  if (carried && fresh) {
    const strokes = carried.strokes.map((stroke) => scaled(stroke, state.width / carried.width, state.height / carried.height));
    carried = null;
    if (status === "done") say("This image is done: nothing was copied.");
    else strokes.forEach(commit);
  }
}

function recolour() {
  view.colors = colorTable(labels.list, labels.objects);
  view.repaint();
  if (layer) view.setStrokes(layer.raster);
}

function scaled(stroke, x, y) {
  return { ...stroke, size: Math.max(1, stroke.size * x), points: stroke.points.map((point) => [point[0] * x, point[1] * y]) };
}

function volume() {
  return layer !== null && layer.sides[0] > 1;
}

// Of a volume: another plane has come.
function look(image, plane) {
  if (!layer || layer.sides.join() !== plane.sides.join()) return;
  tools.cancel();
  layer.show(plane);
  view.setPlane(image, plane);
  drawn();
}

function drawn() {
  view.setStrokes(layer.raster);
  $("undo").disabled = !layer.strokes.length || status === "done";
  $("redo").disabled = !layer.undone.length || status === "done";
  const used = new Set(layer.strokes.filter(({ tool }) => tool !== "eraser" && tool !== "clear").map(({ label }) => label));
  if (["empty", "one"].includes(document.body.dataset.state)) headline.set(layer.strokes.length ? "one" : "empty");
  const hints = ["Draw a stroke on one region …", "… now choose another label and draw on another region."];
  const answer = view.answers.certified !== undefined;
  const early = answer || labels.indivisible ? undefined : hints[used.size];
  const lone = answer && alone ? "One label everywhere is best: add strokes, or lower the strength." : early;
  const hint = status === "done" ? "Done, and locked: change the status (D) to go on." : lone;
  $("hint").hidden = hint === undefined;
  $("hint").textContent = hint ?? "";
  $("copy-strokes").disabled = !layer.strokes.length || !files.following;
  $("copy-labels").disabled = !answer || !files.following || volume();
  document.body.dataset.strokes = layer.strokes.length;
}

async function jump(region) {
  await follow(region);
  view.show(region);
}

// --- Status and the next image -------------------------------------------------------------------

function mark(value) {
  status = value;
  $("status").value = value;
  tools.enabled = value !== "done";
  document.body.dataset.status = value;
}

function setStatus(value) {
  if (!layer) return;
  tools.cancel();
  mark(value);
  socket.edit("status", { status: value });
  saving();
  drawn();
}

async function unlabelled() {
  if (!(await files.unlabelled())) say("Every image of the folder is doubtful or done.");
}

async function copyLabels() {
  const next = files.following;
  const answer = await fetch(`copy?from=${encodeURIComponent(socket.image)}&name=${encodeURIComponent(next)}`, { method: "POST" });
  const { error } = await answer.json().catch(() => ({ error: "the server did not answer" }));
  if (error) say(error, "error");
  else open(next);
}

function copyStrokes() {
  carried = { strokes: layer.strokes.slice(), width: layer.width, height: layer.height };
  open(files.following);
}

// --- Edits ---------------------------------------------------------------------------------------

function commit(stroke) {
  layer.add(stroke);
  socket.edit("stroke", { stroke, labels: labels.list.map(({ uid }) => uid) });
  outdated();
  drawn();
}

function undo() {
  if (status === "done" || !layer?.undo()) return;
  socket.edit("undo");
  outdated();
  drawn();
  follow(layer.undone.at(-1));
}

function redo() {
  if (status === "done" || !layer?.redo()) return;
  socket.edit("redo");
  outdated();
  drawn();
  follow(layer.strokes.at(-1));
}

function follow({ slice = 0, axis = 0 }) {
  if (slice !== layer.plane.slice || axis !== layer.plane.axis) return slices.go(slice, axis);
  return undefined;
}

// A locked label keeps its pixels: those of the answer become strokes before the next one.
function freeze() {
  const answer = shownAnswer();
  if (!answer) return;
  for (const value of labels.locked()) {
    const free = answer.some((label, i) => label === value && layer.raster[i] !== value);
    if (free) commitMask(answer.map((label) => Number(label === value)), value);
  }
}

function shownAnswer() {
  const answer = view.answers.certified;
  return answer && layer.plane.cut(answer.labels);
}

function commitMask(mask, label) {
  const points = outline(mask, layer.width, layer.height);
  if (points.length > MOST_POINTS) say("This region has too intricate a border; draw along it instead.", "error");
  else commit({ tool: "polygon", label, size: 1, points, protected: [], ...layer.plane.place });
}

// A click on a region of the answer: another object where it has the chosen class, else that class.
function pick([px, py]) {
  const answer = shownAnswer();
  const [x, y] = [Math.floor(px), Math.floor(py)];
  if (!answer || x < 0 || y < 0 || x >= layer.width || y >= layer.height) return;
  const found = answer[y * layer.width + x];
  if (labels.locked().includes(found)) return;
  const mask = component(answer, layer.width, layer.height, x, y);
  const label = labels.classOf(found) === labels.active ? labels.addObject() : labels.value;
  if (label !== null) commitMask(mask, label);
}

// A box around an object: its pixels, as the server finds them, become a stroke; those around the
// box one of another label, where there is none yet.
async function find({ points, label, slice, axis, ...rest }) {
  const [[x0, y0], [x1, y1] = [x0, y0]] = points;
  const box = [Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)];
  const asked = layer.plane;
  const image = encodeURIComponent(socket.image);
  document.body.dataset.finding = "yes";
  const answer = await fetch(`object?name=${image}&box=${box}&slice=${slice ?? 0}&axis=${axis ?? 0}`).catch(() => null);
  delete document.body.dataset.finding;
  if (layer?.plane !== asked) return;
  if (!tools.path) view.path = null;
  view.draw();
  if (!answer?.ok) {
    const { error } = (await answer?.json().catch(() => null)) ?? { error: "the server did not answer" };
    say(error, "error");
    return;
  }
  const { planes } = await unpack(await answer.arrayBuffer());
  if (layer?.plane !== asked || status === "done") return;
  if (!shownAnswer() && !layer.raster.some((value) => value < 255 && value !== label)) {
    const by = AROUND + rest.size / 2;
    const around = corners([[box[0] - by, box[1] - by], [box[2] + by, box[3] + by]]);
    commit({ ...rest, tool: "brush", label: labels.classOf(label) === 0 ? 1 : 0, points: around, slice, axis });
  }
  commitMask(planes[0], label);
}

function addObject(label, at) {
  socket.edit("object", { label, at });
  saving();
  recolour();
}

// Merged and reordered labels have other numbers: the server then sends the document anew.
function relabelled(change) {
  recolour();
  socket.edit("labels", change);
  saving();
}

function change(values) {
  settings = { ...settings, ...values };
  socket.edit("settings", { settings });
  saving();
}

// The answer on screen is that of other strokes.
function outdated() {
  if (document.body.dataset.state === "current") headline.set("working");
  saving();
}

function saving() {
  $("saved").textContent = "saving …";
  document.body.dataset.saved = "no";
}

// --- From the server -----------------------------------------------------------------------------

const hear = {
  document: show,
  reopen: () => socket.open(socket.image, config.folder),
  edit({ edit }) {
    if (socket.pending.length || !repeat(edit)) behind = true; // also labels, settings, merges
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
    if (!view.image) headline.set("broken");
    say(text, level);
  },
  waiting() {
    best = null;
    alone = false;
    view.answers = {};
    view.repaint();
    meter.waiting();
    headline.set(layer?.strokes.length ? "one" : "empty");
    if (layer) drawn();
  },
  progress: (head) => meter.progress(head),
  unsure: ({ regions }) => headline.unsure(regions),
};

// Make an edit on the page; false where it takes the whole document.
function repeat(edit) {
  if (edit.kind === "stroke") layer.add(edit.stroke);
  else if (edit.kind === "undo") layer.undo();
  else if (edit.kind === "redo") layer.redo();
  else if (edit.kind === "status") mark(edit.status);
  else return false;
  return true;
}

function heard(message) {
  return hear[message.type]?.(message);
}

function catchUp() {
  behind = false;
  socket.sync();
}

function answered(head, [answer, proven]) {
  if (!layer || answer.length !== layer.volume.length) return;
  if (head.stage === "meanfield") {
    view.setAnswer("meanfield", { labels: answer });
    meter.compared(head, best);
    document.body.dataset.compared = "yes";
    return;
  }
  // Before most are proven, a pixel that is not says more of the proof than of the pixel.
  const telling = head.proven >= 0.5;
  view.setAnswer("certified", { labels: answer, proven: telling ? proven : undefined });
  const certified = head.stage === "certified";
  if (certified !== (document.body.dataset.state === "current")) headline.set(certified ? "current" : "working");
  if (head.stage === "preview") meter.preview(head);
  else if (certified) {
    best = head.energy;
    meter.certified(head, answer.length);
    alone = head.alone;
    drawn();
  } else meter.progress(head);
  document.body.dataset.revision = head.revision;
}

function connected(yes) {
  document.body.dataset.connected = yes ? "yes" : "no";
  headline.connected(yes);
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
model.set({ preset: "default", strength: 1, color: 1, reach: 1, min_area: 0 });
headline.set("closed");
meter.waiting();
$("size").addEventListener("input", () => resize(Number($("size").value)));
$("undo").addEventListener("click", undo);
$("redo").addEventListener("click", redo);
$("fit").addEventListener("click", () => view.fit());
$("clear").addEventListener("click", () => {
  if (layer?.strokes.length && status !== "done") commit({ tool: "clear", label: 0, size: 1, points: [], protected: [] });
});
$("status").addEventListener("change", () => setStatus($("status").value));
$("next-todo").addEventListener("click", unlabelled);
$("copy-strokes").addEventListener("click", copyStrokes);
$("copy-labels").addEventListener("click", copyLabels);
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
  label(key) {
    const at = labels.byKey(key);
    if (at >= 0) labels.choose(at);
    return at >= 0;
  },
  size: (by) => resize(tools.size + by * Math.max(1, Math.round(tools.size / 8))),
  undo,
  redo,
  zoom: (factor) => view.image && view.zoom(factor),
  fit: () => view.fit(),
  step: (by) => files.step(by),
  slice: (by) => layer && slices.go(layer.plane.slice + by),
  plane: () => slices.turn(),
  space: (down) => {
    tools.space = down;
  },
  gallery: Object.assign(() => gallery.toggle(), { open: () => gallery.open }),
  unlabelled,
  status: (value) => setStatus(status === value ? "todo" : value),
  unsure: () => headline.next(),
  object: () => layer && labels.addObject(),
  close: () => tools.close(),
  cancel() {
    tools.cancel();
    view.box = null;
    view.draw();
  },
  back: () => tools.back(),
});

await files.refresh();
const wanted = decodeURIComponent(location.hash.slice(1));
const first = files.names.includes(wanted) ? wanted : files.names[0];
usable(false);
if (first !== undefined) open(first);
else $("empty").hidden = false;

window.densecrf = { view, layer: () => layer }; // for tests and the curious
