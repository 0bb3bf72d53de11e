// Images: the folder's list, next and previous, drop, paste and choose.

const $ = (id) => document.getElementById(id);
const MARKS = { todo: "", doubtful: " ?", done: " ✓" };

export class Files {
  // `on`: open(name), error(text).
  constructor(on, mostBytes) {
    this.on = on;
    this.mostBytes = mostBytes;
    this.list = [];
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
    this.list = listing;
    this.names = listing.map(({ name }) => name);
    const options = listing.map(({ name, status }) =>
      Object.assign(document.createElement("option"), { value: name, textContent: `${name}${MARKS[status]}` }),
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

  // The next image, after this one and then from the first, that is to do.
  async unlabelled() {
    await this.refresh();
    const at = this.names.indexOf(this.current);
    const order = [...this.list.slice(at + 1), ...this.list.slice(0, Math.max(0, at))];
    const found = order.find(({ status }) => status === "todo");
    if (found) this.on.open(found.name);
    return Boolean(found);
  }

  get following() {
    return this.names[this.names.indexOf(this.current) + 1];
  }

  async upload(files) {
    let last = null;
    for (const file of files) {
      const name = file.name || "pasted.png";
      if (file.size > this.mostBytes) {
        this.on.error(`${name}: larger than ${this.mostBytes >> 20} MiB; shrink it first`);
        continue;
      }
      if (this.current && /\.np[yz]$/i.test(name)) {
        const place = `drop?name=${encodeURIComponent(this.current)}&file=${encodeURIComponent(name)}`;
        const { error } = await sent(place, file);
        if (!error) {
          last = this.current;
          continue;
        }
        this.on.error(error);
        if (/z$/i.test(name)) continue; // an array may be an image of its own
      }
      const { name: kept, error } = await sent(`upload?name=${encodeURIComponent(name)}`, file);
      if (error) this.on.error(error);
      else last = kept;
    }
    $("file").value = "";
    if (last === null) return;
    await this.refresh();
    this.on.open(last);
  }
}

async function sent(place, file) {
  const answer = await fetch(place, { method: "POST", body: file }).catch(() => null);
  return (await answer?.json().catch(() => null)) ?? { error: `${file.name}: could not be sent` };
}
