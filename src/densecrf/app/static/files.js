// Images: the folder's list, next and previous, drop, paste and choose.

const $ = (id) => document.getElementById(id);

export class Files {
  // `on`: open(name), error(text).
  constructor(on, mostBytes) {
    this.on = on;
    this.mostBytes = mostBytes;
    this.names = [];
    this.current = null;
    $("images").addEventListener("change", () => this.on.open($("images").value));
    $("previous").addEventListener("click", () => this.step(-1));
    $("next").addEventListener("click", () => this.step(1));
    for (const id of ["choose", "choose-too"]) $(id).addEventListener("click", () => $("file").click());
    $("file").addEventListener("change", () => this.upload([...$("file").files]));
    const stage = $("stage");
    stage.addEventListener("dragover", (event) => {
      event.preventDefault();
      stage.classList.add("dropping");
    });
    stage.addEventListener("dragleave", () => stage.classList.remove("dropping"));
    stage.addEventListener("drop", (event) => {
      event.preventDefault();
      stage.classList.remove("dropping");
      this.upload([...event.dataTransfer.files]);
    });
    window.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length) this.upload(files);
    });
  }

  async refresh() {
    const listing = await (await fetch("images")).json();
    this.names = listing.map(({ name }) => name);
    const options = listing.map(({ name, drawn }) =>
      Object.assign(document.createElement("option"), { value: name, textContent: drawn ? `${name} ✓` : name }),
    );
    $("images").replaceChildren(...options);
    this.show(this.current);
  }

  show(name) {
    this.current = name;
    const at = this.names.indexOf(name);
    $("images").value = name ?? "";
    $("images").hidden = !this.names.length;
    $("previous").disabled = at <= 0;
    $("next").disabled = at < 0 || at + 1 >= this.names.length;
  }

  step(by) {
    const name = this.names[this.names.indexOf(this.current) + by];
    if (name !== undefined) this.on.open(name);
  }

  async upload(files) {
    let last = null;
    for (const file of files) {
      const name = file.name || "pasted.png";
      if (file.size > this.mostBytes) {
        this.on.error(`${name}: larger than ${this.mostBytes >> 20} MiB; shrink it first`);
        continue;
      }
      const answer = await fetch(`upload?name=${encodeURIComponent(name)}`, { method: "POST", body: file });
      const { name: kept, error } = await answer.json().catch(() => ({ error: `${name}: could not be sent` }));
      if (error) this.on.error(error);
      else last = kept;
    }
    $("file").value = "";
    if (last === null) return;
    await this.refresh();
    this.on.open(last);
  }
}
