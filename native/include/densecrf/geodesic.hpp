// Distances along paths over a grid of pixels, for strokes that reach as far as colours last.
#pragma once

#include <array>
#include <cstdint>

#include "densecrf/parallel.hpp"

namespace densecrf {

struct ColoredGrid {
  std::array<std::int64_t, 3> shape;  // slices, rows, columns
  const float* colors;                // (pixels, channels)
  int channels;
  float step;  // what one pixel of way costs, in colours

  std::int64_t pixels() const { return shape[0] * shape[1] * shape[2]; }
};

// Shortens each plane's distances along paths of neighbours a, b, by sides and corners, of length
// sqrt(step² ‖p_a - p_b‖² + ‖c_a - c_b‖²), in `rounds` of one sweep forth and one back (Toivanen
// 1996): a path that turns back against the order of pixels takes a round for each such turn.
void shorten_distances(const ColoredGrid& grid, float* distances, int planes, int rounds,
                       Team& team);

}  // namespace densecrf
