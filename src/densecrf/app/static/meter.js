// The certificate, under "Solver": energy and proven bound, how they close in, and their curve.

const WORST = 0.1; // gap at which the meter is full
const BEST = 1e-7; // and at which it is closed
const $ = (id) => document.getElementById(id);

export function percent(gap) {
  const value = 100 * gap;
  return `${value < 1e-6 ? "0" : value.toPrecision(value < 0.1 ? 1 : 2)} %`;
}

export class Meter {
  constructor() {
    this.trace = [];
    $("solver").addEventListener("toggle", () => this.#curve());
  }

  waiting() {
    this.trace = [];
    this.#stage("waiting");
    $("meter").className = "meter-gap idle";
    $("meter").style.width = "100%";
    $("claim").textContent = "nothing is solved yet";
    for (const id of ["gap", "bound", "energy"]) $(id).textContent = "–";
    $("time").textContent = "";
    this.#curve();
  }

  preview(head) {
    this.trace = [];
    this.#stage("preview");
    $("energy").textContent = number(head.energy);
    $("bound").textContent = "…";
    $("gap").textContent = "…";
    $("claim").textContent = "mean field; proving";
    $("meter").style.width = "100%";
    $("meter").className = "meter-gap";
    this.#time(head);
  }

  progress(head) {
    this.#numbers(head);
    this.#stage("proving");
    $("claim").textContent = "estimated distance from the best labelling; the proof is under way";
    this.#time(head);
    this.trace.push([head.seconds, head.energy, head.bound]);
    this.#curve();
  }

  certified(head, pixels) {
    this.#numbers(head);
    this.#stage("certified");
    const all = `${head.labels}${superscript(pixels)}`;
    const claim = head.optimal ? `the lowest energy of all ${all} labellings, proven` : `at most this far above the lowest energy of all ${all} labellings, proven`;
    const decided = head.proven >= 0.5 ? `; ${(100 * head.proven).toFixed(1)} % of the pixels are proven singly` : "";
    $("claim").textContent = `${claim}${decided}`;
    $("islands").textContent = head.islands ? number(head.islands) : "–";
    $("meter").classList.add("done");
    this.#time(head);
    this.trace.push([head.seconds, head.energy, head.bound]);
    this.#curve();
  }

  compared(head, best) {
    const above = best ? (head.energy - best) / Math.max(1, Math.abs(best)) : 0;
    $("compare-numbers").hidden = false;
    $("compare-numbers").textContent = `mean field: energy ${number(head.energy)}, ${percent(Math.max(0, above))} above the certified answer`;
  }

  #numbers(head) {
    $("energy").textContent = number(head.energy);
    $("bound").textContent = head.bound === null ? "…" : number(head.bound);
    if (head.gap === null) return;
    $("gap").textContent = percent(head.gap);
    const share = Math.log(head.gap / BEST) / Math.log(WORST / BEST);
    $("meter").style.width = `${100 * Math.min(1, Math.max(0.015, share))}%`;
    $("meter").className = "meter-gap";
  }

  #stage(stage) {
    document.body.dataset.stage = stage;
  }

  #time({ seconds }) {
    $("time").textContent = `${seconds.toFixed(2)} s`;
  }

  #curve() {
    if (!$("solver").open) return;
    const canvas = $("curve");
    const context = canvas.getContext("2d");
    const { width, height } = canvas;
    context.clearRect(0, 0, width, height);
    const rows = this.trace.filter(([, energy, bound]) => energy !== null && bound !== null);
    if (rows.length < 2) return;
    const style = getComputedStyle(document.documentElement);
    const latest = rows[0][0] + Math.max(1e-3, rows.at(-1)[0] - rows[0][0]);
    const high = Math.max(...rows.map(([, energy]) => energy));
    const final = rows.at(-1);
    const low = Math.min(final[2], final[1]) - Math.max(1e-9, 2 * (high - final[2]));
    const x = (seconds) => 8 + ((seconds - rows[0][0]) / (latest - rows[0][0])) * (width - 16);
    const y = (value) => height - 14 - ((Math.max(value, low) - low) / (high - low)) * (height - 28);
    for (const [column, color] of [[1, "--accent"], [2, "--good"]]) {
      context.beginPath();
      rows.forEach((row, i) => (i ? context.lineTo(x(row[0]), y(row[column])) : context.moveTo(x(row[0]), y(row[column]))));
      context.strokeStyle = style.getPropertyValue(color);
      context.lineWidth = 4;
      context.stroke();
    }
  }
}

function number(value) {
  return value === null ? "–" : value.toLocaleString("en", { maximumFractionDigits: value < 1000 ? 2 : 0 });
}

function superscript(value) {
  return [...String(value)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
}
