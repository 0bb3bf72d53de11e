// The inner loops of the lattice filters, over rows of `width` floats a vertex.
//
// They are compiled once for each instruction set (native/src/simd); rows() picks the best that
// this processor has. A row is a whole number of blocks of 4, 8 or 16 floats: see row_width().
#pragma once

#include <cstdint>

#include "densecrf/lattice.hpp"

namespace densecrf {

// Where a stage of the filter has left its rows: vertex v at row v & mask.
struct RowsView {
  const float* rows;
  std::int64_t mask;
};

struct Rows {
  const char* isa;

  // `out` and `own` point to the row of vertex (or pixel) `begin`, and the rows follow each other.

  // out_v = sum of w_e · in_pixel(e) over the entries e of vertex v (rows of pixels: n × width).
  void (*splat)(const LatticeView&, const float* in, float* out, int width, std::int64_t begin,
                std::int64_t end);

  // For `lanes` labels side by side, slot l of a row: out_v[l][i] = sum of
  // w_e · clamp(t_pixel(e)[i] - l, 0, 1), the mass at or above level l + 1, where a pixel of
  // fractional level t belongs to the two nearest levels in linear proportion.
  void (*splat_levels)(const LatticeView&, const float* t, float* out, int slots, int lanes,
                       std::int64_t begin, std::int64_t end);

  // out_v = own_v + ½ (in_next + in_previous) [+ add_v], along one axis. A neighbour numbered
  // `vertices` is none: its row is `zeros`, or zeros behind the last row where all are kept.
  void (*blur)(const std::int32_t* axis, std::int32_t vertices, RowsView in, const float* zeros,
               const float* own, const float* add, float* out, int width, std::int64_t begin,
               std::int64_t end);

  // out_a = scale · sum of w_k · in_corner(k).
  void (*slice)(const LatticeView&, RowsView in, float scale, float* out, int width,
                std::int64_t begin, std::int64_t end);

  // The signed mass, below minus above each pixel's level, as rows of `lanes` labels.
  void (*slice_levels)(const LatticeView&, RowsView in, const float* t, const float* mass,
                       int slots, int lanes, float scale, float* out, std::int64_t begin,
                       std::int64_t end);
};

const Rows& rows();

// Chooses the instruction set by name ("sse2", "avx2", "avx512", "base"), "" for the best; false
// where this processor or build has not got it. For tests and benchmarks.
bool select_rows(const char* isa);

// The width of a row that holds `channels` floats.
inline int row_width(int channels) {
  if (channels <= 4) return 4;
  if (channels <= 8) return 8;
  return (channels + 15) / 16 * 16;
}

}  // namespace densecrf
