// Quadratic forms of labellings in double precision.
#include "column_groups.hpp"
#include "deterministic_sums.hpp"
#include "present_labels.hpp"

namespace densecrf {

namespace {

// Columns of the labels numbered `first` on: their splatted indicators s, and t_i = Σ_j μ_ij s_j.
struct Indicators {
  ColumnGroups own, mixed;
};

Indicators splatted(const Lattice& lattice, const std::int64_t* x, const PresentLabels& present,
                    int first, int columns, const double* costs, int labels, Team& team) {
  const Topology& t = *lattice.topology;
  const LatticeView view = lattice.view();
  Indicators out{{t, columns}, {t, columns}};
  team.run(t.vertices, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t v = begin; v < end; ++v) {
      double *s = out.own.group(0) + v * kColumns, *m = out.mixed.group(0) + v * kColumns, all = 0;
      std::fill_n(s, kColumns, 0.0);
      std::fill_n(m, kColumns, 0.0);
      if (!costs) {
        for_each_run<double>(view, v, present.of_pixel.data(), [&](int number, double weight) {
          const int c = number - first;
          if (c >= 0 && c < columns) s[c] += weight;
          all += weight;
        });
        for (int i = 0; i < columns; ++i) m[i] = all - s[i];
        continue;
      }
      for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e) {
        const std::int32_t pixel = t.entry_pixel[e];
        const double weight = lattice.entry_weight[e];
        const int c = present.of_pixel[pixel] - first;
        if (c >= 0 && c < columns) s[c] += weight;
        for (int i = 0; i < columns; ++i)
          m[i] += weight * costs[present.labels[first + i] * labels + x[pixel]];
      }
    }
  });
  return out;
}

}  // namespace

// With s_i the splatted indicator of label i and t_i = Σ_j μ_ij s_j, Σ_i ⟨s_i, k t_i⟩ is the same
// for k and for its transpose: one order of the blurs is enough, and nothing needs to be sliced.
double pairs_double(const LatticeSum& sum, const std::int64_t* x, int labels, const double* costs,
                    Team& team) {
  const PresentLabels present(x, sum.pixels(), labels, team);
  double total = 0;
  for (const LatticeSum::Term& term : sum.terms) {
    const Topology& t = *term.lattice->topology;
    double pairs = 0;
    for (int first = 0; first < present.count(); first += kColumns) {
      const int columns = std::min(kColumns, present.count() - first);
      Indicators all = splatted(*term.lattice, x, present, first, columns, costs, labels, team);
      blur_groups(t, 1, team, [&](std::int64_t) { return all.mixed.group(0); });
      const double *s = all.own.group(0), *m = all.mixed.group(0);
      pairs += sum_over_chunks<1>(t.vertices, team,
                                  [&](std::int64_t begin, std::int64_t end, double* sums) {
                                    double lanes[kColumns] = {};
                                    for (std::int64_t v = begin; v < end; ++v)
                                      for (int c = 0; c < kColumns; ++c)
                                        lanes[c] += s[v * kColumns + c] * m[v * kColumns + c];
                                    for (const double lane : lanes) sums[0] += lane;
                                  })[0];
    }
    total += 2 * factor_of(term) * pairs;
  }
  return total;
}

}  // namespace densecrf
