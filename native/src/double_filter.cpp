#include "densecrf/double_filter.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace densecrf {

namespace {

constexpr int kColumns = 8;  // of a slab, side by side at each vertex
constexpr std::int64_t kGrain = 1024;

double scale_of(const Lattice& lattice) {
  return 1 / (1 + std::ldexp(1.0, -lattice.dimension()));
}

// Values at the vertices, kColumns at a time.
struct Slab {
  Buffer<double> values;
  explicit Slab(std::int64_t vertices) : values(vertices * kColumns) {}
  double* row(std::int64_t v) { return values.data() + v * kColumns; }
  const double* row(std::int64_t v) const { return values.data() + v * kColumns; }
};

// out_v = own_v + ½ (next + previous) along one axis, in place.
void blur_axis(const Topology& t, int axis, Slab& slab) {
  const Topology::Lines lines = t.lines_of(axis);
  const double zeros[kColumns] = {};
  for (std::int64_t i = 1; i < lines.length; ++i) {
    double previous[kColumns] = {};
    for (; lines.begin[i] != t.vertices; ++i) {
      double* own = slab.row(lines.begin[i]);
      const std::int32_t next = lines.begin[i + 1];
      const double* following = next == t.vertices ? zeros : slab.row(next);
      for (int c = 0; c < kColumns; ++c) {
        const double value = own[c];
        own[c] = value + 0.5 * (following[c] + previous[c]);
        previous[c] = value;
      }
    }
  }
}

void blur(const Topology& t, bool reversed, Slab& slab) {
  for (int i = 0; i <= t.dimension; ++i) blur_axis(t, reversed ? t.dimension - i : i, slab);
}

// The values of some columns at all vertices, blurred in both orders.
class Blurred {
 public:
  // splat(v, row) sets a vertex's columns, whole slabs of them.
  template <class Splat>
  Blurred(const Topology& t, int columns, Team& team, Splat&& splat) {
    const int slabs = (columns + kColumns - 1) / kColumns;
    for (int s = 0; s < 2 * slabs; ++s) slabs_.emplace_back(t.vertices);
    team.run(t.vertices, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<double> row(static_cast<std::size_t>(slabs) * kColumns);
      for (std::int64_t v = begin; v < end; ++v) {
        std::fill(row.begin(), row.end(), 0.0);
        splat(v, row.data());
        for (int s = 0; s < 2 * slabs; ++s)
          std::copy_n(row.data() + s / 2 * kColumns, kColumns, slabs_[s].row(v));
      }
    });
    team.run(2 * slabs, 1, [&](std::int64_t s, std::int64_t, int) {
      blur(t, s % 2 == 1, slabs_[static_cast<std::size_t>(s)]);
    });
  }

  // Twice the symmetrised value.
  double twice(std::int64_t v, int column) const {
    const std::size_t s = static_cast<std::size_t>(2 * (column / kColumns));
    const int c = column % kColumns;
    return slabs_[s].row(v)[c] + slabs_[s + 1].row(v)[c];
  }

 private:
  std::vector<Slab> slabs_;
};

// With t = h + f, the weights of the masses C_h, C_{h+1}, C_{h+2} at or above a level; column q of
// the rows holds C_{q+1}.
struct Taps {
  int h;
  double f;
  explicit Taps(double t) : h(static_cast<int>(t)), f(t - h) {}

  // The sum over the columns that there are, of value(q).
  template <class Value>
  double sum(int columns, Value&& value) const {
    double total = h < columns ? value(h) : 0.0;
    if (h > 0) total += (1 - f) * value(h - 1);
    if (f > 0 && h + 1 < columns) total += f * value(h + 1);
    return total;
  }
};

// The levels of a channel, counted from the lowest that it reaches; returns how many ramps lie
// between that and the highest.
int level_of(const float* scores, const float* offsets, std::int64_t n, DoubleLevels levels,
             double* t) {
  double least = levels.count, most = 0;
  for (std::int64_t a = 0; a < n; ++a) {
    const double u = static_cast<double>(scores[a]) + (offsets ? offsets[a] : 0.0f);
    const double open = (u - levels.low) * levels.scale;
    t[a] = open > 0 ? std::min<double>(open, levels.count - 1) : 0.0;
    if (levels.hard) t[a] = std::floor(t[a]);
    least = std::min(least, t[a]);
    most = std::max(most, t[a]);
  }
  if (!(least < most)) return 0;
  const double first = std::floor(least);
  for (std::int64_t a = 0; a < n; ++a) t[a] -= first;
  return static_cast<int>(std::ceil(most) - first);
}

}  // namespace

