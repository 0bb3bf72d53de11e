// Sums of lattice filters, mean field's step and the Potts energy with them.
#include "densecrf/lattice_sum.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "densecrf/labelling.hpp"

namespace densecrf {

namespace {

using Labels = Vector<const std::int64_t>;
using Column = Vector<const float>;

void make(LatticeSum* self, const std::vector<const Lattice*>& lattices,
          const std::vector<float>& weights, bool symmetric) {
  require(!lattices.empty() && lattices.size() == weights.size(), "one weight for each lattice");
  std::vector<LatticeSum::Term> terms;
  for (std::size_t i = 0; i < lattices.size(); ++i) {
    require(lattices[i] != nullptr, "a lattice is missing");
    check_pixels(*lattices[0], static_cast<std::size_t>(lattices[i]->pixels()));
    terms.push_back({lattices[i], weights[i]});
  }
  new (self) LatticeSum{std::move(terms), blur_of(symmetric)};
}

void check_pixels(const LatticeSum& self, std::size_t count) {
  check_pixels(*self.terms[0].lattice, count);
}

void apply(const LatticeSum& self, Matrix<const float> in, Matrix<float> out, int threads) {
  check_pixels(self, in.shape(1));
  check_same_shape(in, out);
  parallel(threads,
           [&](Team& team) { filter_sum(self, planes_of(in), in.data(), out.data(), team); });
}

void step(const LatticeSum& self, Matrix<const float> phi, Matrix<const float> y,
          std::optional<Column> own, Matrix<float> out, int threads) {
  check_pixels(self, phi.shape(1));
  check_same_shape(phi, y);
  check_same_shape(phi, out);
  if (own) check_columns(phi, *own);
  parallel(threads, [&](Team& team) {
    mean_field_step(self, planes_of(phi), phi.data(), y.data(), own ? own->data() : nullptr,
                    out.data(), team);
  });
}

void mass(const LatticeSum& self, Vector<float> out, int threads) {
  check_pixels(self, out.shape(0));
  parallel(threads, [&](Team& team) {
    total_mass(self, static_cast<std::int64_t>(out.shape(0)), out.data(), team);
  });
}

auto energy(const LatticeSum& self, Matrix<const float> phi, Labels labels, int threads) {
  check_pixels(self, phi.shape(1));
  check_columns(phi, labels);
  return parallel(threads, [&](Team& team) {
    return potts_energy(self, planes_of(phi), phi.data(), labels.data(), team);
  });
}

auto moves(const LatticeSum& self, Matrix<const float> phi, Labels labels, Column mass, Column own,
           Vector<std::int64_t> best, Vector<float> gain, int threads) {
  check_pixels(self, phi.shape(1));
  check_columns(phi, labels, mass, own, best, gain);
  return parallel(threads, [&](Team& team) {
    return potts_icm_moves(self, planes_of(phi), phi.data(), labels.data(), mass.data(), own.data(),
                           best.data(), gain.data(), team);
  });
}

}  // namespace

void bind_lattice_sum(nb::module_& m) {
  nb::class_<LatticeSum>(m, "LatticeSum")
      // The lattices must come as a tuple, which keeps them alive.
      .def("__init__", &make, "lattices"_a, "weights"_a, "symmetric"_a, nb::keep_alive<1, 2>())
      .def("apply", &apply, "values"_a, "out"_a.noconvert(), "threads"_a)
      .def("mean_field_step", &step, "phi"_a, "y"_a, "own"_a.none(), "out"_a.noconvert(),
           "threads"_a)
      .def("mass", &mass, "out"_a.noconvert(), "threads"_a)
      .def("potts_energy", &energy, "phi"_a, "labels"_a, "threads"_a)
      .def("potts_icm_moves", &moves, "phi"_a, "labels"_a, nb::kw_only(), "mass"_a, "own"_a,
           "best"_a.noconvert(), "gain"_a.noconvert(), "threads"_a);
}

}  // namespace densecrf
