// Thin bindings: arrays become pointers, the GIL is released, C++ errors become Python ones.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "densecrf/baselines.hpp"
#include "densecrf/filter.hpp"
#include "densecrf/filter_sum.hpp"
#include "densecrf/grid.hpp"
#include "densecrf/labelling.hpp"
#include "densecrf/lattice.hpp"
#include "simd/row_kernels.hpp"

using namespace nb::literals;

namespace densecrf {
namespace {

BlurOrder blur_order(bool symmetric) {
  return symmetric ? BlurOrder::kSymmetric : BlurOrder::kForward;
}

template <class Real>
Lattice lattice_from(Matrix<const Real> features, int threads, bool single) {
  require(features.shape(1) >= 1 && features.shape(1) <= kMaxDimension,
          "features: the dimension is out of range");
  return parallel(threads, [&](Team& team) {
    return build_lattice(features.data(), static_cast<std::int64_t>(features.shape(0)),
                         static_cast<int>(features.shape(1)), team,
                         single ? Arithmetic::kSingle : Arithmetic::kDouble);
  });
}

void check_channels(const Lattice& lattice, std::size_t columns) {
  require(static_cast<std::int64_t>(columns) == lattice.pixels(),
          "the array's number of pixels is not the lattice's");
}

void bind_lattice(nb::module_& m) {
  nb::class_<Lattice>(m, "Lattice")
      .def_static("build", &lattice_from<float>, "features"_a, "threads"_a, "single"_a = false)
      .def_static("build", &lattice_from<double>, "features"_a, "threads"_a, "single"_a = false)
      .def_prop_ro("pixels", &Lattice::pixels)
      .def_prop_ro("dimension", &Lattice::dimension)
      .def_prop_ro("vertices", &Lattice::vertices)
      .def_prop_ro("bytes", &Lattice::bytes)
      .def("ordered_workspace",
           [](const Lattice& self, int channels, int levels, int threads) {
             return 4 * ordered_workspace(self, channels, levels,
                                          threads > 0 ? threads : available_threads());
           })
      .def("weigh",
           [](Lattice& self, Vector<const float> columns, Vector<const float> rows, int threads) {
             check_channels(self, columns.shape(0));
             check_channels(self, rows.shape(0));
             parallel(threads, [&](Team& team) { self.weigh(columns.data(), rows.data(), team); });
           })
      .def("scaled",
           [](const Lattice& self, Vector<const float> columns, Vector<const float> rows,
              int threads) {
             check_channels(self, columns.shape(0));
             check_channels(self, rows.shape(0));
             return parallel(threads, [&](Team& team) {
               return self.scaled(columns.data(), rows.data(), team);
             });
           })
      .def("restricted",
           [](const Lattice& self, Vector<const std::int32_t> pixels, int threads) {
             const auto count = static_cast<std::int64_t>(pixels.shape(0));
             for (std::int64_t s = 0; s < count; ++s)
               require(pixels(s) > (s ? pixels(s - 1) : -1) && pixels(s) < self.pixels(),
                       "pixels: not ascending, distinct indices of the lattice's pixels");
             return parallel(
                 threads, [&](Team& team) { return self.restricted(pixels.data(), count, team); });
           })
      .def("diagonal",
           [](const Lattice& self, Vector<float> out, int threads) {
             check_channels(self, out.shape(0));
             parallel(threads, [&](Team& team) { self.diagonal(out.data(), team); });
           })
      .def(
          "apply",
          [](const Lattice& self, Strided<const float> in, Strided<float> out, bool symmetric,
             float factor, bool accumulate, int threads) {
            check_channels(self, in.shape(1));
            check_same_shape(in, out);
            parallel(threads, [&](Team& team) {
              filter_plain(self, {in.data(), in.stride(0), in.stride(1)},
                           {out.data(), out.stride(0), out.stride(1)},
                           static_cast<int>(in.shape(0)), blur_order(symmetric), factor, accumulate,
                           team);
            });
          },
          "values"_a, "out"_a.noconvert(), "symmetric"_a, "factor"_a, "accumulate"_a, "threads"_a)
      .def(
          "ordered",
          [](const Lattice& self, Matrix<const float> scores,
             std::optional<Matrix<const float>> offsets, Matrix<const float> extents,
             Matrix<float> out, Vector<const float> mass, int levels, float low, float scale,
             bool hard, bool symmetric, float factor, bool accumulate, int threads) {
            check_channels(self, scores.shape(1));
            check_channels(self, mass.shape(0));
            require(levels >= 2, "levels: at least 2");
            check_same_shape(scores, out);
            if (offsets) check_same_shape(scores, *offsets);
            require(extents.shape(0) == scores.shape(0) && extents.shape(1) == 2,
                    "extents: not two numbers a channel");
            parallel(threads, [&](Team& team) {
              filter_ordered(self, scores.data(), offsets ? offsets->data() : nullptr,
                             extents.data(), out.data(), static_cast<int>(scores.shape(0)),
                             {levels, low, scale, hard}, mass.data(), blur_order(symmetric), factor,
                             accumulate, team);
            });
          },
          "scores"_a, "offsets"_a.none(), "extents"_a, "out"_a.noconvert(), "mass"_a, "levels"_a,
          "low"_a, "scale"_a, "hard"_a, "symmetric"_a, "factor"_a, "accumulate"_a, "threads"_a)
      .def(
          "literal",
          [](const Lattice& self, Matrix<const float> scores, Matrix<float> out, int levels,
             bool symmetric, int threads) {
            check_channels(self, scores.shape(1));
            check_same_shape(scores, out);
            require(levels >= 2, "levels: at least 2");
            parallel(threads, [&](Team& team) {
              filter_literal(self, scores.data(), out.data(), static_cast<int>(scores.shape(0)),
                             levels, blur_order(symmetric), team);
            });
          },
          "scores"_a, "out"_a.noconvert(), "levels"_a, "symmetric"_a, "threads"_a)
      .def(
          "adaptive",
          [](const Lattice& self, Matrix<const float> scores, Matrix<float> out, bool symmetric,
             std::int64_t max_entries, int threads) {
            check_channels(self, scores.shape(1));
            check_same_shape(scores, out);
            parallel(threads, [&](Team& team) {
              filter_adaptive(self, scores.data(), out.data(), static_cast<int>(scores.shape(0)),
                              blur_order(symmetric), max_entries, team);
            });
          },
          "scores"_a, "out"_a.noconvert(), "symmetric"_a, "max_entries"_a, "threads"_a);
  const auto divide_and_conquer = [](Matrix<const float> features, Vector<const float> weights,
                                     const Lattice* fixed, Matrix<const float> scores,
                                     Matrix<float> out, bool symmetric, int threads) {
    require(features.shape(1) >= 1 && features.shape(1) <= kMaxDimension,
            "features: the dimension is out of range");
    check_same_shape(scores, out);
    require(features.shape(0) == scores.shape(1) && weights.shape(0) == scores.shape(1) &&
                (!fixed || fixed->pixels() == static_cast<std::int64_t>(scores.shape(1))),
            "the arrays' numbers of pixels are not the same");
    parallel(threads, [&](Team& team) {
      filter_divide_and_conquer(features.data(), static_cast<std::int64_t>(features.shape(0)),
                                static_cast<int>(features.shape(1)), weights.data(), fixed,
                                scores.data(), out.data(), static_cast<int>(scores.shape(0)),
                                blur_order(symmetric), team);
    });
  };
  m.def("divide_and_conquer", divide_and_conquer, "features"_a, "weights"_a, "fixed"_a.none(),
        "scores"_a, "out"_a.noconvert(), "symmetric"_a, "threads"_a);
}

std::vector<Term> terms_of(const std::vector<const Lattice*>& lattices,
                           const std::vector<float>& factors, std::size_t pixels) {
  require(!lattices.empty() && lattices.size() == factors.size(), "one factor for each lattice");
  std::vector<Term> terms;
  for (std::size_t i = 0; i < lattices.size(); ++i) {
    require(lattices[i] != nullptr, "a lattice is missing");
    check_channels(*lattices[i], pixels);
    terms.push_back({lattices[i], factors[i]});
  }
  return terms;
}

void bind_sums(nb::module_& m) {
  using Lattices = std::vector<const Lattice*>;
  using Factors = std::vector<float>;
  m.def(
      "filter_sum",
      [](const Lattices& lattices, const Factors& factors, Matrix<const float> in,
         Matrix<float> out, bool symmetric, int threads) {
        check_same_shape(in, out);
        const auto terms = terms_of(lattices, factors, in.shape(1));
        parallel(threads, [&](Team& team) {
          filter_sum(terms, planes_of(in), in.data(), out.data(), blur_order(symmetric), team);
        });
      },
      "lattices"_a, "factors"_a, "values"_a, "out"_a.noconvert(), "symmetric"_a, "threads"_a);
  m.def(
      "mean_field_step",
      [](const Lattices& lattices, const Factors& factors, Matrix<const float> phi,
         Matrix<const float> y, std::optional<Vector<const float>> own, Matrix<float> out,
         bool symmetric, int threads) {
        check_same_shape(phi, y);
        check_same_shape(phi, out);
        if (own) check_columns(phi, *own);
        const auto terms = terms_of(lattices, factors, phi.shape(1));
        parallel(threads, [&](Team& team) {
          mean_field_step(terms, planes_of(phi), phi.data(), y.data(), own ? own->data() : nullptr,
                          out.data(), blur_order(symmetric), team);
        });
      },
      "lattices"_a, "factors"_a, "phi"_a, "y"_a, "own"_a.none(), "out"_a.noconvert(), "symmetric"_a,
      "threads"_a);
}

void bind_labelling(nb::module_& m) {
  using Lattices = std::vector<const Lattice*>;
  using Factors = std::vector<float>;
  using Labels = Vector<const std::int64_t>;
  using Column = Vector<const float>;
  m.def(
      "total_mass",
      [](const Lattices& lattices, const Factors& factors, Vector<float> out, bool symmetric,
         int threads) {
        const auto terms = terms_of(lattices, factors, out.shape(0));
        parallel(threads, [&](Team& team) {
          total_mass(terms, static_cast<std::int64_t>(out.shape(0)), out.data(),
                     blur_order(symmetric), team);
        });
      },
      "lattices"_a, "factors"_a, "out"_a.noconvert(), "symmetric"_a, "threads"_a);
  m.def(
      "potts_energy",
      [](const Lattices& lattices, const Factors& factors, Matrix<const float> phi, Labels labels,
         bool symmetric, int threads) {
        check_columns(phi, labels);
        const auto terms = terms_of(lattices, factors, phi.shape(1));
        return parallel(threads, [&](Team& team) {
          return potts_energy(terms, planes_of(phi), phi.data(), labels.data(),
                              blur_order(symmetric), team);
        });
      },
      "lattices"_a, "factors"_a, "phi"_a, "labels"_a, "symmetric"_a, "threads"_a);
  m.def(
      "potts_alternatives",
      [](const Lattices& lattices, const Factors& factors, Matrix<const float> phi, Labels labels,
         Column mass, Column own, Vector<std::int64_t> best, Vector<float> gain, bool symmetric,
         int threads) {
        check_columns(phi, labels, mass, own, best, gain);
        const auto terms = terms_of(lattices, factors, phi.shape(1));
        return parallel(threads, [&](Team& team) {
          return potts_alternatives(terms, planes_of(phi), phi.data(), labels.data(), mass.data(),
                                    own.data(), best.data(), gain.data(), blur_order(symmetric),
                                    team);
        });
      },
      "lattices"_a, "factors"_a, "phi"_a, "labels"_a, "mass"_a, "own"_a, "best"_a.noconvert(),
      "gain"_a.noconvert(), "symmetric"_a, "threads"_a);
}

template <class Planes>
void check_grid(const Grid& grid, const Planes& planes, std::size_t columns, std::size_t rows) {
  require(!grid.shape.empty() && grid.shape.size() == grid.taps.size(),
          "taps: one list for each axis");
  for (const std::int64_t length : grid.shape) require(length >= 1, "shape: empty");
  for (const auto& taps : grid.taps) require(!taps.empty(), "taps: empty");
  require(static_cast<std::size_t>(grid.pixels()) == planes.shape(1) &&
              columns == planes.shape(1) && rows == planes.shape(1),
          "the arrays' number of pixels is not the grid's");
}

void bind_grid(nb::module_& m) {
  using Taps = std::vector<std::vector<float>>;
  using Shape = std::vector<std::int64_t>;
  m.def(
      "grid_apply",
      [](const Shape& shape, const Taps& taps, Matrix<const float> in, Vector<const float> columns,
         Vector<const float> rows, Matrix<float> out, float factor, bool accumulate, int threads) {
        const Grid grid{shape, taps};
        check_grid(grid, in, columns.shape(0), rows.shape(0));
        check_same_shape(in, out);
        parallel(threads, [&](Team& team) {
          grid_plain(grid, in.data(), columns.data(), rows.data(), out.data(),
                     static_cast<int>(in.shape(0)), factor, accumulate, team);
        });
      },
      "shape"_a, "taps"_a, "values"_a, "columns"_a, "rows"_a, "out"_a.noconvert(), "factor"_a,
      "accumulate"_a, "threads"_a);
  m.def(
      "grid_ordered",
      [](const Shape& shape, const Taps& taps, Matrix<const float> scores,
         Vector<const float> columns, Vector<const float> rows, Matrix<float> out,
         Vector<const float> mass, int levels, float low, float scale, bool hard, float factor,
         bool accumulate, int threads) {
        const Grid grid{shape, taps};
        check_grid(grid, scores, columns.shape(0), rows.shape(0));
        check_same_shape(scores, out);
        require(mass.shape(0) == scores.shape(1), "mass: not one number a pixel");
        require(levels >= 2, "levels: at least 2");
        parallel(threads, [&](Team& team) {
          grid_ordered(grid, scores.data(), columns.data(), rows.data(), out.data(),
                       static_cast<int>(scores.shape(0)), {levels, low, scale, hard}, mass.data(),
                       factor, accumulate, team);
        });
      },
      "shape"_a, "taps"_a, "scores"_a, "columns"_a, "rows"_a, "out"_a.noconvert(), "mass"_a,
      "levels"_a, "low"_a, "scale"_a, "hard"_a, "factor"_a, "accumulate"_a, "threads"_a);
}

}  // namespace
}  // namespace densecrf

NB_MODULE(_native, m) {
  // A model that lives until the interpreter ends is no leak worth a warning to its user.
  nb::set_leak_warnings(false);
  m.doc() = "Native core of densecrf; not a public interface.";
  densecrf::bind_lattice(m);
  densecrf::bind_sums(m);
  densecrf::bind_labelling(m);
  densecrf::bind_grid(m);
  densecrf::bind_pixelwise(m);
  m.def("available_threads", &densecrf::available_threads);
  m.def("set_default_threads", &densecrf::set_default_threads);
  m.def("isa", [] { return std::string(densecrf::rows().isa); });
  m.def("select_isa", [](const std::string& isa) { return densecrf::select_rows(isa.c_str()); });
}
