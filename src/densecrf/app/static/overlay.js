// Label maps as pictures: tinted, outlined, undecided pixels hatched.

export const FIRST_OBJECT = 64; // labels of further objects of a class begin here (strokes.py)

// The colour of each label; further objects of a class, `objects`, have lighter or darker ones.
export function colorTable(labels, objects = []) {
  const table = labels.map(({ color }) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)));
  objects.forEach((label, at) => {
    const number = objects.slice(0, at).filter((each) => each === label).length;
    const [towards, share] = [number % 2 ? 0 : 255, 0.3 + 0.15 * (Math.floor(number / 2) % 3)];
    table[FIRST_OBJECT + at] = table[label].map((value) => Math.round(value + share * (towards - value)));
  });
  return table;
}

export function paintAnswer(picture, labels, proven, colors, { opacity, outlines, hatch }) {
  const { data, width } = picture;
  const alpha = Math.round(255 * (outlines ? 0 : opacity));
  const last = labels.length;
  for (let i = 0; i < last; i += 1) {
    const label = labels[i];
    const [r, g, b] = colors[label] ?? [128, 128, 128];
    const at = 4 * i;
    const x = i % width;
    const edge = (x + 1 < width && labels[i + 1] !== label) || (i + width < last && labels[i + width] !== label);
    if (edge) {
      data[at] = r;
      data[at + 1] = g;
      data[at + 2] = b;
      data[at + 3] = outlines ? 255 : alpha && Math.min(255, alpha + 90);
    } else if (hatch && proven && !proven[i] && (x + (i - x) / width) % 6 < 2) {
      data[at] = 255;
      data[at + 1] = 255;
      data[at + 2] = 255;
      data[at + 3] = 170;
    } else {
      data[at] = r;
      data[at + 1] = g;
      data[at + 2] = b;
      data[at + 3] = alpha;
    }
  }
}

export function paintStrokes(picture, raster, colors) {
  const pixels = new Uint32Array(picture.data.buffer);
  const words = new Uint32Array(256);
  const bytes = new Uint8Array(words.buffer);
  colors.forEach(([r, g, b], label) => bytes.set([r, g, b, 255], 4 * label));
  for (let i = 0; i < raster.length; i += 1) pixels[i] = words[raster[i]];
}
