#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "densecrf/baselines.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kCheckEvery = 4096;

using Values = std::vector<float>;

// Line "Blurring at each level independently" of Algorithm 3.
void blur_levels(const Topology& t, int levels, bool reversed, Values& values, Values& scratch,
                 const std::function<void()>& checkpoint) {
  for (int i = 0; i <= t.dimension; ++i) {
    const std::int32_t* axis = t.axis(reversed ? t.dimension - i : i);
    for (std::int64_t v = 0; v < t.vertices; ++v) {
      const float* next = values.data() + static_cast<std::int64_t>(axis[2 * v]) * levels;
      const float* previous = values.data() + static_cast<std::int64_t>(axis[2 * v + 1]) * levels;
      for (int h = 0; h < levels; ++h)
        scratch[v * levels + h] = values[v * levels + h] + 0.5f * (next[h] + previous[h]);
      if (v % kCheckEvery == 0) checkpoint();
    }
    values.swap(scratch);
  }
}

// Algorithm 3: Σ_b k_ab [bin_a >= bin_b], added to out with the given sign.
void algorithm3(const Lattice& lattice, const std::vector<int>& bin, int levels, Blur blur,
                float sign, float* out, const std::function<void()>& checkpoint) {
  const Topology& t = *lattice.topology;
  const std::int64_t n = t.pixels;
  const std::size_t size = static_cast<std::size_t>(t.vertices + 1) * levels;
  const int orders = blur == Blur::kSymmetric ? 2 : 1;
  const float scale = sign * lattice.scale() / static_cast<float>(orders);
  Values splatted(size, 0.0f), values(size), scratch(size, 0.0f);
  for (std::int64_t v = 0; v < t.vertices; ++v) {
    for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e)
      for (int h = bin[t.entry_pixel[e]]; h < levels; ++h)
        splatted[v * levels + h] += lattice.entry_weight[e];
    if (v % kCheckEvery == 0) checkpoint();
  }
  for (int reversed = 0; reversed < orders; ++reversed) {
    values = splatted;
    blur_levels(t, levels, reversed == 1, values, scratch, checkpoint);
    for (std::int64_t a = 0; a < n; ++a) {
      float sum = 0;
      for (int k = 0; k <= t.dimension; ++k)
        sum += lattice.corner_weight[k * n + a] *
               values[static_cast<std::int64_t>(t.corner[k * n + a]) * levels + bin[a]];
      out[a] += scale * sum;
      if (a % kCheckEvery == 0) checkpoint();
    }
  }
}

}  // namespace

void filter_algorithm3(const Lattice& lattice, const float* scores, float* out, int channels,
                       int levels, Blur blur, Team& team) {
  const std::int64_t n = lattice.pixels();
  // Scores a rounding error outside [0, 1], or NaN, must not become an index out of range.
  const Levels open{levels, 0.0f, static_cast<float>(levels - 1), false};
  team.run(channels, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    const auto checkpoint = [&] { team.checkpoint(thread); };
    std::vector<int> bin(static_cast<std::size_t>(n));
    for (std::int64_t c = begin; c < end; ++c) {
      const float* y = scores + c * n;
      float* result = out + c * n;
      std::fill(result, result + n, 0.0f);
      for (std::int64_t a = 0; a < n; ++a) bin[a] = static_cast<int>(open.of(y[a]));
      algorithm3(lattice, bin, levels, blur, 1.0f, result, checkpoint);
      // For [y_a <= y_b] the bins are closed above, and levels count downwards.
      for (std::int64_t a = 0; a < n; ++a)
        bin[a] = levels - 1 - static_cast<int>(std::ceil(open.of(y[a])));
      algorithm3(lattice, bin, levels, blur, -1.0f, result, checkpoint);
    }
  });
}

}  // namespace densecrf
