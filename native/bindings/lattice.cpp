// The lattice and its two filters.
#include "densecrf/lattice.hpp"

#include <nanobind/stl/optional.h>

#include "arrays.hpp"
#include "densecrf/filter.hpp"

namespace densecrf {

namespace {

template <class Real>
Lattice build(Matrix<const Real> features, int threads, bool single) {
  require(features.shape(1) >= 1 && features.shape(1) <= kMaxDimension,
          "features: the dimension is out of range");
  return parallel(threads, kFilterWork * features.size(), [&](Team& team) {
    return build_lattice(features.data(), static_cast<std::int64_t>(features.shape(0)),
                         static_cast<int>(features.shape(1)), team,
                         single ? Arithmetic::kSingle : Arithmetic::kDouble);
  });
}

void weigh(Lattice& self, Vector<const float> columns, Vector<const float> rows, int threads) {
  check_pixels(self, columns.shape(0));
  check_pixels(self, rows.shape(0));
  parallel(threads, kFilterWork * rows.size(),
           [&](Team& team) { self.weigh(columns.data(), rows.data(), team); });
}

Lattice scaled(const Lattice& self, Vector<const float> columns, Vector<const float> rows,
               int threads) {
  check_pixels(self, columns.shape(0));
  check_pixels(self, rows.shape(0));
  return parallel(threads, kFilterWork * rows.size(),
                  [&](Team& team) { return self.scaled(columns.data(), rows.data(), team); });
}

Lattice restricted(const Lattice& self, Vector<const std::int32_t> pixels, int threads) {
  const auto count = static_cast<std::int64_t>(pixels.shape(0));
  for (std::int64_t s = 0; s < count; ++s)
    require(pixels(s) > (s ? pixels(s - 1) : -1) && pixels(s) < self.pixels(),
            "pixels: not ascending, distinct indices of the lattice's pixels");
  return parallel(threads, kFilterWork * pixels.size(),
                  [&](Team& team) { return self.restricted(pixels.data(), count, team); });
}

void diagonal(const Lattice& self, Vector<double> out, int threads) {
  check_pixels(self, out.shape(0));
  parallel(threads, kFilterWork * out.size(), [&](Team& team) { self.diagonal(out.data(), team); });
}

void apply(const Lattice& self, Strided<const float> in, Strided<float> out, bool symmetric,
           float factor, bool accumulate, int threads) {
  check_pixels(self, in.shape(1));
  check_same_shape(in, out);
  parallel(threads, kFilterWork * in.size(), [&](Team& team) {
    filter_plain(self, {in.data(), in.stride(0), in.stride(1)},
                 {out.data(), out.stride(0), out.stride(1)}, static_cast<int>(in.shape(0)),
                 blur_of(symmetric), factor, accumulate, team);
  });
}

void ordered(const Lattice& self, Matrix<const float> scores, Matrix<float> out, nb::handle levels,
             std::optional<Matrix<const float>> offsets, Matrix<const float> extents,
             Vector<const float> mass, bool symmetric, float factor, int threads) {
  check_pixels(self, scores.shape(1));
  check_pixels(self, mass.shape(0));
  const Scores given = scores_of(scores, out, levels, offsets, extents);
  parallel(threads, kFilterWork * scores.size(), [&](Team& team) {
    filter_ordered(self, given, mass.data(), blur_of(symmetric), {out.data(), factor}, team);
  });
}

std::int64_t workspace_bytes(const Lattice& self, int channels, int levels, int threads) {
  return 4 * ordered_workspace(self, channels, levels, threads > 0 ? threads : available_threads());
}

}  // namespace

void bind_lattice(nb::module_& m) {
  nb::class_<Lattice>(m, "Lattice")
      .def_static("build", &build<float>, "features"_a, "threads"_a, "single"_a = false)
      .def_static("build", &build<double>, "features"_a, "threads"_a, "single"_a = false)
      .def_prop_ro("pixels", &Lattice::pixels)
      .def_prop_ro("dimension", &Lattice::dimension)
      .def_prop_ro("vertices", &Lattice::vertices)
      .def_prop_ro("bytes", &Lattice::bytes)
      .def("ordered_workspace", &workspace_bytes, "channels"_a, "levels"_a, "threads"_a)
      .def("weigh", &weigh, "columns"_a, "rows"_a, "threads"_a)
      .def("scaled", &scaled, "columns"_a, "rows"_a, "threads"_a)
      .def("restricted", &restricted, "pixels"_a, "threads"_a)
      .def("diagonal", &diagonal, "out"_a.noconvert(), "threads"_a)
      .def("apply", &apply, "values"_a, "out"_a.noconvert(), nb::kw_only(), "symmetric"_a,
           "factor"_a = 1.0f, "accumulate"_a = false, "threads"_a)
      .def("ordered", &ordered, "scores"_a, "out"_a.noconvert(), "levels"_a, nb::kw_only(),
           "offsets"_a.none(), "extents"_a, "mass"_a, "symmetric"_a, "factor"_a, "threads"_a);
}

}  // namespace densecrf
