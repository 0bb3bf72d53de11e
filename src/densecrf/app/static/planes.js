// A volume's planes: arrays over slices, rows and columns, cut across one of these axes.
// An image is a volume of one slice.

export class Plane {
  // `sides` of the volume, and the distances between its voxels, both along slices, rows, columns.
  constructor(sides, axis = 0, slice = 0, distances = [1, 1, 1]) {
    const [rows, columns] = [0, 1, 2].filter((each) => each !== axis);
    const strides = [sides[1] * sides[2], sides[2], 1];
    Object.assign(this, { sides, axis, slice, height: sides[rows], width: sides[columns] });
    this.aspect = distances[rows] / distances[columns]; // a pixel's height, in its widths
    this.start = slice * strides[axis];
    this.steps = [strides[rows], strides[columns]];
  }

  // The values of the plane: a view of them where they lie together, else a copy.
  cut(values) {
    const size = this.width * this.height;
    if (this.axis === 0) return values.subarray(this.start, this.start + size);
    const plane = new Uint8Array(size);
    this.#each((at, from) => (plane[at] = values[from]));
    return plane;
  }

  paste(values, plane) {
    if (this.axis === 0) values.set(plane, this.start);
    else this.#each((at, to) => (values[to] = plane[at]));
  }

  #each(visit) {
    for (let y = 0, at = 0; y < this.height; y += 1) {
      for (let x = 0; x < this.width; x += 1, at += 1) visit(at, this.start + y * this.steps[0] + x * this.steps[1]);
    }
  }

  // What a stroke on the plane says of its place.
  get place() {
    return { slice: this.slice, axis: this.axis, aspect: this.aspect };
  }
}
