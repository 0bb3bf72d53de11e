// The keyboard: letters choose tools, digits and labels' own keys labels; nothing while a text is being edited.

const $ = (id) => document.getElementById(id);
const TOOLS = { b: "brush", e: "eraser", l: "line", r: "box", f: "fill", p: "polygon", w: "wire", c: "region", t: "object" };
const TOGGLES = { o: "outlines", s: "show-strokes", h: "hatch" };

// `on`: tool, label (true where the key is one's), size, undo, redo, zoom, fit, step, slice, plane, space, gallery
// (and whether it is open), unlabelled, status, unsure, object, close, cancel, back.
export function listen(on) {
  const press = (event) => {
    if (event.target.matches?.("input[type=text], select, textarea")) return;
    if (document.querySelector("dialog[open]")) return;
    if (on.gallery.open()) {
      if (event.key.toLowerCase() === "g") on.gallery();
      return;
    }
    const key = event.key.toLowerCase();
    if (event.ctrlKey || event.metaKey) {
      if (key === "z") (event.shiftKey ? on.redo : on.undo)();
      else if (key === "y") on.redo();
      else return;
    } else if (on.label(key)) {
      // a key of a label's own goes before those of tools
    } else if (key in TOOLS) on.tool(TOOLS[key]);
    else if (key in TOGGLES) $(TOGGLES[key]).click();
    else if (key === "0") on.fit();
    else if (key === "[" || key === "]") on.size(key === "]" ? 1 : -1);
    else if (key === "+" || key === "=" || key === "-") on.zoom(key === "-" ? 0.8 : 1.25);
    else if (key === "pageup" || key === "pagedown") on.step(key === "pagedown" ? 1 : -1);
    else if (key === "," || key === ".") on.slice(key === "." ? 1 : -1);
    else if (key === "x") on.plane();
    else if (key === "?") $("help").click();
    else if (key === " ") on.space(true);
    else if (key === "g") on.gallery();
    else if (key === "n") on.unlabelled();
    else if (key === "d") on.status("done");
    else if (key === "q") on.status("doubtful");
    else if (key === "u") on.unsure();
    else if (key === "a") on.object();
    else if (key === "enter") return void on.close();
    else if (key === "escape") on.cancel();
    else if (key === "backspace") on.back();
    else return;
    event.preventDefault();
  };
  window.addEventListener("keydown", press);
  window.addEventListener("keyup", (event) => {
    if (event.key === " ") on.space(false);
  });
  window.addEventListener("blur", () => on.space(false));
}
