// The solvers' operations on single pixels.
#include "densecrf/pixelwise.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>

#include "arrays.hpp"

namespace densecrf {

namespace {

using Labels = Vector<const std::int64_t>;

const float* data_of(const std::optional<Matrix<const float>>& array) {
  return array ? array->data() : nullptr;
}
const float* data_of(const std::optional<Vector<const float>>& array) {
  return array ? array->data() : nullptr;
}

}  // namespace

// The arrays of a call have the same shape, vectors one number per pixel.
void bind_pixelwise(nb::module_& m) {
  using In = Matrix<const float>;
  using Out = Matrix<float>;
  using Column = Vector<const float>;
  m.def(
      "project_simplex",
      [](In z, Out out, int threads) {
        check_same_shape(z, out);
        parallel(threads, z.size(),
                 [&](Team& team) { project_simplex(planes_of(z), z.data(), out.data(), team); });
      },
      "z"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "descend",
      [](In phi, In r, In v, Column step, Column lipschitz, In previous, Out out, int threads) {
        check_same_shape(phi, r);
        check_same_shape(phi, v);
        check_same_shape(phi, previous);
        check_same_shape(phi, out);
        check_columns(phi, step, lipschitz);
        return parallel(threads, phi.size(), [&](Team& team) {
          return descend(planes_of(phi), phi.data(), r.data(), v.data(), step.data(),
                         lipschitz.data(), previous.data(), out.data(), team);
        });
      },
      "phi"_a, "r"_a, "v"_a, "step"_a, "lipschitz"_a, "previous"_a, "out"_a.noconvert(),
      "threads"_a);
  m.def(
      "mean_field_update",
      [](In phi, std::optional<In> filtered, std::optional<In> y, std::optional<Column> own,
         Out out, int threads) {
        check_same_shape(phi, out);
        if (filtered) check_same_shape(phi, *filtered);
        require(y.has_value() == own.has_value(), "y and own go together");
        if (own) {
          check_same_shape(phi, *y);
          check_columns(phi, *own);
        }
        parallel(threads, phi.size(), [&](Team& team) {
          mean_field_update(planes_of(phi), phi.data(), data_of(filtered), data_of(y), data_of(own),
                            out.data(), team);
        });
      },
      "phi"_a, "filtered"_a.none(), "y"_a.none(), "own"_a.none(), "out"_a.noconvert(), "threads"_a);
  m.def(
      "potts_messages",
      [](In filtered, In y, Column own, Out out, int threads) {
        check_same_shape(filtered, y);
        check_same_shape(filtered, out);
        check_columns(y, own);
        parallel(threads, y.size(), [&](Team& team) {
          potts_messages(planes_of(y), filtered.data(), y.data(), own.data(), out.data(), team);
        });
      },
      "filtered"_a, "y"_a, "own"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "argmax",
      [](In z, Vector<std::int64_t> out, int threads) {
        check_columns(z, out);
        require(z.shape(0) > 0, "z: no labels");
        parallel(threads, z.size(),
                 [&](Team& team) { argmax(planes_of(z), z.data(), out.data(), team); });
      },
      "z"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "icm_moves",
      [](In phi, In received, Labels present, Column others, Labels labels,
         Vector<std::int64_t> best, Vector<float> gain, int threads) {
        require(received.shape(1) == phi.shape(1), "received: not as long as phi");
        require(received.shape(0) == present.shape(0), "present: not as many as received");
        check_columns(phi, others, labels, best, gain);
        return parallel(threads, phi.size(), [&](Team& team) {
          return icm_moves(planes_of(phi), phi.data(), received.data(), present.data(),
                           static_cast<int>(present.shape(0)), others.data(), labels.data(),
                           best.data(), gain.data(), team);
        });
      },
      "phi"_a, "received"_a, "present"_a, "others"_a, "labels"_a, "best"_a.noconvert(),
      "gain"_a.noconvert(), "threads"_a);
  m.def(
      "lmo",
      [](In linear, In h, Column c, In y, Vector<std::int64_t> best, int threads) {
        check_same_shape(linear, h);
        check_same_shape(linear, y);
        check_columns(linear, c, best);
        return parallel(threads, linear.size(), [&](Team& team) {
          return lmo(planes_of(linear), linear.data(), h.data(), c.data(), y.data(), best.data(),
                     team);
        });
      },
      "linear"_a, "h"_a, "c"_a, "y"_a, "best"_a.noconvert(), "threads"_a);
  m.def(
      "step_to_vertex",
      [](Labels labels, In y, float step, Out out, int threads) {
        check_same_shape(y, out);
        check_columns(y, labels);
        parallel(threads, y.size(), [&](Team& team) {
          step_to_vertex(planes_of(y), labels.data(), y.data(), step, out.data(), team);
        });
      },
      "labels"_a, "y"_a, "step"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "lower_bound",
      [](In phi, In r, float factor, std::optional<Vector<float>> least, int threads) {
        check_same_shape(phi, r);
        if (least) check_columns(phi, *least);
        return parallel(threads, phi.size(), [&](Team& team) {
          return lower_bound(planes_of(phi), phi.data(), r.data(), factor,
                             least ? least->data() : nullptr, team);
        });
      },
      "phi"_a, "r"_a, "factor"_a, "least"_a.none(), "threads"_a);
  m.def(
      "extents",
      [](In u, std::optional<In> v, Out out, int threads) {
        require(u.shape(1) > 0, "u: no pixels");
        if (v) check_same_shape(u, *v);
        require(out.shape(0) == u.shape(0) && out.shape(1) == 2, "out: not (labels, 2)");
        parallel(threads, u.size(), [&](Team& team) {
          extents(planes_of(u), u.data(), data_of(v), out.data(), team);
        });
      },
      "u"_a, "v"_a.none(), "out"_a.noconvert(), "threads"_a);
  m.def(
      "compress_potentials",
      [](std::optional<In> z, In y, In extents, float span, float edge, Out out, int threads) {
        if (z) check_same_shape(y, *z);
        check_same_shape(y, out);
        require(extents.shape(0) == y.shape(0) && extents.shape(1) == 2,
                "extents: not (labels, 2)");
        parallel(threads, y.size(), [&](Team& team) {
          compress_potentials(planes_of(y), data_of(z), y.data(), extents.data(), span, edge,
                              out.data(), team);
        });
      },
      "z"_a.none(), "y"_a, "extents"_a, nb::kw_only(), "span"_a, "edge"_a, "out"_a.noconvert(),
      "threads"_a);
  m.def(
      "balance",
      [](Out r, Column mass, double total_mass, float factor, int threads) {
        check_columns(r, mass);
        parallel(threads, r.size(), [&](Team& team) {
          balance(planes_of(r), r.data(), mass.data(), total_mass, factor, team);
        });
      },
      "r"_a.noconvert(), "mass"_a, "total_mass"_a, "factor"_a, "threads"_a);
  m.def(
      "inner",
      [](In u, In v, int threads) {
        check_same_shape(u, v);
        return parallel(threads, u.size(),
                        [&](Team& team) { return inner(planes_of(u), u.data(), v.data(), team); });
      },
      "u"_a, "v"_a, "threads"_a);
  m.def(
      "sum_at",
      [](In u, Labels labels, std::optional<Column> weights, int threads) {
        check_columns(u, labels);
        if (weights) check_columns(u, *weights);
        return parallel(threads, kFilterWork * labels.size(), [&](Team& team) {
          return sum_at(planes_of(u), u.data(), labels.data(), data_of(weights), team);
        });
      },
      "u"_a, "labels"_a, "weights"_a.none(), "threads"_a);
  m.def(
      "undecided",
      [](In u, Vector<double> out, int threads) {
        require(out.shape(0) == u.shape(0), "out: not one number per label");
        parallel(threads, u.size(),
                 [&](Team& team) { undecided(planes_of(u), u.data(), out.data(), team); });
      },
      "u"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "accumulate",
      [](In u, Matrix<float> total, int threads) {
        check_same_shape(u, total);
        parallel(threads, u.size(),
                 [&](Team& team) { accumulate(planes_of(u), u.data(), total.data(), team); });
      },
      "u"_a, "total"_a.noconvert(), "threads"_a);
  m.def(
      "difference",
      [](In u, In v, int threads) {
        check_same_shape(u, v);
        return parallel(threads, u.size(), [&](Team& team) {
          return difference(planes_of(u), u.data(), v.data(), team);
        });
      },
      "u"_a, "v"_a, "threads"_a);
  m.def(
      "extrapolate",
      [](In u, In v, float share, Out out, int threads) {
        check_same_shape(u, v);
        check_same_shape(u, out);
        parallel(threads, u.size(), [&](Team& team) {
          extrapolate(planes_of(u), u.data(), v.data(), share, out.data(), team);
        });
      },
      "u"_a, "v"_a, "share"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "add_extrapolated",
      [](In u, In v, float share, Matrix<float> total, int threads) {
        check_same_shape(u, v);
        check_same_shape(u, total);
        parallel(threads, u.size(), [&](Team& team) {
          add_extrapolated(planes_of(u), u.data(), v.data(), share, total.data(), team);
        });
      },
      "u"_a, "v"_a, "share"_a, "total"_a.noconvert(), "threads"_a);
  m.def(
      "shortfalls",
      [](In costs, Column least, Vector<double> out, int threads) {
        check_columns(costs, least);
        require(out.shape(0) == costs.shape(0), "out: not one number per label");
        parallel(threads, costs.size(), [&](Team& team) {
          shortfalls(planes_of(costs), costs.data(), least.data(), out.data(), team);
        });
      },
      "costs"_a, "least"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "price_step",
      [](In costs, Column least, Column step, float twice, Vector<float> y, Vector<float> z,
         int threads) {
        require(costs.shape(0) == 1, "costs: not of one label");
        check_columns(costs, least, step, y, z);
        parallel(threads, costs.size(), [&](Team& team) {
          price_step(planes_of(costs).n, costs.data(), least.data(), step.data(), twice, y.data(),
                     z.data(), team);
        });
      },
      "costs"_a, "least"_a, "step"_a, "twice"_a, "y"_a.noconvert(), "z"_a.noconvert(), "threads"_a);
}

}  // namespace densecrf
