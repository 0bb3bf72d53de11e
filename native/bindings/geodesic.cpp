// Distances from strokes, along paths over a grid.
#include "densecrf/geodesic.hpp"

#include <nanobind/stl/array.h>

#include "arrays.hpp"

namespace densecrf {

namespace {

void shorten(Matrix<float> distances, Matrix<const float> colors, std::array<std::int64_t, 3> shape,
             float step, int rounds, int threads) {
  for (const std::int64_t length : shape) require(length >= 1, "shape: empty");
  const ColoredGrid grid{shape, colors.data(), static_cast<int>(colors.shape(1)), step};
  const std::size_t pixels = static_cast<std::size_t>(grid.pixels());
  require(distances.shape(1) == pixels && colors.shape(0) == pixels,
          "the arrays' number of pixels is not the grid's");
  parallel(threads, kFilterWork * distances.size(), [&](Team& team) {
    shorten_distances(grid, distances.data(), static_cast<int>(distances.shape(0)), rounds, team);
  });
}

}  // namespace

void bind_geodesic(nb::module_& m) {
  m.def("shorten_distances", &shorten, "distances"_a.noconvert(), nb::kw_only(), "colors"_a,
        "shape"_a, "step"_a, "rounds"_a, "threads"_a);
}

}  // namespace densecrf
