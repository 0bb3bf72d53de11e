// Regions of a label map, and their borders as one polygon.

// The pixels that are connected, by sides, to one and have its label.
export function component(labels, width, height, x, y) {
  const mask = new Uint8Array(width * height);
  const value = labels[y * width + x];
  const todo = [y * width + x];
  while (todo.length) {
    const at = todo.pop();
    if (mask[at] || labels[at] !== value) continue;
    mask[at] = 1;
    const column = at % width;
    if (column > 0) todo.push(at - 1);
    if (column + 1 < width) todo.push(at + 1);
    if (at >= width) todo.push(at - width);
    if (at + width < labels.length) todo.push(at + width);
  }
  return mask;
}

// The borders of a mask as one polygon, whose pixels by even and odd are the mask's. Each further
// border, of an island or a hole, is reached and left again by the same way, which cancels.
export function outline(mask, width, height) {
  const points = [];
  for (const loop of loops(mask, width, height)) {
    points.push(...loop, loop[0]);
    if (points.length > loop.length + 1) points.push(points[0]);
  }
  return points;
}

const STEPS = [[1, 0], [0, 1], [-1, 0], [0, -1]];

// Closed borders along the sides of pixels, corner by corner, the mask to the right.
function loops(mask, width, height) {
  const inside = (x, y) => x >= 0 && y >= 0 && x < width && y < height && mask[y * width + x] === 1;
  const ways = new Map(); // from a corner: directions
  const add = (x, y, way) => {
    const key = y * (width + 1) + x;
    if (!ways.has(key)) ways.set(key, []);
    ways.get(key).push(way);
  };
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      if (!inside(x, y)) continue;
      if (!inside(x, y - 1)) add(x, y, 0);
      if (!inside(x + 1, y)) add(x + 1, y, 1);
      if (!inside(x, y + 1)) add(x + 1, y + 1, 2);
      if (!inside(x - 1, y)) add(x, y + 1, 3);
    }
  }
  const found = [];
  for (const [start, here] of ways) {
    while (here.length) {
      const loop = [];
      let at = start;
      let last = -1;
      while (ways.get(at)?.length) {
        const choices = ways.get(at);
        const turn = choices.indexOf((last + 1) % 4); // where two borders meet, to the right
        const [way] = choices.splice(last >= 0 && turn >= 0 ? turn : 0, 1);
        if (way !== last) loop.push([at % (width + 1), Math.floor(at / (width + 1))]);
        last = way;
        at += STEPS[way][0] + STEPS[way][1] * (width + 1);
      }
      found.push(loop);
    }
  }
  return found;
}
