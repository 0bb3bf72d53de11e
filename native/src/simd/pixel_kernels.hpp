// The inner loops of what the solvers do to each pixel on its own, over tiles of label-major
// planes.
//
// Compiled once for each instruction set like those of the filters (row_kernels.hpp). Plane i of an
// array begins i · n floats behind its first; pointers point to the first pixel of the tile.
// `scratch` has room for one tile of all labels. Sums are added up in double, pixel by pixel, in
// one order.
#pragma once

#include <cstdint>

namespace densecrf {

struct Tile {
  std::int64_t n;  // distance of planes
  int labels;
  int count;  // pixels, at most PixelKernels::kTile
  float* scratch;
};

struct PixelKernels {
  static constexpr int kTile = 128;

  // out = the point of the simplex nearest to z; in place where out == z.
  void (*project)(const Tile&, const float* z, float* out);

  // With the gradient g = phi + r: out = the point of the simplex nearest to v - step · g. Adds to
  // sums: min_i g_i, ⟨g, v⟩, and lipschitz · ⟨v - out, out - previous⟩. In place where out == r.
  void (*descend)(const Tile&, const float* phi, const float* r, const float* v, const float* step,
                  const float* lipschitz, const float* previous, float* out, double* sums);

  // The planes of the labels in `present` of y + share · (y - before), brought back into the
  // simplex: what is negative becomes 0, and the rest is divided by its sum. Those of y where
  // before is null.
  void (*extrapolate)(const Tile&, const std::int64_t* present, const float* y, const float* before,
                      float share, float* out);

  // A projected gradient step of ⟨phi, v⟩ + ½⟨v, Hv⟩ + ½ c‖v‖², where in the Potts model Hv is
  // Σ_{j≠i} (filtered - own · v)_j: out = the point of the simplex nearest to v less the gradient
  // over `strength`. There are planes of `filtered`, `stride` apart, and of v for the `count`
  // labels in `present` (ascending); those of the others, and their `previous`, are zeros. Adds to
  // sums: the objective at v, strength · ⟨v - out, out - previous⟩, Σ|out - previous|, and a number
  // above 0 if a label that is not present gains mass, or one that is left out, whose least phi
  // `rest` (or null) has, would.
  void (*quadratic_step)(const Tile&, const float* phi, const float* filtered, std::int64_t stride,
                         const float* v, const float* previous, const std::int64_t* present,
                         int count, const float* own, const float* c, const float* strength,
                         const float* rest, float* out, double* sums);

  // out = softmax(filtered - own · y - phi); without the second term where own is null, without the
  // first where filtered is, whose planes are `stride` apart; in place where out == y.
  void (*mean_field_update)(const Tile&, const float* phi, const float* filtered,
                            std::int64_t stride, const float* y, const float* own, float* out);

  // With m = filtered - own · y: out_i = Σ_{j≠i} m_j; in place where out == filtered.
  void (*messages)(const Tile&, const float* filtered, const float* y, const float* own,
                   float* out);

  // The first largest label.
  void (*argmax)(const Tile&, const float* z, std::int64_t* out);

  // The label of least phi + received, or the pixel's own where that is no worse, and how much is
  // gained; adds to sums: the own label's phi and received, and whether anything is gained. There
  // are planes of `received`, `stride` apart, for the `count` labels in `present` (ascending); the
  // other labels all receive `others`.
  void (*icm_moves)(const Tile&, const float* phi, const float* received, std::int64_t stride,
                    const std::int64_t* present, int count, const float* others,
                    const std::int64_t* labels, std::int64_t* best, float* gain, double* sums);

  // With g = linear + h + c · y: the first label of least g; adds to sums: ⟨g, y⟩ - min g, and
  // ⟨linear, y⟩ + ½⟨h + c · y, y⟩.
  void (*lmo)(const Tile&, const float* linear, const float* h, const float* c, const float* y,
              std::int64_t* best, double* sums);

  // y + step · (indicator - y).
  void (*step_to_vertex)(const Tile&, const std::int64_t* labels, const float* y, float step,
                         float* out);
};

// Those of the instruction set that row_kernels() has.
const PixelKernels& pixel_kernels();

}  // namespace densecrf
