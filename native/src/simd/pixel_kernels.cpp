// What is done to each pixel on its own, compiled once for each instruction set: see isa.hpp. Loops
// over the pixels of a tile are innermost and independent, for the compiler to vectorise.
#include "simd/pixel_kernels.hpp"

#include <cstring>

#include "simd/isa.hpp"

namespace densecrf {
namespace {

constexpr int kTile = PixelKernels::kTile;
constexpr float kLargest = 3.4e38f;

DENSECRF_INLINE float larger(float a, float b) {
  return a > b ? a : b;
}
DENSECRF_INLINE float smaller(float a, float b) {
  return a < b ? a : b;
}

// e^x for x <= 0, to about one unit in the last place: 2^k times a polynomial of the rest.
DENSECRF_INLINE float exponential(float x) {
  constexpr float kLeast = -87.0f, kShift = 12582912.0f;  // 1.5 · 2^23: adding it rounds
  const float within = larger(x, kLeast);
  const float k = (within * 1.44269504f + kShift) - kShift;
  const float rest = (within - k * 0.693359375f) + k * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * rest + 1.3981999507e-3f;
  p = p * rest + 8.3334519073e-3f;
  p = p * rest + 4.1665795894e-2f;
  p = p * rest + 1.6666665459e-1f;
  p = p * rest + 5.0000001201e-1f;
  const std::int32_t bits = (static_cast<std::int32_t>(k) + 127) * (1 << 23);
  float power;
  std::memcpy(&power, &bits, sizeof power);
  const float value = (p * rest * rest + rest + 1.0f) * power;
  return x < kLeast ? 0.0f : value;
}

// What overflow left of z, within the range of floats: equal numbers are as good as any.
DENSECRF_INLINE float finite(float z) {
  return smaller(larger(z, -kLargest), kLargest);
}

// The threshold tau with Σ_i max(z_i - tau, 0) = 1 (Michelot's active sets): from
// max(z) - 1 <= tau upwards, dropping what falls below, until nothing more does. All relative to
// max(z): nothing cancels, however large z is.
DENSECRF_INLINE void thresholds(const float* z, std::int64_t stride, int labels, int count,
                                const float* largest, float* tau) {
  DENSECRF_EACH (a, count) tau[a] = -1.0f;
  for (int round = 0; round <= labels; ++round) {
    float sum[kTile] = {}, active[kTile] = {};
    for (int i = 0; i < labels; ++i)
      DENSECRF_EACH (a, count) {
        const float value = finite(z[i * stride + a]) - largest[a];
        sum[a] += value > tau[a] ? value : 0.0f;
        active[a] += value > tau[a] ? 1.0f : 0.0f;
      }
    std::int32_t risen = 0;
    DENSECRF_EACH (a, count) {
      const float better = (sum[a] - 1) / active[a];
      risen += better > tau[a] ? 1 : 0;
      tau[a] = larger(better, tau[a]);
    }
    if (risen == 0) break;
  }
}

void project(const Tile& t, const float* z, float* out) {
  float tau[kTile], largest[kTile];
  DENSECRF_EACH (a, t.count) largest[a] = finite(z[a]);
  for (int i = 1; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count) largest[a] = larger(largest[a], finite(z[i * t.n + a]));
  thresholds(z, t.n, t.labels, t.count, largest, tau);
  for (int i = 0; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count)
      out[i * t.n + a] = larger((finite(z[i * t.n + a]) - largest[a]) - tau[a], 0.0f);
}

DENSECRF_INLINE double total(const double* values, int count) {
  double sum = 0;
  for (int a = 0; a < count; ++a) sum += values[a];
  return sum;
}

void descend(const Tile& t, const float* phi, const float* r, const float* v, const float* step,
             const float* lipschitz, const float* previous, float* out, double* sums) {
  float tau[kTile], largest[kTile], least[kTile];
  double value[kTile] = {}, uphill[kTile] = {};
  DENSECRF_EACH (a, t.count) largest[a] = -(least[a] = kLargest);
  for (int i = 0; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count) {
      const float g = phi[i * t.n + a] + r[i * t.n + a];
      const float z = finite(v[i * t.n + a] - step[a] * g);
      least[a] = smaller(least[a], g);
      largest[a] = larger(largest[a], z);
      value[a] += static_cast<double>(g) * static_cast<double>(v[i * t.n + a]);
      t.scratch[i * kTile + a] = z;
    }
  thresholds(t.scratch, kTile, t.labels, t.count, largest, tau);
  for (int i = 0; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count) {
      const float y = larger((t.scratch[i * kTile + a] - largest[a]) - tau[a], 0.0f);
      const float back = lipschitz[a] * (v[i * t.n + a] - y);
      uphill[a] += static_cast<double>(back) * static_cast<double>(y - previous[i * t.n + a]);
      out[i * t.n + a] = y;
    }
  for (int a = 0; a < t.count; ++a) sums[0] += least[a];
  sums[1] += total(value, t.count);
  sums[2] += total(uphill, t.count);
}

void extrapolate(const Tile& t, const std::int64_t* present, const float* y, const float* before,
                 float share, float* out) {
  float sum[kTile] = {};
  for (int i = 0; i < t.labels; ++i) {
    const float *now = y + present[i] * t.n, *then = before ? before + present[i] * t.n : now;
    float* to = out + i * t.n;
    DENSECRF_EACH (a, t.count) {
      to[a] = larger(now[a] + share * (now[a] - then[a]), 0.0f);
      sum[a] += to[a];
    }
  }
  if (!before) return;
  DENSECRF_EACH (a, t.count) sum[a] = 1.0f / sum[a];
  for (int i = 0; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count) out[i * t.n + a] *= sum[a];
}

void quadratic_step(const Tile& t, const float* phi, const float* filtered, std::int64_t stride,
                    const float* v, const float* previous, const std::int64_t* present, int count,
                    const float* own, const float* c, const float* strength, const float* rest,
                    float* out, double* sums) {
  float tau[kTile], largest[kTile], inverse[kTile], diagonal[kTile];
  float received[kTile] = {}, mass[kTile] = {}, value[kTile] = {}, uphill[kTile] = {},
        moved[kTile] = {}, gained[kTile] = {};
  DENSECRF_EACH (a, t.count) {
    largest[a] = -kLargest;
    inverse[a] = 1.0f / strength[a];
    diagonal[a] = own[a] + (c ? c[a] : 0.0f);
  }
  int next = 0;
  for (int i = 0; i < t.labels; ++i) {
    const float* linear = phi + i * t.n;
    float* z = t.scratch + i * kTile;
    if (next < count && present[next] == i) {
      const float* f = filtered + next * stride;
      const float* at = v + next++ * t.n;
      DENSECRF_EACH (a, t.count) {
        const float product = diagonal[a] * at[a] - f[a];
        value[a] += (linear[a] + 0.5f * product) * at[a];
        received[a] += f[a] - own[a] * at[a];
        mass[a] += at[a];
        z[a] = finite(at[a] - inverse[a] * (linear[a] + product));
        largest[a] = larger(largest[a], z[a]);
      }
    } else {
      DENSECRF_EACH (a, t.count) {
        z[a] = finite(-inverse[a] * linear[a]);
        largest[a] = larger(largest[a], z[a]);
      }
    }
  }
  thresholds(t.scratch, kTile, t.labels, t.count, largest, tau);
  if (rest)
    DENSECRF_EACH (a, t.count)
      gained[a] = finite(-inverse[a] * rest[a]) - largest[a] > tau[a] ? 1.0f : 0.0f;
  next = 0;
  for (int i = 0; i < t.labels; ++i) {
    const float* z = t.scratch + i * kTile;
    float* to = out + i * t.n;
    if (next < count && present[next] == i) {
      const float *at = v + next++ * t.n, *before = previous + i * t.n;
      DENSECRF_EACH (a, t.count) {
        const float y = larger((z[a] - largest[a]) - tau[a], 0.0f), move = y - before[a];
        uphill[a] += (at[a] - y) * move;
        moved[a] += move < 0 ? -move : move;
        to[a] = y;
      }
    } else {
      DENSECRF_EACH (a, t.count) {
        const float y = larger((z[a] - largest[a]) - tau[a], 0.0f);
        uphill[a] -= y * y;
        gained[a] += y;
        to[a] = y;
      }
    }
  }
  for (int a = 0; a < t.count; ++a) {
    sums[0] += static_cast<double>(value[a]) +
               0.5 * static_cast<double>(received[a]) * static_cast<double>(mass[a]);
    sums[1] += static_cast<double>(strength[a]) * static_cast<double>(uphill[a]);
    sums[2] += moved[a] + gained[a];
    sums[3] += gained[a];
  }
}

void mean_field_update(const Tile& t, const float* phi, const float* filtered, std::int64_t stride,
                       const float* y, const float* own, float* out) {
  float largest[kTile], sum[kTile] = {};
  DENSECRF_EACH (a, t.count) largest[a] = -kLargest;
  for (int i = 0; i < t.labels; ++i) {
    float* z = t.scratch + i * kTile;
    const float *linear = phi + i * t.n, *f = filtered + (filtered ? i * stride : 0);
    const auto each = [&](auto&& argument) {
      DENSECRF_EACH (a, t.count) {
        z[a] = argument(a);
        largest[a] = larger(largest[a], z[a]);
      }
    };
    if (!filtered)
      each([&](int a) { return -linear[a]; });
    else if (!own)
      each([&](int a) { return f[a] - linear[a]; });
    else
      each([&](int a) { return (f[a] - linear[a]) - own[a] * y[i * t.n + a]; });
  }
  for (int i = 0; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count) {
      float& z = t.scratch[i * kTile + a];
      z = exponential(z - largest[a]);
      sum[a] += z;
    }
  DENSECRF_EACH (a, t.count) sum[a] = 1.0f / sum[a];
  for (int i = 0; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count) out[i * t.n + a] = t.scratch[i * kTile + a] * sum[a];
}

void messages(const Tile& t, const float* filtered, const float* y, const float* own, float* out) {
  float sum[kTile] = {};
  for (int i = 0; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count) {
      const float m = filtered[i * t.n + a] - own[a] * y[i * t.n + a];
      t.scratch[i * kTile + a] = m;
      sum[a] += m;
    }
  for (int i = 0; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count) out[i * t.n + a] = sum[a] - t.scratch[i * kTile + a];
}

void argmax(const Tile& t, const float* z, std::int64_t* out) {
  float most[kTile];
  std::int32_t best[kTile];
  DENSECRF_EACH (a, t.count) {
    most[a] = z[a];
    best[a] = 0;
  }
  for (int i = 1; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count) {
      const bool more = z[i * t.n + a] > most[a];
      most[a] = more ? z[i * t.n + a] : most[a];
      best[a] = more ? i : best[a];
    }
  DENSECRF_EACH (a, t.count) out[a] = best[a];
}

void icm_moves(const Tile& t, const float* phi, const float* received, std::int64_t stride,
               const std::int64_t* present, int count, const float* others,
               const std::int64_t* labels, std::int64_t* best, float* gain, double* sums) {
  std::int32_t now[kTile], then[kTile] = {};
  float least[kTile], unary[kTile] = {}, pairwise[kTile] = {};
  DENSECRF_EACH (a, t.count) {
    now[a] = static_cast<std::int32_t>(labels[a]);
    least[a] = kLargest;
  }
  int next = 0;
  for (std::int32_t i = 0; i < t.labels; ++i) {
    const float* row = others;
    if (next < count && present[next] == i) row = received + next++ * stride;
    DENSECRF_EACH (a, t.count) {
      const bool mine = now[a] == i;
      const float cost = phi[i * t.n + a] + row[a];
      unary[a] = mine ? phi[i * t.n + a] : unary[a];
      pairwise[a] = mine ? row[a] : pairwise[a];
      then[a] = cost < least[a] ? i : then[a];
      least[a] = smaller(least[a], cost);
    }
  }
  for (int a = 0; a < t.count; ++a) {
    gain[a] = unary[a] + pairwise[a] - least[a];
    best[a] = gain[a] > 0 ? then[a] : now[a];
    sums[0] += unary[a];
    sums[1] += pairwise[a];
    sums[2] += gain[a] > 0 ? 1.0 : 0.0;
  }
}

void lmo(const Tile& t, const float* linear, const float* h, const float* c, const float* y,
         std::int64_t* best, double* sums) {
  float least[kTile];
  std::int32_t where[kTile] = {};
  double along[kTile] = {}, objective[kTile] = {};
  DENSECRF_EACH (a, t.count) least[a] = kLargest;
  for (std::int32_t i = 0; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count) {
      const float own = y[i * t.n + a], product = h[i * t.n + a] + c[a] * own;
      const float g = linear[i * t.n + a] + product;
      where[a] = g < least[a] ? i : where[a];
      least[a] = smaller(least[a], g);
      along[a] += static_cast<double>(g) * static_cast<double>(own);
      objective[a] +=
          (static_cast<double>(linear[i * t.n + a]) + 0.5 * static_cast<double>(product)) *
          static_cast<double>(own);
    }
  for (int a = 0; a < t.count; ++a) {
    best[a] = where[a];
    sums[0] += along[a] - static_cast<double>(least[a]);
  }
  sums[1] += total(objective, t.count);
}

void step_to_vertex(const Tile& t, const std::int64_t* labels, const float* y, float step,
                    float* out) {
  std::int32_t vertex[kTile];
  DENSECRF_EACH (a, t.count) vertex[a] = static_cast<std::int32_t>(labels[a]);
  for (std::int32_t i = 0; i < t.labels; ++i)
    DENSECRF_EACH (a, t.count) {
      const float own = y[i * t.n + a];
      out[i * t.n + a] = own + step * ((vertex[a] == i ? 1.0f : 0.0f) - own);
    }
}

}  // namespace

extern const PixelKernels DENSECRF_CONCAT(pixel_kernels_, DENSECRF_ISA);
const PixelKernels DENSECRF_CONCAT(pixel_kernels_, DENSECRF_ISA) = {
    project, descend,   extrapolate, quadratic_step, mean_field_update, messages,
    argmax,  icm_moves, lmo,         step_to_vertex};

}  // namespace densecrf
