// The exact, separable Gaussian on a regular grid, truncated where its taps end.
#pragma once

#include <cstdint>
#include <vector>

#include "densecrf/filter.hpp"
#include "densecrf/parallel.hpp"

namespace densecrf {

struct Grid {
  std::vector<std::int64_t> shape;       // slowest axis first
  std::vector<std::vector<float>> taps;  // one half of each axis's kernel, from its centre on

  std::int64_t pixels() const;
};

// out_c,a = Σ_b rows_a k_ab columns_b in_c,b; rows of `in` and `out` are channels.
void grid_plain(const Grid& grid, const float* in, const float* columns, const float* rows,
                float* out, int channels, Team& team);

// As filter_ordered, with weights: Σ_b rows_a k_ab columns_b s(t_a, t_b).
void grid_ordered(const Grid& grid, const float* scores, const float* columns, const float* rows,
                  float* out, int channels, Levels levels, const float* mass, Team& team);

}  // namespace densecrf
