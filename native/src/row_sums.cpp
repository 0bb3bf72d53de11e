// The sums of the rows of the filters' matrix: one column, so without vectors of columns.
#include <algorithm>

#include "column_groups.hpp"

namespace densecrf {

namespace {

// The weights of each vertex's entries, summed.
void splat_ones(const LatticeView& t, double* out, Team& team) {
  team.run(t.vertices, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t v = begin; v < end; ++v) {
      double sums[4] = {};  // which do not wait for each other
      std::int64_t e = t.row_begin[v];
      for (; e + 4 <= t.row_begin[v + 1]; e += 4)
        for (int i = 0; i < 4; ++i) sums[i] += double{t.entry_weight[e + i]};
      for (; e < t.row_begin[v + 1]; ++e) sums[0] += double{t.entry_weight[e]};
      out[v] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
  });
}

// out_v = own_v + ½ (next + previous) along lines [begin, end); number `vertices` holds zero.
void blur(const Topology::Lines& lines, std::int64_t begin, std::int64_t end, std::int32_t vertices,
          double* values) {
  double previous = 0, own = 0, nowhere;
  for (std::int64_t i = begin; i < end; ++i) {
    const double next = values[lines.begin[i + 1]];
    double* out = lines.begin[i] == vertices ? &nowhere : values + lines.begin[i];
    *out = own + 0.5 * (next + previous);
    previous = own;
    own = next;
  }
}

}  // namespace

void row_sums(const LatticeSum& sum, double* out, Team& team) {
  std::fill_n(out, sum.pixels(), 0.0);
  const int orders = sum.blur == Blur::kSymmetric ? 2 : 1;
  for (const auto& term : sum.terms) {
    const LatticeView t = term.lattice->view();
    const std::int64_t n = t.pixels, stride = t.vertices + std::int64_t{1};
    Buffer<double> values(orders * stride);
    splat_ones(t, values.data(), team);
    values[t.vertices] = 0;
    if (orders > 1) std::copy_n(values.data(), stride, values.data() + stride);
    blur_along_lines(
        *term.lattice->topology, orders, team, [](std::int64_t task) { return task == 1; },
        [&](std::int64_t task, const Topology::Lines& lines, std::int64_t begin, std::int64_t end) {
          blur(lines, begin, end, t.vertices, values.data() + task * stride);
        });
    if (orders > 1)
      for (std::int64_t v = 0; v < t.vertices; ++v)
        values[v] = 0.5 * (values[v] + values[stride + v]);
    const double factor = 2 * factor_of(term);
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      for (int k = 0; k <= t.dimension; ++k)
        for (std::int64_t a = begin; a < end; ++a)
          out[a] += factor * double{t.corner_weight[k * n + a]} * values[t.corner[k * n + a]];
    });
  }
}

}  // namespace densecrf
