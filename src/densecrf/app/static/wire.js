// Smart edges: the cheapest way between two points, where steps along strong edges are cheap.

const WINDOW = 160; // pixels around the last point in which the way is looked for
const LEAST = 0.02; // cost of a step along the strongest edge

// The cost of each pixel: small where the image changes much.
export function edgeCosts(image, width, height) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const strength = new Float32Array(width * height);
  let most = 1;
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      const [left, right] = [y * width + Math.max(0, x - 1), y * width + Math.min(width - 1, x + 1)];
      const [up, down] = [Math.max(0, y - 1) * width + x, Math.min(height - 1, y + 1) * width + x];
      let sum = 0;
      for (let c = 0; c < 3; c += 1) {
        sum += (data[4 * right + c] - data[4 * left + c]) ** 2 + (data[4 * down + c] - data[4 * up + c]) ** 2;
      }
      strength[y * width + x] = Math.sqrt(sum);
      most = Math.max(most, strength[y * width + x]);
    }
  }
  const level = Math.max(20, 0.25 * most); // stronger edges are all alike
  return strength.map((value) => LEAST + (1 - Math.min(1, value / level)) ** 2);
}

// The ways from one pixel to all others of a window around it (Dijkstra, with buckets).
export class Wire {
  constructor(costs, width, height, [px, py]) {
    this.left = Math.max(0, px - WINDOW);
    this.top = Math.max(0, py - WINDOW);
    this.width = Math.min(width, px + WINDOW + 1) - this.left;
    this.height = Math.min(height, py + WINDOW + 1) - this.top;
    this.#spread(costs, width, [px - this.left, py - this.top]);
  }

  #spread(costs, stride, [x0, y0]) {
    const size = this.width * this.height;
    const distance = new Float64Array(size).fill(Infinity);
    this.from = new Int32Array(size).fill(-1);
    const buckets = [[y0 * this.width + x0]];
    const scale = 50; // buckets for a cost of 1
    distance[y0 * this.width + x0] = 0;
    for (let level = 0; level < buckets.length; level += 1) {
      const bucket = buckets[level] ?? [];
      for (let i = 0; i < bucket.length; i += 1) {
        const at = bucket[i];
        if (Math.floor(distance[at] * scale) !== level) continue;
        const x = at % this.width;
        const y = (at - x) / this.width;
        for (let dy = -1; dy <= 1; dy += 1) {
          for (let dx = -1; dx <= 1; dx += 1) {
            const [nx, ny] = [x + dx, y + dy];
            if ((!dx && !dy) || nx < 0 || ny < 0 || nx >= this.width || ny >= this.height) continue;
            const next = ny * this.width + nx;
            const step = costs[(ny + this.top) * stride + nx + this.left] * (dx && dy ? Math.SQRT2 : 1);
            if (distance[at] + step >= distance[next]) continue;
            distance[next] = distance[at] + step;
            this.from[next] = at;
            const place = Math.floor(distance[next] * scale);
            (buckets[place] ??= []).push(next);
          }
        }
      }
      buckets[level] = undefined;
    }
  }

  // The pixels' centres from the first point to another, that one included; a straight line where
  // it is outside the window.
  to([px, py]) {
    const [x, y] = [Math.floor(px) - this.left, Math.floor(py) - this.top];
    if (x < 0 || y < 0 || x >= this.width || y >= this.height) return [[px, py]];
    const way = [];
    for (let at = y * this.width + x; this.from[at] >= 0; at = this.from[at]) {
      way.push([(at % this.width) + this.left + 0.5, Math.floor(at / this.width) + this.top + 0.5]);
    }
    return way.reverse();
  }
}
