#include "densecrf/double_filter.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace densecrf {

namespace {

constexpr int kColumns = 8;  // of a row that go through all blurs together
constexpr int kBatch = 48;   // columns of a row at most, unless one channel alone needs more
constexpr std::int64_t kGrain = 1024;

double scale_of(const Lattice& lattice) {
  return 1 / (1 + std::ldexp(1.0, -lattice.dimension()));
}

// Rows of values at the vertices, whole groups of kColumns.
class VertexRows {
 public:
  VertexRows(std::int64_t vertices, int columns)
      : width_((columns + kColumns - 1) / kColumns * kColumns), values_(vertices * width_) {}
  double* row(std::int64_t v) { return values_.data() + v * width_; }
  const double* row(std::int64_t v) const { return values_.data() + v * width_; }
  int width() const { return width_; }
  int groups() const { return width_ / kColumns; }

  // Blurs one group of columns along all axes, in place: out_v = own_v + ½ (next + previous).
  void blur(const Topology& t, bool reversed, int group) {
    for (int i = 0; i <= t.dimension; ++i)
      blur_axis(t.lines_of(reversed ? t.dimension - i : i), t.vertices, group * kColumns);
  }

 private:
  void blur_axis(Topology::Lines lines, std::int32_t vertices, int first) {
    const double zeros[kColumns] = {};
    for (std::int64_t i = 1; i < lines.length; ++i) {
      double previous[kColumns] = {};
      for (; lines.begin[i] != vertices; ++i) {
        double* own = row(lines.begin[i]) + first;
        const std::int32_t next = lines.begin[i + 1];
        const double* following = next == vertices ? zeros : row(next) + first;
        for (int c = 0; c < kColumns; ++c) {
          const double value = own[c];
          own[c] = value + 0.5 * (following[c] + previous[c]);
          previous[c] = value;
        }
      }
    }
  }

  int width_;
  Buffer<double> values_;
};

// The sum of both orders' blurs of what splat(v, row) puts into a row of zeros.
template <class Splat>
VertexRows blurred_twice(const Topology& t, int columns, Team& team, Splat&& splat) {
  VertexRows forward(t.vertices, columns), reversed(t.vertices, columns);
  const int width = forward.width();
  team.run(t.vertices, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::fill(forward.row(begin), forward.row(end), 0.0);
    for (std::int64_t v = begin; v < end; ++v) splat(v, forward.row(v));
    std::copy(forward.row(begin), forward.row(end), reversed.row(begin));
  });
  team.run(2 * forward.groups(), 1, [&](std::int64_t task, std::int64_t, int) {
    const auto group = static_cast<int>(task / 2);
    task % 2 == 0 ? forward.blur(t, false, group) : reversed.blur(t, true, group);
  });
  team.run(t.vertices, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    const double* other = reversed.row(begin);
    double* own = forward.row(begin);
    for (std::int64_t i = 0; i < (end - begin) * width; ++i) own[i] += other[i];
  });
  return forward;
}

// A channel whose levels differ, counted from the lowest that it reaches. Column q of its part of a
// row holds C_{q+1}, the mass at or above level q + 1.
struct Span {
  int channel;
  int columns;
  double lowest;
  double least, most;
};

// Spans side by side: the first columns of all, which every pixel reads, before the others.
struct Batch {
  std::vector<Span> spans;
  std::vector<int> others;  // where a span's second column lies
  int columns = 0;

  explicit Batch(std::vector<Span> given) : spans(std::move(given)), columns(size()) {
    for (const Span& span : spans) {
      others.push_back(columns);
      columns += span.columns - 1;
    }
  }
  int size() const { return static_cast<int>(spans.size()); }
  int column(int span, int q) const {
    return q == 0 ? span : others[static_cast<std::size_t>(span)] + q - 1;
  }
};

// A pixel's level h + f > 0 in one span.
struct Active {
  int span;
  int h;
  double f;

  Active(int span_, double t) : span(span_), h(static_cast<int>(t)), f(t - h) {}

  // It adds to levels h and h + 1.
  void add(const Batch& batch, double weight, double* row) const {
    if (h > 0) row[batch.column(span, h - 1)] += (1 - f) * weight;
    if (f > 0) row[batch.column(span, h)] += f * weight;
  }
  // (1 - f) C_h + C_{h+1} + f C_{h+2}, without C_0.
  double above(const Batch& batch, const double* row) const {
    const int columns = batch.spans[static_cast<std::size_t>(span)].columns;
    double sum = h < columns ? row[batch.column(span, h)] : 0.0;
    if (h > 0) sum += (1 - f) * row[batch.column(span, h - 1)];
    if (f > 0 && h + 1 < columns) sum += f * row[batch.column(span, h + 1)];
    return sum;
  }
};

// The pixels' levels above the lowest, pixel after pixel.
class ActiveLevels {
 public:
  // level(span, pixel) counts from the span's lowest.
  template <class LevelOf>
  ActiveLevels(std::int64_t n, int spans, Team& team, LevelOf&& level)
      : begin_(static_cast<std::size_t>(n) + 1, 0),
        chunks_(static_cast<std::size_t>(n / kGrain) + 1) {
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      auto& chunk = chunks_[static_cast<std::size_t>(begin / kGrain)];
      for (std::int64_t a = begin; a < end; ++a) {
        for (int i = 0; i < spans; ++i)
          if (const double t = level(i, a); t > 0) chunk.emplace_back(i, t);
        begin_[static_cast<std::size_t>(a) + 1] = static_cast<std::int32_t>(chunk.size());
      }
    });
  }
  template <class Body>
  void each(std::int64_t pixel, Body&& body) const {
    const auto& chunk = chunks_[static_cast<std::size_t>(pixel / kGrain)];
    const std::int32_t first = pixel % kGrain ? begin_[static_cast<std::size_t>(pixel)] : 0;
    for (std::int32_t i = first; i < begin_[static_cast<std::size_t>(pixel) + 1]; ++i)
      body(chunk[static_cast<std::size_t>(i)]);
  }

 private:
  std::vector<std::int32_t> begin_;
  std::vector<std::vector<Active>> chunks_;
};

