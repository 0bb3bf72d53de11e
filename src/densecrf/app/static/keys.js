// The keyboard: letters choose tools, digits labels; nothing while a text is being edited.

const $ = (id) => document.getElementById(id);
const TOOLS = { b: "brush", e: "eraser", l: "line", r: "box", f: "fill" };
const TOGGLES = { o: "outlines", s: "show-strokes", h: "hatch" };

// `on`: tool, label, size, undo, redo, zoom, fit, step, slice, space.
export function listen(on) {
  const press = (event) => {
    if (event.target.matches?.("input[type=text], select, textarea")) return;
    if (document.querySelector("dialog[open]")) return;
    const key = event.key.toLowerCase();
    if (event.ctrlKey || event.metaKey) {
      if (key === "z") (event.shiftKey ? on.redo : on.undo)();
      else if (key === "y") on.redo();
      else return;
    } else if (key in TOOLS) on.tool(TOOLS[key]);
    else if (key in TOGGLES) $(TOGGLES[key]).click();
    else if (/^[1-9]$/.test(key)) on.label(Number(key) - 1);
    else if (key === "0") on.fit();
    else if (key === "[" || key === "]") on.size(key === "]" ? 1 : -1);
    else if (key === "+" || key === "=" || key === "-") on.zoom(key === "-" ? 0.8 : 1.25);
    else if (key === "pageup" || key === "pagedown") on.step(key === "pagedown" ? 1 : -1);
    else if (key === "," || key === ".") on.slice(key === "." ? 1 : -1);
    else if (key === "?") $("help").click();
    else if (key === " ") on.space(true);
    else return;
    event.preventDefault();
  };
  window.addEventListener("keydown", press);
  window.addEventListener("keyup", (event) => {
    if (event.key === " ") on.space(false);
  });
  window.addEventListener("blur", () => on.space(false));
}
