// Thin bindings: arrays become pointers, the GIL is released, C++ errors become Python ones.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "densecrf/baselines.hpp"
#include "densecrf/filter.hpp"
#include "densecrf/grid.hpp"
#include "densecrf/lattice.hpp"
#include "densecrf/pixelwise.hpp"
#include "densecrf/rows.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace densecrf {
namespace {

template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Strided = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;
template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Asks Python whether Ctrl-C was pressed; its exception then waits in the thread's state.
bool signalled() {
  nb::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

// Runs body(team) without the GIL.
template <class F>
auto parallel(int threads, F&& body) {
  try {
    nb::gil_scoped_release release;
    Team team(threads > 0 ? threads : available_threads(), signalled);
    return body(team);
  } catch (const Interrupted&) {
    throw nb::python_error();
  } catch (const std::out_of_range& error) {
    throw nb::value_error(error.what());
  }
}

void require(bool holds, const char* what) {
  if (!holds) throw nb::value_error(what);
}

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

template <class In, class Out>
void check_same_shape(const In& in, const Out& out) {
  require(in.shape(0) == out.shape(0) && in.shape(1) == out.shape(1),
          "the arrays' shapes are not the same");
  require(in.shape(0) <= INT32_MAX, "too many channels");
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
          [](const Lattice& self, Matrix<const float> scores, Matrix<float> out,
             Vector<const float> mass, int levels, float low, float scale, bool hard,
             bool symmetric, float factor, bool accumulate, int threads) {
            check_channels(self, scores.shape(1));
            check_channels(self, mass.shape(0));
            require(levels >= 2, "levels: at least 2");
            check_same_shape(scores, out);
            parallel(threads, [&](Team& team) {
              filter_ordered(self, scores.data(), out.data(), static_cast<int>(scores.shape(0)),
                             {levels, low, scale, hard}, mass.data(), blur_order(symmetric), factor,
                             accumulate, team);
            });
          },
          "scores"_a, "out"_a.noconvert(), "mass"_a, "levels"_a, "low"_a, "scale"_a, "hard"_a,
          "symmetric"_a, "factor"_a, "accumulate"_a, "threads"_a)
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

using Labels = Vector<const std::int64_t>;

template <class T>
Planes planes_of(const Matrix<T>& array) {
  return {static_cast<int>(array.shape(0)), static_cast<std::int64_t>(array.shape(1))};
}

template <class T, class... Others>
void check_columns(const Matrix<T>& array, const Others&... vectors) {
  require(((vectors.shape(0) == array.shape(1)) && ...), "a vector is not as long as the planes");
}

const float* data_of(const std::optional<Matrix<const float>>& array) {
  return array ? array->data() : nullptr;
}
const float* data_of(const std::optional<Vector<const float>>& array) {
  return array ? array->data() : nullptr;
}

// The arrays of a call have the same shape, vectors one number a pixel.
void bind_pixelwise(nb::module_& m) {
  using In = Matrix<const float>;
  using Out = Matrix<float>;
  using Column = Vector<const float>;
  m.def(
      "project_simplex",
      [](In z, Out out, int threads) {
        check_same_shape(z, out);
        parallel(threads,
                 [&](Team& team) { project_simplex(planes_of(z), z.data(), out.data(), team); });
      },
      "z"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "descend",
      [](In phi, In r, In v, Column step, Column stiffness, In previous, Out out, int threads) {
        check_same_shape(phi, r);
        check_same_shape(phi, v);
        check_same_shape(phi, previous);
        check_same_shape(phi, out);
        check_columns(phi, step, stiffness);
        return parallel(threads, [&](Team& team) {
          return descend(planes_of(phi), phi.data(), r.data(), v.data(), step.data(),
                         stiffness.data(), previous.data(), out.data(), team);
        });
      },
      "phi"_a, "r"_a, "v"_a, "step"_a, "stiffness"_a, "previous"_a, "out"_a.noconvert(),
      "threads"_a);
  m.def(
      "mean_field_response",
      [](In phi, std::optional<In> filtered, std::optional<In> y, std::optional<Column> own,
         Out out, int threads) {
        check_same_shape(phi, out);
        if (filtered) check_same_shape(phi, *filtered);
        require(y.has_value() == own.has_value(), "y and own go together");
        if (own) {
          check_same_shape(phi, *y);
          check_columns(phi, *own);
        }
        parallel(threads, [&](Team& team) {
          mean_field_response(planes_of(phi), phi.data(), data_of(filtered), data_of(y),
                              data_of(own), out.data(), team);
        });
      },
      "phi"_a, "filtered"_a.none(), "y"_a.none(), "own"_a.none(), "out"_a.noconvert(),
      "threads"_a);
  m.def(
      "potts_messages",
      [](In filtered, In y, Column own, Out out, int threads) {
        check_same_shape(filtered, y);
        check_same_shape(filtered, out);
        check_columns(y, own);
        parallel(threads, [&](Team& team) {
          potts_messages(planes_of(y), filtered.data(), y.data(), own.data(), out.data(), team);
        });
      },
      "filtered"_a, "y"_a, "own"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "argmax",
      [](In z, Vector<std::int64_t> out, int threads) {
        check_columns(z, out);
        require(z.shape(0) > 0, "z: no labels");
        parallel(threads, [&](Team& team) { argmax(planes_of(z), z.data(), out.data(), team); });
      },
      "z"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "alternatives",
      [](In phi, In received, Labels labels, Vector<std::int64_t> best, Vector<float> gain,
         int threads) {
        check_same_shape(phi, received);
        check_columns(phi, labels, best, gain);
        return parallel(threads, [&](Team& team) {
          return alternatives(planes_of(phi), phi.data(), received.data(), labels.data(),
                              best.data(), gain.data(), team);
        });
      },
      "phi"_a, "received"_a, "labels"_a, "best"_a.noconvert(), "gain"_a.noconvert(),
      "threads"_a);
  m.def(
      "linearise",
      [](In linear, In h, Column c, In y, Vector<std::int64_t> best, int threads) {
        check_same_shape(linear, h);
        check_same_shape(linear, y);
        check_columns(linear, c, best);
        return parallel(threads, [&](Team& team) {
          return linearise(planes_of(linear), linear.data(), h.data(), c.data(), y.data(),
                           best.data(), team);
        });
      },
      "linear"_a, "h"_a, "c"_a, "y"_a, "best"_a.noconvert(), "threads"_a);
  m.def(
      "curvature",
      [](Labels labels, In y, In target, In h, Column c, int threads) {
        check_same_shape(y, target);
        check_same_shape(y, h);
        check_columns(y, labels, c);
        return parallel(threads, [&](Team& team) {
          return curvature(planes_of(y), labels.data(), y.data(), target.data(), h.data(),
                           c.data(), team);
        });
      },
      "labels"_a, "y"_a, "target"_a, "h"_a, "c"_a, "threads"_a);
  m.def(
      "toward",
      [](Labels labels, In y, float step, Out out, int threads) {
        check_same_shape(y, out);
        check_columns(y, labels);
        parallel(threads, [&](Team& team) {
          toward(planes_of(y), labels.data(), y.data(), step, out.data(), team);
        });
      },
      "labels"_a, "y"_a, "step"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "lower_bound",
      [](In phi, In r, float factor, int threads) {
        check_same_shape(phi, r);
        return parallel(threads, [&](Team& team) {
          return lower_bound(planes_of(phi), phi.data(), r.data(), factor, team);
        });
      },
      "phi"_a, "r"_a, "factor"_a, "threads"_a);
  m.def(
      "inner",
      [](In u, In v, int threads) {
        check_same_shape(u, v);
        return parallel(
            threads, [&](Team& team) { return inner(planes_of(u), u.data(), v.data(), team); });
      },
      "u"_a, "v"_a, "threads"_a);
  m.def(
      "difference",
      [](In u, In v, int threads) {
        check_same_shape(u, v);
        return parallel(threads, [&](Team& team) {
          return difference(planes_of(u), u.data(), v.data(), team);
        });
      },
      "u"_a, "v"_a, "threads"_a);
  m.def(
      "ahead",
      [](In u, In v, float share, Out out, int threads) {
        check_same_shape(u, v);
        check_same_shape(u, out);
        parallel(threads, [&](Team& team) {
          ahead(planes_of(u), u.data(), v.data(), share, out.data(), team);
        });
      },
      "u"_a, "v"_a, "share"_a, "out"_a.noconvert(), "threads"_a);
}

}  // namespace
}  // namespace densecrf

NB_MODULE(_native, m) {
  // A model that lives until the interpreter ends is no leak worth a warning to its user.
  nb::set_leak_warnings(false);
  m.doc() = "Native core of densecrf; not a public interface.";
  densecrf::bind_lattice(m);
  densecrf::bind_grid(m);
  densecrf::bind_pixelwise(m);
  m.def("available_threads", &densecrf::available_threads);
  m.def("isa", [] { return std::string(densecrf::rows().isa); });
  m.def("select_isa", [](const std::string& isa) { return densecrf::select_rows(isa.c_str()); });
}
