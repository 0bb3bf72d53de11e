// Matrices of narrow kernels by their entries, where pixels have few neighbours. The ordered filter
// then visits pairs, however many levels there are; a lattice of more vertices than pixels would
// fill rows with zeros.
#pragma once

#include <cstdint>
#include <vector>

#include "densecrf/filter.hpp"
#include "densecrf/lattice_sum.hpp"

namespace densecrf {

// Rows of entries as plain pointers, for the inner loops.
struct EntriesView {
  const std::int64_t* begin;
  const std::int32_t* pixel;
  const double* value;
};

// A sum of weighted, symmetrised lattice filters: the same numbers, added up for each pair. Rows
// include the diagonal.
struct Entries {
  std::vector<std::int64_t> begin;  // by pixel, and one more: where its row begins
  Buffer<std::int32_t> pixel;       // ascending in each row
  Buffer<double> value;

  Entries(const std::vector<LatticeSum::Term>& terms, Team& team);

  // Whether the filter has at most so many entries in a row, in the mean of a sample.
  static bool few(const Lattice& lattice, std::int64_t most);

  std::int64_t pixels() const { return static_cast<std::int64_t>(begin.size()) - 1; }
  EntriesView view() const { return {begin.data(), pixel.data(), value.data()}; }

  // Adds what filter_ordered does.
  void ordered(const Scores& scores, Output out, Team& team) const;

  // Adds Σ_b K_ab s(t_a, t_b) to the channels of `out`: see double_filter.hpp.
  void add_ordered_double(const float* scores, const float* offsets, const float* extents,
                          double* out, int channels, LevelsOf<double> levels, Team& team) const;

  // Σ_ab K_ab [x_a ≠ x_b].
  double pairs(const std::int64_t* x, Team& team) const;

  // Adds the mass of pixels [first, last) on each label to planes `stride` apart.
  void add_support(const std::int32_t* label, std::int64_t first, std::int64_t last, float* planes,
                   std::int64_t stride) const;

  // The same on each pixel's own label alone, with the same bits.
  void add_own_support(const std::int32_t* label, std::int64_t first, std::int64_t last,
                       float* out) const;
};

}  // namespace densecrf
