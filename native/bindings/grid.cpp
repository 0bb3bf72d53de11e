// The separable Gaussian on a regular grid.
#include "densecrf/grid.hpp"

#include <nanobind/stl/vector.h>

#include "arrays.hpp"

namespace densecrf {

namespace {

using Column = Vector<const float>;

void check(const Grid& grid, std::size_t pixels, const Column& columns, const Column& rows) {
  require(!grid.shape.empty() && grid.shape.size() == grid.taps.size(),
          "taps: one list for each axis");
  for (const std::int64_t length : grid.shape) require(length >= 1, "shape: empty");
  for (const auto& taps : grid.taps) require(!taps.empty(), "taps: empty");
  require(static_cast<std::size_t>(grid.pixels()) == pixels && columns.shape(0) == pixels &&
              rows.shape(0) == pixels,
          "the arrays' number of pixels is not the grid's");
}

void apply(Matrix<const float> in, Matrix<float> out, const std::vector<std::int64_t>& shape,
           const std::vector<std::vector<float>>& taps, Column columns, Column rows, int threads) {
  const Grid grid{shape, taps};
  check(grid, in.shape(1), columns, rows);
  check_same_shape(in, out);
  parallel(threads, kFilterWork * in.size(), [&](Team& team) {
    grid_plain(grid, in.data(), columns.data(), rows.data(), out.data(),
               static_cast<int>(in.shape(0)), team);
  });
}

void ordered(Matrix<const float> scores, Matrix<float> out, nb::handle levels,
             const std::vector<std::int64_t>& shape, const std::vector<std::vector<float>>& taps,
             Column columns, Column rows, Column mass, int threads) {
  const Grid grid{shape, taps};
  const Levels given = levels_of(levels);
  check(grid, scores.shape(1), columns, rows);
  check_same_shape(scores, out);
  require(mass.shape(0) == scores.shape(1), "mass: not one number per pixel");
  parallel(threads, kFilterWork * scores.size(), [&](Team& team) {
    grid_ordered(grid, scores.data(), columns.data(), rows.data(), out.data(),
                 static_cast<int>(scores.shape(0)), given, mass.data(), team);
  });
}

}  // namespace

void bind_grid(nb::module_& m) {
  m.def("grid_apply", &apply, "values"_a, "out"_a.noconvert(), nb::kw_only(), "shape"_a, "taps"_a,
        "columns"_a, "rows"_a, "threads"_a);
  m.def("grid_ordered", &ordered, "scores"_a, "out"_a.noconvert(), "levels"_a, nb::kw_only(),
        "shape"_a, "taps"_a, "columns"_a, "rows"_a, "mass"_a, "threads"_a);
}

}  // namespace densecrf
