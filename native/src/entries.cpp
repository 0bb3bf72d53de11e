#include "densecrf/entries.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "deterministic_sums.hpp"
#include "level_rows.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kGrain = 512;
constexpr std::int64_t kSample = 256;  // pixels by which rows are judged before all are made
constexpr int kDoubles = RowKernels::kDoubles;

// Numbers at a few places, in a table of hashed keys.
class SparseVector {
 public:
  struct Item {
    std::int32_t key;
    double value;
  };

  SparseVector() : slots_(256, kFree) {}

  void clear() {
    std::fill(slots_.begin(), slots_.end(), kFree);
    items_.clear();
  }
  void add(std::int32_t key, double value) {
    std::int32_t& slot = slots_[find(key)];
    if (slot != kFree) {
      items_[static_cast<std::size_t>(slot)].value += value;
      return;
    }
    slot = static_cast<std::int32_t>(items_.size());
    items_.push_back({key, value});
    if (2 * items_.size() > slots_.size()) grow();
  }
  std::vector<Item>& items() { return items_; }

 private:
  static constexpr std::int32_t kFree = -1;

  std::size_t find(std::int32_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = (static_cast<std::uint32_t>(key) * 2654435769u >> 7) & mask;
    while (slots_[slot] != kFree && items_[static_cast<std::size_t>(slots_[slot])].key != key)
      slot = (slot + 1) & mask;
    return slot;
  }
  void grow() {
    slots_.assign(2 * slots_.size(), kFree);
    for (std::size_t i = 0; i < items_.size(); ++i)
      slots_[find(items_[i].key)] = static_cast<std::int32_t>(i);
  }

  std::vector<Item> items_;
  std::vector<std::int32_t> slots_;  // numbers of items; a power of two of them
};

// Rows of ½ (k + kᵀ) for the lattice's filter k. The blurs of one order lead from a pixel's corners
// to the vertices that it reads; those of the other order are the transposed.
class RowMaker {
 public:
  explicit RowMaker(const Lattice& lattice)
      : lattice_(lattice), t_(*lattice.topology), entries_(t_.row_begin.data()) {}

  // Adds factor · row `a`, unless that has more than `most` entries: then false.
  bool add(std::int64_t a, double factor, std::int64_t most, SparseVector& row) {
    const double scale = 0.5 * factor / (1 + std::ldexp(1.0, -t_.dimension));
    for (const bool reversed : {false, true}) {
      blur(a, reversed);
      std::int64_t met = 0;  // a pixel is met at each of its corners at most
      for (const auto& [v, value] : vertices_.items()) met += entries_[v + 1] - entries_[v];
      if (met > most * (t_.dimension + 1)) return false;
      for (const auto& [v, value] : vertices_.items())
        for (std::int64_t e = entries_[v]; e < entries_[v + 1]; ++e)
          row.add(t_.entry_pixel[e], scale * value * lattice_.entry_weight[e]);
    }
    return true;
  }

 private:
  void blur(std::int64_t a, bool reversed) {
    vertices_.clear();
    for (int k = 0; k <= t_.dimension; ++k)
      vertices_.add(t_.corner[k * t_.pixels + a], lattice_.corner_weight[k * t_.pixels + a]);
    for (int i = 0; i <= t_.dimension; ++i) {
      const std::int32_t* axis = t_.axis(reversed ? t_.dimension - i : i);
      before_ = vertices_.items();
      for (const auto& [v, value] : before_)
        for (int side = 0; side < 2; ++side)
          if (const std::int32_t next = axis[2 * std::int64_t{v} + side]; next != t_.vertices)
            vertices_.add(next, 0.5 * value);
    }
  }

  const Lattice& lattice_;
  const Topology& t_;
  const std::int64_t* entries_;
  SparseVector vertices_;
  std::vector<SparseVector::Item> before_;
};

// The rows of some pixels, one after the other.
struct Rows {
  std::vector<std::int64_t> end;
  std::vector<SparseVector::Item> items;
};

}  // namespace

bool Entries::few(const Lattice& lattice, std::int64_t most) {
  const std::int64_t n = lattice.pixels(), sample = std::min(n, kSample);
  RowMaker maker(lattice);
  SparseVector row;
  std::int64_t met = 0;
  for (std::int64_t i = 0; i < sample; ++i) {
    row.clear();
    if (!maker.add(i * n / sample, 1.0, most * sample, row)) return false;
    met += static_cast<std::int64_t>(row.items().size());
    if (met > most * sample) return false;
  }
  return true;
}

