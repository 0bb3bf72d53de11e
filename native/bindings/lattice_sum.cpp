// Sums of lattice filters, with what solvers do to them; the same in double precision.
#include "densecrf/lattice_sum.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "densecrf/double_filter.hpp"
#include "densecrf/entries.hpp"
#include "densecrf/labelling.hpp"

namespace densecrf {

namespace {

using Labels = Vector<const std::int64_t>;
using Column = Vector<const float>;

std::vector<LatticeSum::Term> terms_of(const std::vector<const Lattice*>& lattices,
                                       const std::vector<double>& weights) {
  require(lattices.size() == weights.size(), "one weight for each lattice");
  std::vector<LatticeSum::Term> terms;
  for (std::size_t i = 0; i < lattices.size(); ++i) {
    require(lattices[i] != nullptr, "a lattice is missing");
    check_pixels(*lattices[0], static_cast<std::size_t>(lattices[i]->pixels()));
    terms.push_back({lattices[i], weights[i]});
  }
  return terms;
}

void make(LatticeSum* self, const std::vector<const Lattice*>& lattices,
          const std::vector<double>& weights, bool symmetric, const Entries* entries) {
  require(!lattices.empty() || entries, "no lattice");
  new (self) LatticeSum{terms_of(lattices, weights), blur_of(symmetric), entries};
  for (const auto& term : self->terms)
    require(term.lattice->pixels() == self->pixels(), "not the same pixels");
}

void make_entries(Entries* self, const std::vector<const Lattice*>& lattices,
                  const std::vector<double>& weights, int threads) {
  require(!lattices.empty(), "no lattice");
  const auto terms = terms_of(lattices, weights);
  const auto work = static_cast<std::size_t>(terms[0].lattice->pixels());
  parallel(threads, kFilterWork * work, [&](Team& team) { new (self) Entries(terms, team); });
}

bool few_entries(const Lattice& lattice, std::int64_t most) {
  return parallel(1, 1, [&](Team&) { return Entries::few(lattice, most); });
}

void check_pixels(const LatticeSum& self, std::size_t count) {
  require(static_cast<std::int64_t>(count) == self.pixels(),
          "the array's number of pixels is not the lattice's");
}

void ordered_entries(const Entries& self, Matrix<const float> scores, Matrix<float> out,
                     nb::handle levels, std::optional<Matrix<const float>> offsets,
                     Matrix<const float> extents, int threads) {
  require(static_cast<std::int64_t>(scores.shape(1)) == self.pixels(), "not the same pixels");
  const Scores given = scores_of(scores, out, levels, offsets, extents);
  parallel(threads, kFilterWork * scores.size(),
           [&](Team& team) { self.ordered(given, {out.data()}, team); });
}

double entry_pairs(const Entries& self, Labels labels, int threads) {
  require(static_cast<std::int64_t>(labels.shape(0)) == self.pixels(), "not the same pixels");
  return parallel(threads, kFilterWork * labels.size(),
                  [&](Team& team) { return self.pairs(labels.data(), team); });
}

void apply_doubles(const LatticeSum& self, Matrix<const double> in, Matrix<double> out,
                   int threads) {
  check_pixels(self, in.shape(1));
  check_same_shape(in, out);
  parallel(threads, kFilterWork * in.size(), [&](Team& team) {
    apply_double(self, in.data(), out.data(), static_cast<int>(in.shape(0)), team);
  });
}

void ordered_doubles(const LatticeSum& self, Matrix<const float> scores, Matrix<double> out,
                     nb::handle levels, std::optional<Matrix<const float>> offsets,
                     Matrix<const float> extents, Vector<const double> mass, int threads) {
  check_pixels(self, scores.shape(1));
  check_same_shape(scores, out);
  if (offsets) check_same_shape(scores, *offsets);
  check_columns(scores, mass);
  require(extents.shape(0) == scores.shape(0) && extents.shape(1) == 2,
          "extents: not two numbers per channel");
  const auto given = levels_of<double>(levels);
  parallel(threads, kFilterWork * scores.size(), [&](Team& team) {
    ordered_double(self, mass.data(), scores.data(), offsets ? offsets->data() : nullptr,
                   extents.data(), out.data(), static_cast<int>(scores.shape(0)), given, team);
  });
}

double pairs(const LatticeSum& self, Labels labels, int count,
             std::optional<Matrix<const double>> costs, int threads) {
  check_pixels(self, labels.shape(0));
  if (costs)
    require(
        static_cast<int>(costs->shape(0)) == count && static_cast<int>(costs->shape(1)) == count,
        "costs: not a row and a column for each label");
  return parallel(threads, kFilterWork * labels.size(), [&](Team& team) {
    return pairs_double(self, labels.data(), count, costs ? costs->data() : nullptr, team);
  });
}

void apply(const LatticeSum& self, Matrix<const float> in, Matrix<float> out, int threads) {
  check_pixels(self, in.shape(1));
  check_same_shape(in, out);
  parallel(threads, kFilterWork * in.size(),
           [&](Team& team) { filter_sum(self, planes_of(in), in.data(), out.data(), team); });
}

// Iterations together with the arrays that they read.
struct BoundMeanField {
  Matrix<const float> phi;
  std::optional<Column> own;
  MeanField iterations;
};

void begin(BoundMeanField* self, const LatticeSum& sum, Matrix<const float> phi,
           std::optional<Column> own) {
  check_pixels(sum, phi.shape(1));
  if (own) check_columns(phi, *own);
  new (self)
      BoundMeanField{phi, own, {sum, planes_of(phi), phi.data(), own ? own->data() : nullptr}};
}

void step(BoundMeanField& self, Matrix<const float> y, Matrix<float> out, bool more, int threads) {
  check_same_shape(self.phi, y);
  check_same_shape(self.phi, out);
  parallel(threads, kFilterWork * y.size(),
           [&](Team& team) { self.iterations.step(y.data(), out.data(), more, team); });
}

auto descent(const LatticeSum& self, Matrix<const float> phi, Matrix<const float> y,
             std::optional<Matrix<const float>> before, float share, Column own,
             std::optional<Column> c, Column strength, std::optional<Column> rest,
             Matrix<float> out, int threads) {
  check_pixels(self, phi.shape(1));
  check_same_shape(phi, y);
  check_same_shape(phi, out);
  if (before) check_same_shape(phi, *before);
  check_columns(phi, own, strength);
  if (c) check_columns(phi, *c);
  if (rest) check_columns(phi, *rest);
  const QuadraticStep step = parallel(threads, kFilterWork * phi.size(), [&](Team& team) {
    return quadratic_step(self, planes_of(phi), phi.data(), y.data(),
                          before ? before->data() : nullptr, share, own.data(),
                          c ? c->data() : nullptr, strength.data(), rest ? rest->data() : nullptr,
                          out.data(), team);
  });
  const auto& [objective, uphill, moved, gained] = step.sums;
  return nb::make_tuple(objective, uphill, moved, gained > 0, step.present);
}

void sums(const LatticeSum& self, Vector<double> out, int threads) {
  check_pixels(self, out.shape(0));
  parallel(threads, kFilterWork * out.size(),
           [&](Team& team) { row_sums(self, out.data(), team); });
}

void mass(const LatticeSum& self, Vector<float> out, int threads) {
  check_pixels(self, out.shape(0));
  parallel(threads, kFilterWork * out.size(), [&](Team& team) {
    total_mass(self, static_cast<std::int64_t>(out.shape(0)), out.data(), team);
  });
}

void mass_of_doubles(const LatticeSum& self, Vector<double> out, int threads) {
  check_pixels(self, out.shape(0));
  parallel(threads, kFilterWork * out.size(),
           [&](Team& team) { row_sums(self, out.data(), team); });
}

void free_workspaces(const LatticeSum& self) {
  for (const auto& term : self.terms) {
    term.lattice->topology->row_buffers.clear();
    term.lattice->topology->pixel_buffers.clear();
  }
}

auto moves(const LatticeSum& self, Matrix<const float> phi, Labels labels, Column mass, Column own,
           Vector<std::int64_t> best, Vector<float> gain, int threads) {
  check_pixels(self, phi.shape(1));
  check_columns(phi, labels, mass, own, best, gain);
  return parallel(threads, kFilterWork * phi.size(), [&](Team& team) {
    return potts_icm_moves(self, planes_of(phi), phi.data(), labels.data(), mass.data(), own.data(),
                           best.data(), gain.data(), team);
  });
}

}  // namespace

void bind_lattice_sum(nb::module_& m) {
  nb::class_<LatticeSum>(m, "LatticeSum")
      // The lattices must come as a tuple, which keeps them alive.
      .def("__init__", &make, "lattices"_a, "weights"_a, "symmetric"_a,
           "entries"_a.none() = nullptr, nb::keep_alive<1, 2>(), nb::keep_alive<1, 5>())
      .def("apply", &apply, "values"_a, "out"_a.noconvert(), "threads"_a)
      .def("quadratic_step", &descent, "phi"_a, "y"_a, nb::kw_only(), "before"_a.none(), "share"_a,
           "own"_a, "c"_a.none(), "strength"_a, "rest"_a.none(), "out"_a.noconvert(), "threads"_a)
      .def("row_sums", &sums, "out"_a.noconvert(), "threads"_a)
      .def("mass", &mass, "out"_a.noconvert(), "threads"_a)
      .def("mass_double", &mass_of_doubles, "out"_a.noconvert(), "threads"_a)
      .def("free_workspaces", &free_workspaces)
      .def("potts_icm_moves", &moves, "phi"_a, "labels"_a, nb::kw_only(), "mass"_a, "own"_a,
           "best"_a.noconvert(), "gain"_a.noconvert(), "threads"_a)
      .def("apply_double", &apply_doubles, "values"_a, "out"_a.noconvert(), "threads"_a)
      .def("ordered_double", &ordered_doubles, "scores"_a, "out"_a.noconvert(), "levels"_a,
           nb::kw_only(), "offsets"_a.none(), "extents"_a, "mass"_a, "threads"_a)
      .def("pairs_double", &pairs, "labels"_a, "count"_a, "costs"_a.none(), "threads"_a);
  nb::class_<Entries>(m, "Entries")
      .def("__init__", &make_entries, "lattices"_a, "weights"_a, "threads"_a)
      .def("__len__", [](const Entries& self) { return self.begin.back(); })
      .def("ordered", &ordered_entries, "scores"_a, "out"_a.noconvert(), "levels"_a, nb::kw_only(),
           "offsets"_a.none(), "extents"_a, "threads"_a)
      .def("pairs", &entry_pairs, "labels"_a, "threads"_a);
  m.def("few_entries", &few_entries, "lattice"_a, "most"_a);
  nb::class_<BoundMeanField>(m, "MeanField")
      .def("__init__", &begin, "sum"_a, "phi"_a, "own"_a.none(), nb::keep_alive<1, 2>())
      .def("step", &step, "y"_a, "out"_a.noconvert(), "more"_a, "threads"_a);
}

}  // namespace densecrf
