#include "densecrf/double_filter.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>

#include "simd/row_kernels.hpp"

namespace densecrf {

namespace {

constexpr int kColumns = RowKernels::kDoubles;  // that go through all blurs together
constexpr int kBatch = 48;                      // columns at most, unless one channel needs more
constexpr std::int64_t kGrain = 1024;
constexpr std::int64_t kTile = 64;  // pixels that are sliced together

double scale_of(const Lattice& lattice) {
  return 1 / (1 + std::ldexp(1.0, -lattice.dimension()));
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

  // Blurs one group along all axes, in place: out_v = own_v + ½ (next + previous).
  void blur(bool reversed, int g, Team& team, int thread) {
    const int d = topology_.dimension;
    for (int i = 0; i <= d; ++i) {
      team.checkpoint(thread);
      const Topology::Lines lines = topology_.lines_of(reversed ? d - i : i);
      row_kernels().blur_doubles(lines.begin, lines.length, topology_.vertices, group(g));
    }
  }

 private:
  std::int64_t stride() const { return (topology_.vertices + std::int64_t{1}) * kColumns; }

  const Topology& topology_;
  int groups_;
  Buffer<double> values_;
};

// The sum of both orders' blurs of what splat(v, row, scratch) puts into a row of zeros.
template <class Splat>
ColumnGroups blurred_twice(const Topology& t, int columns, int scratch, Team& team, Splat&& splat) {
  ColumnGroups forward(t, columns), reversed(t, columns);
  team.run(t.vertices, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    const int width = forward.width();
    std::vector<double> row(static_cast<std::size_t>(width + scratch));
    for (std::int64_t v = begin; v < end; ++v) {
      std::fill_n(row.data(), width, 0.0);
      splat(v, row.data(), row.data() + width);
      forward.set(v, row.data());
      reversed.set(v, row.data());
    }
  });
  team.run(2 * forward.groups(), 1, [&](std::int64_t task, std::int64_t, int thread) {
    const auto group = static_cast<int>(task / 2);
    (task % 2 == 0 ? forward : reversed).blur(task % 2 == 1, group, team, thread);
  });
  team.run(forward.groups() * t.vertices, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto group = static_cast<int>(i / t.vertices);
      double* own = forward.group(group) + i % t.vertices * kColumns;
      const double* other = reversed.group(group) + i % t.vertices * kColumns;
      for (int c = 0; c < kColumns; ++c) own[c] += other[c];
    }
  });
  return forward;
}

// A channel whose levels differ, counted from the lowest that it reaches. C_q, the mass at or above
// level q, is stored for q = 1 .. slots.
struct Span {
  int channel;
  int slots;
  double lowest;
  double least, most;
};

// Spans side by side. In the rows that are stored come first all C_1, which every pixel reads, then
// the other columns. While a row is made, `place` + q is C_q, 0 <= q <= slots + 1.
struct Batch {
  std::vector<Span> spans;
  std::vector<int> others, place;  // by span: where C_2 is stored; where C_0 is while a row is made
  int columns = 0, places = 0;

  explicit Batch(std::vector<Span> given) : spans(std::move(given)), columns(size()) {
    for (const Span& span : spans) {
      others.push_back(columns);
      place.push_back(places);
      columns += span.slots - 1;
      places += span.slots + 2;
    }
  }
  int size() const { return static_cast<int>(spans.size()); }
  int column(int span, int q) const {
    return q == 1 ? span : others[static_cast<std::size_t>(span)] + q - 2;
  }
};

// A pixel's level h + f > 0 in one span: it belongs to the levels h and h + 1.
struct Active {
  std::int32_t span;
  std::int32_t place;  // of C_h
  double f;
};