void apply_double(const std::vector<DoubleTerm>& terms, const double* in, double* out, int channels,
                  Team& team) {
  const std::int64_t n = terms.front().lattice->pixels();
  std::fill(out, out + channels * n, 0.0);
  for (const DoubleTerm& term : terms) {
    const Lattice& lattice = *term.lattice;
    const Topology& t = *lattice.topology;
    const double factor = 0.5 * term.weight * scale_of(lattice);
    for (int first = 0; first < channels; first += kColumns) {
      const int count = std::min(kColumns, channels - first);
      const double* planes = in + first * n;
      const Blurred blurred(t, count, team, [&](std::int64_t v, double* row) {
        for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e)
          for (int c = 0; c < count; ++c)
            row[c] += lattice.entry_weight[e] * planes[c * n + t.entry_pixel[e]];
      });
      team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t a = begin; a < end; ++a)
          for (int c = 0; c < count; ++c) {
            double sum = 0;
            for (int k = 0; k <= t.dimension; ++k)
              sum += lattice.corner_weight[k * n + a] * blurred.twice(t.corner[k * n + a], c);
            out[(first + c) * n + a] += factor * sum;
          }
      });
    }
  }
}

void ordered_double(const std::vector<DoubleTerm>& terms, const double* mass, const float* scores,
                    const float* offsets, double* out, int channels, DoubleLevels levels,
                    Team& team) {
  const std::int64_t n = terms.front().lattice->pixels();
  std::vector<double> level(static_cast<std::size_t>(n));
  for (int channel = 0; channel < channels; ++channel) {
    double* result = out + channel * n;
    std::fill(result, result + n, 0.0);
    const int ramps = level_of(scores + channel * n, offsets ? offsets + channel * n : nullptr, n,
                               levels, level.data());
    if (ramps == 0) continue;
    for (const DoubleTerm& term : terms) {
      const Lattice& lattice = *term.lattice;
      const Topology& t = *lattice.topology;
      const double factor = 0.5 * term.weight * scale_of(lattice);
      // A pixel of level h + f adds to levels h and h + 1; what is at or above a level is summed
      // from the highest down.
      const Blurred blurred(t, ramps, team, [&](std::int64_t v, double* row) {
        for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e) {
          const Taps own(level[static_cast<std::size_t>(t.entry_pixel[e])]);
          const double weight = lattice.entry_weight[e];
          if (own.h > 0) row[own.h - 1] += (1 - own.f) * weight;
          if (own.f > 0) row[own.h] += own.f * weight;
        }
        for (int q = ramps - 1; q > 0; --q) row[q - 1] += row[q];
      });
      team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t a = begin; a < end; ++a) {
          const Taps own(level[static_cast<std::size_t>(a)]);
          double sum = 0;
          for (int k = 0; k <= t.dimension; ++k) {
            const std::int32_t v = t.corner[k * n + a];
            sum += lattice.corner_weight[k * n + a] *
                   own.sum(ramps, [&](int q) { return blurred.twice(v, q); });
          }
          result[a] -= factor * sum;
        }
      });
    }
    for (std::int64_t a = 0; a < n; ++a) {  // C_0 is the mass: all of it, or f of it at h = 0
      const Taps own(level[static_cast<std::size_t>(a)]);
      result[a] += own.h > 0 ? mass[a] : own.f * mass[a];
    }
  }
}

// With s_i the splatted indicator of label i and t_i = Σ_j μ_ij s_j, Σ_i ⟨s_i, k t_i⟩ is the same
// for k and for its transpose: one order of the blurs is enough, and nothing needs to be sliced.
double pairs_double(const std::vector<DoubleTerm>& terms, const std::int64_t* x, int labels,
                    const float* costs, Team& team) {
  const std::int64_t n = terms.front().lattice->pixels();
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
  std::vector<double> parts(terms.size() * static_cast<std::size_t>(blocks));
  team.run(static_cast<std::int64_t>(parts.size()), 1, [&](std::int64_t task, std::int64_t, int) {
    const DoubleTerm& term = terms[static_cast<std::size_t>(task / blocks)];
    const Lattice& lattice = *term.lattice;
    const Topology& t = *lattice.topology;
    const int first = static_cast<int>(task % blocks) * kColumns;
    const int columns = std::min(kColumns, count - first);
    Slab own(t.vertices), mixed(t.vertices);
    for (std::int64_t v = 0; v < t.vertices; ++v) {
      double *s = own.row(v), *m = mixed.row(v), all = 0;
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
    blur(t, false, mixed);
    double sum = 0;
    for (std::int64_t v = 0; v < t.vertices; ++v) {
      const double *s = own.row(v), *m = mixed.row(v);
      for (int c = 0; c < columns; ++c) sum += s[c] * m[c];
    }
    parts[static_cast<std::size_t>(task)] = term.weight * scale_of(lattice) * sum;
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

}  // namespace densecrf
