// The inner loops of the lattice filters, over rows of `width` floats per vertex.
//
// They are compiled once for each instruction set (native/src/simd); row_kernels() picks the best
// that this processor has. A row is a whole number of blocks of 4, 8 or 16 floats: see row_width().
#pragma once

#include <cstdint>

#include "densecrf/entries.hpp"
#include "densecrf/lattice.hpp"

namespace densecrf {

// Where a stage of the filter has left its rows: vertex v at row v & mask.
template <class Real>
struct RowsOf {
  const Real* rows;
  std::int64_t mask;
};
using VertexRows = RowsOf<float>;

struct RowKernels {
  static constexpr int kVector = 16;  // floats of a vector, whatever the width of the registers

  static constexpr int kMostColumns = 5 * kVector;

  const char* isa;

  // `out` and `own` point to the row of vertex (or pixel) `begin`, and the rows follow each other.

  // Planes of `channels`, `stride` floats apart, as rows of `width` (1, 2, 4, 8 or 16) for `count`
  // pixels; zeros where there is no channel.
  void (*to_rows)(const float* planes, std::int64_t stride, int channels, int width, float* out,
                  std::int64_t count);

  // And back: plane (+)= factor · rows.
  void (*to_planes)(const float* rows, int channels, int width, float factor, bool accumulate,
                    float* planes, std::int64_t stride, std::int64_t count);

  // out_v = sum of w_e · in_pixel(e) over the entries e of vertex v (rows of pixels: n × width).
  void (*splat)(const LatticeView&, const float* in, float* out, int width, std::int64_t begin,
                std::int64_t end);

  // The same sums in another order of loops: adds w_k · in_a to the rows of the corners k of pixels
  // [begin, end), the first of them at `in`. Rows and columns must have the same weights.
  void (*add)(const LatticeView&, const float* in, float* rows, int width, std::int64_t begin,
              std::int64_t end);

  // For `lanes` labels (1, 2, 4, 8 or 16) side by side, slot l of label i is the sum of
  // w_e · clamp(t_pixel(e)[i] - l, 0, 1), the mass at or above level l + 1, where a pixel of
  // fractional level t belongs to the two nearest levels in linear proportion. A row is some
  // `vectors`; their g-th group of lanes holds the slots g · vectors, g · vectors + 1 and so on, so
  // that the next slot is mostly in the next vector. Slots beyond the last level hold zeros.
  void (*splat_levels)(const LatticeView&, const float* t, float* out, int vectors, int lanes,
                       std::int64_t begin, std::int64_t end);

  // out_v = own_v + ½ (in_next + in_previous) along one axis, or the mean of this and what is there
  // already. A neighbour numbered `vertices` is none: its row is `zeros`.
  void (*blur)(const std::int32_t* axis, std::int32_t vertices, VertexRows in, const float* zeros,
               const float* own, bool mean, float* out, int width, std::int64_t begin,
               std::int64_t end);

  // The same in place, for lines [begin, end) of Topology::lines_of, on the first `columns` floats
  // of each row: one row of 4 or 8, or up to kMostColumns in whole vectors. Row number `vertices`
  // holds zeros, the one behind it anything.
  void (*blur_lines)(const std::int32_t* lines, std::int64_t begin, std::int64_t end,
                     std::int32_t vertices, float* rows, int width, int columns);

  // out_a (+)= scale · sum of w_k · in_corner(k).
  void (*slice)(const LatticeView&, VertexRows in, float scale, bool accumulate, float* out,
                int width, std::int64_t begin, std::int64_t end);

  // The same for one column of each pixel alone, with the same bits: out_a (+)= scale · sum of
  // w_k · in_corner(k)[column_a]. `column` points to the pixel `begin`, like `out`.
  void (*slice_one)(const LatticeView&, VertexRows in, float scale, bool accumulate,
                    const std::int32_t* column, float* out, int width, std::int64_t begin,
                    std::int64_t end);

  // The signed mass, below minus above each pixel's level, as rows of `lanes` labels.
  void (*slice_levels)(const LatticeView&, VertexRows in, const float* t, const float* mass,
                       int vectors, int lanes, float scale, float* out, std::int64_t begin,
                       std::int64_t end);

  // In double precision, rows of kDoubles: splat, blur_lines for all lines of an axis, slice.
  static constexpr int kDoubles = 8;
  void (*splat_doubles)(const LatticeView&, const double* in, double* out, std::int64_t begin,
                        std::int64_t end);
  void (*blur_doubles)(const std::int32_t* lines, std::int64_t begin, std::int64_t end,
                       std::int32_t vertices, double* rows);
  void (*slice_doubles)(const LatticeView&, const double* rows, double scale, bool accumulate,
                        double* out, std::int64_t begin, std::int64_t end);

  // out_a = Σ_b K_ab s(t_a, t_b) by the entries of K, for rows of `lanes` labels (4, 8 or 16), and
  // in double precision for rows of kDoubles.
  void (*ordered_pairs)(const EntriesView&, const float* t, int lanes, float* out,
                        std::int64_t begin, std::int64_t end);
  void (*ordered_pairs_doubles)(const EntriesView&, const double* t, double* out,
                                std::int64_t begin, std::int64_t end);
};

// The vectors of a row with `slots` slots for each of `lanes` labels.
inline int row_vectors(int slots, int lanes) {
  const int groups = RowKernels::kVector / lanes;
  return (slots + groups - 1) / groups;
}

const RowKernels& row_kernels();

// Chooses the instruction set by name ("sse2", "avx2", "avx512", "base"), "" for the best; false
// where this processor or build has not got it. For tests and benchmarks.
bool select_isa(const char* isa);

// The width of a row that holds `channels` floats.
inline int row_width(int channels) {
  if (channels <= 4) return 4;
  if (channels <= 8) return 8;
  return (channels + 15) / 16 * 16;
}

}  // namespace densecrf
