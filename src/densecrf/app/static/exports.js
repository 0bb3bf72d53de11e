// The export dialog: one image, made by the server from the strokes alone, or the whole folder.

const $ = (id) => document.getElementById(id);
const KINDS = [
  ["labels", "Labels", "PNG with the palette", "NIfTI in the place of the scan, or an array"],
  ["overlay", "Overlay", "PNG, labels over the image"],
  ["coco", "COCO", "JSON with run-length masks"],
  ["result", "Arrays", "NPZ: labels, marginals, certificate", "NPZ: labels, marginals, certificate"],
  ["strokes", "Strokes", "JSON, to go on elsewhere", "JSON, to go on elsewhere"],
  ["python", "Python", "repeats the result, beside the ZIP's files", "repeats the result, beside the ZIP's files"],
  ["command", "Command line", "repeats the result, beside the ZIP's files"],
  ["all", "Everything", "ZIP of all of these", "ZIP of all of these"],
];
const FORMATS = [
  ["png", "PNG", "label images and tables"],
  ["coco", "COCO", "one JSON, an annotation for each object"],
  ["yolo", "YOLO", "polygons, for segmentation"],
  ["voc", "Pascal VOC", "classes, objects and boxes"],
];

export class Exports {
  // `image()` is the name of the open image, `volume()` whether it has slices, `large()` whether it is worked on at
  // reduced size.
  constructor(image, volume, large) {
    $("export").addEventListener("click", () => {
      $("reduced-row").hidden = !large();
      $("export-state").textContent = "";
      const kinds = KINDS.filter((kind) => !volume() || kind[3]);
      const button = ([kind, title, about, slices]) =>
        this.#button(title, volume() ? slices : about, { export: kind }, `export/${kind}?name=${encodeURIComponent(image())}`);
      $("export-kinds").replaceChildren(...kinds.map(button));
      const whole = ([kind, title, about]) => this.#button(title, about, { dataset: kind }, `dataset/${kind}`);
      $("dataset-kinds").replaceChildren(...FORMATS.map(whole));
      $("export-dialog").showModal();
    });
  }

  #button(title, about, data, address) {
    const button = document.createElement("button");
    Object.assign(button.dataset, data);
    button.append(title, Object.assign(document.createElement("small"), { textContent: about }));
    button.addEventListener("click", () => {
      const only = data.dataset && $("only-done").checked ? "?only=done" : "";
      const size = data.export && !$("reduced-row").hidden && $("reduced").checked ? "&size=reduced" : "";
      this.#save(`${address}${only}${size}`, title);
    });
    return button;
  }

  async #save(address, title) {
    const state = $("export-state");
    state.textContent = `${title}: solving …`;
    const answer = await fetch(address).catch(() => null);
    if (!answer?.ok) {
      const { error } = (await answer?.json().catch(() => null)) ?? { error: "the server did not answer" };
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
