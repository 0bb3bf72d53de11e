// Sliders and a preset: what the energy's numbers are multiplied by, and the least size of regions.

const $ = (id) => document.getElementById(id);
const SLIDERS = ["strength", "color", "reach"];

export class ModelPanel {
  constructor(presets, change) {
    this.change = change;
    for (const [name, about] of Object.entries(presets)) {
      $("preset").append(Object.assign(document.createElement("option"), { value: name, textContent: name, title: about }));
    }
    $("preset").addEventListener("change", () => this.change(this.values()));
    for (const id of [...SLIDERS, "min_area"]) {
      $(id).addEventListener("input", () => {
        this.#show();
        this.change(this.values());
      });
      $(id).addEventListener("dblclick", () => {
        $(id).value = 0;
        $(id).dispatchEvent(new Event("input"));
      });
    }
  }

  values() {
    const factors = SLIDERS.map((id) => [id, 2 ** Number($(id).value)]);
    return { preset: $("preset").value, ...Object.fromEntries(factors), min_area: pixels() };
  }

  set(settings) {
    $("preset").value = settings.preset;
    for (const id of SLIDERS) $(id).value = Math.log2(settings[id]);
    $("min_area").value = Math.log2(settings.min_area + 1);
    this.#show();
  }

  #show() {
    for (const id of SLIDERS) {
      const factor = 2 ** Number($(id).value);
      $(id).nextElementSibling.textContent = `× ${factor.toPrecision(2).replace(/\.0$/, "")}`;
    }
    $("min_area").nextElementSibling.textContent = pixels() ? `${pixels()} px` : "off";
  }
}

function pixels() {
  return Math.round(2 ** Number($("min_area").value)) - 1;
}
