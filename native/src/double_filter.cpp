#include "densecrf/double_filter.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "column_groups.hpp"
#include "densecrf/entries.hpp"

namespace densecrf {

namespace {

constexpr int kBatch = 48;          // columns at most, unless one channel needs more
constexpr std::int64_t kTile = 64;  // pixels that are sliced together

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
      : end_(static_cast<std::size_t>(n)),
        chunks_(static_cast<std::size_t>((n + kGrain - 1) / kGrain)) {
    const int spans = batch.size();
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<Active> chunk;
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
          end_[first + a] = static_cast<std::int32_t>(chunk.size());
        }
      }
      // A copy has no more memory than it needs.
      chunks_[static_cast<std::size_t>(begin / kGrain)] = std::vector<Active>(chunk);
    });
  }
  std::span<const Active> of(std::int64_t pixel) const {
    const Active* chunk = chunks_[static_cast<std::size_t>(pixel / kGrain)].data();
    return {chunk + (pixel % kGrain == 0 ? 0 : end_[pixel - 1]), chunk + end_[pixel]};
  }

 private:
  std::vector<std::int32_t> end_;  // of each pixel's, in its chunk
  std::vector<std::vector<Active>> chunks_;
};

// Filters rows of kColumns numbers; use(rows, begin, end) gets those of some pixels.
template <class Use>
void filter_rows(const LatticeSum& sum, const double* rows, Team& team, Use&& use) {
  std::vector<ColumnGroups> blurred;
  for (const auto& term : sum.terms)
    blurred.push_back(blurred_twice(
        *term.lattice->topology, kColumns, team,
        [&](ColumnGroups& forward, std::int64_t begin, std::int64_t end) {
          row_kernels().splat_doubles(term.lattice->view(), rows,
                                      forward.group(0) + begin * kColumns, begin, end);
        }));
  team.run(sum.pixels(), kTile, [&](std::int64_t begin, std::int64_t end, int) {
    double filtered[kTile * kColumns];
    for (std::size_t i = 0; i < blurred.size(); ++i)
      row_kernels().slice_doubles(sum.terms[i].lattice->view(), blurred[i].group(0),
                                  factor_of(sum.terms[i]), i > 0, filtered, begin, end);
    use(filtered, begin, end);
  });
}

// The blurred rows of a batch on one lattice.
struct Blurred {
  const Lattice* lattice;
  double factor;
  ColumnGroups twice;

  // A column at pixel `a`, without the factor.
  double sliced(int column, std::int64_t a) const {
    const Topology& t = *lattice->topology;
    const double* rows = twice.column(column);
    double filtered = 0;
    for (std::int64_t k = a; k < (t.dimension + 1) * t.pixels; k += t.pixels)
      filtered += lattice->corner_weight[k] * rows[std::int64_t{t.corner[k]} * kColumns];
    return filtered;
  }
};

Blurred blurred_batch(const LatticeSum::Term& term, const Batch& batch, const ActiveLevels& active,
                      Team& team) {
  const Lattice& lattice = *term.lattice;
  const Topology& t = *lattice.topology;
  const int size = batch.size();
  const auto splat = [&](ColumnGroups& forward, std::int64_t begin, std::int64_t end) {
    std::vector<double> row(static_cast<std::size_t>(forward.width()));
    std::vector<double> masses(static_cast<std::size_t>(batch.places));
    for (std::int64_t v = begin; v < end; ++v) {
      std::fill(masses.begin(), masses.end(), 0.0);
      for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e) {
        const double weight = lattice.entry_weight[e];
        for (const Active& own : active.of(t.entry_pixel[e])) {
          masses[own.place] += (1 - own.f) * weight;
          masses[own.place + 1] += own.f * weight;
        }
      }
      for (int i = 0; i < size; ++i) {  // from masses of levels to masses at or above them
        const double* level = masses.data() + batch.place[i];
        double above = 0;
        for (int q = batch.spans[i].slots; q > 0; --q) row[batch.column(i, q)] = above += level[q];
      }
      forward.set(v, row.data());
    }
  };
  return {&lattice, factor_of(term), blurred_twice(t, batch.columns, team, splat)};
}

// (1 - f) C_h + C_{h+1} + f C_{h+2} of one pixel, h > 0.
double above(const Active& own, const Batch& batch, const Blurred& blurred, std::int64_t a) {
  const int slots = batch.spans[static_cast<std::size_t>(own.span)].slots;
  const int h = own.place - batch.place[static_cast<std::size_t>(own.span)];
  const double share[3] = {1 - own.f, 1.0, own.f};
  double sum = 0;
  for (int i = 0; i < 3; ++i)
    if (h + i <= slots && share[i] != 0)
      sum += share[i] * blurred.sliced(batch.column(own.span, h + i), a);
  return blurred.factor * sum;
}

// The channels that have an order. Their levels are held within those of the extents.
std::vector<Span> spans_of(const float* extents, int channels, const LevelsOf<double>& levels) {
  std::vector<Span> spans;
  for (int c = 0; c < channels; ++c) {
    const double least = levels.of(extents[2 * c]);
    const double most = levels.of(extents[2 * c + 1]);
    const double lowest = std::floor(least);
    if (least < most)
      spans.push_back({c, static_cast<int>(std::ceil(most) - lowest), lowest, least, most});
  }
  return spans;
}

