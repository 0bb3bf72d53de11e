// Quadratic forms of labellings in double precision.
#include <algorithm>
#include <stdexcept>

#include "column_groups.hpp"

namespace densecrf {

// With s_i the splatted indicator of label i and t_i = Σ_j μ_ij s_j, Σ_i ⟨s_i, k t_i⟩ is the same
// for k and for its transpose: one order of the blurs is enough, and nothing needs to be sliced.
double pairs_double(const LatticeSum& sum, const std::int64_t* x, int labels, const double* costs,
                    Team& team) {
  const std::int64_t n = sum.pixels();
  std::vector<std::int32_t> column(static_cast<std::size_t>(labels), -1);
  std::vector<int> present;
  for (std::int64_t a = 0; a < n; ++a) {
    if (x[a] < 0 || x[a] >= labels) throw std::out_of_range("labels: out of range");
    column[static_cast<std::size_t>(x[a])] = 0;
  }
  for (int i = 0; i < labels; ++i)
    if (column[static_cast<std::size_t>(i)] == 0) {
      column[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(present.size());
      present.push_back(i);
    }
  const auto count = static_cast<int>(present.size());
  const std::int64_t blocks = (count + kColumns - 1) / kColumns;
  std::vector<double> parts(sum.terms.size() * static_cast<std::size_t>(blocks));
  team.run(static_cast<std::int64_t>(parts.size()), 1,
           [&](std::int64_t task, std::int64_t, int thread) {
             const LatticeSum::Term& term = sum.terms[static_cast<std::size_t>(task / blocks)];
             const Lattice& lattice = *term.lattice;
             const Topology& t = *lattice.topology;
             const int first = static_cast<int>(task % blocks) * kColumns;
             const int columns = std::min(kColumns, count - first);
             ColumnGroups own(t, columns), mixed(t, columns);
             for (std::int64_t v = 0; v < t.vertices; ++v) {
               double *s = own.group(0) + v * kColumns, *m = mixed.group(0) + v * kColumns, all = 0;
               std::fill_n(s, kColumns, 0.0);
               std::fill_n(m, kColumns, 0.0);
               for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e) {
                 const std::int64_t label = x[t.entry_pixel[e]];
                 const double weight = lattice.entry_weight[e];
                 const int c = column[static_cast<std::size_t>(label)] - first;
                 if (c >= 0 && c < columns) s[c] += weight;
                 all += weight;
                 if (costs)
                   for (int i = 0; i < columns; ++i)
                     m[i] += weight * costs[std::int64_t{present[first + i]} * labels + label];
               }
               if (!costs)
                 for (int i = 0; i < columns; ++i) m[i] = all - s[i];
             }
             mixed.blur(false, 0, team, thread);
             double own_pairs = 0;
             const double *s = own.group(0), *m = mixed.group(0);
             for (std::int64_t i = 0; i < kColumns * std::int64_t{t.vertices}; ++i)
               own_pairs += s[i] * m[i];
             parts[static_cast<std::size_t>(task)] = 2 * factor_of(term) * own_pairs;
           });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

}  // namespace densecrf