// The pixels' levels above the lowest, pixel after pixel.
class ActiveLevels {
 public:
  // level(span, pixel) counts from the span's lowest.
  template <class LevelOf>
  ActiveLevels(std::int64_t n, const Batch& batch, Team& team, LevelOf&& level)
      : begin_(static_cast<std::size_t>(n) + 1, 0) {
    const int spans = batch.size();
    std::vector<std::vector<Active>> chunks(static_cast<std::size_t>((n + kGrain - 1) / kGrain));
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      auto& chunk = chunks[static_cast<std::size_t>(begin / kGrain)];
      std::vector<double> tile(static_cast<std::size_t>(spans * kTile));
      for (std::int64_t first = begin; first < end; first += kTile) {
        const std::int64_t count = std::min(end - first, kTile);
        for (int i = 0; i < spans; ++i)
          for (std::int64_t a = 0; a < count; ++a) tile[i * kTile + a] = level(i, first + a);
        for (std::int64_t a = 0; a < count; ++a) {
          for (int i = 0; i < spans; ++i)
            if (const double t = tile[i * kTile + a]; t > 0) {
              const auto h = static_cast<std::int32_t>(t);
              chunk.push_back({i, batch.place[i] + h, t - h});
            }
          begin_[first + a + 1] = static_cast<std::int64_t>(chunk.size());
        }
      }
    });
    for (const auto& chunk : chunks) {
      const auto before = static_cast<std::int64_t>(levels_.size());
      const std::int64_t first = (&chunk - chunks.data()) * kGrain;
      for (std::int64_t a = first; a < std::min(n, first + kGrain); ++a) begin_[a + 1] += before;
      levels_.insert(levels_.end(), chunk.begin(), chunk.end());
    }
  }
  std::span<const Active> of(std::int64_t pixel) const {
    return {levels_.data() + begin_[pixel], levels_.data() + begin_[pixel + 1]};
  }

 private:
  std::vector<std::int64_t> begin_;
  std::vector<Active> levels_;
};

// The blurred rows of a batch on one lattice.
struct Blurred {
  const Lattice* lattice;
  double factor;
  ColumnGroups twice;
};

Blurred blurred_batch(const DoubleTerm& term, const Batch& batch, const ActiveLevels& active,
                      Team& team) {
  const Lattice& lattice = *term.lattice;
  const Topology& t = *lattice.topology;
  const int size = batch.size();
  const auto splat = [&](std::int64_t v, double* row, double* masses) {
    std::fill_n(masses, batch.places, 0.0);
    for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e) {
      const double weight = lattice.entry_weight[e];
      for (const Active& own : active.of(t.entry_pixel[e])) {
        masses[own.place] += (1 - own.f) * weight;
        masses[own.place + 1] += own.f * weight;
      }
    }
    for (int i = 0; i < size; ++i) {  // from masses of levels to masses at or above them
      const double* level = masses + batch.place[i];
      double above = 0;
      for (int q = batch.spans[i].slots; q > 0; --q) row[batch.column(i, q)] = above += level[q];
    }
  };
  return {&lattice, 0.5 * term.weight * scale_of(lattice),
          blurred_twice(t, batch.columns, batch.places, team, splat)};
}

// Σ_k weight_k of (1 - f) C_h + C_{h+1} + f C_{h+2}, without C_0, of one pixel.
double above(const Active& own, const Batch& batch, const Blurred& blurred, std::int64_t a) {
  const int slots = batch.spans[static_cast<std::size_t>(own.span)].slots;
  const int h = own.place - batch.place[static_cast<std::size_t>(own.span)];
  const double share[3] = {1 - own.f, 1.0, own.f};
  const Topology& t = *blurred.lattice->topology;
  const float* weight = blurred.lattice->corner_weight.data();
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    if (h + i < 1 || h + i > slots || share[i] == 0) continue;
    const double* column = blurred.twice.column(batch.column(own.span, h + i));
    double filtered = 0;
    for (std::int64_t k = a; k < (t.dimension + 1) * t.pixels; k += t.pixels)
      filtered += weight[k] * column[std::int64_t{t.corner[k]} * kColumns];
    sum += share[i] * filtered;
  }
  return blurred.factor * sum;
}

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
void ordered_batch(const std::vector<DoubleTerm>& terms, const double* mass, const float* scores,
                   const float* offsets, double* out, const Batch& batch,
                   const DoubleLevels& levels, Team& team) {
  const std::int64_t n = terms.front().lattice->pixels();
  const int size = batch.size();
  const ActiveLevels active(n, batch, team, [&](int i, std::int64_t a) {
    const Span& span = batch.spans[i];
    const std::int64_t place = span.channel * n + a;
    const double score = double{scores[place]} + (offsets ? offsets[place] : 0.0f);
    return std::clamp(level_of(score, levels), span.least, span.most) - span.lowest;
  });
  std::vector<Blurred> blurred;
  for (const DoubleTerm& term : terms) blurred.push_back(blurred_batch(term, batch, active, team));
  team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    double rows[kTile * kColumns];
    for (std::int64_t first = begin; first < end; first += kTile) {
      const std::int64_t stop = std::min(end, first + kTile);
      for (int i = 0; i < size; i += kColumns) {  // at the lowest level: -C_1
        for (const Blurred& each : blurred)
          row_kernels().slice_doubles(each.lattice->view(), each.twice.group(i / kColumns),
                                      -each.factor, &each != blurred.data(), rows, first, stop);
        for (int c = i; c < std::min(size, i + kColumns); ++c)
          for (std::int64_t a = first; a < stop; ++a)
            out[batch.spans[c].channel * n + a] = rows[(a - first) * kColumns + c - i];
      }
      for (std::int64_t a = first; a < stop; ++a)
        for (const Active& own : active.of(a)) {
          const Span& span = batch.spans[static_cast<std::size_t>(own.span)];
          double& result = out[span.channel * n + a];
          if (span.slots > 1) {
            result = 0;
            for (const Blurred& each : blurred) result -= above(own, batch, each, a);
          }
          const bool all = own.place > batch.place[static_cast<std::size_t>(own.span)];
          result += all ? mass[a] : own.f * mass[a];  // C_0 is the mass
        }
    }
  });
}

}  // namespace