double level_of(double score, const DoubleLevels& levels) {
  const double open = (score - levels.low) * levels.scale;
  const double t = open > 0 ? std::min<double>(open, levels.count - 1) : 0.0;
  return levels.hard ? std::floor(t) : t;
}

// The channels that have an order. Their levels are held within those of the extents.
std::vector<Span> spans_of(const float* extents, int channels, const DoubleLevels& levels) {
  std::vector<Span> spans;
  for (int c = 0; c < channels; ++c) {
    const double least = level_of(extents[2 * c], levels);
    const double most = level_of(extents[2 * c + 1], levels);
    const double lowest = std::floor(least);
    if (least < most)
      spans.push_back({c, static_cast<int>(std::ceil(most) - lowest), lowest, least, most});
  }
  return spans;
}

// Sets the planes of `out` that belong to a batch.
void add_batch(const std::vector<DoubleTerm>& terms, const double* mass, const float* scores,
               const float* offsets, double* out, const Batch& batch, const DoubleLevels& levels,
               Team& team) {
  const std::int64_t n = terms.front().lattice->pixels();
  const int size = batch.size();
  const auto plane = [&](int span) { return out + batch.spans[span].channel * n; };
  const ActiveLevels active(n, size, team, [&](int i, std::int64_t a) {
    const Span& span = batch.spans[i];
    const std::int64_t place = span.channel * n + a;
    const double score = double{scores[place]} + (offsets ? offsets[place] : 0.0f);
    return std::clamp(level_of(score, levels), span.least, span.most) - span.lowest;
  });
  for (const DoubleTerm& term : terms) {
    const Lattice& lattice = *term.lattice;
    const Topology& t = *lattice.topology;
    const double factor = 0.5 * term.weight * scale_of(lattice);
    const VertexRows twice =
        blurred_twice(t, batch.columns, team, [&](std::int64_t v, double* row) {
          for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e)
            active.each(t.entry_pixel[e],
                        [&](const Active& own) { own.add(batch, lattice.entry_weight[e], row); });
          for (int i = 0; i < size; ++i)  // from masses of levels to masses at or above them
            for (int q = batch.spans[i].columns - 1; q > 0; --q)
              row[batch.column(i, q - 1)] += row[batch.column(i, q)];
        });
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<double> sums(static_cast<std::size_t>(size));
      for (std::int64_t a = begin; a < end; ++a) {
        std::fill(sums.begin(), sums.end(), 0.0);
        const auto each_corner = [&](auto&& body) {
          for (int k = 0; k <= t.dimension; ++k)
            body(double{lattice.corner_weight[k * n + a]}, twice.row(t.corner[k * n + a]));
        };
        each_corner([&](double weight, const double* row) {  // at the lowest level: C_1
          for (int i = 0; i < size; ++i) sums[i] += weight * row[i];
        });
        active.each(a, [&](const Active& own) {
          double sum = 0;
          each_corner(
              [&](double weight, const double* row) { sum += weight * own.above(batch, row); });
          sums[own.span] = sum;
        });
        for (int i = 0; i < size; ++i) plane(i)[a] -= factor * sums[i];
      }
    });
  }
  team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t a = begin; a < end; ++a)  // C_0 is the mass: all of it, or f of it at h = 0
      active.each(a, [&](const Active& own) {
        plane(own.span)[a] += own.h > 0 ? mass[a] : own.f * mass[a];
      });
  });
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
      const VertexRows twice = blurred_twice(t, count, team, [&](std::int64_t v, double* row) {
        for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e)
          for (int c = 0; c < count; ++c)
            row[c] += lattice.entry_weight[e] * planes[c * n + t.entry_pixel[e]];
      });
      team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t a = begin; a < end; ++a)
          for (int c = 0; c < count; ++c) {
            double sum = 0;
            for (int k = 0; k <= t.dimension; ++k)
              sum += lattice.corner_weight[k * n + a] * twice.row(t.corner[k * n + a])[c];
            out[(first + c) * n + a] += factor * sum;
          }
      });
    }
  }
}

void ordered_double(const std::vector<DoubleTerm>& terms, const double* mass, const float* scores,
                    const float* offsets, const float* extents, double* out, int channels,
                    DoubleLevels levels, Team& team) {
  const std::int64_t n = terms.front().lattice->pixels();
  std::fill(out, out + channels * n, 0.0);
  const std::vector<Span> spans = spans_of(extents, channels, levels);
  for (auto at = spans.begin(); at != spans.end();) {
    auto last = at;  // one span at least, and more while their columns are no more than kBatch
    for (int columns = 0; last != spans.end(); ++last)
      if ((columns += last->columns) > kBatch && last != at) break;
    const Batch batch({at, last});
    add_batch(terms, mass, scores, offsets, out, batch, levels, team);
    at = last;
  }
}

// With s_i the splatted indicator of label i and t_i = Σ_j μ_ij s_j, Σ_i ⟨s_i, k t_i⟩ is the same
// for k and for its transpose: one order of the blurs is enough, and nothing needs to be sliced.
double pairs_double(const std::vector<DoubleTerm>& terms, const std::int64_t* x, int labels,
                    const double* costs, Team& team) {
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
    VertexRows own(t.vertices, columns), mixed(t.vertices, columns);
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
    mixed.blur(t, false, 0);
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
