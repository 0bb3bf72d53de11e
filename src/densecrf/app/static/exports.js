// The export dialog: every file is made by the server from the strokes alone.

const $ = (id) => document.getElementById(id);
const KINDS = [
  ["labels", "Labels", "PNG with the palette"],
  ["overlay", "Overlay", "PNG, labels over the image"],
  ["coco", "COCO", "JSON with run-length masks"],
  ["result", "Arrays", "NPZ: labels, marginals, certificate"],
  ["strokes", "Strokes", "JSON, to go on elsewhere"],
  ["python", "Python", "repeats the result, beside the ZIP's files"],
  ["command", "Command line", "repeats the result, beside the ZIP's files"],
  ["all", "Everything", "ZIP of all of these"],
];

export class Exports {
  constructor(image) {
    this.image = image;
    $("export").addEventListener("click", () => {
      $("export-state").textContent = "";
      $("export-dialog").showModal();
    });
    $("export-kinds").append(...KINDS.map((kind) => this.#button(...kind)));
  }

  #button(kind, title, about) {
    const button = document.createElement("button");
    button.dataset.export = kind;
    button.append(title, Object.assign(document.createElement("small"), { textContent: about }));
    button.addEventListener("click", () => this.#save(kind, title));
    return button;
  }

  async #save(kind, title) {
    const state = $("export-state");
    state.textContent = `${title}: solving …`;
    const answer = await fetch(`export/${kind}?name=${encodeURIComponent(this.image())}`);
    if (!answer.ok) {
      const { error } = await answer.json().catch(() => ({ error: "the server did not answer" }));
      state.textContent = error;
      return;
    }
    const [, name] = answer.headers.get("content-disposition").split("''");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = decodeURIComponent(name);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    state.textContent = `${link.download} is saved in your downloads.`;
  }
}