Entries::Entries(const std::vector<LatticeSum::Term>& terms, Team& team) {
  const std::int64_t n = terms.front().lattice->pixels();
  std::vector<Rows> chunks(static_cast<std::size_t>((n + kGrain - 1) / kGrain));
  team.run(n, kGrain, [&](std::int64_t first, std::int64_t last, int thread) {
    Rows rows;
    std::vector<RowMaker> makers;
    for (const auto& term : terms) makers.emplace_back(*term.lattice);
    SparseVector row;
    for (std::int64_t a = first; a < last; ++a) {
      row.clear();
      for (std::size_t i = 0; i < terms.size(); ++i)
        makers[i].add(a, terms[i].weight, INT32_MAX, row);
      auto& items = row.items();
      std::ranges::sort(items, {}, &SparseVector::Item::key);
      std::ranges::copy_if(items, std::back_inserter(rows.items),
                           [](const auto& item) { return item.value > 0; });
      rows.end.push_back(static_cast<std::int64_t>(rows.items.size()));
      team.checkpoint(thread);
    }
    chunks[static_cast<std::size_t>(first / kGrain)] = std::move(rows);
  });
  begin.push_back(0);
  for (const Rows& rows : chunks) {
    const std::int64_t before = begin.back();
    for (const std::int64_t end : rows.end) begin.push_back(before + end);
  }
  pixel.reset(begin.back());
  value.reset(begin.back());
  std::int64_t at = 0;
  for (Rows& rows : chunks) {
    for (const auto& item : rows.items) {
      pixel[at] = item.key;
      value[at++] = item.value;
    }
    rows = {};
  }
}

void Entries::ordered(const Scores& scores, Output out, Team& team) const {
  const std::int64_t n = pixels();
  std::vector<LevelRange> ranges;
  for (int c = 0; c < scores.channels; ++c) {
    const LevelRange range = LevelRange::of(c, scores.extents + 2 * c, scores.levels);
    if (range.slots > 0) ranges.push_back(range);
  }
  constexpr std::size_t kMost = LanePlan::kMostLanes;
  Buffer<float> rows(n * row_width(static_cast<int>(std::min(kMost, ranges.size()))));
  for (std::size_t first = 0; first < ranges.size(); first += kMost) {
    const auto count = static_cast<int>(std::min(kMost, ranges.size() - first));
    const LevelRange* some = ranges.data() + first;
    const int lanes = row_width(count);
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      level_rows(scores, n, some, count, lanes, rows.data(), begin, end);
    });
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      float tile[kLevelTile * kMost];
      for (std::int64_t a = begin; a < end; a += kLevelTile) {
        const std::int64_t stop = std::min(end, a + kLevelTile);
        row_kernels().ordered_pairs(view(), rows.data(), lanes, tile, a, stop);
        add_rows(tile, some, count, lanes, out, n, a, stop);
      }
    });
  }
}

void Entries::add_ordered_double(const float* scores, const float* offsets, const float* extents,
                                 double* out, int channels, LevelsOf<double> levels,
                                 Team& team) const {
  const std::int64_t n = pixels();
  std::vector<int> moving;
  for (int c = 0; c < channels; ++c)
    if (levels.of(extents[2 * c]) < levels.of(extents[2 * c + 1])) moving.push_back(c);
  Buffer<double> rows(moving.empty() ? 0 : n * kDoubles);
  for (std::size_t first = 0; first < moving.size(); first += kDoubles) {
    const auto count = static_cast<int>(std::min<std::size_t>(kDoubles, moving.size() - first));
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      std::fill(&rows[begin * kDoubles], rows.data() + end * kDoubles, 0.0);
      for (int i = 0; i < count; ++i) {
        const int c = moving[first + static_cast<std::size_t>(i)];
        const double least = levels.of(extents[2 * c]), most = levels.of(extents[2 * c + 1]);
        for (std::int64_t a = begin; a < end; ++a) {
          const std::int64_t at = c * n + a;
          const double score = double{scores[at]} + (offsets ? offsets[at] : 0.0f);
          rows[a * kDoubles + i] = std::clamp(levels.of(score), least, most);
        }
      }
    });
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      double tile[kGrain * kDoubles];
      row_kernels().ordered_pairs_doubles(view(), rows.data(), tile, begin, end);
      for (int i = 0; i < count; ++i) {
        double* plane = out + moving[first + static_cast<std::size_t>(i)] * n;
        for (std::int64_t a = begin; a < end; ++a) plane[a] += tile[(a - begin) * kDoubles + i];
      }
    });
  }
}

double Entries::pairs(const std::int64_t* x, Team& team) const {
  return sum_over_chunks<1>(pixels(), team,
                            [&](std::int64_t first, std::int64_t last, double* sums) {
                              for (std::int64_t a = first; a < last; ++a)
                                for (std::int64_t e = begin[a]; e < begin[a + 1]; ++e)
                                  sums[0] += x[pixel[e]] == x[a] ? 0.0 : value[e];
                            })[0];
}

void Entries::add_support(const std::int32_t* label, std::int64_t first, std::int64_t last,
                          float* planes, std::int64_t stride) const {
  for (std::int64_t a = first; a < last; ++a)
    for (std::int64_t e = begin[a]; e < begin[a + 1]; ++e)
      planes[label[pixel[e]] * stride + a - first] += static_cast<float>(value[e]);
}

void Entries::add_own_support(const std::int32_t* label, std::int64_t first, std::int64_t last,
                              float* out) const {
  for (std::int64_t a = first; a < last; ++a)
    for (std::int64_t e = begin[a]; e < begin[a + 1]; ++e)
      if (label[pixel[e]] == label[a]) out[a - first] += static_cast<float>(value[e]);
}

}  // namespace densecrf