// Sets the planes of `out` that belong to a batch. level(span, pixel) counts from the span's
// lowest.
template <class LevelOf>
void ordered_batch(const LatticeSum& sum, const double* mass, const LevelOf& level, double* out,
                   const Batch& batch, Team& team) {
  const std::int64_t n = sum.pixels();
  const int size = batch.size();
  const ActiveLevels active(n, batch, team,
                            [&](int i, std::int64_t a) { return level(batch.spans[i], a); });
  std::vector<Blurred> blurred;
  for (const auto& term : sum.terms) blurred.push_back(blurred_batch(term, batch, active, team));
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
          if (own.place > batch.place[static_cast<std::size_t>(own.span)]) {
            result = mass[a];  // C_0 is the mass
            for (const Blurred& each : blurred) result -= above(own, batch, each, a);
          } else {  // -C_1 is there already, f (C_0 - C_2) is not
            double second = 0;
            if (span.slots > 1)
              for (const Blurred& each : blurred)
                second += each.factor * each.sliced(batch.column(own.span, 2), a);
            result += own.f * (mass[a] - second);
          }
        }
    }
  });
}

// The same for at most kColumns spans of one cell, t_a m_a - Σ_b K_ab t_b, whatever is active.
template <class LevelOf>
void ordered_cells(const LatticeSum& sum, const double* mass, const LevelOf& level, double* out,
                   std::span<const Span> spans, Team& team) {
  const std::int64_t n = sum.pixels();
  const auto size = static_cast<int>(spans.size());
  Buffer<double> rows(n * kColumns);
  team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::fill(&rows[begin * kColumns], rows.data() + end * kColumns, 0.0);
    for (int c = 0; c < size; ++c)
      for (std::int64_t a = begin; a < end; ++a) rows[a * kColumns + c] = level(spans[c], a);
  });
  filter_rows(sum, rows.data(), team,
              [&](const double* filtered, std::int64_t begin, std::int64_t end) {
                for (int c = 0; c < size; ++c)
                  for (std::int64_t a = begin; a < end; ++a)
                    out[spans[c].channel * n + a] =
                        rows[a * kColumns + c] * mass[a] - filtered[(a - begin) * kColumns + c];
              });
}

}  // namespace

void apply_double(const LatticeSum& sum, const double* in, double* out, int channels, Team& team) {
  const std::int64_t n = sum.pixels();
  Buffer<double> rows(n * kColumns);
  for (int first = 0; first < channels; first += kColumns) {
    const int count = std::min(kColumns, channels - first);
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      std::fill(&rows[begin * kColumns], rows.data() + end * kColumns, 0.0);
      for (int c = 0; c < count; ++c)
        for (std::int64_t a = begin; a < end; ++a) rows[a * kColumns + c] = in[(first + c) * n + a];
    });
    filter_rows(sum, rows.data(), team,
                [&](const double* filtered, std::int64_t begin, std::int64_t end) {
                  for (int c = 0; c < count; ++c)
                    for (std::int64_t a = begin; a < end; ++a)
                      out[(first + c) * n + a] = filtered[(a - begin) * kColumns + c];
                });
  }
}

void ordered_double(const LatticeSum& sum, const double* mass, const float* scores,
                    const float* offsets, const float* extents, double* out, int channels,
                    LevelsOf<double> levels, Team& team) {
  const std::int64_t n = sum.pixels();
  std::vector<Span> spans = spans_of(extents, channels, levels);
  for (int c = 0; c < channels; ++c)
    if (std::ranges::find(spans, c, &Span::channel) == spans.end())
      std::fill_n(out + c * n, n, 0.0);
  if (sum.terms.empty()) {
    std::fill_n(out, channels * n, 0.0);
    spans.clear();
  }
  const auto level = [&](const Span& span, std::int64_t a) {
    const std::int64_t place = span.channel * n + a;
    const double score = double{scores[place]} + (offsets ? offsets[place] : 0.0f);
    return std::clamp(levels.of(score), span.least, span.most) - span.lowest;
  };
  const auto several = std::stable_partition(spans.begin(), spans.end(),
                                             [](const Span& span) { return span.slots == 1; });
  for (auto at = spans.begin(); at != several;) {
    const auto last = at + std::min<std::ptrdiff_t>(kColumns, several - at);
    ordered_cells(sum, mass, level, out, {at, last}, team);
    at = last;
  }
  for (auto at = several; at != spans.end();) {
    auto last = at;  // one span at least, and more while their columns are no more than kBatch
    for (int columns = 0; last != spans.end(); ++last)
      if ((columns += last->slots) > kBatch && last != at) break;
    ordered_batch(sum, mass, level, out, Batch({at, last}), team);
    at = last;
  }
  if (sum.entries)
    sum.entries->add_ordered_double(scores, offsets, extents, out, channels, levels, team);
}

}  // namespace densecrf
