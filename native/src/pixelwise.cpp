#include "densecrf/pixelwise.hpp"

#include <algorithm>
#include <vector>

namespace densecrf {

namespace {

constexpr std::int64_t kGrain = 8192;
constexpr int kTile = 64;  // pixels side by side: one or a few registers of each quantity

// Adds partial sums in the order of the chunks, whichever thread made them.
template <class F>
double sum_over_chunks(std::int64_t n, Team& team, F&& chunk) {
  std::vector<double> parts(static_cast<std::size_t>((n + kGrain - 1) / kGrain), 0.0);
  team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    parts[static_cast<std::size_t>(begin / kGrain)] = chunk(begin, end);
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

// The threshold tau with Σ_i max(z_i - tau, 0) = 1 (Michelot's active sets): from
// max(z) - 1 <= tau upwards, dropping what falls below, until nothing more does. All values are
// relative to max(z), so that nothing is lost where z is so large that 1 is below its precision.
void project_tile(const float* z, float* out, int labels, std::int64_t n, int count) {
  float tau[kTile], largest[kTile];
  std::fill(largest, largest + count, -3.4e38f);
  for (int i = 0; i < labels; ++i)
    for (int a = 0; a < count; ++a) largest[a] = std::max(largest[a], z[i * n + a]);
  std::fill(tau, tau + count, -1.0f);
  for (int round = 0; round <= labels; ++round) {
    float sum[kTile] = {}, active[kTile] = {};
    for (int i = 0; i < labels; ++i)
      for (int a = 0; a < count; ++a) {
        const float value = z[i * n + a] - largest[a];
        const bool above = value > tau[a];
        sum[a] += above ? value : 0.0f;
        active[a] += above ? 1.0f : 0.0f;
      }
    bool changed = false;
    for (int a = 0; a < count; ++a) {
      const float better = (sum[a] - 1) / active[a];
      if (better > tau[a]) {
        changed = true;
        tau[a] = better;
      }
    }
    if (!changed) break;
  }
  for (int i = 0; i < labels; ++i)
    for (int a = 0; a < count; ++a)
      out[i * n + a] = std::max(z[i * n + a] - largest[a] - tau[a], 0.0f);
}

}  // namespace

void project_simplex(const float* z, float* out, int labels, std::int64_t n, Team& team) {
  team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t a = begin; a < end; a += kTile)
      project_tile(z + a, out + a, labels, n, static_cast<int>(std::min<std::int64_t>(kTile, end - a)));
  });
}

double lower_bound(const float* phi, const float* r, float factor, int labels, std::int64_t n,
                   Team& team) {
  return sum_over_chunks(n, team, [&](std::int64_t begin, std::int64_t end) {
    double total = 0;
    float least[kTile];
    for (std::int64_t tile = begin; tile < end; tile += kTile) {
      const int count = static_cast<int>(std::min<std::int64_t>(kTile, end - tile));
      std::fill(least, least + count, 3.4e38f);
      for (int i = 0; i < labels; ++i)
        for (int a = 0; a < count; ++a)
          least[a] = std::min(least[a], phi[i * n + tile + a] + factor * r[i * n + tile + a]);
      for (int a = 0; a < count; ++a) total += least[a];
    }
    return total;
  });
}

}  // namespace densecrf
