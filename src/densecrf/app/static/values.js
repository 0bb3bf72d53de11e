// How a file's values become colours: bands, and which values are black and white.

const $ = (id) => document.getElementById(id);
const AUTOMATIC = "automatic";
// Level and width, in Hounsfield units.
const WINDOWS = { "soft tissue": [40, 400], brain: [40, 80], lung: [-600, 1500], bone: [400, 1800] };

export class ValuesPanel {
  // `change(reading)` asks for another reading.
  constructor(change) {
    this.change = change;
    for (const id of ["level", "width"]) {
      $(id).addEventListener("input", () => this.#label());
      $(id).addEventListener("change", () => this.#ask({ window: this.#window() }));
      $(id).addEventListener("dblclick", () => this.#ask({}));
    }
    $("stretch").addEventListener("change", () => {
      const chosen = $("stretch").value;
      if (chosen in WINDOWS) this.#ask({ window: ends(...WINDOWS[chosen]) });
      else this.#ask(chosen === AUTOMATIC ? {} : { clip: Number(chosen) });
    });
  }

  // `values`: bands, low, high, window, unit; null where there is nothing to choose.
  set({ reading, values }, volume) {
    $("values").hidden = values === null;
    if (values === null) return;
    Object.assign(this, { reading, values });
    const slots = values.bands === 1 ? [] : volume || values.bands === 2 ? ["Volume"] : ["Red", "Green", "Blue"];
    const names = slots.length === 1 && !volume ? ["Band"] : slots;
    const chosen = reading.bands ?? [1, 2, 3];
    $("bands").replaceChildren(...names.map((name, at) => this.#band(name, chosen[at] ?? chosen[0])));
    const windows = values.unit === "HU" ? Object.keys(WINDOWS).map((name) => [name, name]) : [];
    const stretches = [[AUTOMATIC, "automatic"], ["0", "all values"], ["2", "2 % at each end"], ["5", "5 % at each end"], ...windows];
    const matching = Object.keys(WINDOWS).find((name) => reading.window && String(ends(...WINDOWS[name])) === String(reading.window));
    if (reading.window && !matching) stretches.push(["window", "window"]);
    $("stretch").replaceChildren(...stretches.map(([value, text]) => option(value, text)));
    $("stretch").value = reading.window ? matching ?? "window" : String(reading.clip ?? AUTOMATIC);
    const [black, white] = values.window ?? [values.low, values.high];
    const span = Math.max(values.high - values.low, Math.abs(white - black), 1e-6);
    const step = span > 500 ? 1 : span / 500;
    Object.assign($("level"), { min: Math.min(values.low, black), max: Math.max(values.high, white), step });
    Object.assign($("width"), { min: step, max: span, step });
    this.inverted = white < black;
    $("level").value = (black + white) / 2;
    $("width").value = Math.abs(white - black);
    this.#label();
  }

  #band(name, chosen) {
    const select = document.createElement("select");
    select.setAttribute("aria-label", name);
    select.append(...Array.from({ length: this.values.bands }, (_, at) => option(at + 1, at + 1)));
    select.value = chosen;
    select.addEventListener("change", () => this.#ask(this.#kept()));
    const label = Object.assign(document.createElement("label"), { textContent: `${name} ` });
    label.append(select);
    return label;
  }

  #kept() {
    const { window, clip } = this.reading;
    return { ...(window && { window }), ...(clip !== undefined && { clip }) };
  }

  #window() {
    const window = ends(Number($("level").value), Number($("width").value));
    return this.inverted ? window.reverse() : window;
  }

  // Three equal bands are one, shown grey.
  #ask(reading) {
    const bands = [...$("bands").querySelectorAll("select")].map((select) => Number(select.value));
    const grey = bands.every((band) => band === bands[0]) ? bands.slice(0, 1) : bands;
    this.change({ ...reading, ...(bands.length && { bands: grey }) });
  }

  #label() {
    for (const id of ["level", "width"]) {
      const value = Number($(id).value);
      $(id).nextElementSibling.textContent = `${Number(value.toPrecision(4))} ${this.values.unit}`.trim();
    }
  }
}

function ends(level, width) {
  return [level - width / 2, level + width / 2];
}

function option(value, text) {
  return Object.assign(document.createElement("option"), { value, textContent: text });
}
