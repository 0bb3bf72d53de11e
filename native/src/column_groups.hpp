// Rows of the lattice's vertices in double precision, and their blurs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "densecrf/double_filter.hpp"
#include "line_blurs.hpp"
#include "simd/row_kernels.hpp"

namespace densecrf {

inline constexpr int kColumns = RowKernels::kDoubles;  // that go through all blurs together
inline constexpr std::int64_t kGrain = 1024;
inline constexpr std::int64_t kReversed =
    1 << 17;  // rows of the other order, unless one group has more

// What a term's filter is multiplied by, for the sum of both orders of the blurs.
inline double factor_of(const LatticeSum::Term& term) {
  const double scale = 1 / (1 + std::ldexp(1.0, -term.lattice->dimension()));
  return 0.5 * term.weight * scale;
}

// Values at the vertices: group after group of kColumns columns, in each a row per vertex and one
// of zeros behind them.
class ColumnGroups {
 public:
  ColumnGroups(const Topology& topology, int columns)
      : topology_(topology),
        groups_((columns + kColumns - 1) / kColumns),
        values_(groups_ * stride()) {
    for (int g = 0; g < groups_; ++g)
      std::fill_n(group(g) + topology_.vertices * std::int64_t{kColumns}, kColumns, 0.0);
  }
  int groups() const { return groups_; }
  int width() const { return groups_ * kColumns; }
  double* group(int g) { return values_.data() + g * stride(); }
  const double* group(int g) const { return values_.data() + g * stride(); }
  // Where a column begins; the next vertex's number is kColumns further on.
  const double* column(int c) const { return group(c / kColumns) + c % kColumns; }
  // Sets a vertex's numbers, width() of them.
  void set(std::int64_t v, const double* row) {
    for (int g = 0; g < groups_; ++g)
      std::copy_n(row + g * kColumns, kColumns, group(g) + v * kColumns);
  }

 private:
  std::int64_t stride() const { return (topology_.vertices + std::int64_t{1}) * kColumns; }

  const Topology& topology_;
  int groups_;
  Buffer<double> values_;
};

// Blurs groups along all axes, in place: out_v = own_v + ½ (next + previous). Tasks of odd number
// go from the last axis to the first; rows(task) is the group's.
template <class Rows>
void blur_groups(const Topology& t, std::int64_t tasks, Team& team, const Rows& rows) {
  blur_along_lines(
      t, tasks, team, [](std::int64_t task) { return task % 2 == 1; },
      [&](std::int64_t task, const Topology::Lines& lines, std::int64_t begin, std::int64_t end) {
        row_kernels().blur_doubles(lines.begin, begin, end, t.vertices, rows(task));
      });
}

// The sum of both orders' blurs; splat(forward, begin, end) sets the numbers of some vertices.
template <class Splat>
ColumnGroups blurred_twice(const Topology& t, int columns, Team& team, Splat&& splat) {
  ColumnGroups forward(t, columns);
  team.run(t.vertices, kGrain,
           [&](std::int64_t begin, std::int64_t end, int) { splat(forward, begin, end); });
  const int most =
      std::clamp<int>(static_cast<int>(kReversed / (t.vertices + 1)), 1, forward.groups());
  ColumnGroups reversed(t, most * kColumns);
  for (int first = 0; first < forward.groups(); first += most) {
    const int count = std::min(most, forward.groups() - first);
    const auto each_row = [&](auto&& use) {
      team.run(count * t.vertices, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const auto group = static_cast<int>(i / t.vertices);
          const std::int64_t at = i % t.vertices * kColumns;
          use(forward.group(first + group) + at, reversed.group(group) + at);
        }
      });
    };
    each_row([](double* own, double* other) { std::copy_n(own, kColumns, other); });
    blur_groups(t, 2 * count, team, [&](std::int64_t task) {
      const auto group = static_cast<int>(task / 2);
      return task % 2 == 0 ? forward.group(first + group) : reversed.group(group);
    });
    each_row([](double* own, double* other) {
      for (int c = 0; c < kColumns; ++c) own[c] += other[c];
    });
  }
  return forward;
}

}  // namespace densecrf
