// The ordered filters that the one-pass filter is measured against.
#include "densecrf/baselines.hpp"

#include "arrays.hpp"

namespace densecrf {

namespace {

void algorithm3(const Lattice& lattice, Matrix<const float> scores, Matrix<float> out, int levels,
                bool symmetric, int threads) {
  check_pixels(lattice, scores.shape(1));
  check_same_shape(scores, out);
  require(levels >= 2, "levels: at least 2");
  parallel(threads, kFilterWork * scores.size(), [&](Team& team) {
    filter_algorithm3(lattice, scores.data(), out.data(), static_cast<int>(scores.shape(0)), levels,
                      blur_of(symmetric), team);
  });
}

void adaptive(const Lattice& lattice, Matrix<const float> scores, Matrix<float> out, bool symmetric,
              std::int64_t max_entries, int threads) {
  check_pixels(lattice, scores.shape(1));
  check_same_shape(scores, out);
  parallel(threads, kFilterWork * scores.size(), [&](Team& team) {
    filter_adaptive(lattice, scores.data(), out.data(), static_cast<int>(scores.shape(0)),
                    blur_of(symmetric), max_entries, team);
  });
}

void divide_and_conquer(Matrix<const float> scores, Matrix<float> out, Matrix<const float> features,
                        Vector<const float> weights, const Lattice* fixed, bool symmetric,
                        int threads) {
  require(features.shape(1) >= 1 && features.shape(1) <= kMaxDimension,
          "features: the dimension is out of range");
  check_same_shape(scores, out);
  require(features.shape(0) == scores.shape(1) && weights.shape(0) == scores.shape(1) &&
              (!fixed || fixed->pixels() == static_cast<std::int64_t>(scores.shape(1))),
          "the arrays' numbers of pixels are not the same");
  parallel(threads, kFilterWork * scores.size(), [&](Team& team) {
    filter_divide_and_conquer(features.data(), static_cast<std::int64_t>(features.shape(0)),
                              static_cast<int>(features.shape(1)), weights.data(), fixed,
                              scores.data(), out.data(), static_cast<int>(scores.shape(0)),
                              blur_of(symmetric), team);
  });
}

}  // namespace

void bind_baselines(nb::module_& m) {
  m.def("algorithm3", &algorithm3, "lattice"_a, "scores"_a, "out"_a.noconvert(), nb::kw_only(),
        "levels"_a, "symmetric"_a, "threads"_a);
  m.def("adaptive", &adaptive, "lattice"_a, "scores"_a, "out"_a.noconvert(), nb::kw_only(),
        "symmetric"_a, "max_entries"_a, "threads"_a);
  m.def("divide_and_conquer", &divide_and_conquer, "scores"_a, "out"_a.noconvert(), nb::kw_only(),
        "features"_a, "weights"_a, "fixed"_a.none(), "symmetric"_a, "threads"_a);
}

}  // namespace densecrf
