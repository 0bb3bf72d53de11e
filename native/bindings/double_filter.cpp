// The filters in double precision.
#include "densecrf/double_filter.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"

namespace densecrf {
namespace {

using Lattices = std::vector<const Lattice*>;
using Weights = std::vector<double>;

std::vector<DoubleTerm> terms_of(const Lattices& lattices, const Weights& weights,
                                 std::size_t pixels) {
  require(!lattices.empty() && lattices.size() == weights.size(), "one weight for each lattice");
  std::vector<DoubleTerm> terms;
  for (std::size_t i = 0; i < lattices.size(); ++i) {
    require(lattices[i] && lattices[i]->pixels() == static_cast<std::int64_t>(pixels),
            "the array's number of pixels is not the lattice's");
    terms.push_back({lattices[i], weights[i]});
  }
  return terms;
}

}  // namespace

void bind_double_filter(nb::module_& m) {
  m.def(
      "apply_double",
      [](const Lattices& lattices, const Weights& weights, Matrix<const double> in,
         Matrix<double> out, int threads) {
        check_same_shape(in, out);
        const auto terms = terms_of(lattices, weights, in.shape(1));
        parallel(threads, [&](Team& team) {
          apply_double(terms, in.data(), out.data(), static_cast<int>(in.shape(0)), team);
        });
      },
      "lattices"_a, "weights"_a, "values"_a, "out"_a.noconvert(), "threads"_a);
  m.def(
      "ordered_double",
      [](const Lattices& lattices, const Weights& weights, Vector<const double> mass,
         Matrix<const float> scores, std::optional<Matrix<const float>> offsets,
         Matrix<const float> extents, Matrix<double> out, int levels, double low, double scale,
         bool hard, int threads) {
        check_same_shape(scores, out);
        if (offsets) check_same_shape(scores, *offsets);
        check_columns(scores, mass);
        require(extents.shape(0) == scores.shape(0) && extents.shape(1) == 2,
                "extents: not two numbers a channel");
        require(levels >= 2, "levels: at least 2");
        const auto terms = terms_of(lattices, weights, scores.shape(1));
        parallel(threads, [&](Team& team) {
          ordered_double(terms, mass.data(), scores.data(), offsets ? offsets->data() : nullptr,
                         extents.data(), out.data(), static_cast<int>(scores.shape(0)),
                         {levels, low, scale, hard}, team);
        });
      },
      "lattices"_a, "weights"_a, "mass"_a, "scores"_a, "offsets"_a.none(), "extents"_a,
      "out"_a.noconvert(), "levels"_a, "low"_a, "scale"_a, "hard"_a, "threads"_a);
  m.def(
      "pairs_double",
      [](const Lattices& lattices, const Weights& weights, Vector<const std::int64_t> labels,
         int count, std::optional<Matrix<const double>> costs, int threads) {
        const auto terms = terms_of(lattices, weights, labels.shape(0));
        if (costs)
          require(static_cast<int>(costs->shape(0)) == count &&
                      static_cast<int>(costs->shape(1)) == count,
                  "costs: not a row and a column for each label");
        return parallel(threads, [&](Team& team) {
          return pairs_double(terms, labels.data(), count, costs ? costs->data() : nullptr, team);
        });
      },
      "lattices"_a, "weights"_a, "labels"_a, "count"_a, "costs"_a.none(), "threads"_a);
}

}  // namespace densecrf