void apply_double(const std::vector<DoubleTerm>& terms, const double* in, double* out, int channels,
                  Team& team) {
  const std::int64_t n = terms.front().lattice->pixels();
  for (int first = 0; first < channels; first += kColumns) {
    const int count = std::min(kColumns, channels - first);
    for (const DoubleTerm& term : terms) {
      const Lattice& lattice = *term.lattice;
      const Topology& t = *lattice.topology;
      const ColumnGroups twice =
          blurred_twice(t, count, 0, team, [&](std::int64_t v, double* row, double*) {
            for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e)
              for (int c = 0; c < count; ++c)
                row[c] += lattice.entry_weight[e] * in[(first + c) * n + t.entry_pixel[e]];
          });
      const double factor = 0.5 * term.weight * scale_of(lattice);
      team.run(n, kTile, [&](std::int64_t begin, std::int64_t end, int) {
        double rows[kTile * kColumns];
        row_kernels().slice_doubles(lattice.view(), twice.group(0), factor, false, rows, begin,
                                    end);
        for (int c = 0; c < count; ++c)
          for (std::int64_t a = begin; a < end; ++a) {
            double& to = out[(first + c) * n + a];
            to = (&term == terms.data() ? 0.0 : to) + rows[(a - begin) * kColumns + c];
          }
      });
    }
  }
}

void ordered_double(const std::vector<DoubleTerm>& terms, const double* mass, const float* scores,
                    const float* offsets, const float* extents, double* out, int channels,
                    DoubleLevels levels, Team& team) {
  const std::int64_t n = terms.front().lattice->pixels();
  const std::vector<Span> spans = spans_of(extents, channels, levels);
  for (int c = 0; c < channels; ++c)
    if (std::ranges::find(spans, c, &Span::channel) == spans.end())
      std::fill_n(out + c * n, n, 0.0);
  for (auto at = spans.begin(); at != spans.end();) {
    auto last = at;  // one span at least, and more while their columns are no more than kBatch
    for (int columns = 0; last != spans.end(); ++last)
      if ((columns += last->slots) > kBatch && last != at) break;
    const Batch batch({at, last});
    ordered_batch(terms, mass, scores, offsets, out, batch, levels, team);
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
  team.run(static_cast<std::int64_t>(parts.size()), 1,
           [&](std::int64_t task, std::int64_t, int thread) {
             const DoubleTerm& term = terms[static_cast<std::size_t>(task / blocks)];
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
             double sum = 0;
             const double *s = own.group(0), *m = mixed.group(0);
             for (std::int64_t i = 0; i < kColumns * std::int64_t{t.vertices}; ++i)
               sum += s[i] * m[i];
             parts[static_cast<std::size_t>(task)] = term.weight * scale_of(lattice) * sum;
           });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

}  // namespace densecrf
